"""How much to spend on a row: budgets by name, and the recipes that stand behind the names.

Three budgets. ``smoke`` runs everything in seconds and reaches nothing; ``fast`` is our recipe; ``paper`` is the
authors' protocol to the letter. What they mean for a kind of rows is in ``budgets.py`` in the folder of its paper: a
:class:`Recipe` of its own with the settings that its plan reads, and the :class:`Recipes` by budget and device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from identica.experiments.catalogue import DeviceKind, Entry
from identica.names import no_such
from identica.training.config import Optimizer, Precision, Schedule


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The settings that all plans read; kinds of rows have more.

    batch_size, optimizer, precision: as in ``TrainConfig``.
    evaluations: how often a run is scored while it trains.
    evaluation_samples: on how many latents, then and in the end.
    """

    batch_size: int
    optimizer: Optimizer = "adam"
    precision: Precision = "fp32"
    evaluations: int = 20
    evaluation_samples: int = 4096


@dataclass(frozen=True, kw_only=True)
class VectorRecipe(Recipe):
    """A recipe for observations that are vectors, on which an encoder is trained in one run.

    encoder, width, blocks: "residual" of that kind, or "mlp", the papers' perceptron, which has its own.
    steps, lr, schedule: as in ``TrainConfig``.
    """

    encoder: Literal["residual", "mlp"]
    steps: int
    lr: float
    schedule: Schedule = "cosine"
    width: int = 200
    blocks: int = 3


@dataclass(frozen=True)
class Budget:
    """What it is for, and how many seeds it trains by default: None for as many as the paper had."""

    purpose: str
    seeds: int | None = None


BUDGETS: dict[str, Budget] = {
    "smoke": Budget("does everything run? Seconds on two CPU cores", seeds=1),
    "fast": Budget("our recipe"),
    "paper": Budget("the authors' protocol to the letter"),
}


def find_budget(name: str) -> Budget:
    """The budget of that name; for a mistyped one the error names the nearest."""
    if name not in BUDGETS:
        raise ValueError(no_such("budget", name, BUDGETS))
    return BUDGETS[name]


E = TypeVar("E", bound=Entry)
R = TypeVar("R", bound=Recipe)


@dataclass(frozen=True)
class Recipes(Generic[E, R]):
    """The recipes of one kind of rows.

    by_budget: by the name of the budget, one for each kind of device.
    adapted: by the name of the budget, what its recipe becomes for rows that need another one.
    """

    by_budget: dict[str, Mapping[DeviceKind, R]]
    adapted: Mapping[str, Callable[[R, E], R]] = field(default_factory=dict)

    def of(self, row: E, budget: str, device: DeviceKind) -> R:
        """The recipe for one row on one kind of device, with what the row itself changes."""
        if budget not in self.by_budget:
            raise ValueError(no_such("budget", budget, self.by_budget))
        recipe = self.by_budget[budget][device]
        if budget in self.adapted:
            recipe = self.adapted[budget](recipe, row)
        self._check(row, recipe)
        return dataclasses.replace(recipe, **row.recipes.get(budget, {}))

    def _check(self, row: E, recipe: R) -> None:
        """A sentence if a row changes what is not there: it would have the recipe of the others, and nobody knew."""
        settings = [setting.name for setting in dataclasses.fields(recipe)]
        for budget, changes in row.recipes.items():
            if budget not in self.by_budget:
                raise ValueError(f"Row {row.number} changes a recipe. {no_such('budget', budget, self.by_budget)}")
            for name in changes:
                if name not in settings:
                    raise ValueError(
                        f"Row {row.number} changes {name!r} with the budget {budget}, which a {type(recipe).__name__} "
                        f"does not have. Its settings are {', '.join(settings)}."
                    )
