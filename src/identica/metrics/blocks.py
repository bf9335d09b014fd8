"""Scores by block of equal precision: what anisotropic pairs identify, and what they leave open.

Pairs of precision Λ identify the factors up to a block-orthogonal map, with one block for each distinct entry of Λ
(B, Thm 3.1): within a block factors may come back rotated, between blocks they may not. A score that
asks for single factors, such as MCC, then rates a perfect result by the rotation that happened to be found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from identica.metrics.correlation import Correlation, correlations, matched_entries, mcc
from identica.metrics.inputs import Matrix, as_matrices
from identica.metrics.linear import linear_r2
from identica.metrics.score import MatchedScore, Score

#: Relative gap up to which two precisions count as equal: numbers that were written down, and learned ones.
SAME, LEARNED = 1e-6, 0.05
_ROTATIONS = 400

Precision = Tensor | np.ndarray[Any, Any] | Sequence[float]


def precision_blocks(*precisions: Precision, tolerance: float = SAME) -> tuple[tuple[int, ...], ...]:
    """Groups of factors whose precisions are equal, from the highest (content) to the lowest (style).

    Two neighbours in size belong together if they differ by at most ``tolerance``, relatively; 0.05 or so is right
    for learned precisions. With several Λ, as of an ensemble, factors belong together if every one of them says
    so; blocks are then in the order of the first, and where it does not tell, of the next.

    >>> precision_blocks([25.0, 5.0, 25.0, 5.0])
    ((0, 2), (1, 3))
    >>> precision_blocks([24.9, 5.1, 25.2, 5.0], tolerance=0.05)
    ((0, 2), (1, 3))
    >>> precision_blocks([9.0, 9.0, 1.0], [1.0, 9.0, 9.0])
    ((1,), (0,), (2,))
    """
    if not precisions:
        raise ValueError("precision_blocks needs at least one precision, such as [5.0, 5.0, 25.0].")
    if not 0 <= tolerance < np.inf:
        raise ValueError(f"tolerance is a relative gap of at least 0, such as 0.05, not {tolerance!r}.")
    values = [as_precision(precision) for precision in precisions]
    if len({len(value) for value in values}) != 1:
        raise ValueError(f"All precisions must be equally long, not of lengths {[len(value) for value in values]}.")
    labels = list(zip(*(_groups(value, tolerance) for value in values), strict=True))
    return tuple(tuple(factor for factor, own in enumerate(labels) if own == label) for label in sorted(set(labels)))


def as_precision(value: Precision) -> np.ndarray[Any, Any]:
    """One precision per factor, ``(d,)``: at least 0 and finite, or a sentence."""
    given = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
    if given.dtype.kind not in "iuf":
        raise ValueError(f"A precision is one real number per factor, not {value!r}.")
    array = given.astype(np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"A precision is one number per factor, of shape (d,), not {array.shape}.")
    if not (np.isfinite(array) & (array >= 0)).all():
        raise ValueError(f"Every entry of a precision must be at least 0 and finite, not {array.tolist()}.")
    return array


def _groups(precision: np.ndarray[Any, Any], tolerance: float) -> list[int]:
    """The group of each entry; 0 is the group of the highest ones."""
    order = np.argsort(-precision, kind="stable")
    ordered = precision[order]
    starts = ordered[:-1] - ordered[1:] > tolerance * ordered[:-1]
    group = np.empty(len(precision), dtype=int)
    group[order] = np.concatenate([[0], np.cumsum(starts)])
    return group.tolist()


@dataclass(frozen=True)
class RotationMCC:
    """The MCC of a random rotation of equally many factors: its mean and the range of its middle 98 %."""

    mean: float
    low: float
    high: float


@lru_cache(maxsize=256)
def rotation_mcc(size: int) -> RotationMCC:
    """What MCC is for ``size`` uncorrelated factors that were recovered perfectly, but for a random rotation.

    For factors of equal variance the correlations of factors and codes are the entries of the rotation itself.
    400 rotations, always the same.

    >>> round(rotation_mcc(5).mean, 2), rotation_mcc(1).mean
    (0.73, 1.0)
    """
    generator = np.random.default_rng(size)
    normal = generator.standard_normal((_ROTATIONS, size, size))
    q, r = np.linalg.qr(normal)
    rotations = q * np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None, :]  # then every rotation is as likely
    scores = [matched_entries(torch.from_numpy(np.abs(rotation)))[0].mean() for rotation in rotations]
    low, high = np.quantile(scores, [0.01, 0.99])
    return RotationMCC(float(np.mean(scores)), float(low), float(high))


@dataclass(frozen=True)
class BlockPart:
    """The scores of one block.

    factors, precision: its columns of z, and the mean of their precisions.
    codes: as many columns of h, those that hold most of the block.
    r2: from all codes to the block's factors, one linear regression; the mean over its factors.
    mcc: the block's mean in the matching of all factors with all codes. A rotation lowers it.
    within_r2: from the block's own codes to its factors. No rotation within the block changes it, and every
        mixing with other blocks lowers it: 1 for all blocks is what the theorem promises. ``within_per_factor`` has
        it for each of ``factors``.
    chance: the MCC that a random rotation of the block would have.
    """

    factors: tuple[int, ...]
    precision: float
    codes: tuple[int, ...]
    r2: float
    mcc: float
    within_r2: float
    within_per_factor: tuple[float, ...]
    chance: RotationMCC

    def __repr__(self) -> str:
        return (
            f"BlockPart(precision={self.precision:.4g}, factors={self.factors}, codes={self.codes}, r2={self.r2:.4f}, "
            f"mcc={self.mcc:.4f}, within_r2={self.within_r2:.4f})"
        )


@dataclass(frozen=True)
class BlockScores:
    """Scores over all factors, and one :class:`BlockPart` for each block, from the highest precision to the lowest.

    ``within_r2`` is the mean of the blocks' over all factors: 1 if and only if every block was recovered.
    """

    r2: Score
    mcc: MatchedScore
    within_r2: float
    blocks: tuple[BlockPart, ...]

    @property
    def within_per_factor(self) -> tuple[float, ...]:
        """R² of each factor from the codes of its own block, in the order of the factors."""
        found = {
            i: value for part in self.blocks for i, value in zip(part.factors, part.within_per_factor, strict=True)
        }
        return tuple(found[i] for i in range(len(found)))

    @property
    def content_r2(self) -> float:
        """R² of the block of the highest precision, which varies least between the views."""
        return self.blocks[0].r2

    @property
    def style_r2(self) -> float:
        """R² of the block of the lowest precision, which varies most."""
        return self.blocks[-1].r2


def block_scores(
    z: Matrix,
    h: Matrix,
    precision: Precision | Sequence[Precision],
    tolerance: float | None = None,
    of: Literal["factors", "codes"] = "factors",
    correlation: Correlation = "pearson",
    seed: int = 0,
) -> BlockScores:
    """R², MCC and rotation-proof R² of each block of factors with equal precision.

    Args:
        z: ``(n, d)`` true factors.
        h: ``(n, k)`` codes, k ≤ d.
        precision: Λ, ``(d,)``, or several for an ensemble.
        tolerance: up to which relative gap two precisions count as equal; by default 1e-6 for those of factors and
            0.05 for those of codes.
        of: whether Λ is in the order of the factors, as a true one, or of the codes, as a learned one; each factor
            then has the precision of the code matched to it.
        correlation: as in :func:`identica.metrics.mcc`.
        seed: chooses the folds of the regressions.

    >>> generator = torch.Generator().manual_seed(0)
    >>> z = torch.randn(2000, 3, generator=generator)
    >>> turn = torch.tensor([[0.6, -0.8, 0.0], [0.8, 0.6, 0.0], [0.0, 0.0, 1.0]])
    >>> found = block_scores(z, z @ turn, [5.0, 5.0, 25.0])
    >>> [(part.factors, round(part.mcc, 1), round(part.within_r2, 3)) for part in found.blocks]
    [((2,), 1.0, 1.0), ((0, 1), 0.8, 1.0)]
    """
    if of not in ("factors", "codes"):
        raise ValueError(f'of says whose precision this is, "factors" or "codes", not {of!r}.')
    z, h = as_matrices(z, h, least_rows=4)
    if h.shape[1] > z.shape[1]:
        raise ValueError(
            f"There are {h.shape[1]} codes for {z.shape[1]} factors. Which of them belong to a block is known where "
            "there are no more codes than factors: pass as many columns of h, or score all by linear_r2 and mcc."
        )
    r2, matched = linear_r2(z, h, seed=seed), mcc(z, h, correlation)
    several = _of_factors(precision, z.shape[1], h.shape[1], matched.assignment if of == "codes" else None)
    if tolerance is None:
        tolerance = LEARNED if of == "codes" else SAME
    blocks, values = precision_blocks(*several, tolerance=tolerance), several[0]
    codes = _codes_of(correlations(z, h, correlation), blocks)
    within = [
        linear_r2(z[:, factors], h[:, own], seed=seed).per_dimension if own else (0.0,) * len(factors)
        for factors, own in zip(blocks, codes, strict=True)
    ]
    parts = tuple(
        BlockPart(
            factors=factors,
            precision=float(values[list(factors)].mean()),
            codes=own,
            r2=float(np.mean([r2.per_dimension[i] for i in factors])),
            mcc=float(np.mean([matched.per_dimension[i] for i in factors])),
            within_r2=float(np.mean(each)),
            within_per_factor=tuple(each),
            chance=rotation_mcc(len(factors)),
        )
        for factors, own, each in zip(blocks, codes, within, strict=True)
    )
    return BlockScores(r2, matched, sum(map(sum, within)) / len(values), parts)


def _of_factors(
    precision: Any, factors: int, codes: int, assignment: tuple[int | None, ...] | None
) -> list[np.ndarray[Any, Any]]:
    """One or more Λ in the order of the factors."""
    values = [as_precision(value) for value in ([precision] if _is_one(precision) else precision)]
    wanted, unit = (factors, "factors") if assignment is None else (codes, "codes")
    for value in values:
        if len(value) != wanted:
            raise ValueError(f"There are {wanted} {unit}, but the precision has {len(value)} entries: one for each.")
    if assignment is None:
        return values
    matched = [code for code in assignment if code is not None]
    if len(matched) < factors:
        raise ValueError(f"{codes} codes cannot say the precision of {factors} factors: pass that of the factors.")
    return [value[matched] for value in values]


def _is_one(precision: Any) -> bool:
    """Whether this is one Λ, of numbers, and not several."""
    if isinstance(precision, Tensor | np.ndarray):
        return precision.ndim < 2
    return np.ndim(precision) == 0 or not any(np.ndim(entry) for entry in precision)


def _codes_of(table: Tensor, blocks: tuple[tuple[int, ...], ...]) -> list[tuple[int, ...]]:
    """For each block as many codes as it has factors, such that together they hold most: squared correlations.

    What a code has in common with a block, the sum over the block's factors, does not change when they are rotated.
    """
    gain = torch.empty_like(table)
    for factors in blocks:
        gain[list(factors)] = table[list(factors)].square().sum(dim=0)
    _, assignment = matched_entries(gain)
    return [tuple(sorted(c for c in (assignment[i] for i in factors) if c is not None)) for factors in blocks]
