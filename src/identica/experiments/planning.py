"""What every plan is: one row under one recipe, ready to train, and the same as plain data with its hashes."""

from __future__ import annotations

import abc
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import nn

from identica.experiments.budgets import Recipe
from identica.experiments.catalogue import Entry, Experiment, Model
from identica.mixing import InvertibleMLP
from identica.objectives import Objective
from identica.processes.anchors import DrawsPairs
from identica.training import Callback, Evaluation, TrainConfig, TrainingRun, derive_seed
from identica.training.step import Process

if TYPE_CHECKING:
    from identica.experiments.running.stages import Stage
    from identica.experiments.running.supplies import Supplies

#: Settings that change what is seen of a run, not what comes out of it.
_WATCHING = ("eval_every", "eval_samples", "checkpoint_every")
#: The papers' mixing (A, Sec. A.3; B uses the same).
MIXING: dict[str, Any] = {"layers": 3, "negative_slope": 0.2}


class NoScore(ValueError):
    """Training ended with codes that have no score: infinite ones, zeros, ones that cannot be made round.

    The message is a sentence that the receipt has in place of scores.
    """


@dataclass(frozen=True)
class Measured:
    """What a plan measures of a trained model besides the scores of all: it goes into the receipt as it is."""

    scores: Mapping[str, float] = field(default_factory=dict)
    per_dimension: Mapping[str, list[float | None]] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)
    #: What it took besides training, where that is to be counted: a VAE, say.
    seconds: float = 0.0


@dataclass(frozen=True)
class BasePlan(abc.ABC):
    """What to train for one row. Every seed has its own mixing, weights and data."""

    experiment: Experiment
    row: Entry
    budget: str
    recipe: Recipe

    # -- the parts, which subclasses make

    @abc.abstractmethod
    def process(self, model: Model, seed: int) -> DrawsPairs:
        """Where the pairs come from. Of one seed all rows have the same mixing."""

    @abc.abstractmethod
    def encoder(self, model: Model, seed: int) -> nn.Module:
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

    def training_process(self, model: Model, seed: int) -> Process:
        """What a model is trained on; :meth:`process`, on which it is scored, unless the two differ."""
        return self.process(model, seed)

    def stages(self, model: Model) -> tuple[Stage, ...]:
        """The runs that a model is trained in, one after the other; none for a single one with ``train_config``."""
        return ()

    def starts_from(self, model: Model) -> Model | None:
        """The model of this row with whose trained encoder this one starts; None for an untrained encoder."""
        return None

    def followers(self, model: Model) -> tuple[Model, ...]:
        """The models of this row that start from this one."""
        return tuple(other for other in self.models if self.starts_from(other) == model)

    def computed(self, model: Model, seed: int, device: torch.device) -> Measured:
        """The result of a model that needs no training, other than the observations themselves."""
        raise NotImplementedError(f"{type(self).__name__} does not say how {model} is computed.")

    # -- what comes from outside

    def supplied(self, supplies: Supplies) -> Self:
        """The plan with data sets and what rows share; most need neither."""
        return self

    def check_supplies(self) -> None:
        """Raise a sentence if data that it needs are missing or damaged: called before anything is trained."""
        return

    # -- what is seen of a run

    def watchers(self, model: Model, seeds: Sequence[int], device: torch.device) -> tuple[Callback, ...]:
        """Callbacks that look on during training; they may add to a record's scores and terms."""
        return ()

    def finished(self, model: Model, seed: int, run: TrainingRun, device: torch.device) -> TrainingRun:
        """The run that is scored: a trained one, and whatever is done to it when training is over.

        Here and in :meth:`measured`, :class:`NoScore` for codes that cannot be scored; the run raises it for codes that
        are not finite. Any other exception is a mistake and stops everything.
        """
        return run

    def measured(
        self, model: Model, seed: int, run: TrainingRun, evaluation: Evaluation, device: torch.device
    ) -> Measured:
        """What is measured of a trained model besides R² and MCC."""
        return Measured()

    def measured_identity(self, seed: int, device: torch.device) -> Measured:
        """The same of the observations themselves."""
        return Measured()

    # -- as plain data

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """Every setting, ready for JSON. What differs between seeds is derived from the seed and not in it."""
        return {**self._latents, **{model: self._model_configs[model] for model in self.trained}}

    @functools.cached_property
    def config_hash(self) -> str:
        """Equal for equal settings, on whatever device. How often one looks on does not count."""
        return _hash_of_what_comes_out(self.config)

    @functools.cached_property
    def model_hashes(self) -> dict[Model, str]:
        """For each model a hash of all that it depends on: rows in which it is equal share that model."""
        return {
            model: _hash_of_what_comes_out({**self._latents, "model": self._model_configs[model]})
            for model in self.models
        }

    @functools.cached_property
    def _model_configs(self) -> dict[Model, dict[str, Any]]:
        return {model: self._with_start(model) for model in self.models}

    def _with_start(self, model: Model) -> dict[str, Any]:
        """A model also depends on all that the one it starts from depends on, which a hash of it stands for."""
        config, start = self._model_config(model), self.starts_from(model)
        if start is None:
            return config
        return {**config, "starts_from": _hash_of_what_comes_out({**self._latents, "model": self._with_start(start)})}


@functools.lru_cache(maxsize=16)
def mixing_of(dim: int, candidates: int, seed: int) -> InvertibleMLP:
    """The mixing of one seed: half a second to draw, so kept."""
    return InvertibleMLP(dim, seed=derive_seed(seed, "mixing"), candidates=candidates, **MIXING)


def hash_of(data: Mapping[str, Any]) -> str:
    """Equal for equal plain data."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def _hash_of_what_comes_out(data: Mapping[str, Any]) -> str:
    """Equal where the same comes out: settings that only change what is seen of a run do not count."""
    return hash_of(_without_watching(data))


def _without_watching(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _without_watching(value) for name, value in data.items() if name not in _WATCHING}
    return data
