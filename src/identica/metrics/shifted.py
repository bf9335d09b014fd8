"""A score across a shift: fitted on codes of one kind of observations, judged on those of another."""

from __future__ import annotations

import torch

from identica.metrics.inputs import Matrix, as_matrices
from identica.metrics.score import Score


def shifted_r2(z: Matrix, h: Matrix, test: tuple[Matrix, Matrix]) -> Score:
    """R² on new rows of the affine map from codes to factors that was fitted on ``z: (n, d)`` and ``h: (n, k)``.

    For each column 1 − Σ(z − ẑ)² / Σ(z − z̄)² over the rows of ``test``, z̄ being their own mean. Where test latents lie
    elsewhere than those fitted on, as at the other pole of a sphere, the map extrapolates: the score may be far below
    zero, and what is missing is that the codes mean the same in both places. Compare with ``linear_r2(*test)``, which
    says what the codes of the new rows know at all.

    test: ``(z, h)`` of the new rows.

    >>> z = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
    >>> shifted_r2(z, 2 * z + 1, (z - 5, 2 * z - 9))
    Score(1.0000, n=20, method='linear R², fitted on 20 other rows', per_dimension=(1.0000,))
    """
    z, h = as_matrices(z, h)
    if not isinstance(test, tuple) or len(test) != 2:
        raise TypeError(f"test is a tuple (z, h) of the new rows' factors and codes, not {type(test).__name__}.")
    z_new, h_new = as_matrices(*test)
    if (z.shape[1], h.shape[1]) != (z_new.shape[1], h_new.shape[1]):
        raise ValueError(
            f"The test rows have {z_new.shape[1]} factors and {h_new.shape[1]} codes, those fitted on {z.shape[1]} and "
            f"{h.shape[1]}: both must be of the same kind."
        )
    z, h, z_new, h_new = (x.cpu() for x in (z, h, z_new, h_new))
    # gelsd: codes that lie in a plane have no unique map, and the smallest one is taken.
    weights = torch.linalg.lstsq(torch.cat([h, torch.ones_like(h[:, :1])], dim=1), z, driver="gelsd").solution
    predicted = torch.cat([h_new, torch.ones_like(h_new[:, :1])], dim=1) @ weights
    residual = (z_new - predicted).square().sum(dim=0)
    per_dimension = 1.0 - residual / (z_new - z_new.mean(dim=0)).square().sum(dim=0)
    return Score(
        per_dimension.mean().item(),
        tuple(per_dimension.tolist()),
        len(z_new),
        f"linear R², fitted on {len(z)} other rows",
    )
