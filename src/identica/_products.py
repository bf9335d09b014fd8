"""Products of full precision where data are computed, whatever precision a model is trained in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def full_products(device: torch.device) -> Iterator[None]:
    """Neither autocast nor, on CUDA, TF32 while this lasts, in matrix products and in convolutions.

    Like every such setting of torch it is one for all threads. Inside ``torch.compile`` TF32 stays as it is.
    """
    tf32 = device.type == "cuda" and not torch.compiler.is_compiling()
    with _no_autocast(device.type), _no_tf32() if tf32 else contextlib.nullcontext():
        yield


def _no_autocast(kind: str) -> contextlib.AbstractContextManager[object]:
    """Some kinds of device have none."""
    available = torch.amp.is_autocast_available(kind)
    return torch.autocast(kind, enabled=False) if available else contextlib.nullcontext()


@contextlib.contextmanager
def _no_tf32() -> Iterator[None]:
    try:
        before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    except RuntimeError:  # somebody has used torch's newer names for the same, which must not be mixed with these
        with _no_tf32_by_newer_names():
            yield
        return
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


@contextlib.contextmanager
def _no_tf32_by_newer_names() -> Iterator[None]:
    settings = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)  # type: ignore[attr-defined]
    before = [setting.fp32_precision for setting in settings]
    for setting in settings:
        setting.fp32_precision = "ieee"
    try:
        yield
    finally:
        for setting, precision in zip(settings, before, strict=True):
            setting.fp32_precision = precision
