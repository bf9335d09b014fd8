"""Paper B, Figure 6D: anchors around one pole of the sphere in training, around the other one in testing.

p(z) is von Mises-Fisher around the north pole, the first basis vector, in training, and around the south pole in
testing, with one concentration κ; κ = 0 is the uniform law that the theory assumes. The more concentrated, the better
a classifier tells observations of training from those of testing, and the less is an encoder trained in the north good
for in the south.

The paper gives neither the dimension, nor the concentrations, nor the pairs, nor what exactly is scored. Here ten
dimensions, κ from 0 to 16, isotropic pairs of Λ = 10 with InfoNCE at the matching temperature, so that with κ = 0
everything is as the theory wants it; and three scores of the same encoder:

- ``shifted_r2``, the one judged: the affine map from codes to latents is fitted in the north and scored in the south.
  It may be far below zero.
- ``south_r2``: fitted and scored (cross-fitted) in the south: whether any affine map is right there.
- ``r2``: fitted and scored in the north, where the encoder was trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from identica.experiments.aninfonce.rows import Loss, LossExperiment, LossRow, Plot
from identica.experiments.catalogue import DeviceKind, Entry
from identica.experiments.claims import Anticorrelated, AtLeast, AtMost, Quantity, Rises
from identica.experiments.laws import fisher_bingham, vmf

if TYPE_CHECKING:
    from identica.experiments.planning import BasePlan

DIM, PRECISION = 10, 10.0
CONCENTRATIONS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


@dataclass(frozen=True)
class ShiftRow(LossRow):
    """A point whose anchors are drawn around the north pole in training, and around the south pole in testing."""

    @property
    def process_label(self) -> str:
        """``S⁹, vMF κ=4 north and south, Λ = 10 ×10``."""
        sphere, _, pairs = super().process_label.partition(", ")
        return f"{sphere}, {self.marginal.label} north and south, {pairs}"


@dataclass(frozen=True)
class ShiftExperiment(LossExperiment):
    """A figure about a marginal that differs between training and testing."""

    def plan(self, row: Entry, budget: str, device: DeviceKind) -> BasePlan:
        """What to train for a row."""
        from identica.experiments.aninfonce.shift_plan import plan_of

        if not isinstance(row, ShiftRow):
            raise TypeError(f"{self.id} has rows with two poles, not a {type(row).__name__}.")
        return plan_of(self, row, budget, device)


def point(concentration: float, dim: int = DIM) -> ShiftRow:
    """One concentration of both marginals."""
    return ShiftRow(
        f"k{concentration:g}",
        "sphere",
        vmf(concentration),
        fisher_bingham(*[PRECISION] * dim),
        {"infonce": Loss("dot", 1.0 / PRECISION)},
        theory="promises" if concentration == 0 else "silent",
        x={"concentration": concentration},
        recipes={"fast": {"steps": 10_000, "candidates": 2500}, "smoke": {"candidates": 500}},
    )


_ROWS = tuple(point(concentration) for concentration in CONCENTRATIONS)
_NUMBERS = tuple(row.number for row in _ROWS)
SHIFTED, SOUTH, NORTH = (Quantity("infonce", score) for score in ("shifted_r2", "south_r2", "r2"))
ACCURACY, BEST = (Quantity("infonce", score) for score in ("domain_accuracy", "best_accuracy"))

FIGURE6 = ShiftExperiment(
    id="aninfonce/figure6",
    title="A marginal that moves between training and testing",
    paper="B, Figure 6D",
    metric="r2",
    rows=_ROWS,
    models=("infonce",),
    seeds=3,
    dim=DIM,
    trend="R² in the south falls as a classifier tells north from south",
    columns=(
        ("R² in the south", "shifted_r2"),
        ("Fitted there", "south_r2"),
        ("Domain classifier", "domain_accuracy"),
        ("The best possible", "best_accuracy"),
    ),
    claims=(
        Anticorrelated(
            "R² in the south and the accuracy of the domain classifier are anticorrelated: Spearman below −0.8",
            _NUMBERS,
            SHIFTED,
            ACCURACY,
            -0.8,
        ),
        AtLeast("Without a shift the factors are recovered: R² ≥ 0.99", ("k0",), SHIFTED, 0.99),
        AtMost("Without a shift the domains cannot be told apart: accuracy at most 0.53", ("k0",), ACCURACY, 0.53),
        AtLeast("At κ = 16 they can: accuracy at least 0.98", ("k16",), ACCURACY, 0.98),
        AtMost("Where they can, R² in the south is at most 0.7", ("k16",), SHIFTED, 0.7),
        Rises("From κ = 1 on R² in the south falls", tuple(reversed(_NUMBERS[2:])), SHIFTED, 0.02),
    ),
    plots=(
        Plot(
            "R² in the south against what a classifier sees (below −1: drawn at −1)",
            "accuracy of the domain classifier",
            (("R², fitted north, scored south", SHIFTED), ("R², fitted and scored south", SOUTH)),
            against=ACCURACY,
            least=-1.0,
        ),
        Plot(
            "By concentration (below −1: drawn at −1)",
            "concentration",
            (
                ("R², fitted north, scored south", SHIFTED),
                ("R², north", NORTH),
                ("domain classifier", ACCURACY),
                ("the best possible classifier", BEST),
            ),
            y="R², accuracy",
            log=False,
            least=-1.0,
        ),
    ),
)

EXPERIMENTS = (FIGURE6,)
