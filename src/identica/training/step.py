"""One training step: sample, mix, encode, compare, update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from identica._optional import has_triton
from identica._products import tf32
from identica.objectives import Terms
from identica.training.capture import CapturedCall
from identica.training.config import Precision, TrainConfig
from identica.training.schedules import Schedules, gradual_numbers
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
    encode = in_precision(_compiled(state, config), config.precision, state.device)
    parts = (state.encoder, state.objective)
    numbers = [(number, number.value) for part in parts for _, number in gradual_numbers(part)]
    schedules = Schedules(state.optimizer, numbers, config)

    def on_device() -> Terms:
        """Everything but the counting on the host; this is what a graph captures."""
        schedules.follow(state.step, state.device_step)
        with tf32(config.precision == "tf32"):
            pairs = process.sample(config.batch_size, state.generator)
            state.optimizer.zero_grad(set_to_none=True)
            terms = state.objective.compute(encode, pairs)
            terms.loss.backward()
        state.optimizer.step()
        with torch.no_grad():
            note(state.sums, state.first_bad_step, state.device_step, terms)
        return terms

    advance = CapturedCall(on_device, state.generator) if state.device.type == "cuda" else on_device

    def step() -> Terms:
        terms = advance()
        state.step += 1
        state.summed_steps += 1
        return terms

    return step


def _compiled(state: TrainState, config: TrainConfig) -> nn.Module:
    """The encoder, compiled where that was asked for."""
    if not config.compile:
        return state.encoder
    if state.device.type != "cpu":
        raise ValueError(f"compile=True is for the CPU; on {state.device.type} the step is captured as one graph.")
    compiled: nn.Module = torch.compile(state.encoder)  # type: ignore[assignment]
    return compiled


def note(sums: Tensor, first_bad_step: Tensor, step: Tensor, terms: Terms) -> None:
    """Add the terms up on the device, remember the first step whose loss was not finite, and count the step.

    ``sums: (..., terms)``, ``first_bad_step: (...)``, with an axis of seeds in front or without.
    """
    values = [getattr(terms, name).detach() for name in SUMMED]
    if sums.device.type == "cuda" and has_triton():
        from identica.training.triton_note import run_note

        run_note(sums, first_bad_step, step, values)
        return
    sums += torch.stack(values, dim=-1)
    is_bad = terms.loss - terms.loss != 0  # inf − inf and NaN − NaN are NaN, which differs from 0
    first_bad_step.copy_(torch.where(is_bad & (first_bad_step < 0), step, first_bad_step))
    step += 1


def in_precision(encoder: nn.Module, precision: Precision, device: torch.device) -> Callable[[Tensor], Tensor]:
    """The encoder, under autocast where half precision was asked for."""
    if precision != "bf16":
        return encoder

    def encode(x: Tensor) -> Tensor:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            return encoder(x).float()

    return encode
