"""Figure 6D of paper B under one budget: training in the north, scores in the south, and a domain classifier."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from scipy.integrate import quad

from identica.distributions import Conditional, FisherBingham, VonMisesFisher
from identica.experiments.aninfonce.budgets import RECIPES
from identica.experiments.aninfonce.plan import SyntheticLossPlan
from identica.experiments.aninfonce.shift import ShiftExperiment, ShiftRow
from identica.experiments.catalogue import DeviceKind, Model
from identica.experiments.planning import BasePlan, Measured, mixing_of
from identica.metrics import domain_classifier, linear_r2, shifted_r2
from identica.processes import PairProcess
from identica.training import Callback, Evaluation, TrainingRun, derive_seed

#: Batches that the domain classifier is trained on, where the encoder has that many.
_CLASSIFIER_STEPS = 1000


def plan_of(experiment: ShiftExperiment, row: ShiftRow, budget: str, device: DeviceKind) -> BasePlan:
    """The plan of a row."""
    return ShiftPlan(experiment, row, budget, RECIPES.of(row, budget, device))


@dataclass(frozen=True)
class ShiftPlan(SyntheticLossPlan):
    """What to train and measure for one concentration."""

    row: ShiftRow

    def process(self, model: Model, seed: int) -> PairProcess:
        """Pairs in the north."""
        return self.at_pole(1.0, seed)

    def at_pole(self, pole: float, seed: int) -> PairProcess:
        """Anchors around ±the first basis vector, 1 being the north; pairs and mixing are the same at both poles."""
        loc = torch.zeros(self.row.dim)
        loc[0] = pole
        return PairProcess(
            VonMisesFisher(loc, self.row.marginal.concentration or 0.0),
            Conditional(FisherBingham, precision=self.row.conditional.precision),
            mixing_of(self.row.dim, self.recipe.candidates, seed),
        )

    def watchers(self, model: Model, seeds: Sequence[int], device: torch.device) -> tuple[Callback, ...]:
        """None: all factors are one block."""
        return ()

    @property
    def classifier_steps(self) -> int:
        """How long the domain classifier is trained."""
        return min(_CLASSIFIER_STEPS, self.recipe.steps)

    def measured(
        self, model: Model, seed: int, run: TrainingRun, evaluation: Evaluation, device: torch.device
    ) -> Measured:
        """Scores in the south, and how well north and south are told apart by their observations.

        The classifier sees fresh observations of both poles, on the CPU, where it is the same whatever the device of
        the training. ``best_accuracy`` is what no classifier can exceed.
        """
        north, south = (
            self.at_pole(pole, seed)
            .to(device)
            .sample(self.recipe.evaluation_samples, derive_seed(seed, f"pole {pole}"))
            for pole in (1.0, -1.0)
        )
        codes = [run(pairs.x) for pairs in (north, south)]
        found = domain_classifier(
            north.x.cpu(), south.x.cpu(), steps=self.classifier_steps, seed=derive_seed(seed, "domains"), null=0
        )
        scores = {
            "shifted_r2": shifted_r2(north.z, codes[0], (south.z, codes[1])).score,
            "south_r2": linear_r2(south.z, codes[1]).score,
            "domain_accuracy": found.score,
            "best_accuracy": best_accuracy(self.row.marginal.concentration or 0.0, self.row.dim),
        }
        return Measured(scores)

    @property
    def _latents(self) -> dict[str, Any]:
        return {**super()._latents, "poles": "north in training, south in testing", "classifier": self.classifier_steps}


def best_accuracy(concentration: float, dim: int) -> float:
    """How often z lies in the hemisphere of its pole, P(⟨z, pole⟩ > 0): what the best classifier scores.

    The likelihood ratio of the poles depends on t = ⟨z, pole⟩ alone, whose density is ∝ exp(κt)(1 − t²)^((d−3)/2).

    >>> best_accuracy(0.0, 10), round(best_accuracy(2.0, 3), 6)  # on S²: (1 − e^−κ)/(1 − e^−2κ)
    (0.5, 0.880797)
    """

    def mass(low: float) -> float:
        # t = sin a has no singularity at the poles, whatever the dimension.
        return quad(
            lambda a: math.exp(concentration * (math.sin(a) - 1.0)) * math.cos(a) ** (dim - 2), low, math.pi / 2
        )[0]

    return mass(0.0) / mass(-math.pi / 2) if concentration else 0.5
