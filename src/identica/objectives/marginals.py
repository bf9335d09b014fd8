"""What is known of the codes' marginal at the truth, as terms that a loss can add: they vanish there.

A contrastive loss leaves some states slowly although they are not its minimum. Two of them show in the first moments
of the codes: a folded sphere has a mean, and a code that repeats others is correlated with them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from identica.similarities import at_least_float32

#: What is added to the diagonal of a correlation matrix, so that codes that repeat each other cost a finite number.
_RIDGE = 1e-3
#: Of a code that does not vary.
_LEAST_VARIANCE = 1e-12


def squared_mean(h: Tensor, weights: Tensor | None = None) -> Tensor:
    """‖E h‖² from ``h: (B, d)``: the mean of hᵢ·hⱼ over i ≠ j, weighted by wᵢwⱼ."""
    h = at_least_float32(h)
    w = h.new_ones(len(h)) if weights is None else weights.to(h.dtype)
    total = (w[:, None] * h).sum(dim=0).square().sum()
    own = (w.square() * h.square().sum(dim=1)).sum()
    return (total - own) / (w.sum().square() - w.square().sum())


def total_correlation(h: Tensor, weights: Tensor | None = None) -> Tensor:
    """−log det C from ``h: (B, d)``, with C the correlation matrix of the codes: 0 if no two are correlated.

    Half of it is the total correlation Σ H(hₖ) − H(h) of normal variables with these correlations. Its slope in C is
    −C⁻¹: the nearer a code comes to a linear function of the others, the harder it is pushed away, where the push of
    squared correlations does not grow. C is shrunk by one in a thousand, so that it has an inverse. B draws of
    independent codes have d(d−1)/2B on average.
    """
    h = at_least_float32(h)
    w = h.new_ones(len(h)) if weights is None else weights.to(h.dtype)
    w = (w / w.sum())[:, None]
    centred = h - (w * h).sum(dim=0)
    covariance = (w * centred).T @ centred
    scale = (covariance.diagonal() + _LEAST_VARIANCE).rsqrt()
    unit = torch.eye(h.shape[1], dtype=h.dtype, device=h.device)
    return -_log_determinant((covariance * scale * scale[:, None] + _RIDGE * unit) / (1 + _RIDGE))


def _log_determinant(matrix: Tensor) -> Tensor:
    """Of a positive definite matrix, by elimination: no library call that a captured step could not hold."""
    pivots = []
    while len(matrix):
        pivot, row = matrix[0, 0], matrix[0, 1:]
        pivots.append(pivot)
        matrix = matrix[1:, 1:] - row[:, None] * row / pivot
    return torch.stack(pivots).log().sum()
