"""What the formulas need of PyTorch; their numbers are in single precision, whatever PyTorch's default is."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, abs, clamp, exp, log, minimum, sqrt

__all__ = ["abs", "clamp", "exp", "log", "minimum", "sqrt", "where"]


def where(condition: Tensor, yes: Any, no: Any) -> Tensor:
    """``torch.where``; of two plain numbers PyTorch would make a tensor of its default precision."""
    chosen = torch.where(condition, yes, no)
    return chosen if isinstance(yes, Tensor) or isinstance(no, Tensor) else chosen.float()
