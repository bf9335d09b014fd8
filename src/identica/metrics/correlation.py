"""Mean correlation coefficient: match each factor to one code, then average the absolute correlations."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from identica.metrics.inputs import Matrix, as_count, as_generator, as_matrices
from identica.metrics.null import shuffled_scores, summarise
from identica.metrics.regression import unit_columns
from identica.metrics.score import MatchedScore

Correlation = Literal["pearson", "spearman"]


def correlations(z: Matrix, h: Matrix, correlation: Correlation = "pearson") -> Tensor:
    """Correlation of every factor with every code, with its sign: ``(n, d), (n, k) -> (d, k)``, float64.

    A constant code has correlation 0 with everything.

    >>> z = [[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 0.0]]
    >>> correlations(z, [[7.0], [5.0], [3.0], [1.0]]).round(decimals=2)
    tensor([[-1.0000],
            [ 0.4500]], dtype=torch.float64)
    """
    z, h = as_matrices(z, h)
    # Rounding can leave a perfect correlation a hair above one.
    return (_standardised(z, correlation).T @ _standardised(h, correlation)).clamp(-1.0, 1.0)


def mcc(z: Matrix, h: Matrix, correlation: Correlation = "pearson", null: int = 0, seed: int = 0) -> MatchedScore:
    """Mean absolute correlation of each factor with the code matched to it.

    Each column of z is matched to its own column of h such that the sum of absolute correlations is largest
    (scipy's assignment, on the same rows, as the papers do). The score is 1 if and only if the codes hold
    every factor, each alone in one code, up to order, sign, scale and shift (for Spearman: up to a monotone
    function). Because the matching picks the best of many correlations, noise scores well above zero (about
    0.2 with 64 rows and 10 dimensions): ask for the null. And a rotation of 10 independent factors, which
    loses none of them, scores about 0.59: read the score next to :func:`identica.metrics.linear_r2`.

    Args:
        z: ``(n, d)`` true factors; a torch tensor, a numpy array or nested lists.
        h: ``(n, k)`` codes. With more codes than factors the superfluous ones stay unmatched; with fewer, the
            factors left over count as 0. A constant code has correlation 0 with everything.
        correlation: "pearson", or "spearman" for the correlation of ranks (ties get their average rank).
        null: how many permutations to score for the null distribution, 0 for none; assumes exchangeable rows.
        seed: chooses the permutations.

    Returns ``per_dimension`` in the order of z's columns, and ``assignment``: the code matched to each.

    >>> z = torch.rand(100, 2, generator=torch.Generator().manual_seed(0))
    >>> codes = torch.stack([5 - 3 * z[:, 1], z[:, 0] ** 3], dim=1)
    >>> mcc(z, codes, correlation="spearman")
    MatchedScore(1.0000, n=100, method='MCC, spearman', per_dimension=(1.0000, 1.0000), assignment=(1, 0))
    >>> mcc(z, codes).score < 0.98
    True
    """
    z, h = as_matrices(z, h)
    permutations, generator = as_count(null), as_generator(seed)
    z, h = _standardised(z, correlation), _standardised(h, correlation)
    per_dimension, assignment = matched_entries((z.T @ h).abs().clamp_max(1.0))
    score = float(per_dimension.mean())

    def shuffled_per_dimension(targets: Tensor) -> Tensor:
        absolute = (h.T @ targets.flatten(start_dim=1)).abs().cpu()
        tables = absolute.unflatten(1, targets.shape[1:]).permute(1, 2, 0)
        return torch.from_numpy(np.stack([matched_entries(table)[0] for table in tables]))

    distribution = None
    if permutations:
        everything = [torch.arange(len(z))]
        shuffled = shuffled_scores(shuffled_per_dimension, z, everything, permutations, generator)
        distribution = summarise(shuffled.mean(dim=1), score)
    return MatchedScore(
        score=score,
        per_dimension=tuple(per_dimension.tolist()),
        n=len(z),
        method=f"MCC, {correlation}",
        null=distribution,
        assignment=assignment,
    )


def _standardised(x: Tensor, correlation: Correlation) -> Tensor:
    """Columns whose dot products are the correlations."""
    if correlation not in ("pearson", "spearman"):
        raise ValueError(f'correlation must be "pearson" or "spearman", not {correlation!r}.')
    return unit_columns(average_ranks(x) if correlation == "spearman" else x)


def average_ranks(x: Tensor) -> Tensor:
    """Ranks of each column, from 1; equal numbers share their average rank: ``(n, p) -> (n, p)``."""
    columns = x.T.contiguous()
    ordered = columns.sort(dim=1).values
    # A number with s smaller ones and e equal ones (itself included) shares the ranks s + 1, ..., s + e.
    smaller = torch.searchsorted(ordered, columns, right=False)
    smaller_or_equal = torch.searchsorted(ordered, columns, right=True)
    return (0.5 * (smaller + smaller_or_equal + 1)).to(x.dtype).T


def matched_entries(gain: Tensor) -> tuple[np.ndarray, tuple[int | None, ...]]:
    """Match each row of ``gain: (d, k)`` to its own column such that the sum is largest.

    Returns the matched entry of each row ``(d,)``, 0 where there are too few columns, and the columns.
    """
    table = gain.cpu().numpy()
    rows, columns = linear_sum_assignment(table, maximize=True)
    entries = np.zeros(len(table))
    entries[rows] = table[rows, columns]
    partner = dict(zip(rows.tolist(), columns.tolist(), strict=True))
    return entries, tuple(partner.get(row) for row in range(len(table)))
