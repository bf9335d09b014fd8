"""``train`` and ``train_many``: the loop around the step, with evaluations, checkpoints and progress."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
import types
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from identica._devices import usable_device
from identica.objectives import Objective
from identica.training.checkpoint import (
    CheckpointError,
    checkpoint_path,
    require_writable,
    restore,
    save_checkpoint,
)
from identica.training.config import TrainConfig, derive_seed
from identica.training.evaluation import first_pairs, scores_where_known
from identica.training.progress import Callback, MeanOverSeeds, StopTraining, progress_callback
from identica.training.run import TrainingDiverged, TrainingRun
from identica.training.state import Record, TrainState, unshare
from identica.training.step import Process
from identica.training.together import Together

#: Observations an encoder sees before training, to fit its whitening; its ``prepare_samples`` may ask for fewer.
PREPARE_SAMPLES = 8192
#: In nats: codes that tell less of the positive than this tell nothing.
BLIND = 1e-4


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
    watchers = [progress_callback(description, quiet=quiet), *callbacks]
    return _train([process], [encoder], [objective], config, [seed], device, out, resume, watchers)[0]


def train_many(
    processes: Sequence[Process],
    encoders: Sequence[nn.Module],
    objectives: Sequence[Objective],
    config: TrainConfig | None = None,
    *,
    seeds: Sequence[int],
    device: torch.device | str = "cpu",
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    quiet: bool = False,
    description: str = "training",
) -> tuple[TrainingRun, ...]:
    """Train several seeds of one experiment together: one process, encoder, objective and seed for each.

    Each run ends as :func:`train` would have ended it: bit by bit on the CPU, where the seeds take turns, and up to
    rounding and its consequences on CUDA, where one captured step does the work of all of them at once, in
    far less time than one after the other. The parts of the seeds may differ in their numbers (mixing, weights,
    data), not in their architecture.

    A seed whose loss or parameters stop being finite does not disturb the others: its run says so in ``diverged``.
    Only if all of them do, :class:`TrainingDiverged` is raised. Callbacks see every evaluation of every seed.
    """
    config = TrainConfig() if config is None else config
    given = {"processes": processes, "encoders": encoders, "objectives": objectives, "seeds": seeds}
    if not seeds or len({len(part) for part in given.values()}) != 1:
        counts = ", ".join(f"{len(part)} {name}" for name, part in given.items())
        raise ValueError(f"train_many needs one process, encoder, objective and seed for each run, not {counts}.")
    for name, parts in (("encoders", encoders), ("objectives", objectives)):
        if len({id(part) for part in parts}) != len(parts):
            raise ValueError(f"Every seed needs an object of its own, but {name} holds one twice.")
    for process, encoder, objective in zip(processes, encoders, objectives, strict=True):
        _check_parts(process, encoder, objective, config)
    watchers = [MeanOverSeeds(progress_callback(description, quiet=quiet)), *callbacks]
    return _train(processes, encoders, objectives, config, seeds, device, out, resume, watchers)


def _train(
    processes: Sequence[Process],
    encoders: Sequence[nn.Module],
    objectives: Sequence[Objective],
    config: TrainConfig,
    seeds: Sequence[int],
    device: torch.device | str,
    out: str | os.PathLike[str] | None,
    resume: bool,
    watchers: Sequence[Callback],
) -> tuple[TrainingRun, ...]:
    device = usable_device(device)
    path = None if out is None else checkpoint_path(out)
    if path is not None:
        require_writable(path.parent)
        if path.exists() and not resume:
            raise CheckpointError(f"{path} exists already: pass resume=True to continue that run, or another out=.")
    processes = [_on_device(process, device, encoder) for process, encoder in zip(processes, encoders, strict=True)]
    states = [
        TrainState.create(encoder, objective, config, seed=seed, device=device, process=process)
        for process, encoder, objective, seed in zip(processes, encoders, objectives, seeds, strict=True)
    ]
    if path is not None and path.exists():
        restore(path, states, config)
    else:
        for process, encoder, seed in zip(processes, encoders, seeds, strict=True):
            _prepare(encoder, process, seed, device)
    for encoder in encoders:
        encoder.train()
    try:
        _Loop(processes, states, config, path, watchers).run()
    finally:
        for state in states:
            state.encoder.eval()
            unshare(state.encoder)
            unshare(state.objective)
        for watcher in watchers:
            watcher.close()
    runs = tuple(
        TrainingRun(
            s.encoder, s.objective, config, tuple(s.history), s.seconds, s.step, s.seed, path, diverged=s.diverged
        )
        for s in states
    )
    for watcher in watchers:
        for run in runs:
            watcher.on_end(run)
    return runs


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
        n = getattr(encoder, "prepare_samples", PREPARE_SAMPLES)
        most = getattr(process, "most", None)  # of a pool
        encoder.prepare(first_pairs(process.sample(n if most is None else min(n, most), generator)).x)


class _Loop:
    """The loop around the step, over one run or over several that are trained together."""

    def __init__(
        self,
        processes: Sequence[Process],
        states: Sequence[TrainState],
        config: TrainConfig,
        path: Path | None,
        watchers: Sequence[Callback],
    ) -> None:
        self.processes, self.states, self.config, self.path = processes, states, config, path
        self.watchers = watchers
        self.together = Together(processes, states, config)
        self.clock = _Clock(states)

    def run(self) -> None:
        """Train to the last step; evaluate and save on the way."""
        first, steps = self.states[0], self.config.steps
        for watcher in self.watchers:
            watcher.on_start(first, self.config)
        if not first.history:
            self._evaluate()
        with _interruptible() as interrupted:
            while first.step < steps:
                self.together.advance()
                stop: BaseException | None = self._step_done(first)
                if interrupted.is_set():
                    stop = KeyboardInterrupt(_interruption_message(first, self.path))
                is_last = first.step == steps
                leaving = stop is not None and not is_last
                if is_last or first.step % self.config.eval_every == 0:
                    self._give_up_diverged()
                    self._evaluate()
                if self.path is not None and (is_last or leaving or first.step % self.config.checkpoint_every == 0):
                    self._give_up_diverged()
                    self.clock.read()
                    self._save(self.path, must_succeed=is_last or leaving)
                if stop is not None and not is_last:
                    raise stop
            if interrupted.is_set():  # in the last step, or while it was scored and saved
                raise KeyboardInterrupt(_interruption_message(first, self.path))

    def _step_done(self, state: TrainState) -> StopTraining | None:
        """Tell everybody; what one of them stops for, after all have been told."""
        stop = None
        for watcher in self.watchers:
            try:
                watcher.on_step(state)
            except StopTraining as error:
                stop = error
        return stop

    def _evaluate(self) -> None:
        seconds = self.clock.read()
        for process, state in zip(self.processes, self.states, strict=True):
            if state.diverged is not None:
                continue
            generator = torch.Generator(device=state.device)
            generator.manual_seed(derive_seed(state.seed, f"evaluation {state.step}"))
            scores = scores_where_known(process, state.encoder, self.config.eval_samples, generator)
            if len(self.states) == 1:
                seconds = self.clock.read()
            record = Record(state.step, seconds, scores, state.read_terms())
            state.history.append(record)
            _warn_if_blind(state)
            for watcher in self.watchers:
                watcher.on_evaluation(state, record)

    def _give_up_diverged(self) -> None:
        """Raise if the only run has diverged, or all have; one among others is given up alone."""
        kept = f" The last good checkpoint is kept at {self.path}." if self.path and self.path.exists() else ""
        advice = (
            " Try a smaller learning rate, a larger temperature, or float32 if this run used a lower precision; and "
            "check that the data are finite."
        )
        for state in self.states:
            if state.diverged is None:
                state.diverged = _what_diverged(state)
        if all(state.diverged is not None for state in self.states):
            raise TrainingDiverged(f"{self.states[0].diverged}{kept}{advice}")

    def _save(self, path: Path, *, must_succeed: bool) -> None:
        self.together.spread()
        try:
            save_checkpoint(path, self.states, self.config)
        except OSError as error:
            step = self.states[0].step
            message = f"The checkpoint at step {step} could not be written to {path} ({error.strerror or error})."
            if must_succeed:
                raise CheckpointError(f"{message} The previous one, if any, is intact.") from error
            warnings.warn(f"{message} The previous one, if any, is intact; training goes on.", stacklevel=5)


def _what_diverged(state: TrainState) -> str | None:
    """A sentence if something is not finite, else None (waits for the device)."""
    bad = int(state.first_bad_step)
    if bad >= 0:
        return f"The loss was NaN or infinite at step {bad + 1}."
    if not _is_finite(state.encoder) or not _is_finite(state.objective):
        return f"A parameter became NaN or infinite by step {state.step}, though the loss was still finite."
    return None


def _warn_if_blind(state: TrainState) -> None:
    """Say so once if between three evaluations the codes told nothing of which candidate was the positive."""
    blind = [abs(record.terms.get("information", math.nan)) < BLIND for record in state.history[-3:]]
    if blind == [False, True, True]:
        warnings.warn(
            f"From step {state.history[-3].step} to {state.step} the codes of seed {state.seed} told less than {BLIND} "
            "nats of which candidate was the positive: all may have fallen into one point, from which no gradient "
            "leads away. Begin with a higher temperature or a smaller precision, or lower the learning rate.",
            stacklevel=6,
        )


def _is_finite(module: nn.Module) -> bool:
    return all(bool(value.isfinite().all()) for value in module.parameters())


def _interruption_message(state: TrainState, path: Path | None) -> str:
    if path is None:
        return f"Interrupted at step {state.step}. Nothing was saved: pass out= to be able to resume."
    return f"Interrupted at step {state.step}; saved to {path}. Run the same again with resume to continue."


class _Clock:
    """Seconds of training, across interruptions; of runs trained together, the seconds of all."""

    def __init__(self, states: Sequence[TrainState]) -> None:
        self._states, self._last = states, time.monotonic()

    def read(self) -> float:
        now = time.monotonic()
        for state in self._states:
            state.seconds += now - self._last
        self._last = now
        return self._states[0].seconds


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


def _on_device(process: Any, device: torch.device, encoder: nn.Module) -> Process:
    """The process on the training device, in the encoder's precision, where it can be moved."""
    if not hasattr(process, "to"):
        return process
    dtype = next((p.dtype for p in encoder.parameters()), torch.get_default_dtype())
    return process.to(device, dtype)
