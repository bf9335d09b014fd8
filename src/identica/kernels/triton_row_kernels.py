# mypy: disable-error-code="no-untyped-def, untyped-decorator, assignment"
"""Triton kernels for what InfoNCE does with each row after the log-partition is known.

A row is an anchor xᵢ with its positives yᵢₚ, the log-partition nᵢ of its negatives, and the similarities
sᵢₚ = u(xᵢ, yᵢₚ). Its loss is the mean over p of log(exp sᵢₚ + exp nᵢ) − sᵢₚ, or of nᵢ − sᵢₚ where the positive is
left out of the denominator (``INCLUDE = False``).

Codes come as they lie in memory, with their strides. A program owns a block of rows and walks over the
coordinates in chunks. Sums over rows are sums per block, added up in a fixed order by :func:`finish`: equal calls
give equal bits. The similarity is chosen as in :mod:`identica.kernels.triton_narrow`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from identica.kernels.triton_narrow import norm_slope, power, root, weighted_slope

TIE = tl.constexpr(16 * 2.0**-23)  # what differs by this fraction alone differs by rounding
SMALLEST = tl.constexpr(2.0**-126)  # the smallest normal float32
#: Per block of rows: rows that count, and over these the sums of loss, alignment, log-denominator, correct answers
#: and log(terms in the denominator).
SUMS = tl.constexpr(6)


@triton.jit
def log_one_plus(e):
    """Log(1 + e) for 0 ≤ e ≤ 1, with relative precision: 2 artanh(z) = 2 (z + z³/3 + z⁵/5 + …), z = e / (2 + e)."""
    z = e / (2.0 + e)
    q = z * z
    series = 1.0 / 9 + q * (1.0 / 11 + q * (1.0 / 13 + q * (1.0 / 15)))
    return 2.0 * z * (1.0 + q * (1.0 / 3 + q * (1.0 / 5 + q * (1.0 / 7 + q * series))))


@triton.jit
def load_tile(codes, row, rows, row_stride, first, k_stride, DIM: tl.constexpr, CHUNK: tl.constexpr):
    """Coordinates ``first`` to ``first + CHUNK`` of the rows, 0 beyond either end: ``(row, CHUNK)``."""
    k = first + tl.arange(0, CHUNK)
    inside = (row < rows)[:, None] & (k < DIM)[None, :]
    return tl.load(codes + row[:, None] * row_stride + k[None, :] * k_stride, mask=inside, other=0.0)


@triton.jit
def similarity(
    x_ptr,
    y_ptr,
    row,
    rows,
    x_row,
    x_k,
    y_row,
    y_k,
    P: tl.constexpr,
    NORM: tl.constexpr,
    DIM: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """u(x, y) of each row."""
    total = tl.zeros([BLOCK, CHUNK], tl.float32)
    for first in range(0, DIM, CHUNK):
        x = load_tile(x_ptr, row, rows, x_row, first, x_k, DIM, CHUNK)
        y = load_tile(y_ptr, row, rows, y_row, first, y_k, DIM, CHUNK)
        if P == 0.0:
            total += x * y
        else:
            total += power(y - x, P)
    s = tl.sum(total, axis=1)
    if NORM:
        s = root(s, P)
    if P != 0.0:
        s = -s
    return s


@triton.jit
def sum_of(values, counts):
    """The sum over the rows that count; the others do not matter, whatever their value."""
    return tl.sum(tl.where(counts, values, 0.0), axis=0)


@triton.jit
def forward(
    x_ptr,
    y_ptr,
    negatives_ptr,
    largest_ptr,
    count_ptr,
    item_ptr,
    similarity_ptr,
    sums_ptr,
    rows,
    x_seed,
    x_row,
    x_k,
    y_seed,
    y_row,
    y_positive,
    y_k,
    P: tl.constexpr,
    NORM: tl.constexpr,
    DIM: tl.constexpr,
    POSITIVES: tl.constexpr,
    INCLUDE: tl.constexpr,
    COUNTED: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Losses ``(seeds, rows)``, similarities ``(seeds, rows, positives)`` and ``sums: (seeds, SUMS, blocks)``.

    Grid: (row blocks, seeds). With ``COUNTED``, ``count: (seeds, rows)`` is how many negatives each row has; a row
    with nothing in its denominator has the loss 0 and does not count.
    """
    block, seed = tl.program_id(0), tl.program_id(1).to(tl.int64)
    x_ptr += seed * x_seed
    y_ptr += seed * y_seed
    row = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = row < rows
    place = seed * rows + row
    negatives = tl.load(negatives_ptr + place, mask=inside, other=0.0)
    largest = tl.load(largest_ptr + place, mask=inside, other=0.0)
    largest_size = tl.where(tl.abs(largest) < float("inf"), tl.abs(largest), 0.0)
    loss = tl.zeros([BLOCK], tl.float32)
    aligned = tl.zeros([BLOCK], tl.float32)
    denominator = tl.zeros([BLOCK], tl.float32)
    correct = tl.zeros([BLOCK], tl.float32)
    for positive in range(POSITIVES):
        y = y_ptr + positive * y_positive
        s = similarity(x_ptr, y, row, rows, x_row, x_k, y_row, y_k, P, NORM, DIM, CHUNK, BLOCK)
        tl.store(similarity_ptr + place * POSITIVES + positive, s, mask=inside)
        aligned += s
        above = negatives - s
        if INCLUDE:
            rest = log_one_plus(tl.exp(-tl.abs(above)))
            denominator += tl.maximum(negatives, s) + rest
            loss += tl.maximum(above, 0.0) + rest
        else:
            denominator += negatives
            loss += above
        correct += tl.where(s > largest + TIE * tl.maximum(tl.abs(s), largest_size), 1.0, 0.0)
    counts = inside
    log_terms = tl.zeros([BLOCK], tl.float32)
    if COUNTED:
        terms = tl.load(count_ptr + place, mask=inside, other=0).to(tl.float32)
        if INCLUDE:
            terms += 1.0
        counts = inside & (terms > 0.0)
        log_terms = tl.log(tl.where(counts, terms, 1.0))
    mean: tl.constexpr = 1.0 / POSITIVES
    tl.store(item_ptr + place, tl.where(counts, loss * mean, 0.0), mask=inside)
    blocks = tl.num_programs(0)
    sums_ptr += seed * SUMS * blocks + block
    tl.store(sums_ptr, tl.sum(tl.where(counts, 1.0, 0.0), axis=0))
    tl.store(sums_ptr + blocks, sum_of(loss, counts) * mean)
    tl.store(sums_ptr + 2 * blocks, sum_of(aligned, counts) * mean)
    tl.store(sums_ptr + 3 * blocks, sum_of(denominator, counts) * mean)
    tl.store(sums_ptr + 4 * blocks, sum_of(correct, counts) * mean)
    tl.store(sums_ptr + 5 * blocks, sum_of(log_terms, counts))


@triton.jit
def sum_blocks(sums_ptr, blocks, BLOCK: tl.constexpr):
    """The sum of ``blocks`` numbers."""
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, blocks, BLOCK):
        index = first + tl.arange(0, BLOCK)
        total += tl.load(sums_ptr + index, mask=index < blocks, other=0.0)
    return tl.sum(total, axis=0)


@triton.jit
def finish(sums_ptr, loss_ptr, means_ptr, number_ptr, blocks, log_terms, COUNTED: tl.constexpr, BLOCK: tl.constexpr):
    """From sums per block to the loss, the other means and the number of rows that count. Grid: (seeds,).

    ``means: (seeds, 4)`` are alignment, log-denominator, accuracy and information.
    """
    seed = tl.program_id(0).to(tl.int64)
    sums_ptr += seed * SUMS * blocks
    number = tl.maximum(sum_blocks(sums_ptr, blocks, BLOCK), SMALLEST)
    alignment = sum_blocks(sums_ptr + 2 * blocks, blocks, BLOCK) / number
    denominator = sum_blocks(sums_ptr + 3 * blocks, blocks, BLOCK) / number
    if COUNTED:
        log_terms = sum_blocks(sums_ptr + 5 * blocks, blocks, BLOCK) / number
    tl.store(number_ptr + seed, number)
    tl.store(loss_ptr + seed, sum_blocks(sums_ptr + blocks, blocks, BLOCK) / number)
    tl.store(means_ptr + 4 * seed, alignment)
    tl.store(means_ptr + 4 * seed + 1, denominator)
    tl.store(means_ptr + 4 * seed + 2, sum_blocks(sums_ptr + 4 * blocks, blocks, BLOCK) / number)
    tl.store(means_ptr + 4 * seed + 3, log_terms - (denominator - alignment))


@triton.jit
def share(negatives, s, INCLUDE: tl.constexpr):
    """The negatives' share of the denominator, exp n / (exp s + exp n): the slope of the row's loss in n."""
    if INCLUDE:
        return 1.0 / (1.0 + tl.exp(s - negatives))
    else:
        return tl.full(s.shape, 1.0, tl.float32)


@triton.jit
def gradient(
    x_ptr,
    y_ptr,
    negatives_ptr,
    count_ptr,
    similarity_ptr,
    number_ptr,
    loss_slope_ptr,
    item_slope_ptr,
    into_x_ptr,
    into_y_ptr,
    into_negatives_ptr,
    rows,
    slope_seed,
    x_seed,
    x_row,
    x_k,
    y_seed,
    y_row,
    y_positive,
    y_k,
    P: tl.constexpr,
    NORM: tl.constexpr,
    DIM: tl.constexpr,
    POSITIVES: tl.constexpr,
    INCLUDE: tl.constexpr,
    COUNTED: tl.constexpr,
    BY_LOSS: tl.constexpr,
    BY_ITEM: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Gradients for x, y and the log-partitions of slope · mean of the losses + Σ slopeᵢ · lossᵢ.

    Grid: (row blocks, seeds). ``BY_LOSS`` and ``BY_ITEM`` say which of the two slopes there are. The gradients are
    contiguous: ``(seeds, rows, d)``, ``(seeds, rows, positives, d)`` and ``(seeds, rows)``.
    """
    seed = tl.program_id(1).to(tl.int64)
    x_ptr += seed * x_seed
    y_ptr += seed * y_seed
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = row < rows
    place = seed * rows + row
    negatives = tl.load(negatives_ptr + place, mask=inside, other=0.0)
    slope = tl.zeros([BLOCK], tl.float32)
    if BY_LOSS:
        slope += tl.load(loss_slope_ptr + seed * slope_seed) / tl.load(number_ptr + seed)
    if BY_ITEM:
        slope += tl.load(item_slope_ptr + place, mask=inside, other=0.0)
    if COUNTED and not INCLUDE:
        slope = tl.where(tl.load(count_ptr + place, mask=inside, other=0) > 0, slope, 0.0)
    slope *= 1.0 / POSITIVES
    into_negatives = tl.zeros([BLOCK], tl.float32)
    for positive in range(POSITIVES):
        s = tl.load(similarity_ptr + place * POSITIVES + positive, mask=inside, other=0.0)
        into_negatives += slope * share(negatives, s, INCLUDE)
    tl.store(into_negatives_ptr + place, into_negatives, mask=inside)
    factor: tl.constexpr = 1.0 if P == 0.0 or NORM else P
    for first in range(0, DIM, CHUNK):
        k = first + tl.arange(0, CHUNK)
        written = inside[:, None] & (k < DIM)[None, :]
        x = load_tile(x_ptr, row, rows, x_row, first, x_k, DIM, CHUNK)
        into_x = tl.zeros([BLOCK, CHUNK], tl.float32)
        for positive in range(POSITIVES):
            at = place * POSITIVES + positive
            s = tl.load(similarity_ptr + at, mask=inside, other=0.0)
            weight = -slope * share(negatives, s, INCLUDE)
            if NORM:
                weight *= norm_slope(-s, P)
            weight = weight[:, None]
            y = load_tile(y_ptr + positive * y_positive, row, rows, y_row, first, y_k, DIM, CHUNK)
            if P == 0.0:
                into_x += weight * y
                into_y = weight * x
            else:
                change = weighted_slope(weight, y - x, P) * factor
                into_x += change
                into_y = -change
            tl.store(into_y_ptr + at[:, None] * DIM + k[None, :], into_y, mask=written)
        tl.store(into_x_ptr + place[:, None] * DIM + k[None, :], into_x, mask=written)
