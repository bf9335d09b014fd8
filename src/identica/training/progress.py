"""What a run shows while it goes on: a bar in a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from identica.training.config import TrainConfig
from identica.training.state import Record, TrainState

if TYPE_CHECKING:
    from identica.training.loop import TrainingRun


class Callback:
    """Something that watches a run. Override what you need; every method may be left out.

    Nothing here is called between two evaluations except ``on_step``, which must not read tensors.
    """

    def on_start(self, state: TrainState, config: TrainConfig) -> None:
        """Training starts or resumes at ``state.step``."""

    def on_step(self, state: TrainState) -> None:
        """One step is done."""

    def on_evaluation(self, state: TrainState, record: Record) -> None:
        """The encoder was scored."""

    def on_end(self, run: TrainingRun) -> None:
        """Training is over."""

    def close(self) -> None:
        """Always called last, also after an error."""


def progress_callback(description: str, *, quiet: bool) -> Callback:
    """The right way to show progress here."""
    if quiet:
        return Callback()
    console = Console(stderr=True)
    return ProgressBar(description, console) if console.is_terminal else ProgressLines(description)


def describe_record(record: Record) -> str:
    """``loss 3.412  R² 0.991  MCC 0.987``, with whatever the record holds."""
    parts = [f"loss {record.terms['loss']:.4f}"] if "loss" in record.terms else []
    names = {"r2": "R²", "mcc": "MCC"}
    parts += [f"{names.get(name, name)} {value:.4f}" for name, value in record.scores.items()]
    return "  ".join(parts)


class ProgressBar(Callback):
    """A bar with loss, scores, speed and time left."""

    def __init__(self, description: str, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
        )
        self._task = self._progress.add_task(description, total=None, speed="", note="")

    def on_start(self, state: TrainState, config: TrainConfig) -> None:
        """Show the bar, part filled if the run resumes."""
        self._began, self._first = time.monotonic(), state.step
        self._progress.update(self._task, total=config.steps, completed=state.step)
        self._progress.start()

    def on_step(self, state: TrainState) -> None:
        """Advance the bar."""
        speed = (state.step - self._first) / max(time.monotonic() - self._began, 1e-9)
        self._progress.update(self._task, completed=state.step, speed=f"{speed:.0f} steps/s")

    def on_evaluation(self, state: TrainState, record: Record) -> None:
        """Put the scores beside the bar."""
        self._progress.update(self._task, note=describe_record(record))

    def close(self) -> None:
        """Leave the finished bar on the screen."""
        self._progress.stop()


class ProgressLines(Callback):
    """One line for each evaluation, for logs; at most one every two seconds, and always the last."""

    interval = 2.0

    def __init__(self, description: str) -> None:
        self._description = description
        self._last = -self.interval

    def on_start(self, state: TrainState, config: TrainConfig) -> None:
        """Start the clock."""
        self._began, self._first, self._steps = time.monotonic(), state.step, config.steps

    def on_evaluation(self, state: TrainState, record: Record) -> None:
        """Print the scores, the speed and what remains."""
        now = time.monotonic()
        if now - self._last < self.interval and state.step < self._steps:
            return
        self._last = now
        done = state.step - self._first
        speed = done / max(now - self._began, 1e-9)
        left = f"  {speed:.0f} steps/s  {(self._steps - state.step) / speed:.0f} s left" if done else ""
        line = f"{self._description}  step {state.step}/{self._steps}  {describe_record(record)}{left}"
        print(line, file=sys.stderr, flush=True)
