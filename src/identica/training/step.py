"""One training step: sample, mix, encode, compare, update."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from identica.objectives import Terms
from identica.training.capture import CapturedCall
from identica.training.config import Precision, TrainConfig
from identica.training.state import SUMMED, TrainState


class Process(Protocol):
    """What a training loop needs of a data generating process."""

    def sample(self, n: int, generator: torch.Generator) -> Any:
        """Draw ``n`` pairs (or a tuple of several kinds of pairs)."""


def make_step(process: Process, state: TrainState, config: TrainConfig) -> Callable[[], Terms]:
    """A function that advances ``state`` by one step and returns the objective's terms.

    The step itself never waits for the device: terms are added up there, and a loss that is not
    finite leaves its step number in ``state.first_bad_step``. On CUDA the whole step is captured as one
    graph after a few steps, where the process and the objective allow it; the terms it returns are then
    overwritten by the next step.

    >>> import identica as idt
    >>> laplace = idt.Conditional(idt.TruncatedLaplace, scale=0.05)
    >>> process = idt.PairProcess(idt.BoxUniform(2), laplace)
    >>> encoder, objective = idt.MLPEncoder(2, idt.Box(2), seed=0), idt.InfoNCE(laplace.similarity())
    >>> config = TrainConfig(steps=3, batch_size=32)
    >>> state = TrainState.create(encoder, objective, config, seed=0)
    >>> step = make_step(process, state, config)
    >>> for _ in range(config.steps):
    ...     terms = step()
    >>> state.step, bool(terms.loss.isfinite())
    (3, True)
    """
    encode = _in_precision(state.encoder, config.precision, state.device)

    def on_device() -> Terms:
        """Everything but the counting on the host; this is what a graph captures."""
        _set_learning_rates(state, config)
        with matmul_precision(config.precision):
            pairs = process.sample(config.batch_size, state.generator)
            state.optimizer.zero_grad(set_to_none=True)
            terms = state.objective.compute(encode, pairs)
            terms.loss.backward()
        state.optimizer.step()
        with torch.no_grad():
            _note(state, terms)
        return terms

    advance = CapturedCall(on_device, state.generator) if state.device.type == "cuda" else on_device

    def step() -> Terms:
        terms = advance()
        state.step += 1
        state.summed_steps += 1
        return terms

    return step


def _set_learning_rates(state: TrainState, config: TrainConfig) -> None:
    for group in state.optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].copy_(group["peak_lr"] * _device_decay(state.device_step, config))
        else:
            group["lr"] = group["peak_lr"] * config.decay(state.step)


def _device_decay(step: Tensor, config: TrainConfig) -> Tensor:
    """``config.decay`` on the device, for a step that is captured once and replayed many times."""
    if config.schedule == "constant":
        return torch.ones_like(step, dtype=torch.float64)
    return 0.5 * (1.0 + torch.cos(math.pi * (step.double() / config.steps).clamp_max(1.0)))


def _note(state: TrainState, terms: Terms) -> None:
    """Add the terms up on the device and remember the first step whose loss was not finite."""
    state.sums += torch.stack([getattr(terms, name).detach().double() for name in SUMMED])
    is_first = (state.first_bad_step < 0) & ~terms.loss.isfinite()
    state.first_bad_step.copy_(torch.where(is_first, state.device_step, state.first_bad_step))
    state.device_step += 1


def _in_precision(encoder: nn.Module, precision: Precision, device: torch.device) -> Callable[[Tensor], Tensor]:
    if precision != "bf16":
        return encoder

    def encode(x: Tensor) -> Tensor:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            return encoder(x).float()

    return encode


@contextlib.contextmanager
def matmul_precision(precision: Precision) -> Iterator[None]:
    """TF32 matrix products on CUDA while the context lasts if asked for, full float32 otherwise."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
