# mypy: disable-error-code="no-untyped-def, untyped-decorator, assignment, var-annotated"
"""Triton kernels for codes of many coordinates: tiles of pairs, built chunk by chunk of coordinates.

The inner product (``SQUARED = False``) and the squared distance (``SQUARED = True``) are matrix products,
accumulated in float32; the squared distance is ‖x‖² + ‖y‖² − 2⟨x, y⟩ of codes that the caller has centred, so
its error is a few roundings of the largest ‖x‖², and at no pair more. The other Lp similarities loop over
the coordinates with exact differences.

Each program owns the gradient rows it writes: where they do not fit in registers, it adds to them in memory.
"""

from __future__ import annotations

import triton
import triton.language as tl

from identica.kernels.triton_narrow import (
    LOG2_E,
    LOWEST,
    allow,
    norm_slope,
    power,
    root,
    weighted_slope,
)


@triton.jit
def load_chunk(codes, index, count, first, DIM: tl.constexpr, CHUNK: tl.constexpr):
    """Coordinates ``first`` to ``first + CHUNK`` of codes ``(n, d)``, 0 beyond either end: ``(index, CHUNK)``."""
    k = first + tl.arange(0, CHUNK)
    offset = index.to(tl.int64)[:, None] * DIM + k[None, :]
    inside = (index < count)[:, None]
    if DIM % CHUNK != 0:
        inside = inside & (k < DIM)[None, :]
    return tl.load(codes + offset, mask=inside, other=0.0)


@triton.jit
def load_held(codes, index, count, DIM: tl.constexpr, CHUNK: tl.constexpr, HELD: tl.constexpr):
    """The first ``HELD`` chunks of coordinates."""
    chunks = ()
    for chunk in tl.static_range(HELD):
        chunks = chunks + (load_chunk(codes, index, count, chunk * CHUNK, DIM, CHUNK),)
    return chunks


@triton.jit
def product_tile(
    x_ptr,
    y_ptr,
    held,
    row,
    column,
    rows,
    columns,
    DIM: tl.constexpr,
    CHUNK: tl.constexpr,
    HELD: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """⟨x, y⟩ of every row with every column; ``held`` is the whole of x in ``HELD`` chunks, or nothing if that is 0."""
    product = tl.zeros([BLOCK_ROWS, BLOCK_COLUMNS], tl.float32)
    if HELD > 0:
        for chunk in tl.static_range(HELD):
            y = load_chunk(y_ptr, column, columns, chunk * CHUNK, DIM, CHUNK)
            product = tl.dot(held[chunk], tl.trans(y), product, input_precision=PRECISION)
    else:
        for first in range(0, DIM, CHUNK):
            x = load_chunk(x_ptr, row, rows, first, DIM, CHUNK)
            y = load_chunk(y_ptr, column, columns, first, DIM, CHUNK)
            product = tl.dot(x, tl.trans(y), product, input_precision=PRECISION)
    return product


@triton.jit
def distance_tile(
    x_ptr,
    y_ptr,
    row,
    column,
    rows,
    columns,
    P: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Σ|x−y|^P of every row with every column, from codes ``(d, n)``."""
    total = tl.zeros([BLOCK_ROWS, BLOCK_COLUMNS], tl.float32)
    for k in range(DIM):
        x = tl.load(x_ptr + tl.cast(k, tl.int64) * rows + row, mask=row < rows, other=0.0)
        y = tl.load(y_ptr + tl.cast(k, tl.int64) * columns + column, mask=column < columns, other=0.0)
        total += power(y[None, :] - x[:, None], P)
    return total


@triton.jit
def squared_distance(product, x_norm, y_norm_ptr, column, columns):
    """−‖x − y‖², from the products and the squared norms; never above 0."""
    y_norm = tl.load(y_norm_ptr + column, mask=column < columns, other=0.0)
    return tl.minimum(2.0 * product - x_norm[:, None] - y_norm[None, :], 0.0)


@triton.jit
def fold(s, largest, total):
    """Take a tile of similarities into each row's running maximum and running Σ exp(· − maximum)."""
    top = tl.maximum(largest, tl.max(s, axis=1))
    total = total * tl.exp2((largest - top) * LOG2_E) + tl.sum(tl.exp2((s - top[:, None]) * LOG2_E), axis=1)
    return top, total


@triton.jit
def forward(
    x_ptr,
    y_ptr,
    x_norm_ptr,
    y_norm_ptr,
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
    SQUARED: tl.constexpr,
    DIM: tl.constexpr,
    EXCLUDE: tl.constexpr,
    MASKED: tl.constexpr,
    PRECISION: tl.constexpr,
    CHUNK: tl.constexpr,
    HELD: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Log-partition and largest similarity of a block of rows over ``span`` columns: ``(seeds, spans, rows)``.

    ``P = 0`` for what is a matrix product: codes ``(seeds, n, d)``. Otherwise they are ``(seeds, d, n)``.
    """
    split, seed = tl.program_id(1), tl.program_id(2).to(tl.int64)
    x_ptr += seed * DIM * rows
    y_ptr += seed * DIM * columns
    mask_ptr += seed * mask_seed
    first = tl.program_id(0) * BLOCK_ROWS
    row = first + tl.arange(0, BLOCK_ROWS)
    if P == 0.0:
        held = load_held(x_ptr, row, rows, DIM, CHUNK, HELD)
        if SQUARED:
            x_norm = tl.load(x_norm_ptr + seed * rows + row, mask=row < rows, other=0.0)
    largest = tl.full([BLOCK_ROWS], LOWEST, tl.float32)
    total = tl.zeros([BLOCK_ROWS], tl.float32)
    for start in range(split * span, tl.minimum((split + 1) * span, columns), BLOCK_COLUMNS):
        column = start + tl.arange(0, BLOCK_COLUMNS)
        if P == 0.0:
            s = product_tile(
                x_ptr, y_ptr, held, row, column, rows, columns, DIM, CHUNK, HELD, BLOCK_ROWS, BLOCK_COLUMNS, PRECISION
            )
            if SQUARED:
                s = squared_distance(s, x_norm, y_norm_ptr + seed * columns, column, columns)
        else:
            s = distance_tile(x_ptr, y_ptr, row, column, rows, columns, P, DIM, BLOCK_ROWS, BLOCK_COLUMNS)
            if NORM:
                s = root(s, P)
            s = -s
        if start + BLOCK_COLUMNS > columns:
            s = tl.where((column < columns)[None, :], s, -float("inf"))
        s = allow(
            s, mask_ptr, mask_row, mask_column, first, start, rows, columns, EXCLUDE, MASKED, BLOCK_ROWS, BLOCK_COLUMNS
        )
        largest, total = fold(s, largest, total)
    place = (seed * tl.num_programs(1) + split) * rows
    empty = largest <= LOWEST
    tl.store(value_ptr + place + row, tl.where(empty, -float("inf"), largest + tl.log(total)), mask=row < rows)
    tl.store(largest_ptr + place + row, tl.where(empty, -float("inf"), largest), mask=row < rows)


@triton.jit
def pair_weights(
    s,
    x_value,
    x_slope,
    y_value_ptr,
    y_slope_ptr,
    column,
    columns,
    BY_ROWS: tl.constexpr,
    BY_COLUMNS: tl.constexpr,
):
    """wᵢⱼ = slopeᵢ exp(s − valueᵢ) and/or slopeⱼ exp(s − valueⱼ); the x values are already in units of log 2."""
    weight = tl.zeros_like(s)
    if BY_ROWS:
        weight += x_slope[:, None] * tl.exp2(s * LOG2_E - x_value[:, None])
    if BY_COLUMNS:
        value, slope = load_weights(y_value_ptr, y_slope_ptr, column, columns)
        weight += slope[None, :] * tl.exp2(s * LOG2_E - value[None, :])
    return weight


@triton.jit
def load_weights(value_ptr, slope_ptr, index, count):
    """Log-partitions in units of log 2, and their slopes; both 0 where there was nothing to sum over."""
    value = tl.load(value_ptr + index, mask=index < count, other=0.0) * LOG2_E
    slope = tl.load(slope_ptr + index, mask=index < count, other=0.0)
    empty = value == -float("inf")
    return tl.where(empty, 0.0, value), tl.where(empty, 0.0, slope)


@triton.jit
def weighted_sum(weight, y, HALF_WEIGHTS: tl.constexpr, PRECISION: tl.constexpr):
    """Weight @ y with float32 accumulation. float16 has too little range for weights: they meet it in TF32."""
    if HALF_WEIGHTS:
        return tl.dot(weight.to(y.dtype), y)
    else:
        return tl.dot(weight, y.to(tl.float32), input_precision=PRECISION)


@triton.jit
def product_gradient(
    x_ptr,
    y_ptr,
    x_norm_ptr,
    y_norm_ptr,
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
    SQUARED: tl.constexpr,
    DIM: tl.constexpr,
    EXCLUDE: tl.constexpr,
    MASKED: tl.constexpr,
    BY_ROWS: tl.constexpr,
    BY_COLUMNS: tl.constexpr,
    HALF_WEIGHTS: tl.constexpr,
    PRECISION: tl.constexpr,
    WEIGHT_PRECISION: tl.constexpr,
    CHUNK: tl.constexpr,
    HELD: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Σⱼ wᵢⱼ yⱼ, or 2 Σⱼ wᵢⱼ (yⱼ − xᵢ) if ``SQUARED``, into ``out: (seeds, spans, rows, d)``.

    The weights are those of :func:`identica.kernels.triton_narrow.gradient`. ``HELD``: in how many chunks a row's
    coordinates and their sums stay with the program; with 0 they do not, and ``out`` must come filled with zeros.
    """
    split, seed = tl.program_id(1), tl.program_id(2).to(tl.int64)
    x_ptr += seed * DIM * rows
    y_ptr += seed * DIM * columns
    mask_ptr += seed * mask_seed
    y_value_ptr += seed * columns
    y_slope_ptr += seed * columns
    out_ptr += (seed * tl.num_programs(1) + split) * DIM * rows
    first = tl.program_id(0) * BLOCK_ROWS
    row = first + tl.arange(0, BLOCK_ROWS)
    held = load_held(x_ptr, row, rows, DIM, CHUNK, HELD)
    if SQUARED:
        x_norm = tl.load(x_norm_ptr + seed * rows + row, mask=row < rows, other=0.0)
    if BY_ROWS:
        x_value, x_slope = load_weights(x_value_ptr + seed * rows, x_slope_ptr + seed * rows, row, rows)
    else:
        x_value, x_slope = tl.zeros([BLOCK_ROWS], tl.float32), tl.zeros([BLOCK_ROWS], tl.float32)
    sums = ()
    for _ in tl.static_range(HELD):
        sums = sums + (tl.zeros([BLOCK_ROWS, CHUNK], tl.float32),)
    mass = tl.zeros([BLOCK_ROWS], tl.float32)
    k = tl.arange(0, CHUNK)
    offset = row.to(tl.int64)[:, None] * DIM + k[None, :]
    for start in range(split * span, tl.minimum((split + 1) * span, columns), BLOCK_COLUMNS):
        column = start + tl.arange(0, BLOCK_COLUMNS)
        s = product_tile(
            x_ptr, y_ptr, held, row, column, rows, columns, DIM, CHUNK, HELD, BLOCK_ROWS, BLOCK_COLUMNS, PRECISION
        )
        if SQUARED:
            s = squared_distance(s, x_norm, y_norm_ptr + seed * columns, column, columns)
        if start + BLOCK_COLUMNS > columns:
            s = tl.where((column < columns)[None, :], s, -float("inf"))
        s = allow(
            s, mask_ptr, mask_row, mask_column, first, start, rows, columns, EXCLUDE, MASKED, BLOCK_ROWS, BLOCK_COLUMNS
        )
        weight = pair_weights(s, x_value, x_slope, y_value_ptr, y_slope_ptr, column, columns, BY_ROWS, BY_COLUMNS)
        if SQUARED:
            mass += tl.sum(weight, axis=1)
        if HELD > 0:
            new_sums = ()
            for chunk in tl.static_range(HELD):
                y = load_chunk(y_ptr, column, columns, chunk * CHUNK, DIM, CHUNK)
                new_sums = new_sums + (sums[chunk] + weighted_sum(weight, y, HALF_WEIGHTS, WEIGHT_PRECISION),)
            sums = new_sums
        else:
            for chunk in range(0, DIM, CHUNK):
                y = load_chunk(y_ptr, column, columns, chunk, DIM, CHUNK)
                inside = (row < rows)[:, None] & (chunk + k < DIM)[None, :]
                before = tl.load(out_ptr + offset + chunk, mask=inside, other=0.0)
                after = before + weighted_sum(weight, y, HALF_WEIGHTS, WEIGHT_PRECISION)
                tl.store(out_ptr + offset + chunk, after, mask=inside)
            tl.debug_barrier()  # the next tile reads what other threads have written
    for chunk in tl.static_range(HELD):
        total = sums[chunk]
        if SQUARED:
            total = 2.0 * (total - mass[:, None] * held[chunk].to(tl.float32))
        inside = (row < rows)[:, None] & (chunk * CHUNK + k < DIM)[None, :]
        tl.store(out_ptr + offset + chunk * CHUNK, total, mask=inside)
    if SQUARED and HELD == 0:
        for chunk in range(0, DIM, CHUNK):
            x = load_chunk(x_ptr, row, rows, chunk, DIM, CHUNK)
            inside = (row < rows)[:, None] & (chunk + k < DIM)[None, :]
            before = tl.load(out_ptr + offset + chunk, mask=inside, other=0.0)
            tl.store(out_ptr + offset + chunk, 2.0 * (before - mass[:, None] * x.to(tl.float32)), mask=inside)


@triton.jit
def distance_gradient(
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
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """As :func:`identica.kernels.triton_narrow.gradient`, added to ``out: (seeds, spans, d, rows)`` of zeros."""
    split, seed = tl.program_id(1), tl.program_id(2).to(tl.int64)
    x_ptr += seed * DIM * rows
    y_ptr += seed * DIM * columns
    mask_ptr += seed * mask_seed
    y_value_ptr += seed * columns
    y_slope_ptr += seed * columns
    out_ptr += (seed * tl.num_programs(1) + split) * DIM * rows
    first = tl.program_id(0) * BLOCK_ROWS
    row = first + tl.arange(0, BLOCK_ROWS)
    if BY_ROWS:
        x_value, x_slope = load_weights(x_value_ptr + seed * rows, x_slope_ptr + seed * rows, row, rows)
    else:
        x_value, x_slope = tl.zeros([BLOCK_ROWS], tl.float32), tl.zeros([BLOCK_ROWS], tl.float32)
    factor: tl.constexpr = 1.0 if NORM else P
    for start in range(split * span, tl.minimum((split + 1) * span, columns), BLOCK_COLUMNS):
        column = start + tl.arange(0, BLOCK_COLUMNS)
        s = distance_tile(x_ptr, y_ptr, row, column, rows, columns, P, DIM, BLOCK_ROWS, BLOCK_COLUMNS)
        if NORM:
            s = root(s, P)
            outer = norm_slope(s, P)
        s = -s
        if start + BLOCK_COLUMNS > columns:
            s = tl.where((column < columns)[None, :], s, -float("inf"))
        s = allow(
            s, mask_ptr, mask_row, mask_column, first, start, rows, columns, EXCLUDE, MASKED, BLOCK_ROWS, BLOCK_COLUMNS
        )
        weight = factor * pair_weights(
            s, x_value, x_slope, y_value_ptr, y_slope_ptr, column, columns, BY_ROWS, BY_COLUMNS
        )
        if NORM:
            weight *= outer
        for k in range(DIM):
            place = tl.cast(k, tl.int64) * rows + row
            x = tl.load(x_ptr + place, mask=row < rows, other=0.0)
            y = tl.load(y_ptr + tl.cast(k, tl.int64) * columns + column, mask=column < columns, other=0.0)
            before = tl.load(out_ptr + place, mask=row < rows, other=0.0)
            after = before + tl.sum(weighted_slope(weight, y[None, :] - x[:, None], P), axis=1)
            tl.store(out_ptr + place, after, mask=row < rows)
        tl.debug_barrier()  # the next tile reads what other threads have written
