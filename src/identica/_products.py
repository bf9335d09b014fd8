"""In which precision products are computed: autocast and TF32, on and off."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def full_products(device: torch.device) -> Iterator[None]:
    """Neither autocast nor, on CUDA, TF32 while this lasts: for data, whatever precision a model is trained in.

    Inside ``torch.compile`` TF32 stays as it is.
    """
    full = device.type == "cuda" and not torch.compiler.is_compiling()
    with no_autocast(device), tf32(False) if full else contextlib.nullcontext():
        yield


def no_autocast(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """No autocast while this lasts; some kinds of device have none."""
    available = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if available else contextlib.nullcontext()


@contextlib.contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """TF32 matrix products and convolutions on CUDA while this lasts, or none; in all threads, as torch has it."""
    try:
        before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    except RuntimeError:  # somebody has used torch's newer names for the same, which must not be mixed with these
        with _tf32_by_newer_names(allowed):
            yield
        return
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


@contextlib.contextmanager
def _tf32_by_newer_names(allowed: bool) -> Iterator[None]:
    settings = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)  # type: ignore[attr-defined]
    before = [setting.fp32_precision for setting in settings]
    for setting in settings:
        setting.fp32_precision = "tf32" if allowed else "ieee"
    try:
        yield
    finally:
        for setting, precision in zip(settings, before, strict=True):
            setting.fp32_precision = precision
