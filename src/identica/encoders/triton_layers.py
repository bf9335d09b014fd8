# mypy: disable-error-code="no-untyped-def, untyped-decorator, assignment"
"""Triton kernels for dense layers: matrix product, bias and activation in one pass, forward and backward.

All tensors have a leading axis of seeds. Rows are padded with zeros to a multiple of ``PAD`` numbers, so that every
load is aligned and no product needs a mask along its inner axis; weights are padded likewise, so that the padding of
an activation is again zero. Sums are float32 whatever the operands are.

Float32 operands are multiplied in TF32, of which the matrix units simply cut off the last 13 bits: always towards zero,
an error that does not average out over a batch. Whatever will be an operand is therefore rounded to the nearest TF32
number when it is written (``ROUNDS``).

``ACTIVATION``: 0 none, 1 leaky ReLU, 2 GELU (with the error function, as torch's default).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Activations are stored with rows of a multiple of this many numbers.
PAD = 64
NONE, LEAKY_RELU, GELU = 0, 1, 2
ACTIVATIONS = {"leaky_relu": LEAKY_RELU, "gelu": GELU}
#: Of the leaky ReLU, where nothing else is said (torch's).
DEFAULT_SLOPE = 0.01


@triton.jit
def activate(z, slope, ACTIVATION: tl.constexpr):
    """The activation of ``z``."""
    if ACTIVATION == 1:
        return tl.where(z > 0.0, z, z * slope)
    elif ACTIVATION == 2:
        return 0.5 * z * (1.0 + tl.erf(z * 0.7071067811865476))
    else:
        return z


@triton.jit
def activation_slope(z, slope, ACTIVATION: tl.constexpr):
    """The derivative at ``z``; for the leaky ReLU ``z`` may as well be its output, which has the same sign."""
    if ACTIVATION == 1:
        return tl.where(z > 0.0, 1.0, slope)
    elif ACTIVATION == 2:
        density = 0.3989422804014327 * tl.exp(-0.5 * z * z)
        return 0.5 * (1.0 + tl.erf(z * 0.7071067811865476)) + z * density
    else:
        return z * 0.0 + 1.0


@triton.jit
def rounded(x, ROUNDS: tl.constexpr):
    """``x`` in float32, or the TF32 number nearest to it; NaN, whose bits may be all ones, stays what it is.

    The sum is there for the sake of products: Triton 3.6 compiles the bits of what the matrix units are about to write
    as those of the zero that was there before, unless something is computed from it first.
    """
    if ROUNDS:
        bits = (x + 0.0).to(tl.int32, bitcast=True)
        nearest = ((bits + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
        return tl.where(x == x, nearest, x)
    else:
        return x


@triton.jit
def product(
    x_ptr,
    w_ptr,
    row,
    column,
    rows,
    INNER: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_INNER: tl.constexpr,
):
    """X wᵀ for a block of rows of ``x: (rows, INNER)`` and of ``w: (columns, INNER)``."""
    inner = tl.arange(0, BLOCK_INNER)
    x_at = x_ptr + row[:, None].to(tl.int64) * INNER + inner[None, :]
    w_at = w_ptr + column[:, None] * INNER + inner[None, :]
    total = tl.zeros([BLOCK_ROWS, BLOCK_COLUMNS], tl.float32)
    inside = (row < rows)[:, None]
    for _ in range(0, INNER, BLOCK_INNER):
        x = tl.load(x_at, mask=inside, other=0.0)
        w = tl.load(w_at)
        total = tl.dot(x, tl.trans(w), total, input_precision=PRECISION)
        x_at += BLOCK_INNER
        w_at += BLOCK_INNER
    return total


@triton.jit
def forward(
    x_ptr,
    w_ptr,
    bias_ptr,
    added_ptr,
    pre_ptr,
    y_ptr,
    rows,
    slope,
    OUT: tl.constexpr,
    COLUMNS: tl.constexpr,
    INNER: tl.constexpr,
    ACTIVATION: tl.constexpr,
    ADDS: tl.constexpr,
    KEEPS_PRE: tl.constexpr,
    ROUNDS: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_INNER: tl.constexpr,
):
    """Y = a(x wᵀ + bias) (+ ``added``); with ``KEEPS_PRE`` what the activation was applied to is written too.

    Grid: (column blocks, row blocks, seeds). ``OUT`` columns are real, the rest of ``COLUMNS`` padding.
    """
    seed = tl.program_id(2).to(tl.int64)
    row = tl.program_id(1) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = tl.program_id(0) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    x_ptr += seed * rows * INNER
    w_ptr += seed * COLUMNS * INNER
    total = product(x_ptr, w_ptr, row, column, rows, INNER, PRECISION, BLOCK_ROWS, BLOCK_COLUMNS, BLOCK_INNER)
    total += tl.load(bias_ptr + seed * OUT + column, mask=column < OUT, other=0.0)[None, :]
    place = (seed * rows + row[:, None]) * COLUMNS + column[None, :]
    inside = (row < rows)[:, None]
    if KEEPS_PRE:
        tl.store(pre_ptr + place, total.to(pre_ptr.dtype.element_ty), mask=inside)
    total = activate(total, slope, ACTIVATION)
    if ADDS:
        total += tl.load(added_ptr + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + place, rounded(total, ROUNDS).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def backward(
    dz_ptr,
    w_ptr,
    seen_ptr,
    added_ptr,
    out_ptr,
    sums_ptr,
    rows,
    slope,
    COLUMNS: tl.constexpr,
    INNER: tl.constexpr,
    ACTIVATION: tl.constexpr,
    ADDS: tl.constexpr,
    ROUNDS: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_INNER: tl.constexpr,
):
    """The gradient one layer further down: (dz w (+ ``added``)) · a'(``seen``), and its sums over blocks of rows.

    ``w: (COLUMNS, INNER)`` is the transposed weight, COLUMNS its inputs. ``sums: (seeds, row blocks, COLUMNS)``
    add up to the gradient of the bias below. Grid: (column blocks, row blocks, seeds).
    """
    seed = tl.program_id(2).to(tl.int64)
    row = tl.program_id(1) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = tl.program_id(0) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    dz_ptr += seed * rows * INNER
    w_ptr += seed * COLUMNS * INNER
    total = product(dz_ptr, w_ptr, row, column, rows, INNER, PRECISION, BLOCK_ROWS, BLOCK_COLUMNS, BLOCK_INNER)
    place = (seed * rows + row[:, None]) * COLUMNS + column[None, :]
    inside = (row < rows)[:, None]
    if ADDS:
        total += tl.load(added_ptr + place, mask=inside, other=0.0).to(tl.float32)
    if ACTIVATION != 0:
        seen = tl.load(seen_ptr + place, mask=inside, other=0.0).to(tl.float32)
        total *= activation_slope(seen, slope, ACTIVATION)
    tl.store(out_ptr + place, rounded(total, ROUNDS).to(out_ptr.dtype.element_ty), mask=inside)
    # Rows beyond the last have gradient 0: their part of dz was loaded as 0.
    block = (seed * tl.num_programs(1) + tl.program_id(1)) * COLUMNS
    tl.store(sums_ptr + block + column, tl.sum(total, axis=0))


@triton.jit
def pack_weight(
    w_ptr,
    straight_ptr,
    turned_ptr,
    OUT,
    INNER,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROUNDS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """``w: (OUT, INNER)`` padded with zeros to ``(ROWS, COLUMNS)``, and the transpose of that."""
    seed = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (row < OUT)[:, None] & (column < INNER)[None, :]
    w = tl.load(w_ptr + seed * OUT * INNER + row[:, None] * INNER + column[None, :], mask=inside, other=0.0)
    w = rounded(w, ROUNDS).to(straight_ptr.dtype.element_ty)
    place = seed * ROWS * COLUMNS
    tl.store(straight_ptr + place + row[:, None] * COLUMNS + column[None, :], w)
    tl.store(turned_ptr + place + column[:, None] * ROWS + row[None, :], tl.trans(w))


@triton.jit
def pack_rows(
    x_ptr,
    out_ptr,
    sums_ptr,
    rows,
    width,
    columns,
    SUMS: tl.constexpr,
    ROUNDS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """``x: (rows, width)`` padded with zeros to ``columns``; with ``SUMS`` also its sums over blocks of rows.

    Grid: (column blocks, row blocks, seeds).
    """
    seed = tl.program_id(2).to(tl.int64)
    row = tl.program_id(1) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = tl.program_id(0) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    inside = (row < rows)[:, None]
    real = inside & (column < width)[None, :]
    x = tl.load(x_ptr + (seed * rows + row[:, None]) * width + column[None, :], mask=real, other=0.0).to(tl.float32)
    out = out_ptr + (seed * rows + row[:, None]) * columns + column[None, :]
    tl.store(out, rounded(x, ROUNDS).to(out_ptr.dtype.element_ty), mask=inside)
    if SUMS:
        block = (seed * tl.num_programs(1) + tl.program_id(1)) * columns
        tl.store(sums_ptr + block + column, tl.sum(x, axis=0))


@triton.jit
def add_blocks(parts_ptr, out_ptr, blocks, columns, BLOCK_PARTS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr):
    """``parts: (seeds, blocks, columns)`` summed over the blocks, always in the same order."""
    seed = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    total = tl.zeros([BLOCK_COLUMNS], tl.float32)
    for start in range(0, blocks, BLOCK_PARTS):
        part = start + tl.arange(0, BLOCK_PARTS)
        inside = (part < blocks)[:, None] & (column < columns)[None, :]
        at = parts_ptr + (seed * blocks + part[:, None]) * columns + column[None, :]
        total += tl.sum(tl.load(at, mask=inside, other=0.0), axis=0)
    tl.store(out_ptr + seed * columns + column, total, mask=column < columns)


# -- launching


@dataclass(frozen=True)
class Tile:
    """Block sizes of one matrix product, and how many threads and buffers work on it."""

    rows: int
    columns: int
    inner: int
    warps: int
    stages: int


def padded(width: int) -> int:
    """How many numbers a row of ``width`` takes."""
    return PAD * triton.cdiv(width, PAD)


def tile_for(x: Tensor, columns: int) -> Tile:
    """The fastest of those tried on an H200 with 12,288 to 131,072 rows of 512 numbers (``benchmarks/layers.py``)."""
    if x.device.type == "cpu":  # the interpreter pays per tile
        return Tile(256, PAD if columns % 128 else 128, PAD, 1, 1)
    inner = 32 if x.dtype == torch.float32 else 64
    if columns % 128:
        return Tile(128, 64, inner, 4, 3)
    if x.dtype == torch.float32:
        return Tile(64, 128, inner, 4, 4)
    few = x.shape[0] * x.shape[1] < 32_768
    return Tile(128, 128, inner, 4, 4) if few or columns % 256 else Tile(128, 256, inner, 8, 3)


def run_forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    activation: int = NONE,
    slope: float = 0.0,
    added: Tensor | None = None,
    keeps_pre: bool = False,
    out_dtype: torch.dtype | None = None,
    is_operand: bool = True,
    tile: Tile | None = None,
) -> tuple[Tensor, Tensor | None]:
    """``x: (S, n, INNER)``, ``weight: (S, COLUMNS, INNER)``, both packed, ``bias: (S, out)``: y, and z if kept.

    ``is_operand``: whether y will be multiplied with something in turn.
    """
    (seeds, rows, inner), columns = x.shape, weight.shape[1]
    y = x.new_empty(seeds, rows, columns, dtype=out_dtype)
    pre = x.new_empty(seeds, rows, columns) if keeps_pre else None
    tile = tile or tile_for(x, columns)
    grid = (columns // tile.columns, triton.cdiv(rows, tile.rows), seeds)
    with _on(x):
        forward[grid](
            x,
            weight,
            bias,
            x if added is None else added,
            x if pre is None else pre,
            y,
            rows,
            slope,
            OUT=bias.shape[1],
            COLUMNS=columns,
            INNER=inner,
            ACTIVATION=activation,
            ADDS=added is not None,
            KEEPS_PRE=keeps_pre,
            ROUNDS=is_operand and rounds(y),
            **_settings(tile),
        )
    return y, pre


def run_backward(
    dz: Tensor,
    turned: Tensor,
    *,
    seen: Tensor | None = None,
    activation: int = NONE,
    slope: float = 0.0,
    added: Tensor | None = None,
    is_operand: bool = True,
    tile: Tile | None = None,
) -> tuple[Tensor, Tensor]:
    """The gradient below a layer, ``(S, n, COLUMNS)``, and its sum over the rows, ``(S, COLUMNS)`` in float32."""
    (seeds, rows, inner), columns = dz.shape, turned.shape[1]
    out = dz.new_empty(seeds, rows, columns)
    tile = tile or tile_for(dz, columns)
    grid = (columns // tile.columns, triton.cdiv(rows, tile.rows), seeds)
    sums = dz.new_empty(seeds, grid[1], columns, dtype=torch.float32)
    with _on(dz):
        backward[grid](
            dz,
            turned,
            dz if seen is None else seen,
            dz if added is None else added,
            out,
            sums,
            rows,
            slope,
            COLUMNS=columns,
            INNER=inner,
            ACTIVATION=activation if seen is not None else NONE,
            ADDS=added is not None,
            ROUNDS=is_operand and rounds(out),
            **_settings(tile),
        )
    return out, run_add_blocks(sums)


def run_pack_weight(weight: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """``(S, out, in)`` as ``(S, OUT, IN)`` and ``(S, IN, OUT)``, padded."""
    weight = weight.contiguous()
    seeds, out, inner = weight.shape
    rows, columns = padded(out), padded(inner)
    straight = weight.new_empty(seeds, rows, columns, dtype=dtype)
    turned = weight.new_empty(seeds, columns, rows, dtype=dtype)
    grid = (rows // PAD, columns // PAD, seeds)
    flags: dict[str, Any] = {"ROUNDS": rounds(straight), "BLOCK": PAD}
    with _on(weight):
        pack_weight[grid](weight, straight, turned, out, inner, ROWS=rows, COLUMNS=columns, **flags)
    return straight, turned


def run_pack_rows(x: Tensor, dtype: torch.dtype, *, sums: bool = False) -> tuple[Tensor, Tensor | None]:
    """``(S, n, width)`` padded to ``(S, n, COLUMNS)``; its sums over the rows, ``(S, COLUMNS)``, if asked for."""
    x = x.contiguous()
    seeds, rows, width = x.shape
    columns, block = padded(width), 64
    out = x.new_empty(seeds, rows, columns, dtype=dtype)
    blocks = triton.cdiv(rows, block)
    parts = x.new_empty(seeds, blocks, columns, dtype=torch.float32) if sums else x
    grid = (columns // PAD, blocks, seeds)
    flags: dict[str, Any] = {"SUMS": sums, "ROUNDS": rounds(out), "BLOCK_ROWS": block, "BLOCK_COLUMNS": PAD}
    with _on(x):
        pack_rows[grid](x, out, parts, rows, width, columns, **flags)
    return out, run_add_blocks(parts) if sums else None


def run_add_blocks(parts: Tensor) -> Tensor:
    """``(S, blocks, columns)`` in float32, summed over the blocks: ``(S, columns)``."""
    seeds, blocks, columns = parts.shape
    out = parts.new_empty(seeds, columns)
    tile = (256, 16) if parts.device.type == "cuda" else (256, 64)
    with _on(parts):
        add_blocks[(triton.cdiv(columns, tile[1]), seeds)](
            parts, out, blocks, columns, BLOCK_PARTS=tile[0], BLOCK_COLUMNS=tile[1]
        )
    return out


def rounds(x: Tensor) -> bool:
    """Whether what is multiplied as ``x`` is must be rounded: not in the interpreter, which multiplies in float32."""
    return x.dtype == torch.float32 and x.device.type == "cuda"


def _settings(tile: Tile) -> dict[str, Any]:
    return {
        "PRECISION": "tf32",
        "BLOCK_ROWS": tile.rows,
        "BLOCK_COLUMNS": tile.columns,
        "BLOCK_INNER": tile.inner,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }


def _on(x: Tensor) -> Any:
    """Triton launches on the current device, which need not be the tensor's."""
    return torch.cuda.device_of(x)
