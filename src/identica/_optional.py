"""Which optional packages are installed. They are imported where they are used, and nowhere else."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec


@cache
def has_triton() -> bool:
    """Whether Triton, which the fused kernels are written in, can be imported."""
    return find_spec("triton") is not None
