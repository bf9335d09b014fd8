"""The command ``identica``, also ``python -m identica``.

One file a command; :mod:`identica.cli.app` gathers them. A command imports what is heavy (torch) when it
runs, so that ``identica --help`` answers at once.
"""

from __future__ import annotations

import os
import sys

from identica.doctor import how_to_install


def main() -> None:
    """Entry point of ``identica`` and ``python -m identica``."""
    # Idle OpenMP threads sleep instead of spinning: on a machine that is also doing something else,
    # spinning makes a training step ten times slower. Read when torch is loaded, so set it before.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        from identica.cli.app import run
    except ModuleNotFoundError as error:  # typer itself is not there: the doctor cannot be called, so speak for it
        if error.name is None or how_to_install(error.name) is None:
            raise
        sys.exit(f"Error: {how_to_install(error.name)}")
    sys.exit(run())
