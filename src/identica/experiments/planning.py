"""What every plan is: one row under one recipe, ready to train, and the same as plain data with its hashes."""

from __future__ import annotations

import abc
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from identica.encoders.base import Encoder
from identica.experiments.budgets import Recipe
from identica.experiments.catalogue import Entry, Experiment, Model
from identica.mixing import InvertibleMLP
from identica.objectives import Objective
from identica.processes import EnsembleProcess, PairProcess
from identica.training import Callback, Evaluation, TrainConfig, TrainingRun, derive_seed

#: Settings that change what is seen of a run, not what comes out of it.
_WATCHING = ("eval_every", "eval_samples", "checkpoint_every")
#: The papers' mixing (A, Sec. A.3; B uses the same).
MIXING: dict[str, Any] = {"layers": 3, "negative_slope": 0.2}


@dataclass(frozen=True)
class Measured:
    """What a plan measures of a trained model besides the scores of all: it goes into the receipt as it is."""

    scores: Mapping[str, float] = field(default_factory=dict)
    per_dimension: Mapping[str, list[float | None]] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BasePlan(abc.ABC):
    """What to train for one row. Every seed has its own mixing, weights and data."""

    experiment: Experiment
    row: Entry
    budget: str
    recipe: Recipe

    # -- the parts, which subclasses make

    @abc.abstractmethod
    def process(self, model: Model, seed: int) -> PairProcess | EnsembleProcess:
        """Where the pairs come from. Of one seed all rows have the same mixing."""

    @abc.abstractmethod
    def encoder(self, model: Model, seed: int) -> Encoder:
        """An untrained encoder that ends in the model's space."""

    @abc.abstractmethod
    def objective(self, model: Model) -> Objective:
        """The loss of a model."""

    @abc.abstractmethod
    def train_config(self, model: Model) -> TrainConfig:
        """The training settings of a model."""

    @property
    @abc.abstractmethod
    def trained(self) -> tuple[Model, ...]:
        """The models that need training; the first speaks for the row's settings."""

    @abc.abstractmethod
    def loss_label(self, model: Model) -> str:
        """The kind of training step, for the clock: steps of one kind take equally long."""

    @property
    @abc.abstractmethod
    def _latents(self) -> dict[str, Any]:
        """What all models of the row have in common, as plain data."""

    @abc.abstractmethod
    def _model_config(self, model: Model) -> dict[str, Any]:
        """Everything else that a model depends on, as plain data."""

    def seed(self, model: Model, seed: int) -> int:
        """The seed of a model's data."""
        return derive_seed(seed, f"{model} training")

    @property
    def models(self) -> tuple[Model, ...]:
        """The models of this row."""
        return self.experiment.models_of(self.row)

    # -- what is seen of a run

    def watchers(self, model: Model, seeds: Sequence[int], device: torch.device) -> tuple[Callback, ...]:
        """Callbacks that look on during training; they may add to a record's scores and terms."""
        return ()

    def measured(
        self, model: Model, seed: int, run: TrainingRun, evaluation: Evaluation, device: torch.device
    ) -> Measured:
        """What is measured of a trained model besides R² and MCC."""
        return Measured()

    # -- as plain data

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """Every setting, ready for JSON. What differs between seeds is derived from the seed and not in it."""
        return {**self._latents, **{model: self._model_configs[model] for model in self.trained}}

    @functools.cached_property
    def config_hash(self) -> str:
        """Equal for equal settings, on whatever device. How often one looks on does not count."""
        return _hash(self.config)

    @functools.cached_property
    def model_hashes(self) -> dict[Model, str]:
        """For each model a hash of all that it depends on: rows in which it is equal share that model."""
        return {model: _hash({**self._latents, "model": self._model_configs[model]}) for model in self.models}

    @functools.cached_property
    def _model_configs(self) -> dict[Model, dict[str, Any]]:
        return {model: self._model_config(model) for model in self.models}


@functools.lru_cache(maxsize=16)
def mixing_of(dim: int, candidates: int, seed: int) -> InvertibleMLP:
    """The mixing of one seed: half a second to draw, so kept."""
    return InvertibleMLP(dim, seed=derive_seed(seed, "mixing"), candidates=candidates, **MIXING)


def _without_watching(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _without_watching(value) for name, value in data.items() if name not in _WATCHING}
    return data


def _hash(data: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(_without_watching(data), sort_keys=True).encode()).hexdigest()[:16]
