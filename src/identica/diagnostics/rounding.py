"""Codes on a sphere that fill it evenly: the linear map that makes them do so.

A loss with a learned precision sees codes through √Λ̂ h alone. So a factor whose codes reach a little too far, with a Λ̂
that is too small by twice as much, costs next to nothing: only that all codes are equally long speaks against it, and
training finds that out last. But anchors that are uniform on the sphere say how far codes must reach. Latents z turned
by any rotation have E[h hᵀ] = I/d, and codes h = Az/‖Az‖ have the angular central Gaussian law, whose only parameter is
AAᵀ, up to a factor. Its maximum-likelihood estimate is the fixed point of

    S = d · mean(h hᵀ / hᵀS⁻¹h)

(Tyler 1987, "Statistical analysis for the angular central Gaussian distribution on the sphere"), and S^(−½) A is a
rotation, up to a factor that no direction depends on.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: The fixed point is reached when no entry of S changes by more than this.
_CHANGE = 1e-10
_MOST_ROUNDS = 1000
#: Codes that reach less than this part of the farthest in some direction do not fill the sphere.
_LEAST = 1e-3


@torch.no_grad()
def best_rounding(codes: Tensor) -> Tensor:
    """The symmetric map W = S^(−½) after which codes look alike in all directions: ``(n, d) -> (d, d)``, float64.

    W h, brought back to the length of h, is round. W is positive; how large it is means nothing, and the mean of S's
    eigenvalues is 1. For codes of anchors that are uniform on the sphere: any others need not be round. It does not see
    a fold: codes on one half of the sphere are round, too (:func:`~identica.diagnostics.folding`).

    >>> z = torch.randn(20_000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> rounding = best_rounding(torch.nn.functional.normalize(z * torch.tensor([1.2, 0.8])))
    >>> (rounding.diagonal() / rounding[0, 0]).round(decimals=1)  # the second code must reach 1.5 times as far
    tensor([1.0000, 1.5000], dtype=torch.float64)
    """
    if codes.ndim != 2 or not codes.shape[0] > codes.shape[1] > 1:
        raise ValueError(f"best_rounding takes codes (n, d) of more than d ≥ 2 observations, not {tuple(codes.shape)}.")
    unit = codes.double()
    unit = unit / unit.norm(dim=1, keepdim=True)
    if not bool(unit.isfinite().all()):
        raise ValueError("Codes that are 0, infinite or NaN have no direction, so these cannot be made round.")
    dim = unit.shape[1]
    shape = torch.eye(dim, dtype=torch.float64, device=unit.device)
    for _ in range(_MOST_ROUNDS):
        values, vectors = torch.linalg.eigh(shape)
        if float(values[0]) < _LEAST**2 * float(values[-1]):
            raise ValueError(
                "These codes cannot be made round: in some direction they hardly reach at all. Look at R² of the "
                "factors: one may be lost."
            )
        reach = ((unit @ vectors).square() / values).sum(dim=1, keepdim=True)
        new = (unit / reach).T @ unit
        new *= dim / new.trace()
        change = float((new - shape).abs().max())
        shape = new
        if change < _CHANGE:
            values, vectors = torch.linalg.eigh(shape)
            return (vectors / values.sqrt()) @ vectors.T
    raise ValueError(f"How to make these codes round is not clear after {_MOST_ROUNDS} rounds: take more of them.")
