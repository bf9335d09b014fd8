"""How long it will still take: seconds per step of each kind of training, measured as it goes on.

A step costs more with some similarities than with others, and supervised steps cost least, so steps of
different kinds are timed apart. Kinds that nobody has seen yet are guessed from those that were.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

#: A supervised step encodes one view in place of two and has no pairs to compare.
_SUPERVISED_SHARE = 0.5


@dataclass(frozen=True)
class Work:
    """So many steps of one kind: supervised or not, and with which loss."""

    kind: str
    steps: int
    supervised: bool = False


@dataclass
class Pace:
    """What was measured so far: for each kind, steps and seconds."""

    measured: dict[tuple[str, bool], tuple[int, float]] = field(default_factory=dict)

    def observe(self, work: Work, seconds: float) -> None:
        """``work.steps`` steps took that many seconds."""
        steps, before = self.measured.get((work.kind, work.supervised), (0, 0.0))
        self.measured[work.kind, work.supervised] = steps + work.steps, before + seconds

    def seconds(self, ahead: Iterable[Work]) -> float | None:
        """How long the work ahead will take; None before anything was measured.

        >>> pace = Pace()
        >>> pace.observe(Work("dot", 100), 2.0)
        >>> pace.seconds([Work("dot", 1000), Work("supervised", 1000, supervised=True)])
        30.0
        """
        if not any(steps for steps, _ in self.measured.values()):
            return None
        return sum(work.steps * self._per_step(work) for work in ahead)

    def _per_step(self, work: Work) -> float:
        known = {key: seconds / steps for key, (steps, seconds) in self.measured.items() if steps}
        if (work.kind, work.supervised) in known:
            return known[work.kind, work.supervised]
        alike = [value for (_, supervised), value in known.items() if supervised == work.supervised]
        if alike:
            return statistics.fmean(alike)
        other = statistics.fmean(known.values())
        return other * _SUPERVISED_SHARE if work.supervised else other / _SUPERVISED_SHARE


def duration(seconds: float) -> str:
    """A length of time for people.

    >>> duration(0.4), duration(75), duration(5400), duration(200_000)
    ('1 s', '75 s', '1 h 30 min', '2 d 7 h')
    """
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"
