"""Warnings as people read them: one sentence each, without the line of code that raised them."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """While it lasts, a warning is ``Warning: sentence`` on stderr, once however often it is given."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            print(f"Warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
