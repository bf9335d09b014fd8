# mypy: disable-error-code="no-untyped-def, untyped-decorator, assignment"
"""What a step leaves behind on the device, noted in one launch instead of nine."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def note_kernel(
    loss_ptr,
    alignment_ptr,
    log_partition_ptr,
    accuracy_ptr,
    information_ptr,
    sums_ptr,
    first_bad_ptr,
    step_ptr,
    seeds,
    BLOCK: tl.constexpr,
):
    """Add the terms of every seed to ``sums: (seeds, 5)``, note the first loss that is not finite, count the step."""
    seed = tl.arange(0, BLOCK)
    real = seed < seeds
    step = tl.load(step_ptr)
    loss = tl.load(loss_ptr + seed, mask=real, other=0.0)
    add(sums_ptr, loss, seed, real, 0)
    add(sums_ptr, tl.load(alignment_ptr + seed, mask=real, other=0.0), seed, real, 1)
    add(sums_ptr, tl.load(log_partition_ptr + seed, mask=real, other=0.0), seed, real, 2)
    add(sums_ptr, tl.load(accuracy_ptr + seed, mask=real, other=0.0), seed, real, 3)
    add(sums_ptr, tl.load(information_ptr + seed, mask=real, other=0.0), seed, real, 4)
    first_bad = tl.load(first_bad_ptr + seed, mask=real, other=0)
    # inf − inf and NaN − NaN are NaN, which differs from 0.
    is_first = (loss - loss != 0.0) & (first_bad < 0)
    tl.store(first_bad_ptr + seed, tl.where(is_first, step, first_bad), mask=real)
    tl.debug_barrier()  # every thread has read the step before one of them changes it
    tl.store(step_ptr, step + 1)


@triton.jit
def add(sums_ptr, value, seed, real, TERM: tl.constexpr):
    """``sums[seed, TERM] += value`` in float64."""
    at = sums_ptr + seed * 5 + TERM
    tl.store(at, tl.load(at, mask=real, other=0.0) + value.to(tl.float64), mask=real)


def run_note(sums: Tensor, first_bad_step: Tensor, step: Tensor, terms: list[Tensor]) -> None:
    """``sums: (..., 5)``, ``first_bad_step: (...)``, ``step: ()``, changed in place; five terms of shape ``(...)``."""
    seeds = first_bad_step.numel()
    own = [term.detach().contiguous() for term in terms]
    with torch.cuda.device_of(sums):
        note_kernel[(1,)](*own, sums, first_bad_step, step, seeds, BLOCK=triton.next_power_of_2(seeds))
