"""Whitening: inputs with mean zero, variance one and no correlations."""

from __future__ import annotations

from typing import Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from identica._numbers import as_float, whole_number
from identica._products import full_products


class Whiten(nn.Module):
    """x ↦ W (x − mean) with W Cov(x) Wᵀ = I, fitted once on a sample and fixed from then on.

    power: below 1, W = c · Cov^(−power/2): directions that vary little are amplified less, and c gives the result a
        mean variance of 1. For inputs of many pixels, of which some hardly vary.

    ``method="zca"`` takes the symmetric W = Cov^(−1/2), which changes x as little as any whitening can;
    ``"pca"`` sorts the directions by variance. Directions in which the sample does not vary beyond
    rounding become zero instead of amplified noise. Until it is fitted, the module is the identity.

    Mean, W and whether it is fitted are buffers: they are saved with the model and not trained.

    >>> x = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    >>> x = x @ torch.tensor([[3.0, 1.0], [0.0, 0.2]])
    >>> white = Whiten(2).fit(x)(x)
    >>> torch.allclose(torch.cov(white.T), torch.eye(2), atol=1e-4)
    True
    """

    mean: Tensor
    matrix: Tensor
    fitted: Tensor

    def __init__(self, dim: int, method: Literal["zca", "pca"] = "zca", power: float = 1.0) -> None:
        super().__init__()
        dim = whole_number(dim, "dim of Whiten")
        if method not in ("zca", "pca"):
            raise ValueError(f'method of Whiten must be "zca" or "pca", not {method!r}.')
        if not 0.0 < as_float(power) <= 1.0:
            raise ValueError(f"power of Whiten is above 0 and at most 1, where 1 whitens fully; got {power!r}.")
        self.dim, self.method, self.power = dim, method, as_float(power)
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("matrix", torch.eye(dim))
        self.register_buffer("fitted", torch.tensor(False))

    @property
    def is_fitted(self) -> bool:
        """Whether :meth:`fit` has been called, here or before the weights were saved (waits for the device)."""
        return bool(self.fitted)

    @torch.no_grad()
    def fit(self, x: Tensor) -> Self:
        """Learn mean and W from rows ``x: (n, dim)``, computed in float64."""
        self._check_sample(x)
        rows = x.double()
        mean = rows.mean(dim=0)
        centred = rows - mean
        variances, directions = torch.linalg.eigh(centred.T @ centred / (len(rows) - 1))
        # Rounding leaves a spread of about eps times the size of the numbers themselves, mean included.
        rounding = 16 * torch.finfo(x.dtype).eps * rows.square().sum(dim=1).mean().sqrt()
        varies = variances > rounding**2
        variances = variances.clamp_min(torch.finfo(torch.float64).tiny)
        scales = torch.where(varies, variances.pow(-0.5 * self.power), 0.0)
        if self.power < 1.0:
            scales = scales / (variances * scales.square()).mean().sqrt().clamp_min(torch.finfo(torch.float64).tiny)
        matrix = scales[:, None] * directions.T
        self.matrix.copy_(directions @ matrix if self.method == "zca" else matrix.flip(0))
        self.mean.copy_(mean)
        self.fitted.fill_(True)
        return self

    def forward(self, x: Tensor) -> Tensor:
        """``(..., dim) -> (..., dim)``, in full precision also where autocast or TF32 would lower it."""
        with full_products(x.device):
            return functional.linear(x.to(self.mean.dtype) - self.mean, self.matrix)

    def _check_sample(self, x: Tensor) -> None:
        if x.ndim != 2 or x.shape[1] != self.dim:
            raise ValueError(
                f"Whiten({self.dim}) is fitted on rows of shape (n, {self.dim}), not on a tensor of shape "
                f"{tuple(x.shape)}."
            )
        if len(x) <= self.dim:
            raise ValueError(
                f"{len(x)} rows cannot fill {self.dim} dimensions: Whiten needs at least {self.dim + 1} rows, "
                "and a hundred times as many for a good estimate."
            )
        if not bool(torch.isfinite(x).all()):
            raise ValueError("Whiten cannot be fitted on NaN or infinite inputs; remove those rows first.")

    def extra_repr(self) -> str:
        """The settings, for printing."""
        return f"{self.dim}, method={self.method!r}" + ("" if self.power == 1.0 else f", power={self.power:g}")
