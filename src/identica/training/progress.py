"""What a run shows while it goes on: a bar in a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from identica.training.config import TrainConfig
from identica.training.run import TrainingRun
from identica.training.state import Record, TrainState


class StopTraining(Exception):
    """Raised by a callback's ``on_step``: with ``out`` the run is saved where it stands, and ``train`` raises it again.

    With ``resume`` the same call then continues from there. After the last step nothing is raised.
    """


class Callback:
    """Something that watches a run. Override what you need; every method may be left out.

    Nothing here is called between two evaluations except ``on_step``, which must not read tensors and may raise
    :class:`StopTraining`.
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


class MeanOverSeeds(Callback):
    """Shows runs that are trained together as one: the mean over the seeds scored so far at a step."""

    def __init__(self, inner: Callback) -> None:
        self._inner = inner
        self._records: list[Record] = []

    def on_start(self, state: TrainState, config: TrainConfig) -> None:
        """Pass it on."""
        self._inner.on_start(state, config)

    def on_step(self, state: TrainState) -> None:
        """Pass it on."""
        self._inner.on_step(state)

    def on_evaluation(self, state: TrainState, record: Record) -> None:
        """Pass the mean on."""
        self._records = [r for r in self._records if r.step == record.step] + [record]
        scores, terms = (
            {k: statistics.fmean(getattr(r, part)[k] for r in self._records) for k in getattr(record, part)}
            for part in ("scores", "terms")
        )
        self._inner.on_evaluation(state, Record(record.step, record.seconds, scores, terms))

    def on_end(self, run: TrainingRun) -> None:
        """Pass it on."""
        self._inner.on_end(run)

    def close(self) -> None:
        """Pass it on."""
        self._inner.close()


def describe_record(record: Record) -> str:
    """``loss 3.412  R² 0.991  MCC 0.987``, with whatever the record holds."""
    parts = [f"loss {record.terms['loss']:.4f}"] if "loss" in record.terms else []
    names = {"r2": "R²", "mcc": "MCC"}
    parts += [f"{names.get(name, name)} {value:.4f}" for name, value in record.scores.items()]
    return "  ".join(parts)


#: Narrower terminals get the scores on a line of their own.
ONE_LINE_FROM = 110


class _Bar(Progress):
    """The bar, with the scores beside it where there is room and below it where there is not."""

    def __init__(self, console: Console) -> None:
        self._note_below = console.width < ONE_LINE_FROM
        note = [] if self._note_below else [TextColumn("{task.fields[note]}", markup=False)]
        super().__init__(
            TextColumn("{task.description}", markup=False, table_column=Column(max_width=28, no_wrap=True)),
            BarColumn(),  # the only column that gives way
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            *note,
            console=console,
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        """What is on the screen now."""
        yield self.make_tasks_table(self.tasks)
        if self._note_below:
            yield from (Padding(Text(task.fields["note"]), (0, 0, 0, 2)) for task in self.tasks)


class ProgressBar(Callback):
    """A bar with loss, scores, speed and time left."""

    def __init__(self, description: str, console: Console) -> None:
        self._progress = _Bar(console)
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
