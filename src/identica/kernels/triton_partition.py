"""The log-partition by Triton kernels: CUDA devices, or the CPU through Triton's interpreter.

Nothing of the size of the pair matrix exists. The forward pass is an online softmax; the backward pass
computes the pairs again, once by rows for the anchors and once by columns for the candidates, or in a single
pass for both roles when the anchors are their own candidates. No atomics: equal calls give equal bits.

Half-precision codes are computed with in float32, except for inner products of more than 16 coordinates, which
are products of the half-precision numbers with float32 sums (of bfloat16 codes, the weights in the gradient are
rounded to bfloat16 as well, as in a dense softmax). Float32 products have the precision of float32, or, of more than
32 coordinates, that of TF32 if :func:`torch.set_float32_matmul_precision` asked for it.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor

from identica._products import no_autocast
from identica._seed_axis import seeds_first
from identica.kernels import triton_launch as launch
from identica.kernels.partition import Partition
from identica.kernels.triton_launch import Blocks, Problem
from identica.similarities import Kernel

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def log_partition_triton(
    anchors: Tensor,
    candidates: Tensor,
    kernel: Kernel,
    *,
    exclude_diagonal: bool = False,
    mask: Tensor | None = None,
    blocks: Blocks | None = None,
    spans: int | None = None,
) -> Partition:
    """Log-partition in fused kernels; see :func:`identica.kernels.log_partition`.

    ``blocks`` and ``spans`` override the block sizes and the number of parts the candidates are split into.
    Differentiable once; :func:`torch.func.vmap` over a leading axis is one launch.
    """
    _check(anchors)
    problem = Problem(kernel, exclude_diagonal, launch.route_of(kernel, anchors.shape[1]), blocks, spans)
    a, b = _prepare(anchors, candidates, problem)
    return Partition(*_LogPartition.apply(a, b, mask, problem))


def _check(anchors: Tensor) -> None:
    if anchors.dtype not in DTYPES:
        raise ValueError(
            f'impl="triton" computes in float32 and takes float32, float16 or bfloat16 codes, not {anchors.dtype}: '
            'use impl="tiled" or impl="auto".'
        )
    if anchors.device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        raise ValueError(
            f'impl="triton" needs codes on a CUDA device, not on {anchors.device}: use impl="tiled" or impl="auto".'
        )


def _prepare(anchors: Tensor, candidates: Tensor, problem: Problem) -> tuple[Tensor, Tensor | None]:
    """The codes in the layout and dtype that the kernels take, by differentiable operations."""
    itself = anchors is candidates
    if problem.route != "product":
        a = anchors.float().T.contiguous()
        return a, None if itself else candidates.float().T.contiguous()
    if problem.kernel.name == "dot":
        if anchors.device.type == "cpu" and anchors.dtype == torch.bfloat16:  # the interpreter's products lack it
            anchors, candidates = anchors.float(), candidates.float()
        return anchors.contiguous(), None if itself else candidates.contiguous()
    centre = candidates.detach().float().mean(dim=0)
    a = (anchors.float() - centre).contiguous()
    return a, None if itself else (candidates.float() - centre).contiguous()


class _LogPartition(torch.autograd.Function):
    """(anchors, candidates or None for the anchors themselves) → log-partition, largest.

    The codes have two axes, in the layout of the problem, or a leading third one: the seeds.
    """

    @staticmethod
    def forward(a: Tensor, b: Tensor | None, mask: Tensor | None, problem: Problem) -> tuple[Tensor, Tensor]:
        if a.ndim == 2:
            a, b, mask = _one_seed(a, b, mask)
            value, largest = _LogPartition.forward(a, b, mask, problem)
            return value[0], largest[0]
        a = a.contiguous()
        return launch.forward(a, a if b is None else b.contiguous(), mask, problem)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        a, b, mask, ctx.problem = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(a, b, mask, output[0])
        ctx.set_materialize_grads(False)  # zeros for ``largest``, which nobody reads, would be one more launch

    @staticmethod
    def backward(ctx: Any, slope: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
        if slope is None:
            return None, None, None, None
        a, b, mask, value = ctx.saved_tensors
        wanted = (ctx.needs_input_grad[0], ctx.needs_input_grad[1])
        with no_autocast(a.device):
            into_a, into_b = _Gradients.apply(a, b, mask, value, slope, ctx.problem, wanted)
        return into_a, into_b, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        return _LogPartition.apply(*seeds_first(info.batch_size, in_dims, inputs)), (0, 0)


class _Gradients(torch.autograd.Function):
    """Gradients of Σ slope · log-partition for the anchors and the candidates, each None unless wanted.

    A function of its own so that it, too, can be mapped over seeds, and to refuse to be differentiated again.
    """

    @staticmethod
    def forward(
        a: Tensor,
        b: Tensor | None,
        mask: Tensor | None,
        value: Tensor,
        slope: Tensor,
        problem: Problem,
        wanted: tuple[bool, bool],
    ) -> tuple[Tensor | None, Tensor | None]:
        if a.ndim == 2:
            a, b, mask, value, slope = _one_seed(a, b, mask, value, slope)
            into_a, into_b = _Gradients.forward(a, b, mask, value, slope, problem, wanted)
            return None if into_a is None else into_a[0], None if into_b is None else into_b[0]
        a, weights = a.contiguous(), (value.contiguous(), slope.contiguous())
        if b is None and mask is None:
            return launch.gradient(a, a, None, weights, weights, problem).to(a.dtype), None
        other = a if b is None else b.contiguous()
        into_a = into_b = None
        if wanted[0]:
            into_a = launch.gradient(a, other, mask, weights, None, problem).to(a.dtype)
        if wanted[1] or b is None:
            turned = None if mask is None else mask.transpose(1, 2)
            into_b = launch.gradient(other, a, turned, None, weights, problem).to(a.dtype)
        if b is None and into_a is not None and into_b is not None:
            return into_a + into_b, None
        return into_a, into_b

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor | None, Tensor | None]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> None:
        raise RuntimeError(
            'The log-partition of impl="triton" can be differentiated once. For second derivatives use '
            'impl="reference".'
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        outputs = _Gradients.apply(*seeds_first(info.batch_size, in_dims, inputs))
        return outputs, tuple(None if output is None else 0 for output in outputs)


def _one_seed(*tensors: Tensor | None) -> list[Any]:
    """The tensors with a leading axis of length 1."""
    return [None if tensor is None else tensor[None] for tensor in tensors]
