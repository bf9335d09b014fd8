"""Matrix products of full precision where data are computed, whatever precision a model is trained in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def full_products(device: torch.device) -> Iterator[None]:
    """Neither autocast nor, on CUDA, TF32 while this lasts."""
    with torch.autocast(device.type, enabled=False):
        if device.type != "cuda":
            yield
            return
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
