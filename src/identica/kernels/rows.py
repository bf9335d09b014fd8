"""Whether the terms of InfoNCE can be computed from the log-partitions in fused kernels, and the way to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import identica.kernels
from identica._eager import eager

if TYPE_CHECKING:
    from identica.kernels.triton_rows import RowTerms

_FUSED_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def rows_are_fused(impl: str, *codes: Tensor | None) -> bool:
    """Whether ``impl`` means the Triton kernels for such codes."""
    given = [x for x in codes if x is not None]
    if not all(x.dtype in _FUSED_DTYPES and x.device == given[0].device for x in given):
        return False
    return impl == "triton" or (impl == "auto" and identica.kernels._choose(given[0], given[0]) == "triton")


@eager
def info_nce_rows(*codes: Any, **settings: Any) -> RowTerms:
    """The kernels themselves, imported when they are first used: the package works without triton.

    Arguments as in :func:`identica.kernels.triton_rows.info_nce_rows_triton`.
    """
    from identica.kernels.triton_rows import info_nce_rows_triton

    return info_nce_rows_triton(*codes, **settings)
