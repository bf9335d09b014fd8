"""How much to spend on a row: from (row, budget, device) to encoder, objective and training settings.

Three budgets. ``smoke`` runs everything in seconds and reaches nothing; ``fast`` is our recipe; ``paper`` is
the authors' protocol to the letter. The numbers are the :class:`Recipe` objects right below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from identica.experiments.catalogue import Row, SpaceName
from identica.names import no_such
from identica.training.config import Precision, Schedule

DeviceKind = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class Recipe:
    """The settings in which one budget differs from another.

    encoder, width, blocks: "residual" of that size, or "mlp", the paper's perceptron, which has a size of its own.
    steps, supervised_steps, lr, supervised_lr, schedule, batch_size, precision: as in ``TrainConfig``.
    positives_per_anchor: how many positives share an anchor (contrastive only).
    temperature: of −‖·‖_p^p / τ: "one", as in paper A, or "matched" to the pairs. On the sphere always the row's own.
    anneal_from, anneal_until: with a factor above 1 the temperature starts that much higher and falls to its value over
        that part of the steps (:class:`~identica.similarities.Annealed`).
    learn_bound: whether a box that codes live in learns its sides.
    self_negatives: whether an anchor counts among its own negatives, as in the authors' code.
    candidates: random matrices from which each layer of the mixing is chosen; the paper's 25,000.
    """

    encoder: Literal["residual", "mlp"]
    steps: int
    supervised_steps: int
    batch_size: int
    lr: float
    supervised_lr: float
    schedule: Schedule = "cosine"
    width: int = 200
    blocks: int = 3
    positives_per_anchor: int = 1
    precision: Precision = "fp32"
    temperature: Literal["one", "matched"] = "matched"
    anneal_from: float = 1.0
    anneal_until: float = 0.8
    learn_bound: bool = True
    self_negatives: bool = False
    candidates: int = 25_000
    evaluations: int = 20
    evaluation_samples: int = 4096


@dataclass(frozen=True)
class Budget:
    """A recipe for every device and model space, what it is for, and how many seeds it trains by default.

    ``seeds`` is None for as many as the paper had. What ``by_space`` lists replaces the device's recipe.
    """

    purpose: str
    recipes: Mapping[DeviceKind, Recipe]
    seeds: int | None = None
    by_space: Mapping[tuple[DeviceKind, SpaceName], Recipe] | None = None

    def recipe(self, row: Row, device: DeviceKind) -> Recipe:
        """The recipe for one row on one kind of device."""
        special = (self.by_space or {}).get((device, row.model_space))
        return special or self.recipes[device]


_SMOKE = Recipe(
    encoder="residual",
    width=64,
    blocks=2,
    steps=300,
    supervised_steps=300,
    batch_size=512,
    lr=5e-3,
    supervised_lr=5e-3,
    evaluations=3,
)

_FAST = Recipe(
    encoder="residual",
    width=200,
    blocks=3,
    steps=10_000,
    supervised_steps=10_000,
    batch_size=6144,
    lr=2e-3,
    supervised_lr=2e-3,
    precision="tf32",
)

#: On a CPU the same with a smaller batch: a row and seed must end within the hour on two cores.
_FAST_CPU = replace(_FAST, batch_size=2048, precision="fp32")

_PAPER = Recipe(
    encoder="mlp",
    steps=300_000,
    supervised_steps=100_000,
    batch_size=6144,
    lr=1e-4,
    supervised_lr=1e-4,
    schedule="constant",
    temperature="one",
    self_negatives=True,
    evaluations=60,
)

BUDGETS: dict[str, Budget] = {
    "smoke": Budget("does everything run? Seconds on two CPU cores", {"cpu": _SMOKE, "cuda": _SMOKE}, seeds=1),
    "fast": Budget("our recipe", {"cpu": _FAST_CPU, "cuda": _FAST}),
    "paper": Budget("the authors' protocol to the letter", {"cpu": _PAPER, "cuda": _PAPER}),
}


def find_budget(name: str) -> Budget:
    """The budget of that name; for a mistyped one the error names the nearest."""
    if name not in BUDGETS:
        raise ValueError(no_such("budget", name, BUDGETS))
    return BUDGETS[name]
