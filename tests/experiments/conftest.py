"""What tests of ``reproduce`` share: budgets of a few steps, and what was trained with them."""

from __future__ import annotations

from typing import Any

import pytest

from identica.experiments.budgets import BUDGETS
from identica.experiments.clica.budgets import RECIPES
from identica.experiments.running import seeds as training
from tests.experiments.tiny import RECIPE, SLOW, SLOW_RECIPE, TINY, everywhere


@pytest.fixture
def tiny_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUDGETS, "tiny", TINY)
    monkeypatch.setitem(BUDGETS, "slow", SLOW)
    monkeypatch.setitem(RECIPES.by_budget, "tiny", everywhere(RECIPE))
    monkeypatch.setitem(RECIPES.by_budget, "slow", everywhere(SLOW_RECIPE))
    monkeypatch.delenv("IDENTICA_DEBUG", raising=False)
    monkeypatch.setenv("IDENTICA_COMMIT", "0123abc")
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The loss of every seed that was trained, in order."""
    calls: list[str] = []
    real = training.train_many

    def counted(processes: Any, encoders: Any, objectives: Any, *args: Any, **settings: Any) -> Any:
        calls.extend(type(objective).__name__ for objective in objectives)
        return real(processes, encoders, objectives, *args, **settings)

    monkeypatch.setattr(training, "train_many", counted)
    return calls
