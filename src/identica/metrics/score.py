"""What a score is: a number, where it comes from, and what chance alone would have given.

>>> Score(0.9, (0.8, 1.0), n=4096, method="MCC, pearson", null=Null(0.03, 0.04, 1 / 201, 200))
Score(0.9000, n=4096, method='MCC, pearson', per_dimension=(0.8000, 1.0000), \
null=Null(mean=0.0300, q95=0.0400, p_value=0.0050, permutations=200))
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, repr=False)
class Null:
    """What the score is when rows of z and h are paired at random: its mean, its 95 % quantile, a p-value.

    ``p_value`` = (1 + number of shuffles that score at least as high) / (1 + number of shuffles), so it is
    never zero: 200 shuffles cannot say less than 1/201.
    """

    mean: float
    q95: float
    p_value: float
    permutations: int

    def __repr__(self) -> str:
        return (
            f"Null(mean={self.mean:.4f}, q95={self.q95:.4f}, p_value={self.p_value:.4f}, "
            f"permutations={self.permutations})"
        )


@dataclass(frozen=True, repr=False)
class Score:
    """A score with its parts: ``per_dimension`` follows the columns of z, ``n`` counts the rows used."""

    score: float
    per_dimension: tuple[float, ...]
    n: int
    method: str
    null: Null | None = None

    def __float__(self) -> float:
        return self.score

    def _parts(self) -> list[str]:
        parts = [
            f"{self.score:.4f}",
            f"n={self.n}",
            f"method={self.method!r}",
            f"per_dimension={_abbreviated(self.per_dimension)}",
        ]
        return parts if self.null is None else [*parts, f"null={self.null}"]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._parts())})"


@dataclass(frozen=True, repr=False)
class MatchedScore(Score):
    """A score after matching codes to factors.

    ``assignment[i]`` is the column of h matched to column i of z, or None where there were too few codes.
    """

    assignment: tuple[int | None, ...] = ()

    def _parts(self) -> list[str]:
        return [*super()._parts(), f"assignment={self.assignment}"]


@dataclass(frozen=True, repr=False)
class BlockScore(Score):
    """A score over all dimensions, and its mean over each named group of them.

    ``null_per_block`` holds one permutation null for each block when a null was asked for.
    """

    per_block: dict[str | int, float] = field(default_factory=dict, hash=False)
    null_per_block: dict[str | int, Null] | None = field(default=None, hash=False)

    def _parts(self) -> list[str]:
        blocks = ", ".join(f"{name!r}: {value:.4f}" for name, value in self.per_block.items())
        return [*super()._parts(), f"per_block={{{blocks}}}"]


def _abbreviated(values: Iterable[float], longest: int = 6) -> str:
    """All values if they are few, else the range and the count."""
    values = tuple(values)
    if len(values) > longest:
        return f"({min(values):.4f} to {max(values):.4f} over {len(values)})"
    return "(" + ", ".join(f"{v:.4f}" for v in values) + ("," if len(values) == 1 else "") + ")"
