"""How far positives and negatives overlap: histograms of their similarities, without the matrix of all pairs.

Where no negative is as similar to an anchor as its positive, the loss is 0 and so is its gradient, whatever the codes
are: narrow pairs, many dimensions and small batches learn slowly because the two histograms do not meet (B, Fig. 8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from identica._numbers import whole_number
from identica.similarities import DotProduct, Similarity

#: Pairs compared at once: 4 MiB of similarities in float32.
_PAIRS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class SimilarityHistogram:
    """Counts of similarities in equal bins between ``low`` and ``high``; the outer bins also hold what lies beyond."""

    low: float
    high: float
    positives: tuple[int, ...]
    negatives: tuple[int, ...]

    @property
    def edges(self) -> tuple[float, ...]:
        """The bins' edges, one more than there are bins."""
        bins = len(self.positives)
        return tuple(self.low + (self.high - self.low) * k / bins for k in range(bins + 1))

    @property
    def densities(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Positives and negatives, each scaled to an area of one."""
        width = (self.high - self.low) / len(self.positives)
        first, second = (
            tuple(count / (width * max(sum(counts), 1)) for count in counts)
            for counts in (self.positives, self.negatives)
        )
        return first, second

    @property
    def overlap(self) -> float:
        """The area that the two densities share: 1 if they are the same, 0 if no bin holds both.

        NaN without any positive or without any negative, when there is nothing to compare.
        """
        if not (sum(self.positives) and sum(self.negatives)):
            return math.nan
        width = (self.high - self.low) / len(self.positives)
        return sum(width * min(pair) for pair in zip(*self.densities, strict=True))

    def __repr__(self) -> str:
        return (
            f"SimilarityHistogram({len(self.positives)} bins from {self.low:g} to {self.high:g}, "
            f"{sum(self.positives)} positives, {sum(self.negatives)} negatives, overlap={self.overlap:.4g})"
        )


@torch.no_grad()
def similarity_histogram(
    h: Tensor,
    h_pos: Tensor,
    h_neg: Tensor | None = None,
    *,
    similarity: Similarity | None = None,
    bins: int = 100,
    low: float | None = None,
    high: float | None = None,
) -> SimilarityHistogram:
    """Histograms of u(h, h⁺) and of u(h, h⁻), h⁻ being the other anchors unless given.

    Pairs are counted where the codes live, some rows at a time, and only the counts come back.

    Args:
        h: ``(B, d)`` codes of the anchors.
        h_pos: ``(B, d)`` or ``(B, P, d)`` codes of their positives.
        h_neg: ``(M, d)`` codes shared by all anchors, ``(B, M, d)`` codes for each, or None.
        similarity: None for the cosine, or any similarity, which then needs ``low`` and ``high``.
        bins: how many.
        low: where the first bin starts; −1 for the cosine.
        high: where the last one ends; 1 for the cosine.

    >>> h = torch.eye(3)
    >>> found = similarity_histogram(h, h, bins=4)
    >>> found.positives, found.negatives, found.overlap
    ((0, 0, 0, 3), (0, 0, 6, 0), 0.0)
    """
    bins = whole_number(bins, "bins")
    if h.ndim != 2 or h_pos.shape[0] != h.shape[0] or h_pos.shape[-1] != h.shape[1] or h_pos.ndim not in (2, 3):
        raise ValueError(
            f"h must be (B, d) and h_pos (B, d) or (B, P, d), not {tuple(h.shape)} and {tuple(h_pos.shape)}."
        )
    if h_neg is not None and (
        h_neg.ndim not in (2, 3) or h_neg.shape[-1] != h.shape[1] or (h_neg.ndim == 3 and len(h_neg) != len(h))
    ):
        raise ValueError(f"h_neg must be (M, {h.shape[1]}) or ({len(h)}, M, {h.shape[1]}), not {tuple(h_neg.shape)}.")
    for name, codes in (("h", h), ("h_pos", h_pos), ("h_neg", h_neg)):
        if codes is not None and not bool(torch.isfinite(codes).all()):
            raise ValueError(f"{name} holds NaN or infinite numbers, which belong into no bin: look for their cause.")
    if similarity is None:
        low, high = -1.0 if low is None else low, 1.0 if high is None else high
        similarity = DotProduct()
        h, h_pos = (torch.nn.functional.normalize(x, dim=-1) for x in (h, h_pos))
        h_neg = None if h_neg is None else torch.nn.functional.normalize(h_neg, dim=-1)
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"Give the range of the bins, low < high, for this similarity; not {low!r} and {high!r}.")
    counter = _Counter(low, high, bins, h.device)
    positives = counter.count(similarity(h[:, None], h_pos if h_pos.ndim == 3 else h_pos[:, None]))
    negatives = counter.nothing()
    at_once = max(1, _PAIRS_AT_ONCE // max(1, len(h) if h_neg is None else h_neg.shape[-2]))
    for start in range(0, len(h), at_once):
        own = h[start : start + at_once]
        if h_neg is not None and h_neg.ndim == 3:
            negatives += counter.count(similarity(own[:, None], h_neg[start : start + at_once]))
        elif h_neg is not None:
            negatives += counter.count(similarity.pairwise(own, h_neg))
        else:
            block = similarity.pairwise(own, h)
            negatives += counter.count(block) - counter.count(block.diagonal(start))
    return SimilarityHistogram(float(low), float(high), tuple(positives.tolist()), tuple(negatives.tolist()))


@dataclass(frozen=True)
class _Counter:
    low: float
    high: float
    bins: int
    device: torch.device

    def nothing(self) -> Tensor:
        return torch.zeros(self.bins, dtype=torch.int64, device=self.device)

    def count(self, values: Tensor) -> Tensor:
        """How many fall into each bin, ``(bins,)``. Unlike torch.bincount it never waits for the device."""
        place = (values.flatten().double() - self.low).mul_(self.bins / (self.high - self.low))
        index = place.floor_().clamp_(0, self.bins - 1).long()
        return self.nothing().scatter_add_(0, index, torch.ones_like(index))
