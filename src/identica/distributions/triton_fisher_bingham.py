# mypy: disable-error-code="no-untyped-def, untyped-decorator, assignment"
"""Fisher-Bingham draws in one launch: the proposal, its bound and the rejection loop for a block of rows at a time.

The mathematics, and the names, are those of :mod:`.fisher_bingham_sampler`; the layout is that of
:mod:`.triton_sphere`. A loop remembers which attempt a row accepted, not what was proposed: the counter-based
generator proposes the same again.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Size, Tensor

from identica.distributions.fisher_bingham_normalizer import LOWEST_SHIFT
from identica.distributions.fisher_bingham_sampler import correction_series
from identica.distributions.triton_launch import Blocks, on, random_seed, row_blocks
from identica.distributions.triton_random import log1p, random_words, uniform
from identica.distributions.triton_sphere import dot, load_tiles, norm, normal_tiles, store_tiles

#: Purposes of random numbers.
NOISE = tl.constexpr(0)
LEVEL = tl.constexpr(1)
SMALLEST_SHIFT = tl.constexpr(LOWEST_SHIFT)
TINY = tl.constexpr(1.2e-38)
LARGE = tl.constexpr(3e38)
EPS = tl.constexpr(2.0**-23)


@triton.jit
def scaled(tiles, factor):
    """Each row times its factor."""
    factor = factor[:, None]
    return tiles[0] * factor, tiles[1] * factor, tiles[2] * factor, tiles[3] * factor


@triton.jit
def multiplied(a, b):
    """Coordinate by coordinate."""
    return a[0] * b[0], a[1] * b[1], a[2] * b[2], a[3] * b[3]


@triton.jit
def total_of(a):
    """The sum over each row."""
    return tl.sum(a[0] + a[1] + (a[2] + a[3]), axis=1)


@triton.jit
def extremes(tiles, DIM: tl.constexpr, COLUMNS: tl.constexpr):
    """The smallest and the largest coordinate of each row."""
    column = tl.arange(0, COLUMNS)[None, :]
    least, most = tl.full(tiles[0].shape, LARGE, tl.float32), tl.full(tiles[0].shape, -LARGE, tl.float32)
    for j in tl.static_range(4):
        inside = j * COLUMNS + column < DIM
        least = tl.minimum(least, tl.where(inside, tiles[j], LARGE))
        most = tl.maximum(most, tl.where(inside, tiles[j], -LARGE))
    return tl.min(least, axis=1), tl.max(most, axis=1)


@triton.jit
def inverses(precision, shift, DIM: tl.constexpr, COLUMNS: tl.constexpr):
    """1 / (precision + shift), 0 beyond the last coordinate."""
    column = tl.arange(0, COLUMNS)[None, :]
    tiles = ()
    for j in tl.static_range(4):
        tiles = tiles + (tl.where(j * COLUMNS + column < DIM, 1.0 / (precision[j] + shift[:, None]), 0.0),)
    return tiles


@triton.jit
def saddle_shift(precision, pull, DIM: tl.constexpr, COLUMNS: tl.constexpr, STEPS: tl.constexpr):
    """See :func:`.fisher_bingham_normalizer.saddle_shift`, with the weight that proposals take."""
    weight: tl.constexpr = 1.0 - 1.0 / DIM
    shift = total_of(pull) * 0.0 + 0.5 * (DIM - 1)
    for _ in tl.static_range(STEPS):
        inverse = inverses(precision, shift, DIM, COLUMNS)
        fit = multiplied(pull, inverse)
        fit = multiplied(fit, fit)
        left = total_of(fit) + weight * total_of(inverse)
        slope = 2.0 * dot(fit, inverse) + weight * dot(inverse, inverse)
        shift = tl.maximum(shift + (left - 1.0) * left / slope, SMALLEST_SHIFT)
    return shift


@triton.jit
def mode(beta, DIM: tl.constexpr):
    """The t where r^DIM exp(−½ r² + β r) is largest."""
    return 0.5 * (tl.sqrt(beta * beta + 4.0 * DIM) + beta)


@triton.jit
def log_radial_ratio(root_a, beta, series_ptr, DIM: tl.constexpr, TERMS: tl.constexpr):
    """See :func:`.fisher_bingham_sampler.log_radial_ratio`."""
    t = mode(beta, DIM)
    squared = t * t
    total = squared + DIM
    gap = root_a - t
    excess = gap / t
    place = (squared - DIM) / total
    correction = place * 0.0 + tl.load(series_ptr + TERMS - 1)
    for k in tl.static_range(1, TERMS):
        correction = correction * place + tl.load(series_ptr + TERMS - 1 - k)
    return DIM * (excess - log1p(excess)) + 0.5 * gap * gap - 0.5 * tl.log(total) + correction


@triton.jit
def mean_radius(root_a, beta, series_ptr, DIM: tl.constexpr, TERMS: tl.constexpr):
    """See :func:`.fisher_bingham_sampler.mean_radius`."""
    t = mode(beta, DIM)
    total = t * t + DIM
    place = 1.0 - 2.0 * DIM / total
    slope = place * 0.0 + (TERMS - 1) * tl.load(series_ptr + TERMS - 1)
    for k in tl.static_range(1, TERMS - 1):
        slope = slope * place + (TERMS - 1 - k) * tl.load(series_ptr + TERMS - 1 - k)
    share = 1.0 - DIM / total
    return t / root_a * (1.0 - share / total + 4.0 * share * DIM / (total * total) * slope)


@triton.jit
def log_lower_bound(shift, spread, smallest, largest, series_ptr, DIM: tl.constexpr, TERMS: tl.constexpr):
    """See :func:`.fisher_bingham_sampler.log_lower_bound`: the plane tangent to log J near its minimum."""
    root, least, most = tl.sqrt(spread), tl.sqrt(smallest), tl.sqrt(largest)
    at = 0.5 * (root + tl.sqrt(tl.maximum(spread + 4.0 * (DIM - shift), 0.0)))
    at = tl.minimum(tl.maximum(at, least), most)
    a, edge = at * at, root * at
    quadratic = a + shift
    inside = quadratic - (DIM - 1) * (1.0 + 1.0 / (DIM - 1 + quadratic))
    b = tl.maximum(tl.minimum(edge, inside), -edge)
    root_a = tl.sqrt(quadratic)
    value = log_radial_ratio(root_a, b / root_a, series_ptr, DIM, TERMS)
    radius = mean_radius(root_a, b / root_a, series_ptr, DIM, TERMS)
    slope_b = radius - 1.0
    slope_a = 0.5 - 0.5 * (DIM + b * radius) / quadratic
    pull = tl.abs(slope_b) * root
    best = tl.where(slope_a > 0.0, 0.5 * pull / tl.maximum(slope_a, TINY), most)
    best = tl.minimum(tl.maximum(best, least), most)
    lowest = (slope_a * best - pull) * best
    return value + (lowest - slope_a * a - slope_b * b) - (EPS * (largest + DIM) + 1e-5)


@triton.jit
def proposed(seed, row, attempt, scale, centre, DIM: tl.constexpr, COLUMNS: tl.constexpr):
    """Proposal number ``attempt`` of each row: y, and |whitened|² = a |y|²."""
    noise = normal_tiles(seed, row, attempt, DIM, COLUMNS, NOISE)
    whitened = (centre[0] + noise[0], centre[1] + noise[1], centre[2] + noise[2], centre[3] + noise[3])
    return multiplied(whitened, scale), dot(whitened, whitened)


@triton.jit
def fisher_bingham(
    seed_ptr,
    loc_ptr,
    precision_ptr,
    series_ptr,
    out_ptr,
    rows,
    period,
    DIM: tl.constexpr,
    COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
    STEPS: tl.constexpr,
    TERMS: tl.constexpr,
    TRIES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Rows around their locations, of which there are ``period``. ``PRECISION``: 1 if each has its own, else 0."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = row % period
    seed = tl.load(seed_ptr)
    loc = load_tiles(loc_ptr, place, period, DIM, COLUMNS)
    radius = norm(loc)
    # The same problem on the unit sphere.
    unit = scaled(loc, 1.0 / radius)
    precision = scaled(scaled(load_tiles(precision_ptr, place * PRECISION, period, DIM, COLUMNS), radius), radius)
    pull = multiplied(precision, unit)
    shift = saddle_shift(precision, pull, DIM, COLUMNS, STEPS)
    smallest, largest = extremes(precision, DIM, COLUMNS)
    log_bound = log_lower_bound(shift, dot(pull, unit), smallest, largest, series_ptr, DIM, TERMS)
    inverse = inverses(precision, shift, DIM, COLUMNS)
    scale = (tl.sqrt(inverse[0]), tl.sqrt(inverse[1]), tl.sqrt(inverse[2]), tl.sqrt(inverse[3]))
    centre = multiplied(scale, pull)
    kept = row * 0
    open_rows = row < rows
    attempt = 0
    while (attempt < TRIES) & (tl.max(open_rows.to(tl.int32), axis=0) > 0):
        y, quadratic = proposed(seed, row, attempt, scale, centre, DIM, COLUMNS)
        root_a, beta = tl.sqrt(quadratic / dot(y, y)), dot(y, pull) / tl.sqrt(quadratic)
        level = tl.log(uniform(random_words(seed, row, attempt, LEVEL)[0]))
        accepted = level < log_bound - log_radial_ratio(root_a, beta, series_ptr, DIM, TERMS)
        kept = tl.where(open_rows, attempt, kept)  # after the last try, a row keeps its last proposal
        open_rows = open_rows & ~accepted
        attempt += 1
    y, _ = proposed(seed, row, kept[:, None], scale, centre, DIM, COLUMNS)
    store_tiles(out_ptr, y, tl.div_rn(radius, tl.sqrt_rn(dot(y, y))), row, rows, DIM, COLUMNS)


def draw_fisher_bingham(
    shape: Size,
    batch: Size,
    loc: Tensor,
    precision: Tensor,
    steps: int,
    tries: int,
    generator: torch.Generator | None,
    blocks: Blocks | None = None,
) -> Tensor:
    """``(*shape, *batch, d)`` points around ``loc: (..., d)``; the precision is ``(d,)`` or broadcasts to loc."""
    dim = loc.shape[-1]
    loc = loc.expand(*batch, dim).contiguous()
    by_row = precision.ndim > 1
    precision = (precision.expand(*batch, dim) if by_row else precision.expand(dim)).contiguous()
    out = loc.new_empty((*shape, *batch, dim))
    series = _series(dim, loc.device)
    rows, columns = out.numel() // dim, triton.next_power_of_2(triton.cdiv(dim, 4))
    blocks = blocks or row_blocks(out, rows, columns)
    settings = {"DIM": dim, "COLUMNS": columns, "PRECISION": int(by_row), "STEPS": steps, "TRIES": tries}
    settings |= {"TERMS": len(series), "BLOCK": blocks.rows, "num_warps": blocks.warps}
    seed = random_seed(out, generator)
    with on(out):
        fisher_bingham[(triton.cdiv(rows, blocks.rows),)](
            seed, loc, precision, series, out, rows, batch.numel(), **settings
        )
    return out


@lru_cache(maxsize=64)
def _series(dim: int, device: torch.device) -> Tensor:
    """The coefficients of the correction to Laplace's approximation, uploaded once."""
    with torch.inference_mode(False):
        return torch.tensor(correction_series(dim, torch.float32), dtype=torch.float32, device=device)
