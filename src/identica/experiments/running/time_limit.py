"""A limit on the time of one call, for machines that are lent by the minute."""

from __future__ import annotations

import math
import time

from identica._numbers import as_float
from identica.training import Callback, StopTraining, TrainState


class TimeIsUp(Exception):
    """The time of a call is up, and something is left to do. What was begun is kept; the same call continues."""


class TimeLimit(Callback):
    """Stops training once ``minutes`` have passed since it was made; None for no limit.

    It looks at the clock after a step and wherever :meth:`check` is called. What lies between, such as scoring a model,
    training a VAE or waiting for one, is not cut short. At least one step is trained, so that calls of any length
    come to an end together.
    """

    def __init__(self, minutes: float | None) -> None:
        number = math.inf if minutes is None else as_float(minutes)
        if not number > 0.0:  # NaN is not either
            raise ValueError(f"minutes must be a number above 0, not {minutes!r}: leave it out for no limit.")
        self._end, self._trained = time.monotonic() + 60.0 * number, False

    def on_step(self, state: TrainState) -> None:
        """One step is done."""
        self._trained = True
        self.check()

    def check(self, *, waiting: bool = False) -> None:
        """Raise :class:`~identica.training.StopTraining` if the time is up; while ``waiting`` also before any step."""
        if (self._trained or waiting) and time.monotonic() >= self._end:
            raise StopTraining("The time is up.")
