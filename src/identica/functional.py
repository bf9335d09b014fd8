"""The losses as pure functions; :mod:`identica.objectives` wraps them as modules.

Each loss has two faces: ``info_nce(...)`` returns the loss alone, ``info_nce_terms(...)`` the loss together
with what is worth watching beside it (:class:`Terms`).

>>> h = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
>>> info_nce(h, h + 0.1, similarity=LpSimilarity(2, temperature=0.5))
tensor(0.0881)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from identica.kernels import Partition, check_impl, log_partition, log_partition_dense
from identica.kernels.rows import info_nce_rows, rows_are_fused
from identica.similarities import Kernel, LpSimilarity, Similarity, at_least_float32, can_be_rebuilt

Negatives = Literal["anchors", "positives", "both"]


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
    self_negatives: bool = False,
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
    candidates = _Negatives(
        similarity, negatives if h_neg is None or in_batch else None, not self_negatives, h_neg, mask, impl
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
    candidates = _Negatives(LpSimilarity(p), "anchors" if h_neg is None else None, True, h_neg, mask, impl)
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
    candidates = _Negatives(LpSimilarity(2), "anchors" if h_neg is None else None, True, h_neg, mask, "auto")
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


def partition(
    similarity: Similarity,
    anchors: Tensor,
    candidates: Tensor,
    *,
    exclude_diagonal: bool = False,
    mask: Tensor | None = None,
    impl: str = "auto",
) -> Partition:
    """Log-partition of each anchor over the candidates under any similarity: ``(B, d), (M, d) -> (B,), (B,)``.

    A similarity that is a rescaling followed by a kernel never builds the pair matrix; one that is not goes
    through its dense ``pairwise``. Arguments as in :func:`identica.kernels.log_partition`.
    """
    check_impl(impl)
    if similarity.kernel is not None:
        a, b = similarity.rescale(anchors, candidates)
        return log_partition(a, b, similarity.kernel, exclude_diagonal=exclude_diagonal, mask=mask, impl=impl)
    if impl not in ("auto", "reference"):
        raise ValueError(
            f"impl={impl!r} needs a similarity with a kernel, which {type(similarity).__name__} does not have: "
            'use impl="auto".'
        )
    dense = at_least_float32(similarity.pairwise(anchors, candidates))
    return log_partition_dense(dense, exclude_diagonal=exclude_diagonal, mask=mask)


class _Rows(NamedTuple):
    """What each item contributes; all ``(B,)``."""

    alignment: Tensor
    log_denominator: Tensor
    correct: Tensor
    log_count: Tensor


def _info_nce_rows(candidates: _Negatives, h: Tensor, h_pos: Tensor, include_positive: bool) -> _Rows:
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


def _fused_info_nce(candidates: _Negatives, h: Tensor, h_pos: Tensor, include_positive: bool) -> Terms:
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


@dataclass(frozen=True)
class _Negatives:
    """Which codes an anchor is to be told apart from: a view of the batch, given ones, or both."""

    similarity: Similarity
    from_batch: Negatives | None
    exclude_own: bool
    given: Tensor | None
    mask: Tensor | None
    impl: str

    def check(self, h: Tensor, weights: Tensor | None, may_be_none: bool = False) -> None:
        """Raise a sentence if settings or shapes do not fit anchors ``h: (B, d)``."""
        if self.from_batch not in (None, "anchors", "positives", "both"):
            raise ValueError(f'negatives must be "anchors", "positives" or "both", not {self.from_batch!r}.')
        check_impl(self.impl)
        given = self.given
        if given is not None and (
            given.ndim not in (2, 3) or given.shape[-1] != h.shape[1] or (given.ndim == 3 and len(given) != len(h))
        ):
            raise ValueError(
                f"h_neg must have the shape (M, {h.shape[1]}), shared by all anchors, or ({len(h)}, M, "
                f"{h.shape[1]}), per anchor, not {tuple(given.shape)}."
            )
        columns = (len(h) if self.from_batch else 0) + (0 if given is None else given.shape[-2])
        mask = self.mask
        if mask is not None and (mask.dtype != torch.bool or mask.shape != (len(h), columns)):
            raise ValueError(
                f"mask must be a bool tensor of shape ({len(h)}, {columns}), True where an item may be a "
                f"negative, not {mask.dtype} of shape {tuple(mask.shape)}."
            )
        if weights is not None and weights.shape != (len(h),):
            raise ValueError(f"weights must have the shape ({len(h)},), one per item, not {tuple(weights.shape)}.")
        if columns - (1 if self.from_batch and self.exclude_own else 0) == 0 and not may_be_none:
            raise ValueError(
                "There are no negatives: an anchor is not its own negative, so a batch of one has none. Use a "
                "larger batch, give h_neg, or (InfoNCE) leave the positive in the denominator."
            )

    def _views(self, h: Tensor, h_pos: Tensor) -> list[Tensor]:
        anchors = [h] if self.from_batch in ("anchors", "both") else []
        positives = list(h_pos.unbind(dim=1)) if self.from_batch in ("positives", "both") else []
        return anchors + positives

    def _masks(self, h: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """The parts of the mask for the batch and for the given negatives."""
        if self.mask is None:
            return None, None
        size = len(h) if self.from_batch else 0
        return self.mask[:, :size], self.mask[:, size:]

    def partition(self, h: Tensor, h_pos: Tensor) -> Partition:
        """The log-partition of ``h: (B, d)`` over all its negatives."""
        of_batch, of_given = self._masks(h)
        settings: dict[str, Any] = {"mask": of_batch, "exclude_diagonal": self.exclude_own, "impl": self.impl}
        parts = [partition(self.similarity, h, view, **settings) for view in self._views(h, h_pos)]
        if self.given is not None and self.given.ndim == 2:
            parts.append(partition(self.similarity, h, self.given, mask=of_given, impl=self.impl))
        elif self.given is not None:
            own = at_least_float32(self.similarity(h[:, None], self.given))
            parts.append(log_partition_dense(own, mask=of_given))
        if len(parts) == 1:
            return parts[0]
        columns = torch.stack([part.log_partition for part in parts], dim=1)
        joined = log_partition_dense(columns, mask=columns > -torch.inf).log_partition
        return Partition(joined, torch.stack([part.largest for part in parts]).amax(dim=0))

    def count(self, h: Tensor, h_pos: Tensor) -> Tensor | int:
        """How many negatives each anchor has: ``(B,)``, or one number if no mask makes a difference."""
        views = len(self._views(h, h_pos))
        of_batch, of_given = self._masks(h)
        if of_batch is None or of_given is None:
            given = 0 if self.given is None else self.given.shape[-2]
            return views * (len(h) - self.exclude_own) + given
        in_batch = of_batch.sum(dim=1)
        if self.exclude_own and views:
            in_batch = in_batch - of_batch.diagonal().long()
        return views * in_batch + of_given.sum(dim=1)

    def are_fused(self, h: Tensor, h_pos: Tensor) -> bool:
        """Whether all codes can be rescaled by themselves and the fused kernels take it from there."""
        per_anchor = self.given is not None and self.given.ndim == 3
        ours = can_be_rebuilt(self.similarity)
        return ours and not per_anchor and rows_are_fused(self.impl, h, h_pos, self.given)

    def rescaled(self, h: Tensor, h_pos: Tensor) -> tuple[_Negatives, Tensor, Tensor]:
        """The same problem with rescaled codes, whose similarity is the kernel alone.

        One of our similarities rescales a code, given with itself, in the same way whatever it is compared with.
        """

        def alone(x: Tensor) -> Tensor:
            return self.similarity.rescale(x, x)[0]

        assert self.similarity.kernel is not None
        given = None if self.given is None else alone(self.given)
        return replace(self, similarity=_Plain(self.similarity.kernel), given=given), alone(h), alone(h_pos)


class _Plain(Similarity):
    """A kernel as a similarity, for codes that have been rescaled."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self._kernel = kernel

    @property
    def kernel(self) -> Kernel:
        return self._kernel

    def rescale(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return a, b


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
