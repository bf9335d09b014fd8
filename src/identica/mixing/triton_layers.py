# mypy: disable-error-code="no-untyped-def, untyped-decorator, assignment"
"""All layers of the invertible MLP in one launch: a block of rows stays in registers from z to x.

The products are those of float32, never of TF32: observations are data, whatever precision a model is trained in.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_SMALLEST_PRODUCT = 16  # of a matrix product in Triton
_INTERPRETED_ROWS = 1 << 14


@triton.jit
def layers(
    z_ptr,
    weights_ptr,
    x_ptr,
    rows,
    negative_slope,
    DIM: tl.constexpr,
    COLUMNS: tl.constexpr,
    LAYERS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The map W_L a(W_(L−1) … a(W_1 z)) for ``z: (rows, DIM)`` and ``weights: (LAYERS, DIM, DIM)``."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    column, other = tl.arange(0, COLUMNS)[None, :], tl.arange(0, COLUMNS)[:, None]
    inside = (row < rows) & (column < DIM)
    x = tl.load(z_ptr + row * DIM + column, mask=inside, other=0.0)
    for layer in tl.static_range(LAYERS):
        if layer > 0:
            x = tl.where(x < 0.0, negative_slope * x, x)
        turned = weights_ptr + layer * DIM * DIM + column * DIM + other
        weight = tl.load(turned, mask=(column < DIM) & (other < DIM), other=0.0)
        x = tl.dot(x, weight, input_precision="ieee")
    tl.store(x_ptr + row * DIM + column, x, mask=inside)


def mix(z: Tensor, weights: Tensor, negative_slope: float) -> Tensor:
    """``z: (..., d)`` through ``weights: (layers, d, d)``, in float32."""
    z, weights = z.contiguous(), weights.contiguous()
    x = torch.empty_like(z)
    dim = z.shape[-1]
    rows, columns = z.numel() // dim, max(_SMALLEST_PRODUCT, triton.next_power_of_2(dim))
    block = 64 if z.is_cuda else max(_SMALLEST_PRODUCT, min(triton.next_power_of_2(rows), _INTERPRETED_ROWS))
    settings = {"DIM": dim, "COLUMNS": columns, "LAYERS": len(weights), "BLOCK": block, "num_warps": 4}
    with torch.cuda.device_of(z):
        layers[(triton.cdiv(rows, block),)](z, weights, x, rows, negative_slope, **settings)
    return x
