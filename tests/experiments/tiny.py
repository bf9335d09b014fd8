"""A budget that trains for a moment, and the command line with it: ``python -m tests.experiments.tiny reproduce …``."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from pathlib import Path

from identica.experiments.budgets import BUDGETS, Budget, R
from identica.experiments.catalogue import DeviceKind
from identica.experiments.clica.budgets import RECIPES, SyntheticRecipe
from identica.training.checkpoint import FILE_NAME

RECIPE = SyntheticRecipe(
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
TINY, SLOW = Budget("for tests", seeds=2), Budget("for tests", seeds=1)
#: Long enough to be interrupted.
SLOW_RECIPE = replace(RECIPE, steps=600)


def everywhere(recipe: R) -> dict[DeviceKind, R]:
    """The same on every kind of device."""
    return {"cpu": recipe, "cuda": recipe}


def unfinished(out: Path) -> list[Path]:
    return list(out.glob(f".runs/*/*/{FILE_NAME}"))


if __name__ == "__main__":
    from identica.cli.app import run

    # A shell starts its background jobs with SIGINT ignored, and a child inherits that from the tests.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    BUDGETS.update(tiny=TINY, slow=SLOW)
    RECIPES.by_budget.update(tiny=everywhere(RECIPE), slow=everywhere(SLOW_RECIPE))
    sys.exit(run())
