"""How far the map from factors to codes is from the maps that the theorems promise.

Both scores are distances: 0 is perfect. They look at the least-squares affine map h ≈ A z + b, which noise
in the codes does not bias, and say nothing about how much of the codes that map explains: read them next to
:func:`identica.metrics.linear_r2`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from identica.metrics.correlation import matched_entries
from identica.metrics.inputs import Matrix, as_matrices, warn_if_few
from identica.metrics.regression import centred, column_scale, orthonormal_basis, unit_columns
from identica.metrics.score import MatchedScore, Score


def orthogonality(z: Matrix, h: Matrix) -> Score:
    """Distance of the map from factors to codes to the nearest scaled orthogonal one (A, Thm 2).

    With A: (k, d) the least-squares map of h ≈ A z + b, the score is

        min over c ≥ 0 and QᵀQ = I of ‖A − c Q‖_F / ‖A‖_F = ‖s − s̄‖ / ‖s‖,

    where s are the d singular values of A and s̄ is their mean. It is 0 if and only if A is a rotation or
    reflection times a scale, and at most √(1 − 1/d), reached when all factors fall on one line. Both z and h
    keep their units: stretching an axis of either changes the score. A random A scores about 0.55.

    Args:
        z: ``(n, d)`` true factors, linearly independent; a torch tensor, a numpy array or nested lists.
        h: ``(n, k)`` codes. With more codes than factors Q has orthonormal columns; with fewer, the missing
            codes count as constant ones, so the score cannot be 0.

    ``per_dimension`` holds ‖A_j − c Q_j‖ √d / ‖A‖_F for each column j; ``score`` is their root mean square.
    Warns when there are fewer than 5 rows for each factor.

    >>> z = torch.rand(100, 2, generator=torch.Generator().manual_seed(0)).double()
    >>> rotation = torch.tensor([[0.6, -0.8], [0.8, 0.6]]).double()
    >>> orthogonality(z, 3 * z @ rotation + 1).score < 1e-6
    True
    >>> round(orthogonality(z, z * torch.tensor([1.0, 3.0])).score, 4)  # ‖(1, 3) − 2‖ / ‖(1, 3)‖
    0.4472
    """
    z, h = as_matrices(z, h)
    n, dims = z.shape
    warn_if_few(n, dims, unit="factors", score="orthogonality")
    z, h = (x / x.abs().max().clamp_min(torch.finfo(x.dtype).tiny) for x in (centred(z), centred(h)))
    slopes = _fitted_map(z, h)
    slopes = torch.nn.functional.pad(slopes, (0, 0, 0, max(0, dims - len(slopes))))
    _, singular, vh = torch.linalg.svd(slopes, full_matrices=False)
    size = torch.linalg.vector_norm(singular)
    if not bool(size > 0):
        raise ValueError(
            "No code depends on any factor: the fitted map from z to h is zero, and no direction can be read "
            "from it. Check that h is not constant."
        )
    misfit = (singular - singular.mean()) / size
    columns = torch.linalg.vector_norm(misfit[:, None] * vh, dim=0) * dims**0.5
    return Score(
        score=torch.linalg.vector_norm(misfit).item(),
        per_dimension=tuple(columns.tolist()),
        n=n,
        method="orthogonality of z → h, relative distance",
    )


def permutation_distance(z: Matrix, h: Matrix) -> MatchedScore:
    """Distance of the map from factors to codes to the nearest generalized permutation (A, Thm 6).

    With A: (k, d) the least-squares map between z and h, all columns of both scaled to unit variance, and
    Ã the same with each column A_j (what one factor does to all codes) scaled to length one, the score is

        min over generalized permutations G of ‖Ã − G‖_F / ‖Ã‖_F,

    where G has at most one entry, of any size and sign, in each row and one in each column. It is 0 if and
    only if each factor enters exactly one code and each of those codes only one factor, whatever their order,
    sign, scale and shift, and at most 1. Codes that depend on no factor add next to nothing. A factor that the
    codes hold only by chance is spread over them at random: ten codes of pure noise score about 0.8.

    Args:
        z: ``(n, d)`` true factors, linearly independent; a torch tensor, a numpy array or nested lists.
        h: ``(n, k)`` codes. A factor that no code is left for, or that enters no code, counts as 1.

    ``per_dimension`` holds the part of each column Ã_j outside the code matched to it (the sine of the angle
    between them); ``score`` is their root mean square, ``assignment`` the matching.
    Warns when there are fewer than 5 rows for each factor.

    >>> z = torch.rand(100, 2, generator=torch.Generator().manual_seed(0)).double()
    >>> score = permutation_distance(z, torch.stack([-9 * z[:, 1], 0.1 * z[:, 0] + 4], dim=1))
    >>> score.score < 1e-6, score.assignment
    (True, (1, 0))
    >>> round(permutation_distance(z, z @ torch.tensor([[0.6, -0.8], [0.8, 0.6]]).double()).score, 1)
    0.6
    """
    z, h = as_matrices(z, h)
    n, dims = z.shape
    warn_if_few(n, dims, unit="factors", score="permutation_distance")
    slopes = _fitted_map(unit_columns(z), unit_columns(h))
    length = torch.linalg.vector_norm(slopes, dim=0)
    in_some_code = length > 1e-10  # less is rounding
    slopes = torch.where(in_some_code, slopes / length, torch.zeros_like(slopes))
    _, assignment = matched_entries(slopes.T.square())
    # Summing what lies outside keeps all digits near zero; one minus what lies inside would not.
    outside = slopes.clone()
    for factor, code in enumerate(assignment):
        if code is not None:
            outside[code, factor] = 0.0
    sines = torch.where(in_some_code, torch.linalg.vector_norm(outside, dim=0), torch.ones_like(length))
    return MatchedScore(
        score=sines.square().mean().sqrt().item(),
        per_dimension=tuple(sines.tolist()),
        n=n,
        method="permutation distance of z → h, relative",
        assignment=assignment,
    )


def _fitted_map(z: Tensor, h: Tensor) -> Tensor:
    """A of the least-squares map h ≈ A z, for centred ``z: (n, d)`` and ``h: (n, k)``: ``(k, d)``."""
    scale = column_scale(z)
    # Factors that depend on each other up to float32 rounding would give slopes made of rounding.
    basis, whitening = orthonormal_basis(z / scale, tolerance=1e-6)
    if basis.shape[1] < z.shape[1]:
        raise ValueError(
            f"The {z.shape[1]} columns of z are linearly dependent (rank {basis.shape[1]} on {len(z)} rows), "
            "so the map from z to h is not determined. Drop redundant columns of z, or pass more rows."
        )
    return (whitening @ (basis.T @ h)).T / scale
