"""What launching any of the fused samplers takes: a seed on the device, parameters in order, block sizes.

Everything is decided from shapes alone and nothing is read back from the device, so that a launch may be captured
in a CUDA graph. Results do not depend on the block sizes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Size, Tensor

#: Coordinates of a block of rows that one warp handles, four at a time.
_COORDINATES_PER_WARP = 512
_MOST_WARPS = 8
_INTERPRETED_BLOCK = 1 << 15  # the interpreter's cost is per operation, not per number


@dataclass(frozen=True)
class Blocks:
    """Rows (or groups of four coordinates) that a program handles, and the warps that share them."""

    rows: int
    warps: int


def random_seed(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """63 random bits in device memory, ``(1,)``; advances the generator."""
    if like.device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        raise ValueError(
            f"The fused samplers need a CUDA device, not {like.device}: let torch draw, which is the default there."
        )
    return torch.empty(1, dtype=torch.int64, device=like.device).random_(generator=generator)


def on(like: Tensor) -> Any:
    """Triton launches on the current device, which need not be the tensor's."""
    return torch.cuda.device_of(like)


def row_blocks(like: Tensor, rows: int, columns: int) -> Blocks:
    """For kernels that own whole rows, as four tiles of ``columns`` coordinates each."""
    if like.device.type == "cpu":
        return Blocks(max(1, min(triton.next_power_of_2(rows), _INTERPRETED_BLOCK)), 1)
    # One row a thread where rows are short: the rejection loops then keep every lane busy.
    block = max(1, min(32, 1024 // columns))
    warps = max(1, min(_MOST_WARPS, block * 4 * columns // _COORDINATES_PER_WARP))
    return Blocks(block, warps)


def coordinate_blocks(like: Tensor, count: int) -> Blocks:
    """For kernels that treat every coordinate alike, four of them a lane."""
    if like.device.type == "cpu":
        return Blocks(min(triton.next_power_of_2(count), _INTERPRETED_BLOCK), 1)
    return Blocks(128 if count < 1 << 17 else 256, 4)


def spread(parameter: Tensor, shape: Size) -> tuple[Tensor, int]:
    """A parameter as the kernels read it, and its stride: one number, or one for every entry of ``shape``."""
    if parameter.numel() == 1:
        return parameter, 0
    return parameter.expand(shape).contiguous(), 1
