"""Numbers at the border: whatever a caller may mean by one, as a plain Python number."""

from __future__ import annotations

import math
import operator
from typing import Any


def whole_number(value: Any, name: str, least: int = 1) -> int:
    """``value`` as an ``int`` of at least ``least``; numpy's whole numbers count, booleans and 2.0 do not.

    >>> whole_number(2.7, "dim")
    Traceback (most recent call last):
    ValueError: dim must be a whole number of at least 1, not 2.7.
    """
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}.")
    return number


def as_float(value: Any) -> float:
    """``value`` as a ``float``; NaN, which no check of a range lets pass, if it is not a number.

    >>> as_float(3), as_float("3")
    (3.0, nan)
    """
    try:
        return math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return math.nan
