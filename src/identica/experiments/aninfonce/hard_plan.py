"""Figure 10 of paper B under one budget: the scan, and the models that go on from a trained one."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import torch

from identica.distributions import Conditional, FisherBingham, SphereUniform
from identica.distributions.fisher_bingham_ratio import ratio_precision
from identica.encoders.base import Encoder
from identica.experiments.aninfonce.budgets import RECIPES
from identica.experiments.aninfonce.hard import SCAN_NEGATIVES, SCANNED, Continued, HardExperiment, HardRow
from identica.experiments.aninfonce.hard_scan import scan
from identica.experiments.aninfonce.plan import SyntheticLossPlan
from identica.experiments.catalogue import DeviceKind, Model
from identica.experiments.laws import Law
from identica.experiments.planning import BasePlan, Measured, mixing_of
from identica.objectives import InfoNCE, Objective
from identica.processes import EnsembleProcess, PairProcess
from identica.similarities import Anisotropic, Similarity
from identica.training import Evaluation, TrainConfig, TrainingRun, derive_seed

#: Anchors of the scan, for which the standard error of λ̂ is 0.2 %; and how many for each step of a short budget.
_ANCHORS, _ANCHORS_PER_STEP = 2**18, 256
#: What a continuation's steps are to those before it.
CONTINUATION = 0.5


def plan_of(experiment: HardExperiment, row: HardRow, budget: str, device: DeviceKind) -> BasePlan:
    """The plan of a row: it is scanned or trained. A Λ⁻ that is not below Λ⁺ is refused with a sentence."""
    ratio_precision(*_laws(row), row.dim)
    kind = ScanPlan if "scan" in row.losses else TunedPlan
    return kind(experiment, row, budget, RECIPES.of(row, budget, device))


def hard_process(row: HardRow, count: int, mixing: Any = None) -> PairProcess:
    """Pairs of the row's Λ⁺, each anchor with so many hard negatives of its Λ⁻."""
    positive, negative = _laws(row)
    return PairProcess(
        SphereUniform(row.dim), positive, mixing, negative_conditional=negative, negatives_per_anchor=count
    )


def _laws(row: HardRow) -> tuple[Conditional, Conditional]:
    """Where positives and hard negatives come from."""
    precisions = (row.conditional.precision, row.hard.precision)
    positive, negative = (Conditional(FisherBingham, precision=precision) for precision in precisions)
    return positive, negative


@dataclass(frozen=True)
class ScanPlan(SyntheticLossPlan):
    """The loss at the true latents, over Λ̂ (A). Nothing is trained."""

    row: HardRow

    @property
    def trained(self) -> tuple[Model, ...]:
        """None."""
        return ()

    @property
    def anchors(self) -> int:
        """How many anchors the loss is averaged over."""
        return min(_ANCHORS, _ANCHORS_PER_STEP * self.recipe.steps)

    def process(self, model: Model, seed: int) -> PairProcess:
        """Pairs and hard negatives without a mixing: the true latents are the codes."""
        return hard_process(self.row, SCAN_NEGATIVES)

    def computed(self, model: Model, seed: int, device: torch.device) -> Measured:
        """Where the loss is smallest, and the curve."""
        process = self.process(model, seed).to(device)
        found = scan(process, SCANNED, self.anchors, derive_seed(seed, "scan"))
        curve = {"precision": found.precisions, "above": found.above, "above_errors": found.above_errors}
        plain: dict[str, Any] = {name: [float(f"{value:.5g}") for value in values] for name, values in curve.items()}
        return Measured(
            {"minimum": found.minimum, "minimum_error": found.standard_error, "least_loss": found.least_loss},
            {},
            {"scan": {**plain, "target": found.target}, "anchors": found.anchors},
        )

    @property
    def _latents(self) -> dict[str, Any]:
        return {
            "space": self.row.space,
            "marginal": self.row.marginal.to_dict(),
            "dim": self.row.dim,
            "conditionals": [_plain(self.row.conditional), _plain(self.row.hard)],
            "scan": {"anchors": self.anchors, "negatives_per_anchor": SCAN_NEGATIVES, "precisions": [*SCANNED]},
        }

    def _model_config(self, model: Model) -> dict[str, Any]:
        return {"encoder": "the true latents"}


@dataclass(frozen=True)
class TunedPlan(SyntheticLossPlan):
    """An encoder trained with InfoNCE, and what becomes of it when it is trained on (B)."""

    row: HardRow

    def _continued(self, model: Model) -> Continued | None:
        loss = self.row.losses[model]
        return loss if isinstance(loss, Continued) else None

    def _joined(self, model: Model) -> int:
        """How many hard negatives per anchor join the others in training."""
        continued = self._continued(model)
        return 0 if continued is None else continued.joined

    def starts_from(self, model: Model) -> Model | None:
        """InfoNCE, for everything but InfoNCE."""
        continued = self._continued(model)
        return None if continued is None else continued.starts_from

    def encoder(self, model: Model, seed: int) -> Encoder:
        """The same architecture for all, with the weights of the model that it starts from in view."""
        return super().encoder(self.starts_from(model) or model, seed)

    def training_process(self, model: Model, seed: int) -> PairProcess | EnsembleProcess:
        """With hard negatives where the loss asks for some. Scores come from :meth:`process`, which has none."""
        joined = self._joined(model)
        if not joined:
            return self.process(model, seed)
        return hard_process(self.row, joined, mixing_of(self.row.dim, self.recipe.candidates, seed))

    def objective(self, model: Model) -> Objective:
        """InfoNCE; hard negatives join the other anchors, and Λ̂ starts at Λ⁺ − Λ⁻."""
        if not self._joined(model):
            return super().objective(model)
        start = torch.tensor(self.row.optima[0])
        similarity: Similarity = Anisotropic(self.row.dim, start, link=self.recipe.link)
        # Not symmetric, whatever the budget: hard negatives belong to the anchor, not to its positive.
        return InfoNCE(similarity, negatives=self.recipe.negatives, in_batch=True)

    def train_config(self, model: Model) -> TrainConfig:
        """A continuation has its own number of steps, and the learning rate starts again from its peak."""
        config, continued = super().train_config(model), self._continued(model)
        if continued is None:
            return config
        steps = max(1, round(CONTINUATION * config.steps))
        return replace(
            config,
            steps=steps,
            batch_size=round(continued.larger * config.batch_size),
            eval_every=max(1, steps // self.recipe.evaluations),
            checkpoint_every=max(1, steps // 3),
        )

    def measured(
        self, model: Model, seed: int, run: TrainingRun, evaluation: Evaluation, device: torch.device
    ) -> Measured:
        """As of every loss; of a Λ̂ learned against a mixture of negatives only its mean, as it has no truth.

        Losses are compared on batches of the first model's size, without hard negatives. What was trained with others
        has a learning curve that this minimum does not belong to, so it is left out there.
        """
        similarity = run.objective.similarity if isinstance(run.objective, InfoNCE) else None
        scores: dict[str, float] = {}
        if isinstance(similarity, Anisotropic):
            fixed = Anisotropic(self.row.dim, similarity.precision.detach(), trainable=False)
            scores["learned_precision"] = similarity.precision.mean().item()
            run = replace(run, objective=InfoNCE(fixed))
        found = super().measured(model, seed, run, evaluation, device)
        as_first = not self._joined(model) and self.train_config(model).batch_size == self.recipe.batch_size
        info = {name: value for name, value in found.info.items() if as_first or name != "minimal_loss"}
        return replace(found, scores={**found.scores, **scores}, info=info)

    def loss_label(self, model: Model) -> str:
        """What decides how long a step takes."""
        continued = self._continued(model)
        if continued is None:
            return super().loss_label(model)
        return f"{super().loss_label(model)}, {continued.joined} hard, {continued.larger:g} times"

    def _model_config(self, model: Model) -> dict[str, Any]:
        config, joined = super()._model_config(model), self._joined(model)
        if not joined:
            return config
        return {**config, "hard": {"conditional": _plain(self.row.hard), "negatives_per_anchor": joined}}


def _plain(law: Law) -> dict[str, Any]:
    """As JSON has it: lists, no tuples."""
    plain: dict[str, Any] = json.loads(json.dumps(law.to_dict()))
    return plain
