"""R² of the affine regression from codes to factors, judged on rows it was not fitted on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from identica.metrics.inputs import Matrix, as_count, as_generator, as_matrices, warn_if_few
from identica.metrics.null import shuffled_scores, summarise
from identica.metrics.regression import centred, column_scale, orthonormal_basis
from identica.metrics.score import BlockScore, Score


def linear_r2(z: Matrix, h: Matrix, cross_fit: bool = True, seed: int = 0, null: int = 0) -> Score:
    """How much of the factors an affine map of the codes explains: mean R² over the columns of z.

    For each column, R² = 1 − Σ(z − ẑ)² / Σ(z − z̄)², with ẑ the least-squares regression of z on h and an
    intercept. It is 1 if and only if z is an affine image of h.

    With ``cross_fit`` the rows are split at random into two halves; the regression fitted on one is judged
    on the other, the roles are exchanged, and the two R² are averaged. z̄ is the mean of the half that is
    judged. The score may be negative (the regression predicts worse than that mean) and is never clipped.
    Fitted and judged on the same rows (``cross_fit=False``, what the papers report), R² of pure noise is
    k / (n − 1): 0.39 with 256 rows and 100 codes.

    Args:
        z: ``(n, d)`` true factors; a torch tensor, a numpy array or nested lists.
        h: ``(n, k)`` codes, in any scale; constant or redundant codes do no harm.
        cross_fit: judge on held-out rows.
        seed: chooses the halves and the permutations; the same on every device.
        null: how many permutations to score for the null distribution, 0 for none. It assumes that rows are
            exchangeable; rows of one time series are not, and their p-values come out too small.

    Warns when fewer than 5 rows are there to fit each code.

    >>> generator = torch.Generator().manual_seed(0)
    >>> z = torch.rand(400, 2, generator=generator)
    >>> codes = z @ torch.tensor([[1.0, 2.0], [0.0, 3.0]]) + 5
    >>> linear_r2(z, codes)
    Score(1.0000, n=400, method='linear R², two folds, seed 0', per_dimension=(1.0000, 1.0000))
    >>> linear_r2(z, torch.rand(400, 2, generator=generator), null=100).null.p_value > 0.05
    True
    """
    return _scored(z, h, cross_fit, seed, null, name="linear_r2")[0]


def block_r2(
    z: Matrix,
    h: Matrix,
    blocks: Mapping[str, Sequence[int]] | Sequence[Sequence[int]],
    cross_fit: bool = True,
    seed: int = 0,
    null: int = 0,
) -> BlockScore:
    """R² of groups of factors, such as content and style: one regression, then a mean over each group.

    z is regressed on all of h exactly as in :func:`linear_r2`; ``per_block`` is the mean of the
    per-dimension R² over each group, ``score`` the mean over all columns of z.

    Args:
        z: ``(n, d)`` true factors.
        h: ``(n, k)`` codes.
        blocks: columns of z in each group, as ``{"content": [0, 1], "style": [2]}`` or ``[[0, 1], [2]]``
            (then the names are 0, 1, …). A mask of d booleans works too. Groups may overlap or leave
            columns out.
        cross_fit: as in :func:`linear_r2`.
        seed: as in :func:`linear_r2`.
        null: as in :func:`linear_r2`; adds ``null_per_block``, one null for each group.

    >>> generator = torch.Generator().manual_seed(0)
    >>> z = torch.rand(400, 3, generator=generator)
    >>> score = block_r2(z, 2 * z[:, :2], {"content": [0, 1], "style": [2]})
    >>> round(score.per_block["content"], 3), abs(score.per_block["style"]) < 0.05
    (1.0, True)
    """
    overall, shuffled = _scored(z, h, cross_fit, seed, null, name="block_r2")
    observed = torch.tensor(overall.per_dimension, dtype=torch.float64)
    columns = _block_columns(blocks, len(observed))
    per_block = {name: observed[index].mean().item() for name, index in columns.items()}
    null_per_block = None
    if shuffled is not None:
        null_per_block = {
            name: summarise(shuffled[:, index].mean(dim=1), per_block[name]) for name, index in columns.items()
        }
    return BlockScore(
        score=overall.score,
        per_dimension=overall.per_dimension,
        n=overall.n,
        method=overall.method,
        null=overall.null,
        per_block=per_block,
        null_per_block=null_per_block,
    )


def _scored(z: Matrix, h: Matrix, cross_fit: bool, seed: int, null: int, name: str) -> tuple[Score, Tensor | None]:
    """The score over all dimensions, and the R² of every shuffle ``(null, d)`` if a null was asked for."""
    z, h = as_matrices(z, h, least_rows=4 if cross_fit else 3)
    permutations, generator = as_count(null), as_generator(seed)
    folds = 2 if cross_fit else 1
    warn_if_few(len(z) // folds, h.shape[1], folds=folds, unit="codes", score=name, stacklevel=4)
    observed, shuffled = _r2_and_null(z, h, cross_fit, permutations, generator)
    score = observed.mean().item()
    protocol = f"two folds, seed {seed}" if cross_fit else "in-sample"
    result = Score(
        score=score,
        per_dimension=tuple(observed.tolist()),
        n=len(z),
        method=f"linear R², {protocol}",
        null=None if shuffled is None else summarise(shuffled.mean(dim=1), score),
    )
    return result, shuffled


@dataclass(frozen=True)
class _Regression:
    """The regression on fixed codes, fitted on some rows and judged on others, ready for any target.

    ``basis: (fitted, r)`` are orthonormal columns that span the centred codes of the rows fitted on, and
    ``carried: (judged, r)`` the codes of the rows judged on in the same coordinates.
    """

    fitted: Tensor
    judged: Tensor
    basis: Tensor
    carried: Tensor

    @staticmethod
    def of(h: Tensor, fitted: Tensor, judged: Tensor) -> _Regression:
        """Prepare for codes ``h: (n, k)`` whose columns are of size one."""
        mean = h[fitted].mean(dim=0)
        basis, whitening = orthonormal_basis(h[fitted] - mean)
        return _Regression(fitted, judged, basis, (h[judged] - mean) @ whitening)

    def r2(self, targets: Tensor) -> Tensor:
        """R² of each column: ``(n, m) -> (m,)``."""
        fitted, judged = targets[self.fitted], targets[self.judged]
        mean = fitted.mean(dim=0)
        residual = torch.addmm(judged - mean, self.carried, self.basis.T @ (fitted - mean), alpha=-1)
        total = judged - judged.mean(dim=0)
        return 1 - residual.square().sum(dim=0) / total.square().sum(dim=0)


def _r2_and_null(
    z: Tensor, h: Tensor, cross_fit: bool, permutations: int, generator: torch.Generator
) -> tuple[Tensor, Tensor | None]:
    """R² of each column of z ``(d,)``, and of its shuffles ``(permutations, d)``; both on the CPU."""
    z, h = centred(z), centred(h)
    z, h = z / column_scale(z), h / column_scale(h)
    if cross_fit:
        order = torch.randperm(len(z), generator=generator).to(z.device)
        folds = [order[: len(z) // 2].sort().values, order[len(z) // 2 :].sort().values]
        directions = [(folds[0], folds[1]), (folds[1], folds[0])]
        _require_variation(z, folds)
    else:
        folds = [torch.arange(len(z), device=z.device)]
        directions = [(folds[0], folds[0])]
    regressions = [_Regression.of(h, fitted, judged) for fitted, judged in directions]

    def per_dimension(targets: Tensor) -> Tensor:
        flat = targets.flatten(start_dim=1)
        r2 = torch.stack([regression.r2(flat) for regression in regressions]).mean(dim=0)
        return r2.unflatten(0, targets.shape[1:])

    observed = per_dimension(z[:, None])[0].cpu()
    if not permutations:
        return observed, None
    return observed, shuffled_scores(per_dimension, z, folds, permutations, generator)


def _require_variation(z: Tensor, folds: Sequence[Tensor]) -> None:
    for fold in folds:
        constant = (z[fold] == z[fold[0]]).all(dim=0)
        if bool(constant.any()):
            raise ValueError(
                f"z[:, {int(constant.nonzero()[0])}] is constant in one of the two folds, so its R² there is "
                "undefined: nearly all of its values are equal. Pass more rows, another seed, or drop it."
            )


def _block_columns(blocks: Any, dims: int) -> dict[str | int, list[int]]:
    """The blocks by name, each a list of columns of z, or a sentence that says what is wrong with them."""
    try:
        named = dict(blocks) if isinstance(blocks, Mapping) else dict(enumerate(blocks))
    except TypeError:
        raise ValueError(
            f"blocks names the columns of z in each group, which {blocks!r} does not; pass for example "
            '{"content": [0, 1], "style": [2]}.'
        ) from None
    if not named:
        raise ValueError('blocks is empty; pass for example {"content": [0, 1], "style": [2]}.')
    return {name: _columns(name, block, dims) for name, block in named.items()}


def _columns(name: str | int, block: Any, dims: int) -> list[int]:
    index = np.asarray(block.cpu() if isinstance(block, Tensor) else block)
    if index.dtype == bool and index.shape == (dims,):
        index = index.nonzero()[0]
    if index.ndim != 1 or index.size == 0 or index.dtype.kind not in "iu":
        raise ValueError(
            f"Block {name!r} must list at least one column of z by number, as in [0, 1], or be a mask of "
            f"{dims} booleans that picks at least one, not {block!r}."
        )
    columns: list[int] = index.tolist()
    if min(columns) < 0 or max(columns) >= dims:
        raise ValueError(f"Block {name!r} names columns {columns}, but z has {dims} columns, numbered 0 to {dims - 1}.")
    if len(set(columns)) < len(columns):
        raise ValueError(f"Block {name!r} names a column twice: {columns}. Name each column once.")
    return columns
