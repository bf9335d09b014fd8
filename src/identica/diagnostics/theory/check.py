"""What one check of a theorem says, as plain data: a number, what it should be, how far off it may be, a picture."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Point = tuple[float, float]
Relation = Literal["=", "≤", "≥"]
Topic = Literal["limit", "positive", "isometry", "group", "uniformity", "marginal", "mismatch"]

#: How many standard errors a sampled value may be off. A correct one, from 160 batches, is further off once in 600,000
#: times, and from 24 batches (the quick version) once in 20,000.
STANDARD_ERRORS = 5.0


@dataclass(frozen=True)
class Line:
    """One curve or cloud of points of a :class:`Curve`. A dashed one goes with the line before it.

    One without a name is drawn but not explained: it is the same, for another line.
    """

    name: str
    points: tuple[Point, ...]
    kind: Literal["line", "dashed", "dots"] = "line"


@dataclass(frozen=True)
class Curve:
    """A picture with two axes. ``band`` is a range of y, with its name, that is to be shaded.

    With ``equal`` a unit is equally long on both axes.
    """

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    log_x: bool = False
    log_y: bool = False
    band: tuple[float, float, str] | None = None
    equal: bool = False


@dataclass(frozen=True)
class Matrix:
    """A picture of a matrix, the stronger coloured the larger the entry's size."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Check:
    """One claim, measured.

    topic: the question it belongs to; claim: what the theorem says, in a sentence; theorem: where.
    quantity: what was measured. It holds if ``measured relation predicted``, give or take ``tolerance``.
    tolerance_is: where the tolerance comes from. note: what else one should know.

    >>> check = Check("limit", "one is one", "A", "a one", 1.02, 1.0, 0.05, "5 standard errors")
    >>> check.holds, check.error < 0.03
    (True, True)
    """

    topic: Topic
    claim: str
    theorem: str
    quantity: str
    measured: float
    predicted: float
    tolerance: float
    tolerance_is: str
    relation: Relation = "="
    curve: Curve | Matrix | None = None
    note: str = ""

    @property
    def error(self) -> float:
        """How far the measured value is on the wrong side of the predicted one; NaN if either is."""
        difference = self.measured - self.predicted
        if self.relation == "≤":
            return max(difference, 0.0) if math.isfinite(difference) else difference
        if self.relation == "≥":
            return max(-difference, 0.0) if math.isfinite(difference) else math.nan
        return abs(difference)

    @property
    def expected(self) -> str:
        """What was predicted, and how far off it may be, in a few characters."""
        predicted, tolerance = short(self.predicted), short(self.tolerance, digits=2)
        if self.relation == "=":
            return f"{predicted} ± {tolerance}"
        if self.predicted == 0 and self.relation == "≤":
            return f"0, at most {tolerance}"
        sign = {"≤": "+", "≥": "−"}[self.relation]
        return f"{self.relation} {predicted}" + (f" {sign} {tolerance}" if self.tolerance > 1e-6 else "")

    @property
    def holds(self) -> bool:
        """Whether the claim survived: computed from the numbers, never stored beside them."""
        return self.error <= self.tolerance


def short(value: float, digits: int = 4) -> str:
    """A few digits, two for what is nearly nothing, and a true minus sign.

    >>> short(-0.560925), short(2.0), short(6.4e-17)
    ('−0.5609', '2', '6.4e−17')
    """
    return f"{value:.{digits if abs(value) >= 1e-3 else 2}g}".replace("-", "−")
