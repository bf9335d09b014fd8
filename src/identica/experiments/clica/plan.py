"""One row of paper A under one recipe: every part for every seed, and the settings as plain data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from identica.encoders import MLPEncoder, ResidualEncoder
from identica.encoders.base import Encoder
from identica.experiments.catalogue import Model, Row
from identica.experiments.clica.budgets import SyntheticRecipe
from identica.experiments.laws import normal
from identica.experiments.parts import (
    make_conditional,
    make_marginal,
    make_similarity,
    make_space,
    matched_temperature,
    power_of,
)
from identica.experiments.planning import MIXING, BasePlan, mixing_of
from identica.gradual import Gradual
from identica.objectives import AlignUniform, InfoNCE, Objective, Supervised
from identica.processes import PairProcess
from identica.similarities import Annealed
from identica.spaces import Box, Space
from identica.training import TrainConfig, derive_seed

#: Identity and supervised look at anchors alone. Their pairs come from this law in every row, so that rows with
#: the same latents share them to the bit.
_UNUSED_PAIRS = normal(0.05)


@dataclass(frozen=True)
class Plan(BasePlan):
    """What to train for one row of paper A."""

    row: Row
    recipe: SyntheticRecipe

    # -- the parts

    def process(self, model: Model, seed: int) -> PairProcess:
        """Where the pairs come from. Of one seed all rows have the same mixing."""
        row, dim = self.row, self.experiment.dim
        contrastive = model == "contrastive"
        return PairProcess(
            make_marginal(row.marginal, row.space, dim),
            make_conditional(row.conditional if contrastive else _UNUSED_PAIRS, row.space),
            mixing_of(dim, self.recipe.candidates, seed),
            positives_per_anchor=self.recipe.positives_per_anchor if contrastive else 1,
        )

    def encoder(self, model: Model, seed: int) -> Encoder:
        """An untrained encoder that ends in the model's space."""
        dim, weights = self.experiment.dim, derive_seed(seed, f"{model} encoder")
        space = self._code_space(model)
        # L_AU in a box that may grow has no floor, see _code_space.
        learn_bound = model != "contrastive" or (self.recipe.learn_bound and self.row.alpha is None)
        if self.recipe.encoder == "mlp":
            return MLPEncoder(dim, space, learn_bound=learn_bound, seed=weights)
        shape: dict[str, Any] = {name: getattr(self.recipe, name) for name in ("width", "blocks", "activation")}
        return ResidualEncoder(dim, space, learn_bound=learn_bound, seed=weights, **shape)

    def _code_space(self, model: Model) -> Space:
        """Where the codes end up; for L_AU a box of fixed sides 1/λ, in which the truth is the optimum.

        L_AU has no temperature, so the size of the codes must do its work, and on a finite batch it has no
        floor: once the nearest other anchor is farther than the positive, larger codes are always better.
        """
        space = make_space(self.row.model_space, self.experiment.dim)
        p = power_of(self.row.model)
        if model != "contrastive" or self.row.alpha is None or p is None:
            return space
        if not isinstance(space, Box):
            raise ValueError(f"Row {self.row.number}: L_AU has no floor on codes without bounds; use a box.")
        return Box(space.dim, 0.0, matched_temperature(self.row.conditional, p) ** (-1.0 / p))

    def objective(self, model: Model) -> Objective:
        """The loss of a model."""
        if model != "contrastive":
            return Supervised()
        p = power_of(self.row.model)
        if self.row.alpha is not None and p is not None:
            return AlignUniform(self.row.alpha, p)
        similarity = make_similarity(self.row, matched=self.recipe.temperature == "matched")
        first, last = self.recipe.anneal_from, self.recipe.anneal_to
        if (first, last) != (1.0, 1.0):
            similarity = Annealed(similarity, first, last, self.recipe.anneal_until)
        own: bool | Gradual = self.recipe.self_negatives
        if own and self.recipe.self_weight_to != 1.0:
            own = Gradual(1.0, self.recipe.self_weight_to, self.recipe.anneal_until)
        return InfoNCE(similarity, self_negatives=own)

    def train_config(self, model: Model) -> TrainConfig:
        """The training settings of a model."""
        recipe, contrastive = self.recipe, model == "contrastive"
        steps = recipe.steps if contrastive else recipe.supervised_steps
        return TrainConfig(
            steps=steps,
            batch_size=recipe.batch_size,
            optimizer=recipe.optimizer,
            lr=recipe.lr if contrastive else recipe.supervised_lr,
            schedule=recipe.schedule,
            eval_every=max(1, steps // recipe.evaluations),
            eval_samples=recipe.evaluation_samples,
            checkpoint_every=max(1, steps // 10),
            precision=recipe.precision,
        )

    @property
    def trained(self) -> tuple[Model, ...]:
        """The models that need training, the contrastive one first: it tells most about the time needed."""
        return tuple(model for model in ("contrastive", "supervised") if model in self.experiment.models)

    def loss_label(self, model: Model) -> str:
        """The law that the similarity stands for."""
        return "supervised" if model == "supervised" else self.row.model.label

    # -- as plain data: identity depends on latents and mixing alone; supervised on the encoder and its training as
    # -- well; contrastive also on the pairs and the loss

    @property
    def _latents(self) -> dict[str, Any]:
        return {
            "space": self.row.space,
            "marginal": self.row.marginal.to_dict(),
            "dim": self.experiment.dim,
            "mixing": {**MIXING, "candidates": self.recipe.candidates},
            "evaluation_samples": self.recipe.evaluation_samples,
        }

    def _model_config(self, model: Model) -> dict[str, Any]:
        if model == "identity":
            return {"encoder": "identity"}
        data: dict[str, Any] = {
            "encoder": self.encoder(model, 0).to_dict(),
            "objective": self.objective(model).to_dict(),
            "train": self.train_config(model).to_dict(),
        }
        if model == "contrastive":
            data["conditional"] = self.row.conditional.to_dict()
            data["positives_per_anchor"] = self.recipe.positives_per_anchor
        return json.loads(json.dumps(data))
