"""Which codes an anchor is to be told apart from, and the log-partition over them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from identica.kernels import Partition, check_impl, log_partition, log_partition_dense
from identica.kernels.rows import rows_are_fused
from identica.similarities import Kernel, Similarity, at_least_float32, can_be_rebuilt

Negatives = Literal["anchors", "positives", "both"]


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


@dataclass(frozen=True)
class Candidates:
    """Which codes an anchor is to be told apart from: a view of the batch, given ones, or both."""

    similarity: Similarity
    from_batch: Negatives | None
    exclude_own: bool
    given: Tensor | None
    mask: Tensor | None
    impl: str
    own_weight: float | Tensor | None = None  # of the anchor among its own negatives, where that is not 0 or 1

    def check(self, h: Tensor, weights: Tensor | None, may_be_none: bool = False) -> None:
        """Raise a sentence if settings or shapes do not fit anchors ``h: (B, d)``."""
        if self.from_batch not in (None, "anchors", "positives", "both"):
            raise ValueError(f'negatives must be "anchors", "positives" or "both", not {self.from_batch!r}.')
        if self.own_weight is not None and self.from_batch != "anchors":
            raise ValueError(
                "self_negatives as a weight is about anchors among themselves: it needs the negatives of the batch, "
                'and negatives="anchors".'
            )
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
            return self._with_own(parts[0], h)
        columns = torch.stack([part.log_partition for part in parts], dim=1)
        joined = log_partition_dense(columns, mask=columns > -torch.inf).log_partition
        return self._with_own(Partition(joined, torch.stack([part.largest for part in parts]).amax(dim=0)), h)

    def _with_own(self, others: Partition, h: Tensor) -> Partition:
        """The anchor itself added with its weight; it is no negative that a positive could lose against."""
        if self.own_weight is None:
            return others
        log_weight = torch.as_tensor(self.own_weight, dtype=others.log_partition.dtype, device=h.device).log()
        kernel = self.similarity.kernel
        if kernel is None or kernel.name == "dot":
            log_weight = log_weight + at_least_float32(self.similarity(h, h))
        own = log_weight.expand_as(others.log_partition)  # a distance to oneself is 0
        return Partition(torch.logaddexp(others.log_partition, own), others.largest)

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

    def rescaled(self, h: Tensor, h_pos: Tensor) -> tuple[Candidates, Tensor, Tensor]:
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
