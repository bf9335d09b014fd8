"""Where Λ̂ ends with a perfect encoder and many negatives: by quadrature, for a Λ of two blocks.

With the true latents as codes and the number of negatives growing, InfoNCE less its log tends to (A, Thm 1)

    E_z [ ½ E⁺ (z̃−z)ᵀΛ̂(z̃−z) + log E⁻ exp(−½ (z̃−z)ᵀΛ̂(z̃−z)) ],

z̃ drawn like a positive in E⁺ and like a negative in E⁻. It is convex in Λ̂. Where the positives are Fisher-Bingham
and the negatives uniform it is smallest at the true Λ. Where they are not, it is smallest elsewhere, and the
distance is a bias that no amount of training removes.

With two blocks of equal precision everything depends on few numbers. Write z = (cos φ · a, sin φ · b), a and b unit
vectors; then (z̃−z)ᵀΛ(z̃−z) = λ₁D₁ + λ₂D₂ follows from φ, φ̃ and the cosines of a with ã and of b with b̃, and the
expectations are sums over a grid in four dimensions, accurate to many digits, whatever the dimension of the sphere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from scipy.special import roots_jacobi
from torch import Tensor

from identica._numbers import whole_number
from identica.distributions.fisher_bingham_shell import log_shell_density

#: Nodes for φ; for φ̃ and the cosines a basis, and how many more of them a precision λ asks for, times √λ.
_ANCHORS = 24
_OTHERS, _OTHERS_PER_ROOT = 24, 4.0
_COSINES, _COSINES_PER_ROOT = 16, 2.0
_MOST_PRECISE = 250.0
_NEWTON_STEPS = 60
_TINY = 1e-300


def limiting_precision(
    sizes: tuple[int, int],
    precisions: tuple[float, float],
    *,
    method: Literal["exact", "shell"] = "exact",
    negatives: Literal["anchors", "positives", "both"] = "anchors",
) -> tuple[float, float]:
    """The Λ̂ of two blocks that minimises the loss of uniform anchors at their true latents, with many negatives.

    sizes, precisions: how many coordinates each block has, and their precision, up to 250.
    method: how positives are drawn, as in :class:`~identica.distributions.FisherBingham`.
    negatives: as in :class:`~identica.objectives.InfoNCE`. Only the anchors are uniform; positives used as
        negatives crowd where anchors of large normalisers sit.

    Exact to 1e-6, relatively. With few negatives a biased Λ̂ is biased somewhat differently.

    >>> [round(value, 5) for value in limiting_precision((5, 5), (5.0, 25.0))]
    [5.0, 25.0]
    >>> [round(value, 2) for value in limiting_precision((5, 5), (5.0, 25.0), method="shell")]
    [5.05, 25.32]
    """
    first, second = (whole_number(size, "sizes") for size in sizes)
    if not all(0 < p <= _MOST_PRECISE for p in precisions):
        raise ValueError(f"Both precisions must be positive and at most {_MOST_PRECISE:g}, not {tuple(precisions)}.")
    if method not in ("exact", "shell"):
        raise ValueError(f'method must be "exact" or "shell", not {method!r}.')
    if negatives not in ("anchors", "positives", "both"):
        raise ValueError(f'negatives must be "anchors", "positives" or "both", not {negatives!r}.')
    grid = _Grid.of((first, second), precisions)
    positive = grid.positives(precisions, method)
    negative = grid.negatives(positive, negatives)
    return grid.minimiser(positive, negative, precisions)


@dataclass(frozen=True)
class _Grid:
    """Anchors along the first axis, candidates along the others: φ, then φ̃, then the two cosines."""

    weight: Tensor  # of the anchors, (A,)
    log_uniform: Tensor  # of the candidates under the uniform law, (C, K, K)
    distance: Tensor  # D₁ and D₂, (2, A, C, K, K)
    share: Tensor  # cos² φ̃, (C, 1, 1)
    inner: Tensor  # the parts of the inner product, cos φ cos φ̃ ⟨a, ã⟩ and sin φ sin φ̃ ⟨b, b̃⟩, (2, A, C, K, K)
    dim: int

    @staticmethod
    def of(sizes: tuple[int, int], precisions: tuple[float, float]) -> _Grid:
        root = [math.sqrt(precision) for precision in precisions]
        phi, weight = _angles(sizes, _ANCHORS)
        other, other_weight = _angles(sizes, _OTHERS + math.ceil(_OTHERS_PER_ROOT * max(root)))
        cosines = [_cosines(n, _COSINES + math.ceil(_COSINES_PER_ROOT * r)) for n, r in zip(sizes, root, strict=True)]
        (c1, w1), (c2, w2) = cosines
        phi, other = phi[:, None, None, None], other[:, None, None]
        inner = torch.stack(
            torch.broadcast_tensors(
                phi.cos() * other.cos() * c1[:, None], (phi.sin() * other.sin() * c2).expand(-1, -1, len(c1), -1)
            )
        )
        squares = torch.stack([phi.cos() ** 2 + other.cos() ** 2, phi.sin() ** 2 + other.sin() ** 2])
        log_uniform = (other_weight[:, None, None] * w1[:, None] * w2).log()
        return _Grid(weight, log_uniform, squares - 2.0 * inner, other.cos() ** 2, inner, sum(sizes))

    def positives(self, precisions: tuple[float, float], method: str) -> Tensor:
        """Log probabilities of the candidates of each anchor: ``(A, C, K, K)``."""
        first, second = precisions
        if method == "exact":
            log_density = -0.5 * (first * self.distance[0] + second * self.distance[1])
        else:
            quadratic = (first * self.share + second * (1.0 - self.share)).expand(self.inner.shape[1:])
            log_density = log_shell_density(quadratic, first * self.inner[0] + second * self.inner[1], self.dim)
        log_density = log_density + self.log_uniform
        return log_density - _log_total(log_density)

    def negatives(self, positives: Tensor, kind: str) -> Tensor:
        """Log probabilities of the negatives: ``(C, K, K)``."""
        if kind == "anchors":
            return self.log_uniform
        # Averaged over all anchors the positives' a and b are uniform: only φ̃ has another law.
        angle = torch.einsum("a,acij->c", self.weight, positives.exp())
        uniform = self.log_uniform.exp()
        marginal = uniform * (angle / uniform.sum(dim=(1, 2)))[:, None, None]
        return ((marginal if kind == "positives" else 0.5 * (marginal + uniform)) + _TINY).log()

    def minimiser(self, positives: Tensor, negatives: Tensor, start: tuple[float, float]) -> tuple[float, float]:
        """Newton's method on the convex function of both precisions."""
        wanted = torch.einsum("a,acij,kacij->k", self.weight, positives.exp(), self.distance)
        found = torch.tensor(start, dtype=torch.float64)
        for _ in range(_NEWTON_STEPS):
            logits = negatives - 0.5 * torch.einsum("k,kacij->acij", found, self.distance)
            posterior = (logits - _log_total(logits)).exp()
            mean = torch.einsum("acij,kacij->ka", posterior, self.distance)
            second = torch.einsum("acij,kacij,lacij->akl", posterior, self.distance, self.distance)
            covariance = second - torch.einsum("ka,la->akl", mean, mean)
            slope = 0.5 * (wanted - mean @ self.weight)
            curvature = 0.25 * torch.einsum("a,akl->kl", self.weight, covariance)
            step = torch.linalg.solve(curvature, slope)
            found = torch.maximum(found - step, 0.5 * found)
            if bool((step.abs() < 1e-10 * found).all()):
                break
        return found[0].item(), found[1].item()


def _log_total(log_weight: Tensor) -> Tensor:
    return torch.logsumexp(log_weight.flatten(start_dim=1), dim=1)[:, None, None, None]


def _angles(sizes: tuple[int, int], nodes: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights for φ between 0 and π/2 with density ∝ cos^(n₁−1) sin^(n₂−1)."""
    x, w = (torch.tensor(values, dtype=torch.float64) for values in roots_jacobi(nodes, 0.0, 0.0))
    phi = 0.25 * math.pi * (x + 1.0)
    weight = w * phi.cos() ** (sizes[0] - 1) * phi.sin() ** (sizes[1] - 1)
    return phi, weight / weight.sum()


def _cosines(size: int, nodes: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights for the cosine between two directions in ``size`` dimensions; in one it is ±1."""
    if size == 1:
        return torch.tensor([-1.0, 1.0], dtype=torch.float64), torch.tensor([0.5, 0.5], dtype=torch.float64)
    power = 0.5 * (size - 3)
    c, w = (torch.tensor(values, dtype=torch.float64) for values in roots_jacobi(nodes, power, power))
    return c, w / w.sum()
