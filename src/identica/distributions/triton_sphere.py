# mypy: disable-error-code="no-untyped-def, untyped-decorator, assignment"
"""Draws on the sphere, one launch each: uniform, and von Mises-Fisher by rejection inside the kernel.

A program owns a block of rows. What a row has one of (its angle, its norms) is a vector over the rows; its
coordinates are four tiles ``(rows, COLUMNS)``, where tile j holds the coordinates from j·COLUMNS on, because Philox
and Box-Muller give normal numbers four at a time. The mathematics is that of :mod:`.von_mises_fisher`.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Size, Tensor

from identica.distributions.triton_launch import Blocks, on, random_seed, row_blocks, spread
from identica.distributions.triton_random import four_normals, log1p, one_minus_exp, random_words, uniform, unit_circle

#: Purposes of random numbers.
DIRECTION = tl.constexpr(0)
ANGLE = tl.constexpr(1)
#: tan²(θ/2) of the antipode, which would be infinite.
LARGEST_ODDS = tl.constexpr(1e30)
#: About the smallest normal float32: a divisor that keeps 0 / 0 from becoming NaN.
TINY = tl.constexpr(1.2e-38)


@triton.jit
def normal_tiles(seed, row, attempt, DIM: tl.constexpr, COLUMNS: tl.constexpr, PURPOSE: tl.constexpr):
    """Standard normal numbers for the coordinates of each row: four tiles, 0 beyond the last coordinate."""
    column = tl.arange(0, COLUMNS)[None, :]
    # The counter of a row's groups: attempts, then groups of four coordinates.
    noise = four_normals(seed, row[:, None], attempt * COLUMNS + column, PURPOSE)
    tiles = ()
    for j in tl.static_range(4):
        if j * COLUMNS < DIM:
            tiles = tiles + (tl.where(j * COLUMNS + column < DIM, noise[j], 0.0),)
        else:
            tiles = tiles + (tl.zeros_like(noise[j]),)
    return tiles


@triton.jit
def load_tiles(pointer, row, rows, DIM: tl.constexpr, COLUMNS: tl.constexpr):
    """The coordinates of the given rows of a ``(rows, DIM)`` tensor, 0 beyond either end."""
    column = tl.arange(0, COLUMNS)[None, :]
    tiles = ()
    for j in tl.static_range(4):
        inside = (row < rows)[:, None] & (j * COLUMNS + column < DIM)
        tiles = tiles + (tl.load(pointer + row[:, None] * DIM + j * COLUMNS + column, mask=inside, other=0.0),)
    return tiles


@triton.jit
def store_tiles(pointer, tiles, factor, row, rows, DIM: tl.constexpr, COLUMNS: tl.constexpr):
    """Write ``factor · tiles`` into the given rows of a ``(rows, DIM)`` tensor."""
    column = tl.arange(0, COLUMNS)[None, :]
    for j in tl.static_range(4):
        inside = (row < rows)[:, None] & (j * COLUMNS + column < DIM)
        tl.store(pointer + row[:, None] * DIM + j * COLUMNS + column, tiles[j] * factor[:, None], mask=inside)


@triton.jit
def dot(a, b):
    """The inner product of each row."""
    return tl.sum(a[0] * b[0] + a[1] * b[1] + (a[2] * b[2] + a[3] * b[3]), axis=1)


@triton.jit
def norm(a):
    """The norm of each row, added up in float64: in float32 squares of tiny and huge entries leave its range."""
    b = (a[0].to(tl.float64), a[1].to(tl.float64), a[2].to(tl.float64), a[3].to(tl.float64))
    return tl.sqrt(dot(b, b)).to(tl.float32)


@triton.jit
def sphere_uniform(
    seed_ptr,
    radius_ptr,
    out_ptr,
    rows,
    period,
    DIM: tl.constexpr,
    COLUMNS: tl.constexpr,
    RADIUS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A normal vector scaled to the radius. ``RADIUS``: the radius's stride, 0 or 1."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = normal_tiles(tl.load(seed_ptr), row, 0, DIM, COLUMNS, DIRECTION)
    radius = tl.load(radius_ptr + (row % period) * RADIUS, mask=row < rows, other=1.0)
    store_tiles(out_ptr, x, tl.div_rn(radius, tl.sqrt_rn(dot(x, x))), row, rows, DIM, COLUMNS)


@triton.jit
def uniform_odds(first, second, DIM: tl.constexpr):
    """tan²(θ/2) for points uniform on the sphere in R^DIM, see :func:`.von_mises_fisher._uniform_odds`."""
    cosine, sine = unit_circle(first)
    cosine, sine = cosine * cosine, sine * sine
    if DIM > 2:
        exponent = tl.log(uniform(second)) * (2.0 / (DIM - 2))
        s = tl.sqrt(one_minus_exp(-exponent))
        offset = 0.5 * tl.exp(exponent) / (1.0 + s)  # ½ (1 − s) without the difference
        sine, cosine = offset + s * sine, offset + s * cosine
    return tl.minimum(cosine / sine, LARGEST_ODDS)


@triton.jit
def first_accepted(seed, row, wanted, concentration, DIM: tl.constexpr, TRIES: tl.constexpr):
    """tan²(θ/2) for the angle θ between each row and its location; rows that are not wanted do not hold up the rest."""
    slope = concentration * (2.0 / (DIM - 1))
    shrink = 1.0 / (slope + tl.sqrt(slope * slope + 1.0))
    factor = slope / (1.0 + shrink)
    odds = tl.zeros_like(shrink)
    open_rows = wanted
    attempt = 0
    while (attempt < TRIES) & (tl.max(open_rows.to(tl.int32), axis=0) > 0):
        words = random_words(seed, row, attempt, ANGLE)
        proposed = shrink * uniform_odds(words[0], words[1], DIM)
        y = factor * (proposed - shrink) / (1.0 + proposed)
        accepted = tl.log(uniform(words[2])) < (DIM - 1) * (log1p(y) - y)
        odds = tl.where(open_rows, proposed, odds)  # after the last try, a row keeps its last proposal
        open_rows = open_rows & ~accepted
        attempt += 1
    return odds


@triton.jit
def von_mises_fisher(
    seed_ptr,
    loc_ptr,
    concentration_ptr,
    out_ptr,
    rows,
    period,
    DIM: tl.constexpr,
    COLUMNS: tl.constexpr,
    CONCENTRATION: tl.constexpr,
    TRIES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Rows around their locations, of which there are ``period``. ``CONCENTRATION``: its stride, 0 or 1."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = row % period
    seed = tl.load(seed_ptr)
    concentration = tl.load(concentration_ptr + place * CONCENTRATION, mask=row < rows, other=1.0)
    odds = first_accepted(seed, row, row < rows, concentration, DIM, TRIES)
    pole = load_tiles(loc_ptr, place, period, DIM, COLUMNS)
    column = tl.arange(0, COLUMNS)[None, :]
    is_first = column == 0
    noise = normal_tiles(seed, row, 0, DIM, COLUMNS, DIRECTION)
    normal = (tl.where(is_first, 0.0, noise[0]), noise[1], noise[2], noise[3])
    # As in _leave_pole: on the unit sphere until the end, a reflection turns the normal vector tangent to the sphere.
    radius = norm(pole)
    first = tl.sum(tl.where(is_first, pole[0], 0.0), axis=1) / radius
    step = 2.0 * tl.sqrt(odds) / (1.0 + odds) / tl.maximum(tl.sqrt(dot(normal, normal)), TINY)
    tilt = step * (dot(pole, normal) / radius) / (1.0 + tl.abs(first))
    along = ((1.0 - odds) / (1.0 + odds) - tilt) / radius
    shear = tl.where(first < 0.0, -tilt, tilt)
    along, step = along[:, None], step[:, None]
    x = (
        pole[0] * along + normal[0] * step - tl.where(is_first, shear[:, None], 0.0),
        pole[1] * along + normal[1] * step,
        pole[2] * along + normal[2] * step,
        pole[3] * along + normal[3] * step,
    )
    store_tiles(out_ptr, x, tl.div_rn(radius, tl.sqrt_rn(dot(x, x))), row, rows, DIM, COLUMNS)


def draw_sphere_uniform(
    shape: Size, batch: Size, dim: int, radius: Tensor, generator: torch.Generator | None, blocks: Blocks | None = None
) -> Tensor:
    """``(*shape, *batch, dim)`` points of spheres whose radius, ``()`` or ``(..., 1)``, broadcasts to ``batch``."""
    radius, stride = spread(radius, Size((*batch, 1)))
    out = radius.new_empty((*shape, *batch, dim))
    _launch(sphere_uniform, [radius, out], out, batch, {"RADIUS": stride}, generator, blocks)
    return out


def draw_von_mises_fisher(
    shape: Size,
    batch: Size,
    loc: Tensor,
    concentration: Tensor,
    tries: int,
    generator: torch.Generator | None,
    blocks: Blocks | None = None,
) -> Tensor:
    """``(*shape, *batch, d)`` points around ``loc: (..., d)``; the concentration is ``()`` or ``(..., 1)``."""
    loc = loc.expand(*batch, loc.shape[-1]).contiguous()
    concentration, stride = spread(concentration, Size((*batch, 1)))
    out = loc.new_empty((*shape, *loc.shape))
    settings = {"CONCENTRATION": stride, "TRIES": tries}
    _launch(von_mises_fisher, [loc, concentration, out], out, batch, settings, generator, blocks)
    return out


def _launch(
    kernel: Any,
    tensors: list[Tensor],
    out: Tensor,
    batch: Size,
    settings: dict[str, Any],
    generator: torch.Generator | None,
    blocks: Blocks | None,
) -> None:
    dim = out.shape[-1]
    rows, columns = out.numel() // dim, triton.next_power_of_2(triton.cdiv(dim, 4))
    blocks = blocks or row_blocks(out, rows, columns)
    settings |= {"DIM": dim, "COLUMNS": columns, "BLOCK": blocks.rows, "num_warps": blocks.warps}
    seed = random_seed(out, generator)
    with on(out):
        kernel[(triton.cdiv(rows, blocks.rows),)](seed, *tensors, rows, batch.numel(), **settings)
