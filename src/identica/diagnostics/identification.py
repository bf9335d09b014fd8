"""What a code identifies, in plain words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from identica.metrics import Score

Level = Literal["permutation", "affine", "none"]

#: A score above this counts as recovered: the papers' recovered rows all lie above it.
RECOVERED = 0.98


@dataclass(frozen=True)
class Identification:
    """Up to which transformation the factors were recovered, and a sentence that says so."""

    level: Level
    sentence: str


def identification(r2: Score, mcc: Score, threshold: float = RECOVERED) -> Identification:
    """Read the two scores together: what one alone cannot tell.

    MCC near one: every factor sits in a code of its own. Only R² near one: the factors are all in the
    code, but mixed. Neither: something is lost.
    """
    if mcc.score >= threshold:
        return Identification(
            "permutation",
            "Identified up to order, sign and scale: every true factor sits in one code of its own "
            f"(MCC {mcc.score:.3f}).",
        )
    if r2.score >= threshold:
        return Identification(
            "affine",
            f"Identified up to an affine map: all factors are in the code (R² {r2.score:.3f}), but mixed with each "
            f"other, so that no single code is a factor (MCC {mcc.score:.3f}).",
        )
    lost = sum(value < threshold for value in r2.per_dimension)
    return Identification(
        "none",
        f"Not identified: {lost} of {len(r2.per_dimension)} factors cannot be read linearly from the code "
        f"(R² {r2.score:.3f}, MCC {mcc.score:.3f}).",
    )
