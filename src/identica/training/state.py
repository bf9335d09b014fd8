"""Everything a training run consists of at one moment; what a checkpoint saves."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.types import Device

from identica._optional import has_triton
from identica._randomness import as_seed
from identica.objectives import Objective
from identica.training.config import TrainConfig, derive_seed
from identica.training.flat_adam import FlatAdam
from identica.training.muon import Muon

#: What ``TrainState.sums`` adds up between two evaluations.
SUMMED = ("loss", "alignment", "log_partition", "accuracy", "information")


@dataclass(frozen=True)
class Record:
    """One evaluation: the objective's terms averaged since the last one, and scores on fresh latents."""

    step: int
    seconds: float
    scores: dict[str, float]
    terms: dict[str, float] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        return {**self.terms, **self.scores}[name]


@dataclass
class TrainState:
    """The moving parts of a run. ``make_step`` advances it, a checkpoint restores it bit by bit.

    ``generator`` feeds the training pairs and nothing else. What a step leaves behind stays on the device,
    so that no step waits for it: ``sums`` adds up the objective's terms, ``device_step`` counts like
    ``step``, and ``first_bad_step`` is the first step whose loss was not finite (−1: none yet).
    ``started_with`` describes the parts before training, so that a checkpoint is resumed with no others.
    ``diverged`` says what went wrong with a seed that is trained together with others and has to be given up.
    """

    encoder: nn.Module
    objective: Objective
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    sums: Tensor
    device_step: Tensor
    first_bad_step: Tensor
    seed: int
    started_with: dict[str, Any]
    step: int = 0
    summed_steps: int = 0
    seconds: float = 0.0
    history: list[Record] = field(default_factory=list)
    diverged: str | None = None

    @classmethod
    def create(
        cls,
        encoder: nn.Module,
        objective: Objective,
        config: TrainConfig,
        *,
        seed: int = 0,
        device: Device = "cpu",
        process: Any = None,
    ) -> TrainState:
        """A run at step 0. The encoder and the objective are moved to the device and trained in place.

        ``process`` is only described, for the checkpoints' sake.
        """
        encoder.to(device)
        objective.to(device)
        return cls(
            encoder=encoder,
            objective=objective,
            optimizer=make_optimizer(trainable(encoder), trainable(objective), config),
            generator=torch.Generator(device=torch.device(device or "cpu")).manual_seed(derive_seed(seed, "pairs")),
            sums=torch.zeros(len(SUMMED), dtype=torch.float64, device=device),
            device_step=torch.zeros((), dtype=torch.int64, device=device),
            first_bad_step=torch.full((), -1, dtype=torch.int64, device=device),
            seed=as_seed(seed),
            started_with={"encoder": describe(encoder), "objective": describe(objective), "process": describe(process)},
        )

    @property
    def device(self) -> torch.device:
        """Where the run takes place."""
        return self.generator.device

    def read_terms(self) -> dict[str, float]:
        """The terms averaged since the last call (waits for the device), and start a new average.

        Terms that the objective does not have are left out; the loss is always there.
        """
        if self.summed_steps == 0:
            return {}
        means = (self.sums / self.summed_steps).tolist()
        self.sums.zero_()
        self.summed_steps = 0
        return {k: v for k, v in zip(SUMMED, means, strict=True) if k == "loss" or not math.isnan(v)}


def describe(part: Any) -> Any:
    """A part as plain data where it can say it, else its class's name."""
    if hasattr(part, "to_dict"):
        return json.loads(json.dumps(part.to_dict()))
    return {"class": type(part).__qualname__}


def trainable(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that training changes."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


@torch.no_grad()
def unshare(module: nn.Module) -> None:
    """Give the module tensors of its own, where they are parts of larger ones that a fused step needed."""
    for parameter in module.parameters():
        if _is_part(parameter):
            parameter.data = parameter.data.clone()
    for owner in module.modules():
        for name, buffer in owner._buffers.items():
            if buffer is not None and _is_part(buffer):
                owner._buffers[name] = buffer.clone()


def _is_part(tensor: Tensor) -> bool:
    return tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size()


def make_optimizer(
    of_encoder: Sequence[Tensor], of_objective: Sequence[Tensor], config: TrainConfig, *, stacked: bool = False
) -> torch.optim.Optimizer:
    """Over the encoder's parameters, and with its own learning rate Adam over what the objective learns.

    On CUDA the learning rates are tensors, so that a captured step can change them, and float32 parameters share
    one vector (:class:`identica.training.flat_adam.FlatAdam`), but for Muon.

    stacked: whether the first dimension of all parameters numbers models that are trained together.
    """
    groups = [
        _group(parameters, lr, more)
        for parameters, lr, more in (
            *((part, config.lr, more) for part, more in _parts(of_encoder, config, stacked)),
            (of_objective, config.objective_lr, {"after": config.similarity_after}),
        )
        if parameters
    ]
    if not groups:
        raise ValueError("There is nothing to train: neither the encoder nor the objective has trainable parameters.")
    if config.optimizer == "muon":
        return Muon(groups, stacked=stacked)
    everything = [parameter for group in groups for parameter in group["params"]]
    if has_triton() and all(p.device.type == "cuda" and p.dtype == torch.float32 for p in everything):
        decay = {"adam": 0.0, "adamw": 0.01}[config.optimizer]  # torch's own defaults
        return FlatAdam(groups, weight_decay=decay, decoupled=config.optimizer == "adamw")
    optimizers: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
    }
    return optimizers[config.optimizer](groups, fused=True)


def _group(parameters: Sequence[Tensor], lr: float, more: Mapping[str, Any]) -> dict[str, Any]:
    on_cuda = parameters[0].device.type == "cuda"
    rate = torch.full((), lr, device=parameters[0].device) if on_cuda else lr
    return {"params": list(parameters), "lr": rate, "peak_lr": lr, "capturable": on_cuda, **more}


def _parts(
    parameters: Sequence[Tensor], config: TrainConfig, stacked: bool
) -> list[tuple[list[Tensor], dict[str, Any]]]:
    """The encoder's parameters in groups; ``"matrices"`` are for Muon: all but the last one."""
    if config.optimizer != "muon":
        return [(list(parameters), {})]
    matrices = [p for p in parameters if p.ndim >= 2 + stacked][:-1]
    chosen = {id(p) for p in matrices}
    return [(matrices, {"matrices": True}), ([p for p in parameters if id(p) not in chosen], {})]
