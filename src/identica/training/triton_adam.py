# mypy: disable-error-code="no-untyped-def, untyped-decorator, assignment"
"""Adam over one long vector in one launch.

PyTorch's fused Adam gives each thread block 65,536 numbers, so that the million parameters of a small network keep
a tenth of a large device busy.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit
def remembered(forget, step):
    """1 − (1 − forget)^step, in float64 because of the difference."""
    exponent = step.to(tl.float64) * tl.log(1.0 - tl.cast(forget, tl.float64))
    return (1.0 - tl.exp(exponent)).to(tl.float32)


@triton.jit
def adam_kernel(
    parameter_ptr,
    gradient_ptr,
    mean_ptr,
    square_ptr,
    rate_ptr,
    step_ptr,
    count,
    forget1,
    forget2,
    epsilon,
    decay,
    DECOUPLED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One step for a block of numbers; ``step`` counts from 1, ``rate`` and ``step`` are read on the device.

    ``forget1`` and ``forget2`` are 1 − β₁ and 1 − β₂, of which float32 keeps more digits than of β.
    """
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    rate, step = tl.load(rate_ptr), tl.load(step_ptr)
    parameter = tl.load(parameter_ptr + at, mask=inside, other=0.0)
    gradient = tl.load(gradient_ptr + at, mask=inside, other=0.0)
    if DECOUPLED:
        parameter -= rate * decay * parameter
    else:
        gradient += decay * parameter
    mean = tl.load(mean_ptr + at, mask=inside, other=0.0)
    square = tl.load(square_ptr + at, mask=inside, other=0.0)
    mean += forget1 * (gradient - mean)
    square += forget2 * (gradient * gradient - square)
    correction1 = remembered(forget1, step)
    correction2 = remembered(forget2, step)
    size = tl.sqrt(square) / tl.sqrt(correction2) + epsilon
    parameter -= (rate / correction1) * mean / size
    tl.store(parameter_ptr + at, parameter, mask=inside)
    tl.store(mean_ptr + at, mean, mask=inside)
    tl.store(square_ptr + at, square, mask=inside)


def run_adam(
    parameter: Tensor,
    gradient: Tensor,
    mean: Tensor,
    square: Tensor,
    rate: Tensor,
    step: Tensor,
    *,
    betas: tuple[float, float],
    epsilon: float,
    decay: float,
    decoupled: bool,
) -> None:
    """Update ``parameter``, ``mean`` and ``square``, all ``(n,)`` in float32, in place."""
    block = _BLOCK if parameter.device.type == "cuda" else 1 << 16
    with torch.cuda.device_of(parameter):
        adam_kernel[(triton.cdiv(parameter.numel(), block),)](
            parameter,
            gradient,
            mean,
            square,
            rate,
            step,
            parameter.numel(),
            1.0 - betas[0],
            1.0 - betas[1],
            epsilon,
            decay,
            DECOUPLED=decoupled,
            BLOCK=block,
        )
