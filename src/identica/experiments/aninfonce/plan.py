"""One point of paper B under one recipe: every part for every seed, and what is measured of it."""

from __future__ import annotations

import abc
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from identica.diagnostics import best_rounding, turn_to_axes
from identica.diagnostics.codes import drawn_codes
from identica.distributions import Conditional, FisherBingham, SphereUniform
from identica.encoders import MLPEncoder, ResidualEncoder
from identica.encoders.base import Encoder
from identica.experiments.aninfonce.budgets import LossRecipe, SyntheticLossRecipe
from identica.experiments.aninfonce.measures import PrecisionWatch, measures
from identica.experiments.aninfonce.rows import Loss, LossRow
from identica.experiments.aninfonce.shared_loss import SharedInfoNCE
from identica.experiments.catalogue import Model
from identica.experiments.planning import MIXING, BasePlan, Measured, NoScore, mixing_of
from identica.objectives import EnsembleInfoNCE, InfoNCE, Objective, TriCL
from identica.processes import EnsembleProcess, PairProcess
from identica.similarities import Anisotropic, DotProduct, Similarity
from identica.spaces import Space, Sphere
from identica.training import Callback, Evaluation, TrainConfig, TrainingRun, derive_seed


@dataclass(frozen=True)
class LossPlan(BasePlan):
    """What all points of paper B have in common, whatever shows their latents: losses and what is measured of them."""

    row: LossRow
    recipe: LossRecipe

    # -- the parts

    @abc.abstractmethod
    def process(self, model: Model, seed: int) -> PairProcess | EnsembleProcess:
        """Exact pairs of every Λ of the row, or whatever codes are scored on."""

    @property
    @abc.abstractmethod
    def _mixing(self) -> dict[str, Any]:
        """What shows the latents, as plain data."""

    def encoder(self, model: Model, seed: int) -> Encoder:
        """An untrained encoder that ends on the unit sphere; for TriCL on that of radius √d."""
        dim, weights = self.row.dim, derive_seed(seed, f"{model} encoder")
        space = self._code_space(self.row.losses[model])
        if self.recipe.encoder == "mlp":
            return MLPEncoder(dim, space, seed=weights)
        width = round(self.recipe.width * min(max(1.0, dim / 10), 2.0))
        return ResidualEncoder(dim, space, width=width, blocks=self.recipe.blocks, seed=weights)

    def _code_space(self, loss: Loss) -> Space:
        """TriCL asks for codes of unit variance in each coordinate, which the latents times √d have."""
        return Sphere(self.row.dim, math.sqrt(self.row.dim)) if loss.kind == "tricl" else Sphere(self.row.dim)

    def objective(self, model: Model) -> Objective:
        """The loss of a model; several kinds of pairs share its similarity, unless it has one for each."""
        loss, kinds = self.row.losses[model], len(self.row.precisions)
        if loss.kind == "tricl":
            return TriCL(self.row.dim)
        settings: dict[str, Any] = {
            "negatives": self.recipe.negatives,
            "symmetric": self.recipe.symmetric,
            "centring": self.recipe.centring if loss.kind == "anisotropic" else 0.0,
        }
        if loss.own:
            return EnsembleInfoNCE([self._similarity(loss) for _ in range(kinds)], **settings)
        single = InfoNCE(self._similarity(loss), **settings)
        return SharedInfoNCE(single) if kinds > 1 else single

    def _similarity(self, loss: Loss) -> Similarity:
        make: dict[str, Callable[[], Similarity]] = {
            "dot": lambda: DotProduct(loss.temperature, trainable=loss.learned),
            "anisotropic": lambda: Anisotropic(self.row.dim, self.recipe.start, link=self.recipe.link),
        }
        return make[loss.kind]()

    def train_config(self, model: Model) -> TrainConfig:
        """The training settings: the same for every loss, unless the recipe has others for those without Λ̂."""
        recipe = self.recipe
        learns_precision = self.row.losses[model].kind == "anisotropic"
        steps, batch_size = recipe.steps, recipe.batch_size
        if not learns_precision:
            steps, batch_size = recipe.plain_steps or steps, recipe.plain_batch or batch_size
        return TrainConfig(
            steps=steps,
            batch_size=batch_size,
            optimizer=recipe.optimizer,
            lr=recipe.lr,
            similarity_lr=recipe.similarity_lr,
            similarity_after=recipe.similarity_after if learns_precision else 0.0,
            schedule=recipe.schedule,
            eval_every=max(1, steps // recipe.evaluations),
            eval_samples=recipe.evaluation_samples,
            # A checkpoint may take as long as a thousand steps of a small batch.
            checkpoint_every=max(1, steps // (10 if batch_size > 8192 else 3)),
            precision=recipe.precision,
        )

    @property
    def trained(self) -> tuple[Model, ...]:
        """All of them."""
        return self.models

    def loss_label(self, model: Model) -> str:
        """The loss, the dimension and the batch: what decides how long a step takes."""
        loss = self.row.losses[model]
        return f"{loss.kind}, {loss.own}, {self.row.dim}, {self.train_config(model).batch_size}"

    # -- what is seen of a run

    def watchers(self, model: Model, seeds: Sequence[int], device: torch.device) -> tuple[Callback, ...]:
        """Content and style R² and Λ̂ over time."""
        processes = {self.seed(model, seed): self.process(model, seed).to(device) for seed in seeds}
        return (PrecisionWatch(processes, self.row.precisions, self.recipe.evaluation_samples),)

    def finished(self, model: Model, seed: int, run: TrainingRun, device: torch.device) -> TrainingRun:
        """Made round and turned to the axes of its loss, where the recipe says so."""
        if not self._turns(model):
            return run
        process, source = self.process(model, seed).to(device), derive_seed(seed, f"{model} axes")
        assert isinstance(process, PairProcess) and isinstance(run.objective, InfoNCE)
        self._check_fill_the_sphere(run, process, run.objective, source)
        return turn_to_axes(run, process, **self._turning, seed=source)

    def _check_fill_the_sphere(self, run: TrainingRun, process: PairProcess, objective: InfoNCE, seed: int) -> None:
        """Whether the codes that will be turned can be made round: an encoder that has lost a factor may have others.

        Drawn once more, which takes far less time than the axes, so that no other error is mistaken for this one.
        """
        n, batches = self._turning["n"], self._turning["batches"]
        drawn = drawn_codes(process, run, objective, n, batches, seed)
        try:
            best_rounding(torch.cat([h for h, _, _ in drawn]))
        except ValueError as error:
            raise NoScore(str(error)) from error

    def _turns(self, model: Model) -> bool:
        return self.recipe.turned and self.row.losses[model].kind == "anisotropic" and len(self.row.precisions) == 1

    @property
    def _turning(self) -> dict[str, Any]:
        """The pairs that axes are found from, and that codes are made round, as anchors are uniform."""
        recipe = self.recipe
        return {"n": min(recipe.batch_size, recipe.error_pairs), "batches": recipe.error_batches, "rounded": True}

    def measured(
        self, model: Model, seed: int, run: TrainingRun, evaluation: Evaluation, device: torch.device
    ) -> Measured:
        """Block scores, the loss beside its minimum, and Λ̂ with standard errors."""
        process = self.process(model, seed).to(device)
        source = derive_seed(seed, f"{model} measures")
        return measures(process, run, evaluation, self.row.precisions, self.recipe, source)

    # -- as plain data

    @property
    def _latents(self) -> dict[str, Any]:
        return {
            "space": self.row.space,
            "marginal": self.row.marginal.to_dict(),
            "dim": self.row.dim,
            "mixing": self._mixing,
            "evaluation_samples": self.recipe.evaluation_samples,
        }

    def _described(self, objective: dict[str, Any]) -> dict[str, Any]:
        """With the Λ̂ that the recipe starts from: what exp(log Λ̂) is in its last digits depends on the machine."""
        similarity, start = objective.get("similarity", {}), self.recipe.start
        if "precision" not in similarity:
            return objective
        given = [start if math.isclose(value, start, rel_tol=1e-6) else value for value in similarity["precision"]]
        return {**objective, "similarity": {**similarity, "precision": given}}

    def _model_config(self, model: Model) -> dict[str, Any]:
        data = {
            "encoder": self.encoder(model, 0).to_dict(),
            "objective": self._described(self.objective(model).to_dict()),
            "train": self.train_config(model).to_dict(),
            "conditionals": [law.to_dict() for law in (self.row.conditional, *self.row.also)],
        }
        if self._turns(model):
            data["turned"] = self._turning
        return json.loads(json.dumps(data))


@dataclass(frozen=True)
class SyntheticLossPlan(LossPlan):
    """What to train for one point whose latents an invertible mixing shows."""

    recipe: SyntheticLossRecipe

    def process(self, model: Model, seed: int) -> PairProcess | EnsembleProcess:
        """Exact pairs of every Λ of the row, through the mixing of the seed."""
        mixing = mixing_of(self.row.dim, self.recipe.candidates, seed)
        kinds = [
            PairProcess(SphereUniform(self.row.dim), Conditional(FisherBingham, precision=precision), mixing)
            for precision in self.row.precisions
        ]
        return kinds[0] if len(kinds) == 1 else EnsembleProcess(*kinds)

    @property
    def _mixing(self) -> dict[str, Any]:
        return {**MIXING, "candidates": self.recipe.candidates}
