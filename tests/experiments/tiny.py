"""A budget that trains for a moment, and the command line with it: ``python -m tests.experiments.tiny reproduce …``."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace

from identica.experiments.budgets import BUDGETS, Budget, Recipe

RECIPE = Recipe(
    encoder="residual",
    width=8,
    blocks=1,
    steps=6,
    supervised_steps=4,
    batch_size=32,
    lr=1e-3,
    supervised_lr=1e-3,
    candidates=20,
    evaluations=2,
    evaluation_samples=256,
)
TINY = Budget("for tests", {"cpu": RECIPE, "cuda": RECIPE}, seeds=2)
#: Long enough to be interrupted.
_SLOW = replace(RECIPE, steps=600)
SLOW = Budget("for tests", {"cpu": _SLOW, "cuda": _SLOW}, seeds=1)

if __name__ == "__main__":
    from identica.cli.app import run

    # A shell starts its background jobs with SIGINT ignored, and a child inherits that from the tests.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    BUDGETS.update(tiny=TINY, slow=SLOW)
    sys.exit(run())
