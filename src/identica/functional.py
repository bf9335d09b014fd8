"""The losses as pure functions; :mod:`identica.objectives` wraps them as modules.

Each loss has two faces: ``info_nce(...)`` returns the loss alone, ``info_nce_terms(...)`` the loss together
with what is worth watching beside it (:class:`Terms`).

>>> h = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
>>> info_nce(h, h + 0.1, similarity=LpSimilarity(2, temperature=0.5))
tensor(0.0881)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from identica._candidates import Candidates, Negatives, partition
from identica.kernels.rows import info_nce_rows
from identica.similarities import LpSimilarity, Similarity, at_least_float32

__all__ = [
    "Negatives",
    "Terms",
    "align_uniform",
    "align_uniform_terms",
    "info_nce",
    "info_nce_terms",
    "partition",
    "plain_terms",
    "spectral_contrastive",
    "spectral_contrastive_terms",
    "weighted_mean",
]


@dataclass(frozen=True)
class Terms:
    """A loss and what it is made of. Means are over the items of the batch, weighted if weights were given.

    ``loss`` and ``per_item: (B,)`` carry gradients, the others do not. ``alignment`` is the mean similarity of
    the positive pairs; ``log_partition`` the mean log of the denominator; ``accuracy`` how often the positive
    is more similar than every negative (ties, up to rounding, are wrong); ``information`` = log(number of
    terms in the denominator) − loss, an estimate of the mutual information of a pair in nats, which unlike
    the loss can be compared between batch sizes. NaN stands where an objective has no such thing.
    """

    loss: Tensor
    alignment: Tensor
    log_partition: Tensor
    accuracy: Tensor
    information: Tensor
    per_item: Tensor


def info_nce(h: Tensor, h_pos: Tensor, h_neg: Tensor | None = None, **settings: Any) -> Tensor:
    """The loss of :func:`info_nce_terms`, alone: ``(B, d), (B, d) -> ()``."""
    return info_nce_terms(h, h_pos, h_neg, **settings).loss


def info_nce_terms(
    h: Tensor,
    h_pos: Tensor,
    h_neg: Tensor | None = None,
    *,
    similarity: Similarity,
    negatives: Negatives = "anchors",
    include_positive: bool = True,
    self_negatives: bool | float | Tensor = False,
    symmetric: bool = False,
    in_batch: bool = False,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    impl: str = "auto",
) -> Terms:
    """−log( exp u(hᵢ, hᵢ⁺) / (exp u(hᵢ, hᵢ⁺) + Σⱼ exp u(hᵢ, hⱼ⁻)) ), averaged over i.

    (A, Eq. 1 and 6; B, Eq. 3.) The settings are those of :class:`identica.objectives.InfoNCE`, which explains
    them.

    ``h``: (B, d); ``h_pos``: (B, d), or (B, P, d), whose P losses, each with its own denominator, are averaged;
    ``h_neg``: (M, d) shared or (B, M, d) per anchor, in place of the negatives from the batch, or with
    ``in_batch=True`` beside them. ``mask``: bool, True where an item may be a negative: (B, B) for negatives
    from the batch, (B, M) for given ones, (B, B + M) for both. ``weights``: (B,), at least 0 (which is not
    checked), for a weighted mean over the items; the negatives are not weighted.
    """
    h_pos = _with_positives_axis(h, h_pos)
    weighed = None if isinstance(self_negatives, bool) else self_negatives
    candidates = Candidates(
        similarity,
        negatives if h_neg is None or in_batch else None,
        self_negatives is not True,
        h_neg,
        mask,
        impl,
        weighed,
    )
    candidates.check(h, weights, may_be_none=include_positive)
    if not symmetric and weights is None and candidates.are_fused(h, h_pos):
        return _fused_info_nce(candidates, h, h_pos, include_positive)
    rows = _info_nce_rows(candidates, h, h_pos, include_positive)
    if symmetric:
        back = [_info_nce_rows(candidates, view, h[:, None], include_positive) for view in h_pos.unbind(1)]
        rows = _Rows(*(_mean([there, _mean(t)]) for there, t in zip(rows, zip(*back, strict=True), strict=True)))
    return _reduce(rows, rows.log_denominator - rows.alignment, weights)


def align_uniform(h: Tensor, h_pos: Tensor, h_neg: Tensor | None = None, **settings: Any) -> Tensor:
    """The loss of :func:`align_uniform_terms`, alone: ``(B, d), (B, d) -> ()``."""
    return align_uniform_terms(h, h_pos, h_neg, **settings).loss


def align_uniform_terms(
    h: Tensor,
    h_pos: Tensor,
    h_neg: Tensor | None = None,
    *,
    alpha: float,
    p: float,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    impl: str = "auto",
) -> Terms:
    """α·E log E exp(−‖h−h⁻‖_p^p) + (1−α)·E‖h−h⁺‖_p^p, uniformity and alignment (W, Eq. 70-72).

    The inner expectation is the mean over the other anchors of the batch, or over a given ``h_neg``; shapes,
    mask and weights as in :func:`info_nce_terms`.
    """
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha weighs uniformity against alignment and lies between 0 and 1, not {alpha!r}.")
    h_pos = _with_positives_axis(h, h_pos)
    candidates = Candidates(LpSimilarity(p), "anchors" if h_neg is None else None, True, h_neg, mask, impl)
    candidates.check(h, weights)
    rows = _info_nce_rows(candidates, h, h_pos, include_positive=False)
    uniformity = rows.log_denominator - rows.log_count
    return _reduce(rows, alpha * uniformity - (1.0 - alpha) * rows.alignment, weights)


def spectral_contrastive(h: Tensor, h_pos: Tensor, h_neg: Tensor | None = None, **settings: Any) -> Tensor:
    """The loss of :func:`spectral_contrastive_terms`, alone: ``(B, d), (B, d) -> ()``."""
    return spectral_contrastive_terms(h, h_pos, h_neg, **settings).loss


def spectral_contrastive_terms(
    h: Tensor,
    h_pos: Tensor,
    h_neg: Tensor | None = None,
    *,
    importance: Tensor | None = None,
    decorrelation: float = 0.0,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
) -> Terms:
    """−2·E⟨h, Sh⁺⟩ + E⟨h, Sh⁻⟩² + decorrelation·‖E hhᵀ − I‖², S diagonal; without S the spectral loss.

    Its optimum factorises the density ratio of the pairs: ⟨h(z), S h(z')⟩ is the best approximation of
    p(z, z')/(p(z)p(z')) of rank d. With S = diag(``importance``: (d,)) and ``decorrelation`` > 0 this is TriCL
    in the form that its paper prints, with S in every term. Negatives are the other anchors or a given
    ``h_neg``: (M, d) or (B, M, d). O(B·d²): the pair matrix is only built for a ``mask``, (B, B) or (B, M).
    ``weights``, (B,) and at least 0, weigh the items and their second moment E hhᵀ, not the negatives.
    """
    h, h_pos = at_least_float32(h), at_least_float32(_with_positives_axis(h, h_pos))
    candidates = Candidates(LpSimilarity(2), "anchors" if h_neg is None else None, True, h_neg, mask, "auto")
    candidates.check(h, weights)
    anchor = h if importance is None else h * importance.to(h.dtype)
    aligned = (anchor[:, None] * h_pos).sum(dim=-1).mean(dim=1)
    per_item = _mean_square_similarity(anchor, h, h_neg, mask) - 2.0 * aligned
    if decorrelation:
        second_moment = _second_moment(h, weights)
        identity = torch.eye(h.shape[1], dtype=h.dtype, device=h.device)
        per_item = per_item + decorrelation * (second_moment - identity).square().sum()
    return plain_terms(per_item, weights, alignment=weighted_mean(aligned, weights).detach())


def _second_moment(h: Tensor, weights: Tensor | None) -> Tensor:
    """Σ wᵢhᵢhᵢᵀ / Σ wᵢ of ``h: (B, d)``, ``(d, d)``; like :func:`weighted_mean` in what does not count."""
    if weights is None:
        return h.T @ h / len(h)
    weights = weights.to(h.dtype)[:, None]
    h = torch.where(weights == 0, 0.0, h)
    return (weights * h).T @ h / weights.sum().clamp_min(torch.finfo(h.dtype).tiny)


def plain_terms(per_item: Tensor, weights: Tensor | None, alignment: Tensor | None = None) -> Terms:
    """The terms of a loss that has no denominator: NaN for what it does not have."""
    nothing = torch.full_like(per_item[0].detach(), torch.nan)
    loss = weighted_mean(per_item, weights)
    alignment = nothing if alignment is None else alignment
    return Terms(loss, alignment, nothing, nothing, nothing, per_item)


def weighted_mean(x: Tensor, weights: Tensor | None) -> Tensor:
    """Σ wᵢxᵢ / Σ wᵢ over ``x: (B,)``. Items of weight 0 do not count, whatever their value; 0 if all are.

    Weights must be at least 0. This is not checked: looking at them would wait for the device.
    """
    if weights is None:
        return x.mean()
    weights = weights.to(x.dtype)
    total = torch.where(weights == 0, 0.0, x * weights).sum()
    return total / weights.sum().clamp_min(torch.finfo(x.dtype).tiny)


class _Rows(NamedTuple):
    """What each item contributes; all ``(B,)``."""

    alignment: Tensor
    log_denominator: Tensor
    correct: Tensor
    log_count: Tensor


def _info_nce_rows(candidates: Candidates, h: Tensor, h_pos: Tensor, include_positive: bool) -> _Rows:
    """For anchors ``h: (B, d)`` and positives ``h_pos: (B, P, d)``; the P positives are averaged."""
    aligned = at_least_float32(candidates.similarity(h[:, None], h_pos))  # (B, P)
    log_negatives, largest = candidates.partition(h, h_pos)
    count = candidates.count(h, h_pos)
    if isinstance(count, int):
        count = torch.full((len(h),), count, device=h.device)
    log_denominator = log_negatives[:, None].expand_as(aligned)
    if include_positive:
        log_denominator, count = torch.logaddexp(aligned, log_denominator), count + 1
    with torch.no_grad():
        # The two sides were summed in different orders: what differs by rounding alone is a tie.
        size = torch.maximum(aligned.abs(), largest.abs().nan_to_num(posinf=0.0)[:, None])
        correct = aligned > largest[:, None] + 16 * torch.finfo(aligned.dtype).eps * size
        correct, log_count = correct.to(aligned.dtype), count.to(aligned.dtype).log()
    return _Rows(aligned.mean(dim=1), log_denominator.mean(dim=1), correct.mean(dim=1), log_count)


def _fused_info_nce(candidates: Candidates, h: Tensor, h_pos: Tensor, include_positive: bool) -> Terms:
    """What :func:`_info_nce_rows` and :func:`_reduce` compute, in fused kernels and each code rescaled once."""
    kernel = candidates.similarity.kernel
    candidates, h, h_pos = candidates.rescaled(h, h_pos)
    negatives, count = candidates.partition(h, h_pos), candidates.count(h, h_pos)
    return Terms(*info_nce_rows(h, h_pos, negatives, kernel, include_positive=include_positive, count=count))


def _reduce(rows: _Rows, per_item: Tensor, weights: Tensor | None) -> Terms:
    # A row with an empty denominator (all its negatives masked, positive left out) has nothing to say.
    some = rows.log_count > -torch.inf
    per_item = torch.where(some, per_item, 0.0)
    weights = some.to(per_item.dtype) if weights is None else weights * some
    loss = weighted_mean(per_item, weights)
    with torch.no_grad():
        alignment, log_denominator, correct, log_count = (weighted_mean(x, weights) for x in rows)
        information = log_count - (log_denominator - alignment)
        return Terms(loss, alignment, log_denominator, correct, information, per_item)


def _mean_square_similarity(anchor: Tensor, h: Tensor, h_neg: Tensor | None, mask: Tensor | None) -> Tensor:
    """Meanⱼ ⟨anchorᵢ, negativeⱼ⟩² per anchor: ``(B,)``. Negatives: other rows of ``h``, unless given."""
    if h_neg is not None and h_neg.ndim == 3:
        squares = (anchor[:, None] * h_neg).sum(dim=-1).square()
        return squares.mean(dim=1) if mask is None else _masked_mean(squares, mask)
    candidates = h if h_neg is None else at_least_float32(h_neg)
    if mask is not None:
        if h_neg is None:
            mask = mask & ~torch.eye(len(h), dtype=torch.bool, device=h.device)
        return _masked_mean((anchor @ candidates.T).square(), mask)
    # Σⱼ ⟨aᵢ, hⱼ⟩² = aᵢᵀ (Σⱼ hⱼhⱼᵀ) aᵢ: a d×d matrix in place of a B×B one.
    total = ((anchor @ (candidates.T @ candidates)) * anchor).sum(dim=-1)
    if h_neg is not None:
        return total / len(candidates)
    return (total - (anchor * h).sum(dim=-1).square()) / (len(h) - 1)


def _masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, x, 0.0).sum(dim=1) / mask.sum(dim=1).clamp_min(1)


def _with_positives_axis(h: Tensor, h_pos: Tensor) -> Tensor:
    """``h_pos`` as (B, P, d), after checking both."""
    if h.ndim != 2 or len(h) == 0:
        raise ValueError(f"The codes of the anchors must have the shape (B, d) with B ≥ 1, not {tuple(h.shape)}.")
    batch, dim = h.shape
    if h_pos.ndim not in (2, 3) or len(h_pos) != batch or h_pos.shape[-1] != dim or 0 in h_pos.shape:
        raise ValueError(
            f"h_pos must have the shape ({batch}, {dim}), or ({batch}, P, {dim}) with P positives per anchor, "
            f"not {tuple(h_pos.shape)}."
        )
    return h_pos if h_pos.ndim == 3 else h_pos[:, None]


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(tensors)).mean(dim=0)
