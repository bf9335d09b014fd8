"""What a code identifies, in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from identica.metrics import BlockScores, Score

Level = Literal["permutation", "block", "affine", "none"]

#: A score above this counts as recovered: the papers' recovered rows all lie above it.
RECOVERED = 0.98


@dataclass(frozen=True)
class Identification:
    """Up to which transformation the factors were recovered, and a sentence that says so."""

    level: Level
    sentence: str


def block_identification(scores: BlockScores, threshold: float = RECOVERED) -> Identification:
    """Read the scores against what the theorem promises: factors of equal precision only as a block (B, Thm 3.1).

    Where every block can be read from codes of its own, the promise is kept, whatever the MCC. The sentence says what
    MCC the rotations that are left open give.

    >>> import torch
    >>> from identica.metrics import block_scores
    >>> z = torch.randn(4000, 2, generator=torch.Generator().manual_seed(0))
    >>> turned = z @ torch.tensor([[0.8, -0.6], [0.6, 0.8]])
    >>> block_identification(block_scores(z, turned, [5.0, 5.0])).level
    'block'
    """
    if min(scores.mcc.per_dimension) >= threshold or min(scores.within_per_factor) < threshold:
        return identification(scores.r2, scores.mcc, threshold)
    total = sum(len(part.factors) for part in scores.blocks)
    expected = sum(len(part.factors) * part.chance.mean for part in scores.blocks) / total
    sizes = [len(part.factors) for part in scores.blocks]
    if len(sizes) == 1:
        what = f"all {total} factors have equal precision and form one block, recovered up to a rotation"
    else:
        listed = ", ".join(map(str, sizes[:-1])) + f" and {sizes[-1]}"
        what = f"each block of equal precision, of {listed} factors, has codes of its own, up to a rotation within it"
    return Identification(
        "block",
        f"Identified as far as pairs of this precision allow: {what} (R² {scores.within_r2:.3f}). The MCC of "
        f"{scores.mcc.score:.3f} is no failure: random rotations of these blocks score {expected:.2f} on average.",
    )


def identification(r2: Score, mcc: Score, threshold: float = RECOVERED) -> Identification:
    """Read the two scores together: what one alone cannot tell.

    MCC near one for every factor: each sits in a code of its own. Only R² near one for every factor: they are all in
    the code, but mixed. Neither: something is lost. One factor decides, as a mean over many would hide it.
    """
    mixed = [factor for factor, value in enumerate(mcc.per_dimension) if value < threshold]
    if not mixed:
        return Identification(
            "permutation",
            "Identified up to order, sign and scale: every true factor sits in one code of its own "
            f"(MCC {mcc.score:.3f}).",
        )
    lost = [factor for factor, value in enumerate(r2.per_dimension) if value < threshold]
    count = len(r2.per_dimension)
    if not lost:
        who = "no single code is a factor" if len(mixed) == count else _without(mixed, count)
        return Identification(
            "affine",
            f"Identified up to an affine map: all factors are in the code (R² {r2.score:.3f}), but mixed with each "
            f"other, so that {who} (MCC {mcc.score:.3f}).",
        )
    worst = min(lost, key=lambda factor: r2.per_dimension[factor])
    return Identification(
        "none",
        f"Not identified: {len(lost)} of {count} factors cannot be read linearly from the code to R² {threshold:g}, "
        f"least of all factor {worst} ({r2.per_dimension[worst]:.3f}; over all factors R² {r2.score:.3f}, MCC "
        f"{mcc.score:.3f}).",
    )


def _without(factors: Sequence[int], count: int) -> str:
    if len(factors) == 1:
        return f"factor {factors[0]} has no code of its own"
    return f"{len(factors)} of {count} factors have no code of their own"
