"""Independent truth about distributions on the sphere, by quadrature in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy import integrate, special

from identica.spaces import Sphere


def random_directions(rows: int, dim: int, dtype: torch.dtype, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return Sphere(dim).project(torch.randn(rows, dim, generator=generator, dtype=dtype))


def angle_between(x: torch.Tensor, loc: torch.Tensor) -> torch.Tensor:
    """The angle between rows, in float64 and to full precision also where the cosine is close to ±1."""
    x, loc = (v.double() / v.double().norm(dim=-1, keepdim=True) for v in (x, loc))
    return 2 * torch.atan2((x - loc).norm(dim=-1), (x + loc).norm(dim=-1))


class AngleLaw:
    """The law of the angle θ between a von Mises-Fisher vector and its loc: ∝ exp(κ cos θ) sin(θ)^(d−2)."""

    def __init__(self, dim: int, concentration: float, nodes: int = 20_001) -> None:
        self.dim, self.concentration = dim, concentration
        with np.errstate(divide="ignore"):
            coarse = np.linspace(0.0, np.pi, 20_001)
            bulk = coarse[self._log_weight(coarse) > self._log_weight(coarse).max() - 60.0]
        step = coarse[1]
        self.theta = np.linspace(max(0.0, bulk[0] - step), min(np.pi, bulk[-1] + step), nodes)
        log_weight = self._log_weight(self.theta)
        self.shift = log_weight.max()
        self.weight = np.exp(log_weight - self.shift)
        self.total = integrate.simpson(self.weight, x=self.theta)

    def _log_weight(self, theta: np.ndarray) -> np.ndarray:
        # cos θ − 1 = −2 sin²(θ/2)
        return -2 * self.concentration * np.sin(theta / 2) ** 2 + special.xlogy(self.dim - 2, np.sin(theta))

    @property
    def cdf(self) -> Callable[[np.ndarray], np.ndarray]:
        cumulative = integrate.cumulative_trapezoid(self.weight, x=self.theta, initial=0.0)
        return lambda theta: np.interp(theta, self.theta, cumulative / cumulative[-1])

    @property
    def log_normalizer_at_mode(self) -> float:
        """The log of ∫ exp(κ (cos θ − 1)) over the unit sphere in R^d."""
        equator = Sphere(self.dim - 1).log_volume() if self.dim > 2 else np.log(2.0)
        return float(equator + self.shift + np.log(self.total))

    def expect(self, function: Callable[[np.ndarray], np.ndarray]) -> float:
        """The expectation of a function of θ."""
        return float(integrate.simpson(function(self.theta) * self.weight, x=self.theta) / self.total)


def coordinate_cdf(dim: int) -> Callable[[np.ndarray], np.ndarray]:
    """The law of one coordinate of a uniform point of the unit sphere in R^dim: (1 + x) / 2 is beta."""
    return lambda x: special.betainc(0.5 * (dim - 1), 0.5 * (dim - 1), 0.5 * (1.0 + np.clip(x, -1, 1)))
