"""Least squares that does not mind constant, duplicated or badly scaled columns."""

from __future__ import annotations

import torch
from torch import Tensor


def centred(x: Tensor) -> Tensor:
    """``x: (n, p)`` minus its column means; a constant column becomes exactly zero."""
    # The first row goes first: equal numbers then cancel exactly, and a large common offset costs no digits.
    x = x - x[0]
    return x - x.mean(dim=0)


def column_scale(x: Tensor) -> Tensor:
    """Largest absolute entry of each column, 1 for a column of zeros: ``(n, p) -> (p,)``."""
    largest = x.abs().amax(dim=0)
    return torch.where(largest > 0, largest, torch.ones_like(largest))


def unit_columns(x: Tensor) -> Tensor:
    """Columns centred and scaled to length one; constant columns are zero: ``(n, p) -> (n, p)``."""
    x = centred(x)
    x = x / column_scale(x)  # so that squares neither overflow nor vanish
    norm = torch.linalg.vector_norm(x, dim=0)
    return x / torch.where(norm > 0, norm, torch.ones_like(norm))


def orthonormal_basis(x: Tensor, tolerance: float = 0.0) -> tuple[Tensor, Tensor]:
    """An orthonormal basis of the column space of ``x: (n, p)`` and the map that leads to it.

    Returns ``basis: (n, r)`` and ``whitening: (p, r)`` with x @ whitening = basis, where r is the numerical
    rank. The least-squares solution of least norm of x β = y is then β = whitening @ basisᵀ y. Directions
    in which x varies by less than float64 rounding, or by less than ``tolerance``, are left out, both
    relative to the largest one and to columns of size one.
    """
    q, triangle = torch.linalg.qr(x)
    u, singular, vh = torch.linalg.svd(triangle, full_matrices=False)
    relative = max(tolerance, max(x.shape) * torch.finfo(x.dtype).eps)
    smallest = relative * singular[0].clamp_min(1.0)
    rank = int((singular > smallest).sum())
    return q @ u[:, :rank], vh[:rank].T / singular[:rank]
