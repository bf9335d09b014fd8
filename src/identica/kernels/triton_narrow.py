# mypy: disable-error-code="no-untyped-def, untyped-decorator, assignment"
"""Triton kernels for codes of few coordinates (up to 32): everything a row needs stays in registers.

Codes come transposed, ``(seeds, d, n)`` in float32. A program owns a block of rows and walks over a range of
columns. Each thread keeps running results of its own for every (row, column lane) and they are put together
once, after the last column, so the loop over the columns has neither shuffles nor barriers. Differences of
coordinates are formed directly, which loses nothing for close codes far from the origin.

The similarity is chosen at compile time: ``P = 0`` is the inner product, otherwise −Σ|x−y|^P or, with
``NORM``, its P-th root.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
#: Lower than any similarity of interest, but finite: −inf − (−inf) would be NaN.
LOWEST = tl.constexpr(-3.0e38)
LARGE = tl.constexpr(1.0e30)


@triton.jit
def power(t, P: tl.constexpr):
    """|t|^P."""
    if P == 1.0:
        return tl.abs(t)
    elif P == 2.0:
        return t * t
    elif P == 3.0:
        return t * t * tl.abs(t)
    elif P == 4.0:
        return (t * t) * (t * t)
    else:
        return tl.exp2(P * tl.log2(tl.abs(t)))


@triton.jit
def weighted_slope(weight, t, P: tl.constexpr):
    """Weight · sign(t)|t|^(P−1), and 0 where t = 0."""
    if P == 1.0:
        sign_bit = t.to(tl.int32, bitcast=True) & -2147483648
        signed = (weight.to(tl.int32, bitcast=True) ^ sign_bit).to(tl.float32, bitcast=True)
        return tl.where(t != 0.0, signed, 0.0)
    elif P == 2.0:
        return weight * t
    elif P == 3.0:
        return weight * (t * tl.abs(t))
    elif P == 4.0:
        return weight * (t * (t * t))
    else:
        slope = tl.exp2((P - 1.0) * tl.log2(tl.abs(t)))
        return tl.where(t > 0.0, weight * slope, tl.where(t < 0.0, -weight * slope, 0.0))


@triton.jit
def root(total, P: tl.constexpr):
    """``total ** (1 / P)`` for totals of at least 0."""
    if P == 2.0:
        return tl.sqrt(total)
    else:
        return tl.exp2(tl.log2(total) * (1.0 / P))


@triton.jit
def norm_slope(norm, P: tl.constexpr):
    """``norm ** (1 - P)``, 0 where the norm is 0, and finite even where it would overflow."""
    slope = 1.0 / norm if P == 2.0 else tl.exp2((1.0 - P) * tl.log2(norm))
    return tl.where(norm == 0.0, 0.0, tl.minimum(slope, LARGE))


@triton.jit
def load_coordinates(codes, index, count, DIM: tl.constexpr):
    """The coordinates of the codes number ``index`` as DIM vectors, 0 beyond ``count``."""
    coordinates = ()
    for k in tl.static_range(DIM):
        coordinates = coordinates + (tl.load(codes + k * count + index, mask=index < count, other=0.0),)
    return coordinates


@triton.jit
def raw_similarity(x, y, outside, P: tl.constexpr, DIM: tl.constexpr):
    """Σ xy or Σ|x−y|^P of every row with every column; columns ``outside`` the batch get similarity −inf."""
    if P == 0.0:
        total = tl.where(outside, -float("inf"), 0.0)[None, :]
        for k in tl.static_range(DIM):
            total += x[k][:, None] * y[k][None, :]
    else:
        total = tl.where(outside, float("inf"), 0.0)[None, :]
        for k in tl.static_range(DIM):
            total += power(y[k][None, :] - x[k][:, None], P)
    return total


@triton.jit
def allow(
    s,
    mask_ptr,
    mask_row,
    mask_column,
    first_row,
    first_column,
    rows,
    columns,
    EXCLUDE: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """−inf for the pairs that do not count: the diagonal and what the mask forbids."""
    row = first_row + tl.arange(0, BLOCK_ROWS)
    column = first_column + tl.arange(0, BLOCK_COLUMNS)
    if EXCLUDE and (first_row < first_column + BLOCK_COLUMNS) & (first_column < first_row + BLOCK_ROWS):
        # Only tiles that the diagonal crosses pay for the comparison.
        s = tl.where(row[:, None] == column[None, :], -float("inf"), s)
    if MASKED:
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        offset = row.to(tl.int64)[:, None] * mask_row + column.to(tl.int64)[None, :] * mask_column
        s = tl.where(tl.load(mask_ptr + offset, mask=inside, other=0) != 0, s, -float("inf"))
    return s


@triton.jit
def finish(largest, total, value_ptr, largest_ptr, row, rows):
    """Write log Σ and the maximum of rows from a maximum and Σ exp(· − maximum) per lane: ``(rows, lanes)``."""
    top = tl.max(largest, axis=1)
    value = top + tl.log(tl.sum(total * tl.exp2((largest - top[:, None]) * LOG2_E), axis=1))
    empty = top <= LOWEST
    tl.store(value_ptr + row, tl.where(empty, -float("inf"), value), mask=row < rows)
    tl.store(largest_ptr + row, tl.where(empty, -float("inf"), top), mask=row < rows)


@triton.jit
def forward(
    x_ptr,
    y_ptr,
    mask_ptr,
    value_ptr,
    largest_ptr,
    rows,
    columns,
    mask_seed,
    mask_row,
    mask_column,
    span,
    P: tl.constexpr,
    NORM: tl.constexpr,
    DIM: tl.constexpr,
    EXCLUDE: tl.constexpr,
    MASKED: tl.constexpr,
    AHEAD: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Log-partition and largest similarity of a block of rows over ``span`` columns.

    Grid: (row blocks, spans, seeds). Output ``(seeds, spans, rows)``.
    """
    split, seed = tl.program_id(1), tl.program_id(2).to(tl.int64)
    x_ptr += seed * DIM * rows
    y_ptr += seed * DIM * columns
    mask_ptr += seed * mask_seed
    first = tl.program_id(0) * BLOCK_ROWS
    row = first + tl.arange(0, BLOCK_ROWS)
    x = load_coordinates(x_ptr, row, rows, DIM)
    largest = tl.full([BLOCK_ROWS, BLOCK_COLUMNS], LOWEST, tl.float32)
    total = tl.zeros([BLOCK_ROWS, BLOCK_COLUMNS], tl.float32)
    if AHEAD:
        y = load_coordinates(y_ptr, split * span + tl.arange(0, BLOCK_COLUMNS), columns, DIM)
    for start in range(split * span, tl.minimum((split + 1) * span, columns), BLOCK_COLUMNS):
        column = start + tl.arange(0, BLOCK_COLUMNS)
        if AHEAD:  # the next tile's codes arrive while this one is computed, for DIM registers
            following = load_coordinates(y_ptr, column + BLOCK_COLUMNS, columns, DIM)
        else:
            y = load_coordinates(y_ptr, column, columns, DIM)
        s = raw_similarity(x, y, column >= columns, P, DIM)
        if NORM:
            s = root(s, P)
        if P != 0.0:
            s = -s
        s = allow(
            s, mask_ptr, mask_row, mask_column, first, start, rows, columns, EXCLUDE, MASKED, BLOCK_ROWS, BLOCK_COLUMNS
        )
        # One exponential a pair: it shrinks either the new term or, under a new maximum, the old sum.
        above = s - largest
        small = tl.exp2(-tl.abs(above) * LOG2_E)
        rises = above > 0.0
        total = total * tl.where(rises, small, 1.0) + tl.where(rises, 1.0, small)
        largest = tl.maximum(largest, s)
        if AHEAD:
            y = following
    place = (seed * tl.num_programs(1) + split) * rows
    finish(largest, total, value_ptr + place, largest_ptr + place, row, rows)


@triton.jit
def gradient(
    x_ptr,
    y_ptr,
    mask_ptr,
    x_value_ptr,
    x_slope_ptr,
    y_value_ptr,
    y_slope_ptr,
    out_ptr,
    rows,
    columns,
    mask_seed,
    mask_row,
    mask_column,
    span,
    P: tl.constexpr,
    NORM: tl.constexpr,
    DIM: tl.constexpr,
    EXCLUDE: tl.constexpr,
    MASKED: tl.constexpr,
    BY_ROWS: tl.constexpr,
    BY_COLUMNS: tl.constexpr,
    AHEAD: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Gradients of x: Σⱼ wᵢⱼ ∂u(xᵢ, yⱼ)/∂xᵢ over ``span`` columns, into ``out: (seeds, spans, d, rows)``.

    ``BY_ROWS``: x are anchors, wᵢⱼ = slopeᵢ exp(u − valueᵢ). ``BY_COLUMNS``: y are anchors (x their
    candidates), wᵢⱼ = slopeⱼ exp(u − valueⱼ). Codes against themselves are both at once.
    """
    split, seed = tl.program_id(1), tl.program_id(2).to(tl.int64)
    x_ptr += seed * DIM * rows
    y_ptr += seed * DIM * columns
    mask_ptr += seed * mask_seed
    first = tl.program_id(0) * BLOCK_ROWS
    row = first + tl.arange(0, BLOCK_ROWS)
    x = load_coordinates(x_ptr, row, rows, DIM)
    if BY_ROWS:
        x_value = tl.load(x_value_ptr + seed * rows + row, mask=row < rows, other=0.0) * LOG2_E
        x_slope = tl.load(x_slope_ptr + seed * rows + row, mask=row < rows, other=0.0)
        x_slope = tl.where(x_value == -float("inf"), 0.0, x_slope)
        x_value = tl.where(x_value == -float("inf"), 0.0, x_value)
    sums = ()
    for _ in tl.static_range(DIM):
        sums = sums + (tl.zeros([BLOCK_ROWS, BLOCK_COLUMNS], tl.float32),)
    if AHEAD:
        y = load_coordinates(y_ptr, split * span + tl.arange(0, BLOCK_COLUMNS), columns, DIM)
    for start in range(split * span, tl.minimum((split + 1) * span, columns), BLOCK_COLUMNS):
        column = start + tl.arange(0, BLOCK_COLUMNS)
        if AHEAD:  # the next tile's codes arrive while this one is computed, for DIM registers
            following = load_coordinates(y_ptr, column + BLOCK_COLUMNS, columns, DIM)
        else:
            y = load_coordinates(y_ptr, column, columns, DIM)
        s = raw_similarity(x, y, column >= columns, P, DIM)
        if NORM:
            s = root(s, P)
            outer = norm_slope(s, P)
        if P != 0.0:
            s = -s
        s = allow(
            s, mask_ptr, mask_row, mask_column, first, start, rows, columns, EXCLUDE, MASKED, BLOCK_ROWS, BLOCK_COLUMNS
        )
        if BY_ROWS:
            weight = x_slope[:, None] * tl.exp2(s * LOG2_E - x_value[:, None])
        if BY_COLUMNS:
            y_value = tl.load(y_value_ptr + seed * columns + column, mask=column < columns, other=0.0) * LOG2_E
            y_slope = tl.load(y_slope_ptr + seed * columns + column, mask=column < columns, other=0.0)
            y_slope = tl.where(y_value == -float("inf"), 0.0, y_slope)
            y_value = tl.where(y_value == -float("inf"), 0.0, y_value)
            by_columns = y_slope[None, :] * tl.exp2(s * LOG2_E - y_value[None, :])
            weight = weight + by_columns if BY_ROWS else by_columns
        if NORM:
            weight *= outer
        new_sums = ()
        for k in tl.static_range(DIM):
            if P == 0.0:
                new_sums = new_sums + (sums[k] + weight * y[k][None, :],)
            else:
                new_sums = new_sums + (sums[k] + weighted_slope(weight, y[k][None, :] - x[k][:, None], P),)
        sums = new_sums
        if AHEAD:
            y = following
    place = (seed * tl.num_programs(1) + split) * DIM * rows
    factor: tl.constexpr = 1.0 if P == 0.0 or NORM else P
    for k in tl.static_range(DIM):
        tl.store(out_ptr + place + k * rows + row, tl.sum(sums[k], axis=1) * factor, mask=row < rows)


@triton.jit
def combine(
    value_ptr, largest_ptr, out_value_ptr, out_largest_ptr, rows, spans, SPANS: tl.constexpr, BLOCK: tl.constexpr
):
    """Put the spans of :func:`forward` together: ``(seeds, spans, rows)`` → ``(seeds, rows)``."""
    seed = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    span = tl.arange(0, SPANS)
    offset = (seed * spans + span[None, :]) * rows + row[:, None]
    inside = (row < rows)[:, None] & (span < spans)[None, :]
    value = tl.maximum(tl.load(value_ptr + offset, mask=inside, other=LOWEST), LOWEST)
    largest = tl.load(largest_ptr + offset, mask=inside, other=-float("inf"))
    top = tl.max(value, axis=1)
    total = top + tl.log(tl.sum(tl.exp2((value - top[:, None]) * LOG2_E), axis=1))
    place = seed * rows + row
    tl.store(out_value_ptr + place, tl.where(top <= LOWEST, -float("inf"), total), mask=row < rows)
    tl.store(out_largest_ptr + place, tl.max(largest, axis=1), mask=row < rows)
