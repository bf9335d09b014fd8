# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Sphere and box heads by Triton kernels: one launch forward, one backward, and a small sum if the size is learned.

Both heads are h = low + scale · s(x) with a scale per coordinate, learned as its logarithm: s(x) = x / ‖x‖ on a
sphere (whose scale, the radius, is the same for all coordinates), s(x) = sigmoid(x) in a box. Equal calls give
equal bits. Second derivatives are those of :func:`plain_head`, the same in torch operations.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from identica._eager import eager
from identica._seed_axis import seeds_first
from identica.encoders.triton_layers import run_add_blocks
from identica.spaces import Sphere

_TILE, _MOST_ROWS = 1024, 128  # numbers in a program's tile, and its rows


@eager
def fused_head(x: Tensor, log_scale: Tensor, low: Tensor | None) -> Tensor:
    """The codes of ``x: (..., d)`` in float32: on a sphere if there is no ``low: (d,)``, else in a box.

    ``log_scale``: the log of the radius, a scalar, or of the length of each side, ``(d,)``. Parameters, like ``x``,
    are in float32 or half precision. :func:`torch.func.vmap` over a leading axis is one launch.
    """
    rows, d = x.reshape(-1, x.shape[-1]), x.shape[-1]
    return _Head.apply(rows, log_scale.expand(d), low).view(x.shape)


def plain_head(x: Tensor, log_scale: Tensor, low: Tensor | None) -> Tensor:
    """The same in torch operations."""
    x, scale = x.float(), log_scale.float().exp()
    return scale * Sphere(x.shape[-1]).project(x) if low is None else low + scale * torch.sigmoid(x)


def _plain_gradients(
    slope: Tensor, x: Tensor, log_scale: Tensor, low: Tensor | None, learned: bool
) -> tuple[Tensor, Tensor | None]:
    """What :class:`_Gradients` computes, in torch operations."""
    pull = torch.func.vjp(lambda x, log_scale: plain_head(x, log_scale, low), x, log_scale)[1]
    into_x, into_scale = pull(slope)
    return into_x, into_scale if learned else None


class _Head(torch.autograd.Function):
    """(x, log scale, low or None) → codes. Shapes ``(rows, d)``, ``(d,)``, ``(d,)``, or behind an axis of seeds."""

    @staticmethod
    def forward(x: Tensor, log_scale: Tensor, low: Tensor | None) -> Tensor:
        out = x.new_empty(x.shape, dtype=torch.float32)
        arguments = [x, log_scale, x if low is None else low, out, x.shape[-2]]
        strides = [*_strides(x, 3), *_strides(log_scale, 2), *_strides(log_scale if low is None else low, 2)]
        with torch.cuda.device_of(x):
            _forward[_grid(x)](*arguments, *strides, **_plan(x, low))
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        into_x, into_scale = _Gradients.apply(slope, *ctx.saved_tensors, ctx.needs_input_grad[1])
        return into_x, into_scale, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        return _Head.apply(*seeds_first(info.batch_size, in_dims, inputs)), 0


class _Gradients(torch.autograd.Function):
    """Gradients for x and, if it is learned, the log of the scale; a function of its own to be mapped over seeds."""

    @staticmethod
    def forward(
        slope: Tensor, x: Tensor, log_scale: Tensor, low: Tensor | None, learned: bool
    ) -> tuple[Tensor, Tensor | None]:
        into_x = x.new_empty(x.shape)
        blocks, seeds = grid = _grid(x)
        # One sum per block of rows, added up in a fixed order, unlike atomics.
        sums = x.new_empty(*x.shape[:-2], blocks, x.shape[-1], dtype=torch.float32) if learned else None
        arguments = [slope, x, log_scale, into_x, into_x if sums is None else sums, x.shape[-2]]
        strides = [*_strides(slope, 3), *_strides(x, 3), *_strides(log_scale, 2)]
        with torch.cuda.device_of(x):
            _gradient[grid](*arguments, *strides, **_plan(x, low), LEARNED=learned)
        return into_x, None if sums is None else _added_up(sums).to(log_scale.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor | None]) -> None:
        *tensors, ctx.learned = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, into_x: Tensor, into_scale: Tensor | None) -> tuple[Tensor | None, ...]:
        slope, x, log_scale, low = ctx.saved_tensors

        def gradients(slope: Tensor, x: Tensor, log_scale: Tensor) -> tuple[Tensor, ...]:
            found = _plain_gradients(slope, x, log_scale, low, ctx.learned)
            return tuple(gradient for gradient in found if gradient is not None)

        pull = torch.func.vjp(gradients, slope, x, log_scale)[1]
        return (*pull((into_x, into_scale) if ctx.learned else (into_x,)), None, None)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        outputs = _Gradients.apply(*seeds_first(info.batch_size, in_dims, inputs))
        return outputs, tuple(None if output is None else 0 for output in outputs)


def _added_up(sums: Tensor) -> Tensor:
    """``(..., blocks, d)`` summed over the blocks."""
    return run_add_blocks(sums.reshape(-1, *sums.shape[-2:])).view(*sums.shape[:-2], sums.shape[-1])


def _strides(x: Tensor, ndim: int) -> tuple[int, ...]:
    """The strides of ``x`` along seeds, …; 0 along seeds if it has no such axis."""
    return x.stride() if x.ndim == ndim else (0, *x.stride())


def _grid(x: Tensor) -> tuple[int, int]:
    """Blocks of rows, seeds."""
    return triton.cdiv(x.shape[-2], _tile(x)[0]), math.prod(x.shape[:-2])


def _tile(x: Tensor) -> tuple[int, int]:
    """Rows and coordinates of a program's tile."""
    width = triton.next_power_of_2(x.shape[-1])
    return max(1, min(_TILE // width, _MOST_ROWS)), width


def _plan(x: Tensor, low: Tensor | None) -> dict[str, Any]:
    rows, width = _tile(x)
    return {"DIM": x.shape[-1], "SPHERE": low is None, "ROWS": rows, "WIDTH": width}


# The kernels. Grid: (row blocks, seeds); a program owns ROWS rows and all of their coordinates.


@triton.jit
def _on_sphere(x, k):
    """X / ‖x‖, the norm in two factors, and whether x is 0; the unit vector is then the first basis vector.

    Divided by its largest entry first, a row can neither under- nor overflow.
    """
    largest = tl.max(tl.abs(x), axis=1)[:, None]
    # A sum tells NaN from 0, which a maximum may not.
    is_zero = tl.sum(tl.abs(x), axis=1)[:, None] == 0.0
    largest = tl.where(is_zero, 1.0, largest)
    scaled = x / largest
    norm = tl.where(is_zero, 1.0, tl.sqrt(tl.sum(scaled * scaled, axis=1)[:, None]))
    first = tl.where(k == 0, 1.0, 0.0)[None, :]
    return tl.where(is_zero, first, scaled / norm), largest, norm, is_zero


@triton.jit
def _forward(
    x_ptr,
    log_scale_ptr,
    low_ptr,
    out_ptr,
    rows,
    x_seed,
    x_row,
    x_k,
    scale_seed,
    scale_k,
    low_seed,
    low_k,
    DIM: tl.constexpr,
    SPHERE: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Codes ``(seeds, rows, d)``, contiguous."""
    seed = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, WIDTH)
    inside = (row < rows)[:, None] & (k < DIM)[None, :]
    x = tl.load(x_ptr + seed * x_seed + row[:, None] * x_row + k[None, :] * x_k, mask=inside, other=0.0).to(tl.float32)
    log_scale = tl.load(log_scale_ptr + seed * scale_seed + k * scale_k, mask=k < DIM, other=0.0).to(tl.float32)
    scale = tl.exp(log_scale)[None, :]
    if SPHERE:
        unit, _, _, _ = _on_sphere(x, k)
        h = scale * unit
    else:
        low = tl.load(low_ptr + seed * low_seed + k * low_k, mask=k < DIM, other=0.0).to(tl.float32)
        h = low[None, :] + scale * tl.sigmoid(x)
    tl.store(out_ptr + (seed * rows + row)[:, None] * DIM + k[None, :], h, mask=inside)


@triton.jit
def _gradient(
    slope_ptr,
    x_ptr,
    log_scale_ptr,
    into_x_ptr,
    sums_ptr,
    rows,
    slope_seed,
    slope_row,
    slope_k,
    x_seed,
    x_row,
    x_k,
    scale_seed,
    scale_k,
    DIM: tl.constexpr,
    SPHERE: tl.constexpr,
    LEARNED: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Gradients for x, ``(seeds, rows, d)``, and of the log scale per block of rows, ``(seeds, blocks, d)``."""
    block, seed = tl.program_id(0), tl.program_id(1).to(tl.int64)
    row = block.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, WIDTH)
    inside = (row < rows)[:, None] & (k < DIM)[None, :]
    x = tl.load(x_ptr + seed * x_seed + row[:, None] * x_row + k[None, :] * x_k, mask=inside, other=0.0).to(tl.float32)
    place = seed * slope_seed + row[:, None] * slope_row + k[None, :] * slope_k
    log_scale = tl.load(log_scale_ptr + seed * scale_seed + k * scale_k, mask=k < DIM, other=0.0).to(tl.float32)
    slope = tl.load(slope_ptr + place, mask=inside, other=0.0) * tl.exp(log_scale)[None, :]
    if SPHERE:
        s, largest, norm, is_zero = _on_sphere(x, k)
        across = slope - s * tl.sum(s * slope, axis=1)[:, None]
        into_x = tl.where(is_zero, 0.0, across / norm / largest)
    else:
        s = tl.sigmoid(x)
        into_x = slope * s * (1.0 - s)
    tl.store(into_x_ptr + (seed * rows + row)[:, None] * DIM + k[None, :], into_x, mask=inside)
    if LEARNED:
        out = sums_ptr + (seed * tl.num_programs(0) + block) * DIM + k
        tl.store(out, tl.sum(slope * s, axis=0), mask=k < DIM)
