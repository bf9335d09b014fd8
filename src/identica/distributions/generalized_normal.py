"""The generalised normal distribution on R^d: Laplace, normal and everything between and beyond."""

from __future__ import annotations

import math

import torch
from torch import Size, Tensor
from torch.distributions import constraints
from torch.types import Device

from identica.distributions.base import Parameter
from identica.distributions.power_family import PowerFamily, as_power, matching_lp
from identica.distributions.power_integral import PowerIntegral, power_integral
from identica.similarities import Similarity


class GeneralizedNormal(PowerFamily):
    """Density ∝ exp(−Σ(|x−loc|/scale)^power) on R^d, independent coordinates.

    ``loc: (..., d)``; ``scale`` is a number or broadcasts to loc; ``power`` is one number for all coordinates
    (1: Laplace, 2: normal with standard deviation scale/√2).

    Draws go through the inverse distribution function (power 2: torch's normal numbers), so they are
    a differentiable function of loc and scale. In float32 nothing is drawn from the outermost 1e-7 of the
    mass.

    >>> normal = GeneralizedNormal(torch.zeros(3), scale=2.0**0.5, power=2.0)
    >>> normal.variance.round(decimals=3), normal.log_prob(torch.zeros(3))
    (tensor([1., 1., 1.]), tensor(-2.7568))
    """

    parameters = ("loc", "scale", "power")
    settings = ("power",)
    arg_constraints = {"loc": constraints.real_vector, "scale": constraints.positive}
    support = constraints.real_vector

    def __init__(
        self,
        loc: Tensor,
        scale: Parameter,
        power: Parameter,
        *,
        validate_args: bool | None = None,
        tables: PowerIntegral | None = None,
    ) -> None:
        self.power = as_power(power, type(self).__name__, tables)
        super().__init__(loc, scale, self.power, tables, validate_args)

    @classmethod
    def prepare_tables(cls, device: Device, dtype: torch.dtype, **parameters: Parameter) -> PowerIntegral:
        """The integral of exp(−|s|^power) and its inverse; kept for each power, device and precision."""
        return power_integral(as_power(parameters["power"], cls.__name__), device, dtype)

    @classmethod
    def matching_similarity(cls, **parameters: Parameter) -> Similarity:
        """``LpSimilarity(power, scale**power)``; one scale per coordinate: ``Anisotropic`` if power is 2."""
        power = as_power(parameters["power"], cls.__name__)
        return matching_lp(power, parameters["scale"], cls.__name__)

    @property
    def mean(self) -> Tensor:
        """The location."""
        return self._full(self.loc)

    @property
    def variance(self) -> Tensor:
        """scale² Γ(3/power) / Γ(1/power) for each coordinate."""
        ratio = math.exp(math.lgamma(3.0 / self.power) - math.lgamma(1.0 / self.power))
        return self._full(self.scale.square() * ratio)

    def _log_mass(self) -> Tensor:
        return self._full(self.scale.log() + math.log(2.0 * self._integral.total))

    def entropy(self) -> Tensor:
        """Σ 1/power + log(2 scale Γ(1 + 1/power)); shape ``(*batch,)``."""
        return (self._log_mass() + 1.0 / self.power).sum(dim=-1)

    def log_prob(self, value: Tensor) -> Tensor:
        """The log density: ``(..., d) -> (...)``."""
        return self._log_density(value)

    def cdf(self, value: Tensor) -> Tensor:
        """P(xᵢ ≤ valueᵢ), coordinate by coordinate: ``(..., d) -> (..., d)``."""
        self._check_value(value)
        half = self._integral(self._standard(value)) / (2.0 * self._integral.total)
        return (0.5 + half).clamp(0.0, 1.0)

    def icdf(self, value: Tensor) -> Tensor:
        """The quantiles of each coordinate, for probabilities in [0, 1]: ``(..., d) -> (..., d)``."""
        self._check_probability(value)
        value = value.to(self.dtype)
        x = torch.where(value <= 0, -torch.inf, self._quantile(value))
        return torch.where(value >= 1, torch.inf, x)

    def _quantile(self, probability: Tensor) -> Tensor:
        t = (2.0 * probability - 1.0) * self._integral.total
        return torch.addcmul(self.loc, self.scale, self._integral.inverse(t))

    def _draw(self, shape: Size, generator: torch.Generator | None) -> Tensor:
        if self.power != 2.0:
            return super()._draw(shape, generator)
        noise = self._normal((*shape, *self.batch_shape, self.dim), generator)
        return torch.addcmul(self.loc, self.scale, noise, value=math.sqrt(0.5))

    def _draw_fused(self, shape: Size, generator: torch.Generator | None) -> Tensor | None:
        from identica.distributions.triton_coordinates import draw_unbounded

        batch = Size((*self.batch_shape, self.dim))
        return draw_unbounded(shape, batch, self.power, self.loc, self.scale, generator)
