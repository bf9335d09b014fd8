"""Which Triton kernel computes what, in blocks of which size.

Everything is decided on the host from shapes and dtypes alone, by fixed tables: nothing is tried out at run
time, so a launch may be captured in a CUDA graph and equal calls give equal bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import triton
from torch import Tensor

from identica.kernels import triton_narrow as narrow
from identica.kernels import triton_wide as wide
from identica.similarities import Kernel

#: Up to this many coordinates a row's coordinates and gradient stay in registers.
NARROW = 32
#: From here on matrix products are faster where they can be used (``benchmarks/kernels.py --routes``).
PRODUCTS_FROM = 17
#: Chunks of a float32 code that stay with the program of its row: for inner products in TF32 and in float32, and for
#: squared distances, of which more are slower (measured up to 128 coordinates, ``benchmarks/kernels.py --held``).
MOST_HELD = {"tf32": 4, "tf32x3": 2, "squared": 1}
#: Bytes of shared memory that more than one chunk may take of a program. Hopper has them; other GPUs, on which this was
#: not measured, hold one chunk at most.
_ROOM = 200 << 10
_LARGEST_CHUNK = 128  # coordinates of a code in one matrix product
_FLOAT32_CHUNK = 32
_MOST_SPANS = 256
_INTERPRETED_TILE = (128, 1024)  # the interpreter's cost is per operation, not per number


@dataclass(frozen=True)
class Blocks:
    """Rows and columns of a program's tile, warps that share it, and how loads are hidden.

    ``stages`` of a software pipeline hide the loads of matrix products; ``ahead`` loads a tile of few
    coordinates while the one before it is computed.
    """

    rows: int
    columns: int
    warps: int = 4
    stages: int = 2
    ahead: bool = False


@dataclass(frozen=True)
class Problem:
    """What is to be computed, apart from the codes.

    ``route``: ``"narrow"`` (few coordinates), ``"product"`` (matrix products: the inner product and the squared
    distance of centred codes) or ``"distance"`` (other Lp similarities of many coordinates). ``"product"``
    takes codes ``(seeds, n, d)``, the others ``(seeds, d, n)``. ``blocks`` and ``spans`` replace the choice of
    the block size and of the number of parts that the columns are split into.
    """

    kernel: Kernel
    exclude_diagonal: bool
    route: Literal["narrow", "product", "distance"]
    blocks: Blocks | None = None
    spans: int | None = None


def route_of(kernel: Kernel, dim: int) -> Literal["narrow", "product", "distance"]:
    """The way for a kernel and a number of coordinates."""
    # The distance itself, unlike its square, would feel the cancellation near 0.
    is_product = kernel.name == "dot" or kernel == Kernel("lp", 2.0)
    if is_product and dim >= PRODUCTS_FROM:
        return "product"
    return "narrow" if dim <= NARROW else "distance"


def forward(x: Tensor, y: Tensor, mask: Tensor | None, problem: Problem) -> tuple[Tensor, Tensor]:
    """Log-partition and largest similarity of each x over the y: ``(seeds, rows)``, float32."""
    rows, columns, dim = _sizes(x, y, problem)
    seeds = len(x)
    blocks = problem.blocks or _blocks(x, rows, columns, dim, problem, backward=False)
    spans, span = _split(x, rows, columns, blocks, problem)
    value = x.new_empty(seeds, spans, rows, dtype=torch.float32)
    largest = torch.empty_like(value)
    arguments = [*_mask_pointer(x, mask), value, largest, rows, columns, *_mask_strides(mask), span]
    grid = (triton.cdiv(rows, blocks.rows), spans, seeds)
    settings = _common_settings(problem, dim, blocks) | {"MASKED": mask is not None}
    with _on(x):
        if problem.route == "narrow":
            narrow.forward[grid](x, y, *arguments, **settings, AHEAD=blocks.ahead)
        else:
            norms = _squared_norms(x, y, problem)
            wide.forward[grid](x, y, *norms, *arguments, **settings, **_product_settings(x, problem))
        if spans > 1:
            parts, value, largest = (value, largest), value.new_empty(seeds, rows), value.new_empty(seeds, rows)
            sizes = {"SPANS": triton.next_power_of_2(spans), "BLOCK": 128}
            narrow.combine[(triton.cdiv(rows, 128), seeds)](*parts, value, largest, rows, spans, **sizes)
    return value.view(seeds, rows), largest.view(seeds, rows)


def gradient(
    x: Tensor,
    y: Tensor,
    mask: Tensor | None,
    by_rows: tuple[Tensor, Tensor] | None,
    by_columns: tuple[Tensor, Tensor] | None,
    problem: Problem,
) -> Tensor:
    """Gradient for x of Σ slope · log-partition, in the layout of x and float32.

    ``by_rows``: the log-partitions and their slopes, ``(seeds, rows)``, of the x as anchors;
    ``by_columns``: those of the y as anchors whose candidates are the x. ``mask[..., i, j]`` belongs to xᵢ, yⱼ.
    """
    rows, columns, dim = _sizes(x, y, problem)
    seeds = len(x)
    blocks = problem.blocks or _blocks(x, rows, columns, dim, problem, backward=True)
    spans, span = _split(x, rows, columns, blocks, problem)
    adds = problem.route == "distance" or (problem.route == "product" and not _held(x, problem))
    new = x.new_zeros if adds else x.new_empty
    out = new(seeds, spans, *x.shape[1:], dtype=torch.float32)
    weights = [*(by_rows or (x, x)), *(by_columns or (x, x))]
    arguments = [*_mask_pointer(x, mask), *weights, out, rows, columns, *_mask_strides(mask), span]
    grid = (triton.cdiv(rows, blocks.rows), spans, seeds)
    settings = _common_settings(problem, dim, blocks) | {"MASKED": mask is not None}
    settings |= {"BY_ROWS": by_rows is not None, "BY_COLUMNS": by_columns is not None}
    with _on(x):
        if problem.route == "narrow":
            narrow.gradient[grid](x, y, *arguments, **settings, AHEAD=blocks.ahead)
        elif problem.route == "distance":
            wide.distance_gradient[grid](x, y, *arguments, **settings)
        else:
            del settings["P"], settings["NORM"]
            product = _product_settings(x, problem) | _weight_settings(x, problem)
            wide.product_gradient[grid](x, y, *_squared_norms(x, y, problem), *arguments, **settings, **product)
    return out.sum(dim=1) if spans > 1 else out.squeeze(1)


def _sizes(x: Tensor, y: Tensor, problem: Problem) -> tuple[int, int, int]:
    """Rows, columns, coordinates."""
    if problem.route == "product":
        return x.shape[1], y.shape[1], x.shape[2]
    return x.shape[2], y.shape[2], x.shape[1]


def _on(x: Tensor) -> Any:
    """Triton launches on the current device, which need not be the codes'."""
    return torch.cuda.device_of(x)


def _mask_pointer(x: Tensor, mask: Tensor | None) -> tuple[Tensor]:
    return (x if mask is None else mask.view(torch.uint8),)


def _mask_strides(mask: Tensor | None) -> tuple[int, int, int]:
    return (0, 0, 0) if mask is None else (mask.stride(0), mask.stride(1), mask.stride(2))


def _squared_norms(x: Tensor, y: Tensor, problem: Problem) -> tuple[Tensor, Tensor]:
    if problem.kernel.name == "dot" or problem.route != "product":
        return x, y
    x_norms = x.square().sum(dim=2)
    return x_norms, x_norms if y is x else y.square().sum(dim=2)


def _common_settings(problem: Problem, dim: int, blocks: Blocks) -> dict[str, Any]:
    kernel = problem.kernel
    power = 0.0 if kernel.p is None or problem.route == "product" else float(kernel.p)
    return {
        "P": power,
        "NORM": kernel.name == "lp_norm" and power != 1.0,
        "DIM": dim,
        "EXCLUDE": problem.exclude_diagonal,
        "BLOCK_ROWS": blocks.rows,
        "BLOCK_COLUMNS": blocks.columns,
        "num_warps": blocks.warps,
        "num_stages": blocks.stages,
    }


def _chunk(x: Tensor, dim: int) -> int:
    """Coordinates that enter one matrix product: all of them, if they fit."""
    if x.dtype == torch.float32:
        return _FLOAT32_CHUNK
    return min(triton.next_power_of_2(dim), _LARGEST_CHUNK)


def _held(x: Tensor, problem: Problem) -> int:
    """In how many chunks the coordinates of a row stay with its program; 0 if they are too many."""
    dim, squared = x.shape[2], problem.kernel.name != "dot"
    chunks = triton.cdiv(dim, _chunk(x, dim))
    alone = x.dtype != torch.float32 or not _has_room(x)
    most = 1 if alone else MOST_HELD["squared" if squared else _precision(x, squared)]
    return chunks if chunks <= most else 0


def _has_room(x: Tensor) -> bool:
    if x.device.type == "cpu":
        return True
    return getattr(torch.cuda.get_device_properties(x.device), "shared_memory_per_block_optin", 0) >= _ROOM


def _product_settings(x: Tensor, problem: Problem) -> dict[str, Any]:
    if problem.route != "product":
        return {"SQUARED": False, "CHUNK": 16, "HELD": 0, "PRECISION": "tf32"}
    chunk, squared = _chunk(x, x.shape[2]), problem.kernel.name != "dot"
    return {"SQUARED": squared, "CHUNK": chunk, "HELD": _held(x, problem), "PRECISION": _precision(x, squared)}


def _precision(x: Tensor, squared: bool) -> str:
    """How float32 products are carried out: in TF32 only if torch was told to, never for distances or few coordinates.

    Otherwise as three TF32 products, of the leading and the trailing halves of the digits: as exact as float32
    (measured: no larger errors) and faster, because that way the matrix units can do it.
    """
    if x.dtype != torch.float32:
        return "tf32"  # for half precision, whose products are exact, the setting means nothing
    exact = squared or x.shape[2] <= NARROW or torch.get_float32_matmul_precision() == "highest"
    return "tf32x3" if exact else "tf32"


def _weight_settings(x: Tensor, problem: Problem) -> dict[str, Any]:
    squared = problem.kernel.name != "dot"
    return {"HALF_WEIGHTS": x.dtype == torch.bfloat16, "WEIGHT_PRECISION": _precision(x, squared)}


def _blocks(x: Tensor, rows: int, columns: int, dim: int, problem: Problem, *, backward: bool) -> Blocks:
    if x.device.type == "cpu":
        most_rows, most_columns = _INTERPRETED_TILE
        smallest = 16 if problem.route == "product" else 1
        return Blocks(
            max(smallest, min(most_rows, triton.next_power_of_2(rows))),
            max(smallest, min(most_columns, triton.next_power_of_2(columns))),
        )
    if problem.route == "narrow":
        return _narrow_blocks(dim, problem.kernel.name == "dot", backward)
    if problem.route == "distance":
        return Blocks(16, 128)
    if x.dtype == torch.float32 and (problem.kernel.name != "dot" or not _held(x, problem)):
        return Blocks(128, 128, warps=8, stages=2)
    if x.dtype == torch.float32:
        return Blocks(128, 64, warps=4, stages=3) if backward else Blocks(128, 64, warps=8, stages=2)
    return Blocks(64, 128, warps=4, stages=2 if backward else 3)


def _narrow_blocks(dim: int, dot: bool, backward: bool) -> Blocks:
    """As many rows a thread as registers allow: a row takes d of them, and as many for its gradient."""
    per_row = 2 * dim if backward else dim
    rows = 8 if per_row <= 20 else 4 if per_row <= 40 else 2
    return Blocks(rows, 128, ahead=rows < 8 or (dot and backward))


def _split(x: Tensor, rows: int, columns: int, blocks: Blocks, problem: Problem) -> tuple[int, int]:
    """Into how many parts the columns are split to occupy the device, and the columns of a part."""
    tiles = triton.cdiv(columns, blocks.columns)
    if problem.spans is not None:
        spans = problem.spans
    elif x.device.type == "cpu":
        spans = 1
    else:
        processors = torch.cuda.get_device_properties(x.device).multi_processor_count
        programs = triton.cdiv(rows, blocks.rows) * len(x)
        wanted = 1 if programs >= processors else triton.cdiv(2 * processors, programs)
        spans = max(1, min(wanted, triton.cdiv(tiles, 4), _MOST_SPANS))
    span = triton.cdiv(tiles, spans) * blocks.columns
    return triton.cdiv(columns, span), span
