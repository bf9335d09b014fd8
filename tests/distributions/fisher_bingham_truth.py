"""Independent truth about Fisher-Bingham distributions: quadrature, and rejection from the uniform."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from scipy import integrate, special

from identica.distributions.fisher_bingham import FisherBingham
from identica.distributions.fisher_bingham_plan import BLIND_PLAN
from identica.spaces import Sphere


def unit(rows: int, dim: int, seed: int = 1, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Locations all over the sphere, many of them close to a few axes, where the extremes are."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, dim, generator=generator, dtype=torch.float64)
    x *= torch.exp(2.0 * torch.randn(rows, dim, generator=generator, dtype=torch.float64))
    return Sphere(dim).project(x).to(dtype)


def general(distribution: FisherBingham) -> FisherBingham:
    """The same distribution without its shortcut to von Mises-Fisher."""
    distribution._plan = replace(BLIND_PLAN, isotropic=False)
    return distribution


def brute_force(loc: torch.Tensor, precision: torch.Tensor, rows: int, seed: int = 2) -> torch.Tensor:
    """Uniform points, kept with probability exp(−½ (x−loc)ᵀΛ(x−loc)): slow, and right by inspection."""
    generator = torch.Generator().manual_seed(seed)
    loc, precision, kept = loc.double(), precision.double(), torch.empty(0, len(loc), dtype=torch.float64)
    while len(kept) < rows:
        x = torch.randn(200_000, len(loc), generator=generator, dtype=torch.float64)
        x = x / x.norm(dim=-1, keepdim=True) * loc.norm()
        level = torch.rand(len(x), generator=generator, dtype=torch.float64)
        kept = torch.cat([kept, x[level < torch.exp(-0.5 * (precision * (x - loc) ** 2).sum(dim=-1))]])
    return kept[:rows]


class CircleLaw:
    """d = 2: the angle φ of x = (cos φ, sin φ), by the trapezoid rule on the periodic density."""

    def __init__(self, loc: torch.Tensor, precision: torch.Tensor, nodes: int = 40_001) -> None:
        self.angle = np.linspace(-np.pi, np.pi, nodes)
        x = np.stack([np.cos(self.angle), np.sin(self.angle)])
        gap = x - loc.double().numpy()[:, None]
        self.density = np.exp(-0.5 * (precision.double().numpy()[:, None] * gap**2).sum(axis=0))

    @property
    def log_normalizer(self) -> float:
        return float(np.log(integrate.trapezoid(self.density, self.angle)))

    @property
    def cdf(self) -> Callable[[np.ndarray], np.ndarray]:
        cumulative = integrate.cumulative_simpson(self.density, x=self.angle, initial=0.0)
        return lambda angle: np.interp(angle, self.angle, cumulative / cumulative[-1])


def log_normalizer_on_ordinary_sphere(loc: torch.Tensor, precision: torch.Tensor) -> float:
    """d = 3: Gauss-Legendre in the height, trapezoid around it."""
    height, weight = np.polynomial.legendre.leggauss(800)
    angle = np.arange(1600) * (2 * np.pi / 1600)
    ring = np.sqrt(1 - height**2)[:, None]
    x = np.stack(np.broadcast_arrays(ring * np.cos(angle), ring * np.sin(angle), height[:, None]), axis=-1)
    quadratic = (precision.numpy() * (x - loc.numpy()) ** 2).sum(axis=-1)
    return float(np.log((weight * np.exp(-0.5 * quadratic).mean(axis=1)).sum() * 2 * np.pi))


class BlockLaw:
    """Two blocks of coordinates, each with one precision: everything becomes one-dimensional.

    With x = (sin φ · u, cos φ · w), u and w on unit spheres of dimensions p and q, and loc = (√m e₁, √(1−m) e₁),
    the density of φ is sin(φ)^(p−1) cos(φ)^(q−1) exp(−½ (λ₁ sin² + λ₂ cos²)) A_p(λ₁√m sin φ) A_q(λ₂√(1−m) cos φ),
    where A_p(k) is the integral of exp(k u₁) over the unit sphere in R^p.
    """

    def __init__(
        self, sizes: tuple[int, int], precisions: tuple[float, float], share: float, nodes: int = 20_001
    ) -> None:
        self.sizes, self.precisions, self.share = sizes, precisions, share
        self.phi = np.linspace(0.0, np.pi / 2, nodes)
        sine, cosine = np.sin(self.phi), np.cos(self.phi)
        self.pulls = precisions[0] * np.sqrt(share) * sine, precisions[1] * np.sqrt(1 - share) * cosine
        log_weight = special.xlogy(sizes[0] - 1, sine) + special.xlogy(sizes[1] - 1, cosine.clip(1e-300))
        log_weight -= 0.5 * (precisions[0] * sine**2 + precisions[1] * cosine**2)
        log_weight += log_exponential_integral(sizes[0], self.pulls[0])
        log_weight += log_exponential_integral(sizes[1], self.pulls[1])
        self.shift = log_weight.max()
        self.weight = np.exp(log_weight - self.shift)
        self.total = integrate.simpson(self.weight, x=self.phi)

    @property
    def loc(self) -> torch.Tensor:
        loc = torch.zeros(sum(self.sizes), dtype=torch.float64)
        loc[0], loc[self.sizes[0]] = self.share**0.5, (1 - self.share) ** 0.5
        return loc

    @property
    def precision(self) -> torch.Tensor:
        parts = zip(self.sizes, self.precisions, strict=True)
        return torch.cat([torch.full((n,), v, dtype=torch.float64) for n, v in parts])

    @property
    def log_normalizer(self) -> float:
        at_loc = self.precisions[0] * self.share + self.precisions[1] * (1 - self.share)
        return float(np.log(self.total) + self.shift - 0.5 * at_loc)

    @property
    def cdf(self) -> Callable[[np.ndarray], np.ndarray]:
        cumulative = integrate.cumulative_simpson(self.weight, x=self.phi, initial=0.0)
        return lambda phi: np.interp(phi, self.phi, cumulative / cumulative[-1])

    def phi_of(self, x: torch.Tensor) -> torch.Tensor:
        first, second = x.double().split(list(self.sizes), dim=-1)
        return torch.atan2(first.norm(dim=-1), second.norm(dim=-1))

    def expect(self, function: np.ndarray) -> float:
        return float(integrate.simpson(function * self.weight, x=self.phi) / self.total)

    @property
    def mean(self) -> tuple[float, float]:
        """Of the two coordinates in which loc is not zero."""
        length = np.sin(self.phi), np.cos(self.phi)
        slopes = (np.tanh(k) if n == 1 else _bessel_ratio(n, k) for n, k in zip(self.sizes, self.pulls, strict=True))
        first, second = (self.expect(r * s) for r, s in zip(length, slopes, strict=True))
        return first, second


def log_exponential_integral(dim: int, k: np.ndarray) -> np.ndarray:
    """log A_dim(k), as area · ₀F₁ for small k and as a scaled Bessel function for large k."""
    area = Sphere(dim).log_volume() if dim > 1 else np.log(2.0)
    large = np.maximum(k, 50.0)
    order = 0.5 * dim - 1
    bessel = 0.5 * dim * np.log(2 * np.pi) + np.log(special.ive(order, large)) + large - order * np.log(large)
    return np.where(k < 50.0, area + np.log(special.hyp0f1(0.5 * dim, np.minimum(k, 50.0) ** 2 / 4)), bessel)


def _bessel_ratio(dim: int, k: np.ndarray) -> np.ndarray:
    """d log A_dim / dk = I_{dim/2} / I_{dim/2−1}."""
    small = np.minimum(k, 50.0)
    series = small / dim * special.hyp0f1(0.5 * dim + 1, small**2 / 4) / special.hyp0f1(0.5 * dim, small**2 / 4)
    large = np.maximum(k, 50.0)
    return np.where(k < 50.0, series, special.ive(0.5 * dim, large) / special.ive(0.5 * dim - 1, large))
