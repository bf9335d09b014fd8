"""What ``reproduce`` shows of a whole table: what is being trained, how far it is, how long it will take."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from identica.experiments.running.pace import Pace, Work, duration
from identica.training import Callback, Record, TrainConfig, TrainState
from identica.training.progress import describe_record

#: The first steps of a run compile, allocate and capture: they are not timed.
_WARM_UP_STEPS = 5
#: An estimate is said once so many seconds of training were timed.
_TIMED_SECONDS = 2.0
_REDRAW_SECONDS = 0.2


class TableProgress(Callback):
    """Follows the training of a whole table. Quiet, it says nothing; in a log it writes lines.

    ``ahead`` is all the work that is left, that in progress included; :meth:`begin` and :meth:`end` frame each piece.
    """

    interval = 10.0

    def __init__(self, title: str, *, quiet: bool = False) -> None:
        self.ahead: list[Work] = []
        self._title, self._quiet, self._label = title, quiet, ""
        self._pace, self._now = Pace(), Work("", 0)
        self._done_before = self._done_now = self._warm_at = 0
        self._timed_from: tuple[int, float] | None = None
        self._estimated = quiet
        self._last_line = -self.interval
        console = Console(stderr=True)
        self._bar = None if quiet or not console.is_terminal else _bar(console)
        self._task = TaskID(0) if self._bar is None else self._bar.add_task(title, total=None, left="", note="")

    def __enter__(self) -> TableProgress:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    # -- what the runner tells

    def begin(self, label: str, work: Work) -> None:
        """One piece of the work ahead starts."""
        self._label, self._now, self._done_now = label, work, 0
        if self._bar:
            self._bar.update(self._task, description=label, note="")

    def end(self) -> None:
        """It is done."""
        self._observe()
        self._timed_from = None
        if self._now in self.ahead:
            self.ahead.remove(self._now)
        self._done_before += self._now.steps
        self._now, self._done_now = Work("", 0), 0
        if self._bar:
            self._bar.update(self._task, completed=self._done_before, total=self._done_before + self._steps_ahead())

    def _steps_ahead(self) -> int:
        return sum(work.steps for work in self.ahead)

    def say(self, sentence: str) -> None:
        """A line for the reader, above the bar where there is one."""
        if self._quiet:
            return
        if self._bar:
            self._bar.console.print(sentence, highlight=False, markup=False)
        else:
            print(sentence, file=sys.stderr, flush=True)

    # -- what training tells

    def on_start(self, state: TrainState, config: TrainConfig) -> None:
        """One seed starts, or resumes at ``state.step``."""
        self._observe()
        self._timed_from, self._warm_at = None, state.step + _WARM_UP_STEPS
        self._done_now += state.step

    def on_step(self, state: TrainState) -> None:
        """Count, and from time to time look at the clock."""
        self._done_now += 1
        if self._timed_from is None:
            if state.step >= self._warm_at:
                self._timed_from = self._done_now, time.monotonic()
            return
        if not self._estimated and time.monotonic() - self._timed_from[1] >= _TIMED_SECONDS:
            self._estimated = True
            self.say(f"{self._title}: about {duration(self.seconds_left() or 0)} on this machine.")
        if self._bar and time.monotonic() - self._last_line >= _REDRAW_SECONDS:
            self._last_line = time.monotonic()
            left = self.seconds_left()
            self._bar.update(
                self._task,
                completed=self._done_before + self._done_now,
                total=self._done_before + self._steps_ahead(),
                left="" if left is None else f"{duration(left)} left",
            )

    def on_evaluation(self, state: TrainState, record: Record) -> None:
        """Show the scores."""
        if self._bar:
            self._bar.update(self._task, note=describe_record(Record(record.step, record.seconds, record.scores)))
        elif time.monotonic() - self._last_line >= self.interval and state.step:
            self._last_line = time.monotonic()
            left = self.seconds_left()
            remaining = "" if left is None else f"  {duration(left)} left"
            done = f"step {self._done_now} of {self._now.steps}"  # of all stages, where there are several
            self.say(f"{self._label}  {done}  {describe_record(record)}{remaining}")

    # -- the clock

    def _measured(self) -> tuple[int, float] | None:
        """Steps and seconds of the seed in progress since it was warm."""
        if self._timed_from is None or self._done_now <= self._timed_from[0]:
            return None
        return self._done_now - self._timed_from[0], time.monotonic() - self._timed_from[1]

    def _observe(self) -> None:
        measured = self._measured()
        if measured is not None:
            self._pace.observe(Work(self._now.kind, measured[0], self._now.supervised), measured[1])

    def seconds_left(self) -> float | None:
        """For the whole table; None before anything could be timed."""
        pace = Pace(dict(self._pace.measured))
        measured = self._measured()
        if measured is not None:
            pace.observe(Work(self._now.kind, measured[0], self._now.supervised), measured[1])
        left = pace.seconds(self.ahead)
        done = pace.seconds([Work(self._now.kind, self._done_now, self._now.supervised)])
        return None if left is None or done is None else max(0.0, left - done)


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False, table_column=Column(max_width=34, no_wrap=True)),
        BarColumn(bar_width=None),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[left]}", table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[note]}", markup=False, table_column=Column(no_wrap=True)),
        console=console,
        expand=console.width < 140,
    )
