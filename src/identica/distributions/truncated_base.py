"""What the families on a box share.

With H(s) = ∫₀ˢ exp(−|t|^power) dt and the edges of the box at s = (edge − loc)/width, a uniform number
between H(low) and H(high) is H(s) of a draw. The mode is inside the box, so H(low) ≤ 0 ≤ H(high), and no
difference of them cancels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Size, Tensor
from torch.distributions import constraints

from identica.distributions.base import Parameter, require
from identica.distributions.power_family import PowerFamily
from identica.distributions.power_integral import PowerIntegral
from identica.distributions.supports import InBox


class TruncatedFamily(PowerFamily):
    """Base of the truncated families; a subclass says which power, and how wide a scale is."""

    arg_constraints = {
        "loc": constraints.real_vector,
        "scale": constraints.positive,
        "low": constraints.real,
        "high": constraints.real,
    }
    low: Tensor
    high: Tensor

    def __init__(
        self,
        loc: Tensor,
        scale: Parameter,
        power: float,
        low: Parameter,
        high: Parameter,
        *,
        validate_args: bool | None,
        tables: PowerIntegral | None,
    ) -> None:
        super().__init__(loc, scale, power, tables, validate_args, low=low, high=high)
        if self._validate:
            family = type(self).__name__
            require(
                torch.isfinite(self.high - self.low) & (self.low < self.high),
                f"{family} needs finite edges with low < high in every dimension.",
            )
            require(
                (self.low <= self.loc) & (self.loc <= self.high),
                f"loc of {family} must lie in the closed box between low and high, and some rows do not. Give "
                "another box with low= and high=, or project the rows: Box(dim, low, high).project(loc).",
            )

    @property
    def support(self) -> constraints.Constraint:
        """The closed box."""
        return InBox(self.low, self.high)

    def _edges(self) -> tuple[Tensor, Tensor]:
        """The edges in units of the width, as seen from loc: low ≤ 0 ≤ high."""
        return self._standard(self.low), self._standard(self.high)

    def _integrals(self) -> tuple[Tensor, Tensor]:
        """H at both edges."""
        return self._integral.around(*self._edges())

    def _average(self, antiderivative: Callable[[Tensor], Tensor]) -> Tensor:
        """The mean of f(s), given the antiderivative of f(s) exp(−|s|^power)."""
        low, high = self._edges()
        below, above = self._integrals()
        return (antiderivative(high) - antiderivative(low)) / (above - below)

    def _log_mass(self) -> Tensor:
        low, high = self._integrals()
        return (high - low).log() + self._width.log()

    def _inside(self, x: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(x, self.low), self.high)

    @property
    def mean(self) -> Tensor:
        """The mean; shape ``(*batch, d)``."""
        return self._full(self.loc + self._width * self._average(lambda s: self._integral.moment(s, 1)))

    @property
    def variance(self) -> Tensor:
        """The variance of each coordinate; shape ``(*batch, d)``."""
        first = self._average(lambda s: self._integral.moment(s, 1))
        second = self._average(lambda s: self._integral.moment(s, 2))
        return self._full(self._width.square() * (second - first.square()))

    def entropy(self) -> Tensor:
        """−E log p(x); shape ``(*batch,)``."""
        return self._full(self._log_mass() + self._average(self._integral.distance_moment)).sum(dim=-1)

    def log_prob(self, value: Tensor) -> Tensor:
        """The log density inside the closed box, −inf outside, NaN for NaN: ``(..., d) -> (...)``."""
        density = self._log_density(value)
        return torch.where(self.support.check(value) | density.isnan(), density, -torch.inf)

    def cdf(self, value: Tensor) -> Tensor:
        """P(xᵢ ≤ valueᵢ), coordinate by coordinate: ``(..., d) -> (..., d)``."""
        self._check_value(value)
        low, high = self._integrals()
        here = self._integral(self._standard(self._inside(value)))
        return ((here - low) / (high - low)).clamp(0.0, 1.0)

    def icdf(self, value: Tensor) -> Tensor:
        """The quantiles of each coordinate, for probabilities in [0, 1]: ``(..., d) -> (..., d)``."""
        self._check_probability(value)
        value = value.to(self.dtype)
        # Where H(edge) is H(∞) to the last bit, its inverse stops short of the edge.
        x = torch.where(value <= 0, self.low, self._quantile(value))
        return torch.where(value >= 1, self.high, x)

    def _draw_fused(self, shape: Size, generator: torch.Generator | None) -> Tensor | None:
        from identica.distributions.triton_coordinates import draw_truncated

        batch, parameters = Size((*self.batch_shape, self.dim)), (self.loc, self.scale, self.low, self.high)
        return draw_truncated(shape, batch, self._integral.power, self.width_per_scale, parameters, generator)

    def _quantile(self, probability: Tensor) -> Tensor:
        low, high = self._integrals()
        if torch.is_grad_enabled() or low.shape != probability.shape:
            s = self._integral.inverse(torch.lerp(low, high, probability))
            return self._inside(torch.addcmul(self.loc, self._width, s))
        s = self._integral.inverse(low.lerp_(high, probability))
        x = s.mul_(self._width).add_(self.loc)
        return torch.minimum(torch.maximum(x, self.low, out=x), self.high, out=x)
