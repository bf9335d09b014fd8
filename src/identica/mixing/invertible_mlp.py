"""The papers' mixing: a random, invertible, well-conditioned network."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from identica._products import full_products
from identica._randomness import as_generator, as_seed
from identica.distributions.fused import MOST_FUSED_NUMBERS, fused_kernels_apply
from identica.mixing.base import Mixing

#: Candidates are drawn and measured this many matrix entries at a time: 8 MiB in float64.
_ENTRIES_AT_ONCE = 2**20
#: The fused kernel takes rows of at most this length.
_MOST_FUSED_DIMENSIONS = 32


class InvertibleMLP(Mixing):
    """g(z) = W_L a(W_(L−1) … a(W_1 z)): square layers without bias, a leaky ReLU ``a`` between them.

    Entries of each W are uniform on (−1, 1), its columns are scaled to unit length, and of
    ``candidates`` such matrices each layer keeps the one with the smallest condition number (A, Sec. A.3).
    Every part can be undone, so the whole is a bijection of R^dim, with a kink wherever a hidden unit
    changes sign.

    The weights are buffers: they follow ``.to`` and are never trained. Equal seeds give equal weights.

    >>> mixing = InvertibleMLP(3, seed=0, candidates=100)
    >>> z = torch.rand(5, 3, generator=torch.Generator().manual_seed(0))
    >>> torch.allclose(mixing.inverse(mixing(z)), z, atol=1e-5)
    True
    >>> len(mixing.condition_numbers)
    3
    """

    dim: int

    def __init__(
        self, dim: int, layers: int = 3, negative_slope: float = 0.2, *, seed: int, candidates: int = 25_000
    ) -> None:
        super().__init__()
        for name, value in (("dim", dim), ("layers", layers), ("candidates", candidates)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} of InvertibleMLP must be a whole number of at least 1, not {value!r}.")
        if not (math.isfinite(negative_slope) and negative_slope > 0):
            raise ValueError(
                f"negative_slope must be positive and finite, not {negative_slope!r}: with a slope of zero or "
                "less the leaky ReLU maps several inputs to one output and nothing could undo it."
            )
        self.dim, self.layers, self.candidates = dim, layers, candidates
        self.negative_slope, self.seed = float(negative_slope), as_seed(seed)
        generator = as_generator(seed)
        weights = [best_conditioned(dim, candidates, generator) for _ in range(layers)]
        self.weights: Tensor
        self.register_buffer("weights", torch.stack(weights).to(torch.get_default_dtype()))

    @property
    def condition_numbers(self) -> tuple[float, ...]:
        """Largest over smallest singular value of each layer, first layer first (waits for the device)."""
        singular_values = torch.linalg.svdvals(self.weights.double())
        return tuple((singular_values[:, 0] / singular_values[:, -1]).tolist())

    def forward(self, z: Tensor) -> Tensor:
        """``z: (..., dim)`` to observations ``(..., dim)``, in the precision of ``z``."""
        self._check(z, "latents")
        if self._fits_one_kernel(z) and fused_kernels_apply(z.device, z.dtype, z):
            from identica.mixing.triton_layers import mix

            return mix(z, self.weights.to(z.dtype), self.negative_slope)
        x = z
        with full_products(z.device):  # observations are data, whatever precision a model is trained in
            for i, weight in enumerate(self.weights.to(z.dtype).unbind()):
                if i:
                    x = functional.leaky_relu(x, self.negative_slope)
                x = functional.linear(x, weight)
        return x

    def _fits_one_kernel(self, z: Tensor) -> bool:
        fits = self.dim <= _MOST_FUSED_DIMENSIONS and 0 < z.numel() <= MOST_FUSED_NUMBERS
        return fits and z.device == self.weights.device

    def inverse(self, x: Tensor) -> Tensor:
        """The latents of ``x: (..., dim)``, exact up to rounding times the product of the condition numbers."""
        self._check(x, "observations")
        z = x.reshape(-1, self.dim)
        for i, weight in reversed(list(enumerate(self.weights.to(x.dtype).unbind()))):
            z = torch.linalg.solve(weight.T, z, left=False)  # rows: z Wᵀ = x
            if i:
                z = torch.where(z < 0, z / self.negative_slope, z)
        return z.reshape(x.shape)

    def _check(self, rows: Tensor, what: str) -> None:
        if rows.ndim == 0 or rows.shape[-1] != self.dim:
            raise ValueError(
                f"This mixing has dimension {self.dim}, but the {what} have shape {tuple(rows.shape)}; "
                f"their last axis must be {self.dim}."
            )

    def to_dict(self) -> dict[str, Any]:
        """Everything :func:`mixing_from_dict` needs to draw the same weights again."""
        return {
            "mixing": "invertible_mlp",
            "dim": self.dim,
            "layers": self.layers,
            "negative_slope": self.negative_slope,
            "seed": self.seed,
            "candidates": self.candidates,
        }

    def extra_repr(self) -> str:
        """The settings, for printing."""
        return (
            f"{self.dim}, layers={self.layers}, negative_slope={self.negative_slope}, seed={self.seed}, "
            f"candidates={self.candidates}"
        )


def best_conditioned(dim: int, candidates: int, generator: torch.Generator) -> Tensor:
    """The best conditioned of that many random matrices with unit columns: ``(dim, dim)`` float64.

    Singular values are computed in batches, so that the memory does not grow with ``candidates``.
    """
    at_once = max(1, _ENTRIES_AT_ONCE // dim**2)
    best, smallest = torch.empty(0), math.inf
    while candidates > 0:
        shape = (min(at_once, candidates), dim, dim)
        candidates -= shape[0]
        matrices = torch.rand(shape, generator=generator, dtype=torch.float64).mul_(2).sub_(1)
        matrices /= torch.linalg.vector_norm(matrices, dim=1, keepdim=True)
        singular_values = torch.linalg.svdvals(matrices)
        conditions = singular_values[:, 0] / singular_values[:, -1]
        index = int(conditions.argmin())
        if not best.numel() or conditions[index].item() < smallest:
            best, smallest = matrices[index].clone(), conditions[index].item()
    return best
