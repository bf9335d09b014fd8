"""How long training took to reach a score."""

from __future__ import annotations

import math
from collections.abc import Iterable

from identica.training.state import Record


def iterations_to_target(
    history: Iterable[Record], score: str, targets: float | Iterable[float]
) -> dict[float, int | None]:
    """The step of the first evaluation at which the score had reached each target, or None if it never did.

    history: the evaluations of a run, ``run.history``.
    score: its name in them, such as "r2" or "mcc".
    targets: one, or several.

    Evaluations are ``eval_every`` steps apart, and so are the answers.

    >>> history = [Record(100, 1.0, {"r2": 0.5}), Record(200, 2.0, {"r2": 0.82}), Record(300, 3.0, {"r2": 0.8})]
    >>> iterations_to_target(history, "r2", (0.5, 0.8, 0.9))
    {0.5: 100, 0.8: 200, 0.9: None}
    """
    records = sorted(history, key=lambda record: record.step)
    for record in records:
        known = {**record.terms, **record.scores}
        if score not in known:
            raise ValueError(f"The evaluations have no {score!r}; they have {', '.join(sorted(known))}.")
    steps: dict[float, int | None] = {}
    for target in (targets,) if isinstance(targets, int | float) else targets:
        if not math.isfinite(target):
            raise ValueError(f"A target is a finite number, not {target!r}.")
        steps[target] = next((record.step for record in records if record[score] >= target), None)
    return steps
