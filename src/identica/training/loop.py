"""``train``: the loop around the step. Evaluates, checkpoints, shows progress, survives being killed."""

from __future__ import annotations

import os
import signal
import threading
import time
import types
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from identica.encoders import encoder_from_dict
from identica.objectives import Objective, objective_from_dict
from identica.training.checkpoint import (
    CheckpointError,
    checkpoint_path,
    read_checkpoint,
    require_writable,
    restore,
    save_checkpoint,
)
from identica.training.config import TrainConfig, derive_seed
from identica.training.evaluation import evaluate, first_pairs
from identica.training.progress import Callback, progress_callback
from identica.training.state import Record, TrainState
from identica.training.step import Process, make_step

#: Observations an encoder sees before training, to fit its whitening.
PREPARE_SAMPLES = 8192


class TrainingDiverged(FloatingPointError):
    """The loss was NaN or infinite; the message names the step and what to try."""


@dataclass(frozen=True)
class TrainingRun:
    """A trained encoder and how it got there. Calling it encodes: ``run(x) -> h``, without gradients."""

    encoder: nn.Module
    objective: Objective
    config: TrainConfig
    history: tuple[Record, ...]
    seconds: float
    step: int
    seed: int
    path: Path | None = None

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """The codes of the observations ``x: (n, ...)``."""
        return self.encoder(x)

    @property
    def scores(self) -> dict[str, float]:
        """The last evaluation's scores."""
        return dict(self.history[-1].scores)


def train(
    process: Process,
    encoder: nn.Module,
    objective: Objective,
    config: TrainConfig | None = None,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    quiet: bool = False,
    description: str = "training",
) -> TrainingRun:
    """Train ``encoder`` in place on fresh pairs of ``process``.

    With ``out`` a checkpoint is written there as the configuration says; with ``resume`` as well a run
    that was interrupted, even killed, continues where its last checkpoint stood and ends as if nothing
    had happened (bit by bit on the CPU). Without a checkpoint there, ``resume`` starts afresh.

    The pairs come from one random stream, each evaluation from a stream of its own, both derived from
    ``seed``: how often one looks does not change what is learned.
    """
    config = TrainConfig() if config is None else config
    _check_parts(process, encoder, objective, config)
    device = _usable_device(device)
    path = None if out is None else checkpoint_path(out)
    if path is not None:
        require_writable(path.parent)
        if path.exists() and not resume:
            raise CheckpointError(f"{path} exists already: pass resume=True to continue that run, or another out=.")
    process = _on_device(process, device, encoder)
    state = TrainState.create(encoder, objective, config, seed=seed, device=device, process=process)
    if path is not None and path.exists():
        restore(path, state, config)
    else:
        _prepare(encoder, process, seed, device)
    watchers = [progress_callback(description, quiet=quiet), *callbacks]
    encoder.train()
    try:
        _run(process, state, config, path, watchers)
    finally:
        encoder.eval()
        for watcher in watchers:
            watcher.close()
    run = TrainingRun(encoder, objective, config, tuple(state.history), state.seconds, state.step, state.seed, path)
    for watcher in watchers:
        watcher.on_end(run)
    return run


def _check_parts(process: Any, encoder: Any, objective: Any, config: Any) -> None:
    """Arguments in the wrong place are the commonest mistake; say which."""
    for name, value, fits, wanted in (
        ("process", process, hasattr(process, "sample"), "a PairProcess, or anything with sample(n, generator)"),
        ("encoder", encoder, isinstance(encoder, nn.Module), "a torch module, such as ResidualEncoder(dim, space)"),
        ("objective", objective, isinstance(objective, Objective), "an objective, such as InfoNCE(similarity)"),
        ("config", config, isinstance(config, TrainConfig), "a TrainConfig"),
    ):
        if not fits:
            raise TypeError(f"{name} of train must be {wanted}, not {type(value).__name__}.")


def _prepare(encoder: Any, process: Process, seed: int, device: torch.device) -> None:
    """Let the encoder look at observations once before training, where it wants to."""
    if hasattr(encoder, "prepare"):
        generator = torch.Generator(device=device).manual_seed(derive_seed(seed, "prepare"))
        encoder.prepare(first_pairs(process.sample(PREPARE_SAMPLES, generator)).x)


def _run(
    process: Process, state: TrainState, config: TrainConfig, path: Path | None, watchers: Sequence[Callback]
) -> None:
    step = make_step(process, state, config)
    clock = _Clock(state)
    for watcher in watchers:
        watcher.on_start(state, config)
    if not state.history:
        _evaluate(process, state, config, clock, watchers)
    with _interruptible() as interrupted:
        while state.step < config.steps:
            step()
            for watcher in watchers:
                watcher.on_step(state)
            is_last = state.step == config.steps
            if is_last or state.step % config.eval_every == 0:
                _stop_if_diverged(state, path)
                _evaluate(process, state, config, clock, watchers)
            if path is not None and (is_last or interrupted.is_set() or state.step % config.checkpoint_every == 0):
                _stop_if_diverged(state, path)
                clock.read()
                _save(path, state, config, must_succeed=is_last or interrupted.is_set())
            if interrupted.is_set() and not is_last:
                raise KeyboardInterrupt(_interruption_message(state, path))


def _evaluate(
    process: Process, state: TrainState, config: TrainConfig, clock: _Clock, watchers: Sequence[Callback]
) -> None:
    generator = torch.Generator(device=state.device)
    generator.manual_seed(derive_seed(state.seed, f"evaluation {state.step}"))
    evaluation = evaluate(process, state.encoder, config.eval_samples, generator=generator)
    record = Record(state.step, clock.read(), evaluation.scores, state.read_terms())
    state.history.append(record)
    for watcher in watchers:
        watcher.on_evaluation(state, record)


def _stop_if_diverged(state: TrainState, path: Path | None) -> None:
    bad = int(state.first_bad_step)
    if bad >= 0:
        what = f"The loss was NaN or infinite at step {bad + 1}."
    elif not _is_finite(state.encoder) or not _is_finite(state.objective):
        what = f"A parameter became NaN or infinite by step {state.step}, though the loss was still finite."
    else:
        return
    kept = f" The last good checkpoint is kept at {path}." if path is not None and path.exists() else ""
    raise TrainingDiverged(
        f"{what}{kept} Try a smaller learning rate, a larger temperature, or float32 if this run used a lower "
        "precision; and check that the data are finite."
    )


def _is_finite(module: nn.Module) -> bool:
    return all(bool(value.isfinite().all()) for value in module.parameters())


def _save(path: Path, state: TrainState, config: TrainConfig, *, must_succeed: bool) -> None:
    try:
        save_checkpoint(path, state, config)
    except OSError as error:
        message = f"The checkpoint at step {state.step} could not be written to {path} ({error.strerror or error})."
        if must_succeed:
            raise CheckpointError(f"{message} The previous one, if any, is intact.") from error
        warnings.warn(f"{message} The previous one, if any, is intact; training goes on.", stacklevel=4)


def _interruption_message(state: TrainState, path: Path | None) -> str:
    if path is None:
        return f"Interrupted at step {state.step}. Nothing was saved: pass out= to be able to resume."
    return f"Interrupted at step {state.step}; saved to {path}. Run the same again with resume to continue."


class _Clock:
    """Seconds of training, across interruptions."""

    def __init__(self, state: TrainState) -> None:
        self._state, self._last = state, time.monotonic()

    def read(self) -> float:
        now = time.monotonic()
        self._state.seconds += now - self._last
        self._last = now
        return self._state.seconds


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Ctrl-C lets the step in progress finish, so that what is saved is whole; a second one does not wait."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return

    def handle(number: int, frame: types.FrameType | None) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, before)


def _usable_device(device: torch.device | str) -> torch.device:
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"The device {device!r} cannot be used here: {error}. On this machine device='cpu' works."
        ) from error


def _on_device(process: Any, device: torch.device, encoder: nn.Module) -> Process:
    """The process on the training device, in the encoder's precision, where it can be moved."""
    if not hasattr(process, "to"):
        return process
    dtype = next((p.dtype for p in encoder.parameters()), torch.get_default_dtype())
    return process.to(device, dtype)


def load(
    path: str | os.PathLike[str], *, encoder: nn.Module | None = None, objective: Objective | None = None
) -> TrainingRun:
    """A trained model from a checkpoint file or its run's folder, on the CPU, ready to use.

    An encoder or objective of your own class cannot be rebuilt from a file: pass one of the same
    architecture, and the saved weights are loaded into it.
    """
    file = checkpoint_path(path)
    tensors, data = read_checkpoint(file)
    encoder = encoder or _rebuilt(encoder_from_dict, data["encoder"], "encoder", file)
    objective = objective or _rebuilt(objective_from_dict, data["objective"], "objective", file)
    for name, module in (("encoder", encoder), ("objective", objective)):
        weights = {k.removeprefix(f"{name}."): v for k, v in tensors.items() if k.startswith(f"{name}.")}
        try:
            module.load_state_dict(weights)
        except RuntimeError as error:
            raise CheckpointError(f"The weights in {file} do not fit this {name}: {error}") from error
    return TrainingRun(
        encoder.eval(),
        objective,
        TrainConfig(**data["config"]),
        tuple(Record(**record) for record in data["history"]),
        data["seconds"],
        data["step"],
        data["seed"],
        file,
    )


def _rebuilt(build: Any, description: dict[str, Any], name: str, file: Path) -> Any:
    if set(description) == {"class"}:
        raise CheckpointError(
            f"The {name} in {file} is of the class {description['class']}, which is not one of this library's: "
            f"pass one of the same architecture as load(..., {name}=...)."
        )
    try:
        return build(description)
    except (TypeError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"The {name} in {file} cannot be rebuilt ({error}); pass one of the same architecture as "
            f"load(..., {name}=...)."
        ) from error
