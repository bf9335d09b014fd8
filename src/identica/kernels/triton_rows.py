"""From log-partitions to the terms of InfoNCE by Triton kernels: two launches forward, one backward.

The same in torch operations is some fifty launches each way, which on a fast device take longer than the
log-partition itself. Nothing is larger than the codes, and no atomics: equal calls give equal bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from identica._seed_axis import seeds_first
from identica.kernels import triton_row_kernels as kernels
from identica.kernels.partition import Partition
from identica.similarities import Kernel

_LARGEST_CHUNK, _TILE, _MOST_ROWS = 64, 512, 128  # coordinates and numbers in a program's tile, and its rows
_BLOCKS_AT_ONCE = 256


class RowTerms(NamedTuple):
    """Means over the rows, and ``per_item: (B,)``; ``loss`` and ``per_item`` carry gradients."""

    loss: Tensor
    alignment: Tensor
    log_partition: Tensor
    accuracy: Tensor
    information: Tensor
    per_item: Tensor


@dataclass(frozen=True)
class _Settings:
    """What is computed, apart from the numbers; ``terms``: in each denominator, None if that depends on the row."""

    kernel: Kernel
    include_positive: bool
    terms: int | None


def info_nce_rows_triton(
    anchors: Tensor,
    positives: Tensor,
    negatives: Partition,
    kernel: Kernel,
    *,
    include_positive: bool,
    count: Tensor | int,
) -> RowTerms:
    """The terms of InfoNCE from rescaled ``anchors: (B, d)`` and ``positives: (B, P, d)``, float32.

    ``negatives`` are the anchors' log-partitions and ``count`` says over how many negatives they run: a number, or
    ``(B,)`` if that depends on the row. Rows with nothing in their denominator do not count. The gradient for a
    coordinate that anchor and positive share is 0. Differentiable once; :func:`torch.func.vmap` over a leading
    axis is one launch.
    """
    if isinstance(count, int) and count + include_positive == 0:
        count = anchors.new_zeros(len(anchors), dtype=torch.int64)
    counts, terms = (count, None) if isinstance(count, Tensor) else (None, count + include_positive)
    settings = _Settings(kernel, include_positive, terms)
    loss, per_item, means, *_ = _Rows.apply(anchors, positives, *negatives, counts, settings)
    alignment, log_partition, accuracy, information = means.unbind(-1)
    return RowTerms(loss, alignment, log_partition, accuracy, information, per_item)


class _Rows(torch.autograd.Function):
    """(anchors, positives, log-partitions, largest, counts or None) → loss, per item, and three without gradient.

    These are four means, the number of rows that count, and the similarities of the positives. All have the shapes
    of :func:`info_nce_rows_triton`, or one more axis in front: the seeds.
    """

    @staticmethod
    def forward(
        a: Tensor, b: Tensor, negatives: Tensor, largest: Tensor, count: Tensor | None, settings: _Settings
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        *seeds, rows, positives, _ = b.shape
        plan = _plan(a, b, settings)
        blocks = triton.cdiv(rows, plan["BLOCK"])
        loss, number = a.new_empty(seeds), a.new_empty(seeds)
        means, per_item = a.new_empty(*seeds, 4), a.new_empty(*seeds, rows)
        similarities = a.new_empty(*seeds, rows, positives)
        sums = a.new_empty(*seeds, kernels.SUMS.value, blocks)
        inputs = [a, b, negatives.contiguous(), largest.contiguous(), a if count is None else count.contiguous()]
        log_terms = 0.0 if settings.terms is None else math.log(settings.terms)
        with torch.cuda.device_of(a):
            kernels.forward[(blocks, math.prod(seeds))](
                *inputs, per_item, similarities, sums, rows, *_strides(a, 3), *_strides(b, 4), **plan
            )
            kernels.finish[(math.prod(seeds),)](
                sums, loss, means, number, blocks, log_terms, COUNTED=count is not None, BLOCK=_BLOCKS_AT_ONCE
            )
        return loss, per_item, means, number, similarities

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        a, b, negatives, _, count, ctx.settings = inputs
        _, _, means, number, similarities = output
        ctx.mark_non_differentiable(means, number, similarities)
        ctx.set_materialize_grads(False)  # a slope nobody gave is not a launch that writes zeros
        ctx.save_for_backward(a, b, negatives, count, number, similarities)

    @staticmethod
    def backward(ctx: Any, into_loss: Tensor | None, into_items: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if into_loss is None and into_items is None:
            return (None,) * 6
        gradients = _Gradients.apply(*ctx.saved_tensors, into_loss, into_items, ctx.settings)
        return (*gradients, None, None, None)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        return _Rows.apply(*seeds_first(info.batch_size, in_dims, inputs)), (0,) * 5


class _Gradients(torch.autograd.Function):
    """The gradients for anchors, positives and log-partitions, given the slopes of the loss and of the items.

    A function of its own so that it, too, can be mapped over seeds, and to refuse to be differentiated again.
    """

    @staticmethod
    def forward(
        a: Tensor,
        b: Tensor,
        negatives: Tensor,
        count: Tensor | None,
        number: Tensor,
        similarities: Tensor,
        into_loss: Tensor | None,
        into_items: Tensor | None,
        settings: _Settings,
    ) -> tuple[Tensor, Tensor, Tensor]:
        *seeds, rows, _, _ = b.shape
        plan = _plan(a, b, settings) | {"BY_LOSS": into_loss is not None, "BY_ITEM": into_items is not None}
        gradients = a.new_empty(a.shape), a.new_empty(b.shape), a.new_empty(*seeds, rows)
        inputs = [a, b, negatives.contiguous(), a if count is None else count.contiguous(), similarities.contiguous()]
        slopes = [a if into_loss is None else into_loss, a if into_items is None else into_items.contiguous()]
        slope_stride = into_loss.stride(0) if into_loss is not None and seeds else 0
        grid = (triton.cdiv(rows, plan["BLOCK"]), math.prod(seeds))
        strides = [slope_stride, *_strides(a, 3), *_strides(b, 4)]
        with torch.cuda.device_of(a):
            kernels.gradient[grid](*inputs, number.contiguous(), *slopes, *gradients, rows, *strides, **plan)
        return gradients

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> None:
        raise RuntimeError(
            'InfoNCE with impl="triton" can be differentiated once. For second derivatives use impl="reference".'
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        return _Gradients.apply(*seeds_first(info.batch_size, in_dims, inputs)), (0, 0, 0)


def _plan(a: Tensor, b: Tensor, settings: _Settings) -> dict[str, Any]:
    """What the kernels are compiled for."""
    kernel, dim = settings.kernel, a.shape[-1]
    power = 0.0 if kernel.p is None else float(kernel.p)
    chunk = min(triton.next_power_of_2(dim), _LARGEST_CHUNK)
    return {
        "P": power,
        "NORM": kernel.name == "lp_norm" and power != 1.0,
        "DIM": dim,
        "POSITIVES": b.shape[-2],
        "INCLUDE": settings.include_positive,
        "COUNTED": settings.terms is None,
        "CHUNK": chunk,
        "BLOCK": min(_TILE // chunk, _MOST_ROWS),
    }


def _strides(x: Tensor, ndim: int) -> tuple[int, ...]:
    """The strides of ``x`` along seeds, rows, …; 0 along seeds if it has no such axis."""
    return x.stride() if x.ndim == ndim else (0, *x.stride())
