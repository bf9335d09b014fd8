# mypy: disable-error-code="no-untyped-def, untyped-decorator, assignment"
"""Families with independent coordinates, one launch a draw: uniform on a box, and exp(−|s|^power) on a box or R.

The inverse distribution function at a uniform number, as in :mod:`.power_family`, but with 32 random bits a
coordinate. One evaluation of Philox serves four coordinates, a quarter of the whole apart, so that neighbouring
lanes read and write neighbouring numbers.

Power 1 has a closed form, every other power the tables of :mod:`.power_integral`.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Size, Tensor

from identica.distributions.power_integral import tabulated_integral
from identica.distributions.triton_launch import Blocks, coordinate_blocks, on, random_seed, spread
from identica.distributions.triton_random import (
    FIRST_BIT,
    four_normals,
    minus_log_of_rest,
    one_minus_exp,
    one_minus_uniform,
    random_words,
    uniform,
)

ROOT_HALF = tl.constexpr(0.7071067811865476)


# ------------------------------------------------------------------------------------------------ functions of s


@triton.jit
def look_up(table_ptr, x, sheet, first, last, shift):
    """A function tabulated by :class:`.log_table.LogTable`, at x ≥ 0; both coefficients in one 64-bit load."""
    bits = tl.minimum(tl.maximum(x.to(tl.int32, bitcast=True), first), last) - first
    cells = ((last - first) >> shift) + 1
    pair = tl.load(table_ptr + (bits >> shift) + sheet * cells)
    place = (bits & ((1 << shift) - 1)).to(tl.float32)
    value = pair.to(tl.int32).to(tl.float32, bitcast=True)
    slope = (pair >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    return value + slope * place


@triton.jit
def mass(s, table_ptr, first, last, shift, LAPLACE: tl.constexpr):
    """H(s) = ∫₀ˢ exp(−t^power) dt for s ≥ 0."""
    if LAPLACE:
        return one_minus_exp(s)
    else:
        saturated = last.to(tl.float32, bitcast=True)
        return look_up(table_ptr, s, 0, first, last, shift) * tl.minimum(s, saturated)


@triton.jit
def distance(t, rest, table_ptr, first, last, shift, LAPLACE: tl.constexpr):
    """The s ≥ 0 with H(s) = t, given also rest = H(∞) − t, which is the more accurate of the two in the tail."""
    if LAPLACE:
        return tl.where(t < 0.5, minus_log_of_rest(t), -tl.log(rest))
    else:
        in_tail = rest < t
        return t * look_up(table_ptr, tl.where(in_tail, rest, t), in_tail.to(tl.int32), first, last, shift)


# ------------------------------------------------------------------------------------------------ kernels


@triton.jit
def box_uniform(
    seed_ptr,
    low_ptr,
    high_ptr,
    out_ptr,
    total,
    quarter,
    period,
    LOW: tl.constexpr,
    HIGH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Uniform between low and high, edges included. ``LOW`` and ``HIGH``: the parameters' strides, 0 or 1."""
    counter = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    words = random_words(tl.load(seed_ptr), counter, 0, 0)
    for j in tl.static_range(4):
        element = j * quarter + counter
        inside = (counter < quarter) & (element < total)
        place = element % period
        low = tl.load(low_ptr + place * LOW, mask=inside, other=0.0)
        high = tl.load(high_ptr + place * HIGH, mask=inside, other=0.0)
        # From the nearer edge: this never leaves the box.
        u, rest = uniform(words[j]), one_minus_uniform(words[j])
        x = tl.where(u < 0.5, low + u * (high - low), high - rest * (high - low))
        tl.store(out_ptr + element, x, mask=inside)


@triton.jit
def truncated(
    seed_ptr,
    loc_ptr,
    scale_ptr,
    low_ptr,
    high_ptr,
    mass_ptr,
    distance_ptr,
    out_ptr,
    total,
    quarter,
    period,
    width_per_scale,
    whole,
    mass_first,
    mass_last,
    mass_shift,
    distance_first,
    distance_last,
    distance_shift,
    LAPLACE: tl.constexpr,
    REPEATED: tl.constexpr,
    SCALE: tl.constexpr,
    LOW: tl.constexpr,
    HIGH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """exp(−(|x − loc|/width)^power) between low and high. ``whole``: H(∞); ``SCALE``, ``LOW``, ``HIGH``: strides."""
    counter = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    words = random_words(tl.load(seed_ptr), counter, 0, 0)
    for j in tl.static_range(4):
        element = j * quarter + counter
        inside = (counter < quarter) & (element < total)
        place = element % period if REPEATED else element
        loc = tl.load(loc_ptr + place, mask=inside, other=0.0)
        width = tl.load(scale_ptr + place * SCALE, mask=inside, other=1.0) * width_per_scale
        low = tl.load(low_ptr + place * LOW, mask=inside, other=0.0)
        high = tl.load(high_ptr + place * HIGH, mask=inside, other=1.0)
        below = mass((loc - low) / width, mass_ptr, mass_first, mass_last, mass_shift, LAPLACE)
        above = mass((high - loc) / width, mass_ptr, mass_first, mass_last, mass_shift, LAPLACE)
        # How much mass is left between the draw and the edge on its side of loc, and from there to infinity.
        from_low, from_high = uniform(words[j]) * (below + above), one_minus_uniform(words[j]) * (below + above)
        left = from_low < below
        edge, side = tl.where(left, from_low, from_high), tl.where(left, below, above)
        beyond = tl.exp(tl.where(left, low - loc, loc - high) / width) if LAPLACE else whole - side
        t, rest = tl.maximum(side - edge, 0.0), beyond + edge
        s = distance(t, rest, distance_ptr, distance_first, distance_last, distance_shift, LAPLACE)
        x = loc + tl.where(left, -s, s) * width
        x = tl.where(x < low, low, tl.where(x > high, high, x))  # keeps NaN, unlike minimum and maximum
        tl.store(out_ptr + element, x, mask=inside)


@triton.jit
def unbounded(
    seed_ptr,
    loc_ptr,
    scale_ptr,
    distance_ptr,
    out_ptr,
    total,
    quarter,
    period,
    whole,
    first,
    last,
    shift,
    LAPLACE: tl.constexpr,
    NORMAL: tl.constexpr,
    REPEATED: tl.constexpr,
    SCALE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """exp(−(|x − loc|/scale)^power) on the real line. ``whole``: H(∞); ``SCALE``: the stride of the scale."""
    counter = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    seed = tl.load(seed_ptr)
    noise = four_normals(seed, counter, 0, 0) if NORMAL else random_words(seed, counter, 0, 0)
    for j in tl.static_range(4):
        element = j * quarter + counter
        inside = (counter < quarter) & (element < total)
        place = element % period if REPEATED else element
        loc = tl.load(loc_ptr + place, mask=inside, other=0.0)
        scale = tl.load(scale_ptr + place * SCALE, mask=inside, other=1.0)
        if NORMAL:
            s = noise[j] * ROOT_HALF
        else:
            # One bit is the sign, 31 are the size; shifted in from the right, they count half a unit each.
            size, negative = noise[j] << 1, (noise[j] & FIRST_BIT) != 0
            t, rest = uniform(size) * whole, one_minus_uniform(size) * whole
            s = distance(t, rest, distance_ptr, first, last, shift, LAPLACE)
            s = tl.where(negative, -s, s)
        tl.store(out_ptr + element, loc + s * scale, mask=inside)


# ------------------------------------------------------------------------------------------------ launches


def draw_box_uniform(
    shape: Size, batch: Size, low: Tensor, high: Tensor, generator: torch.Generator | None, blocks: Blocks | None = None
) -> Tensor:
    """``(*shape, *batch)`` uniform numbers between low and high, which broadcast to ``batch``."""
    (low, low_stride), (high, high_stride) = spread(low, batch), spread(high, batch)
    out = low.new_empty((*shape, *batch))
    strides = {"LOW": low_stride, "HIGH": high_stride}
    _launch(box_uniform, [low, high, out], out, batch, [], strides, generator, blocks)
    return out


def draw_truncated(
    shape: Size,
    batch: Size,
    power: float,
    width_per_scale: float,
    parameters: tuple[Tensor, Tensor, Tensor, Tensor],
    generator: torch.Generator | None,
    blocks: Blocks | None = None,
) -> Tensor:
    """``(*shape, *batch)`` draws on boxes; ``parameters``: loc, scale, low, high, which broadcast to ``batch``."""
    loc = parameters[0].expand(batch).contiguous()
    (scale, scale_stride), (low, low_stride), (high, high_stride) = (spread(p, batch) for p in parameters[1:])
    out = loc.new_empty((*shape, *batch))
    tables, grids, whole = _tables(power, loc)
    strides = {"SCALE": scale_stride, "LOW": low_stride, "HIGH": high_stride}
    settings = {"LAPLACE": power == 1.0, "REPEATED": out.numel() > loc.numel()}
    tensors, numbers = [loc, scale, low, high, *tables, out], [width_per_scale, whole, *grids]
    _launch(truncated, tensors, out, batch, numbers, settings | strides, generator, blocks)
    return out


def draw_unbounded(
    shape: Size,
    batch: Size,
    power: float,
    loc: Tensor,
    scale: Tensor,
    generator: torch.Generator | None,
    blocks: Blocks | None = None,
) -> Tensor:
    """``(*shape, *batch)`` draws on the real line; loc and scale broadcast to ``batch``."""
    loc = loc.expand(batch).contiguous()
    scale, stride = spread(scale, batch)
    out = loc.new_empty((*shape, *batch))
    tables, grids, whole = _tables(power, loc)
    settings = {"LAPLACE": power == 1.0, "NORMAL": power == 2.0, "SCALE": stride}
    settings["REPEATED"] = out.numel() > loc.numel()
    _launch(unbounded, [loc, scale, tables[1], out], out, batch, [whole, *grids[3:]], settings, generator, blocks)
    return out


def _tables(power: float, like: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[int, ...], float]:
    """The tables of H and of its inverse for this power, their grids (first, last, shift), and H(∞)."""
    if power == 1.0:
        return (like, like), (0,) * 6, 1.0
    integral = tabulated_integral(power, like.device, like.dtype)
    both = (integral.ratio, integral.inverse_ratio)
    pairs = both[0].coefficients[0].view(torch.int64), both[1].coefficients[0].view(torch.int64)
    grids = tuple(number for table in both for number in (table.first, table.last, table.shift))
    return pairs, grids, integral.total


def _launch(
    kernel: Any,
    tensors: list[Tensor],
    out: Tensor,
    batch: Size,
    numbers: list[float],
    settings: dict[str, Any],
    generator: torch.Generator | None,
    blocks: Blocks | None,
) -> None:
    quarter = 16 * triton.cdiv(out.numel(), 64)  # a multiple of 16, for aligned reads and writes
    blocks = blocks or coordinate_blocks(out, quarter)
    sizes = [out.numel(), quarter, batch.numel(), *numbers]
    seed = random_seed(out, generator)
    with on(out):
        kernel[(triton.cdiv(quarter, blocks.rows),)](
            seed, *tensors, *sizes, **settings, BLOCK=blocks.rows, num_warps=blocks.warps
        )
