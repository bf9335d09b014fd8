"""What the families with density ∝ exp(−Σ(|x−loc|/width)^power) share, on R^d and on the box."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Size, Tensor

from identica.distributions.base import (
    LatentDistribution,
    Parameter,
    as_loc,
    as_parameter,
    require_finite,
    require_positive,
)
from identica.distributions.power_integral import PowerIntegral, distance_power, power_integral
from identica.similarities import Anisotropic, LpSimilarity, Similarity

#: Powers for which the integrals and their tables stay within float32.
POWERS = (0.1, 100.0)


class PowerFamily(LatentDistribution):
    """Independent coordinates, each with a density that is a function of s = (x − loc)/width.

    A subclass says how much mass exp(−|s|^power) has on its support, and inverts its distribution function.
    Draws are that inverse at uniform numbers: no rejection, every draw costs the same, and it is
    a differentiable function of the parameters. Uniform numbers have 24 bits in float32 and 53 in float64;
    of the tails beyond that share of the mass nothing is drawn.
    """

    has_rsample = True

    #: The width as a multiple of the scale.
    width_per_scale = 1.0

    def __init__(
        self,
        loc: Tensor,
        scale: Parameter,
        power: float,
        tables: PowerIntegral | None,
        validate_args: bool | None,
        **edges: Parameter,
    ) -> None:
        family = type(self).__name__
        self.loc = as_loc(loc, family)
        self.scale = as_parameter(scale, self.loc, "scale", family)
        for name, value in edges.items():
            setattr(self, name, as_parameter(value, self.loc, name, family))
        shape = _common_shape(self.loc, [self.scale, *(getattr(self, name) for name in edges)], family)
        self._integral = power_integral(power, self.loc.device, self.loc.dtype, tables)
        super().__init__(shape[:-1], shape[-1], validate_args)
        if self._validate:
            require_finite(self.loc, "loc", family)
            require_positive(self.scale, "scale", family)

    @property
    def _width(self) -> Tensor:
        return self.scale if self.width_per_scale == 1.0 else self.scale * self.width_per_scale

    def _standard(self, x: Tensor) -> Tensor:
        difference = x - self.loc
        # In place where no gradient forbids it and nothing broadcasts: memory traffic is half of a draw's time.
        if torch.is_grad_enabled() or self._width.ndim:
            return difference / self._width
        return difference.div_(self._width)

    def _full(self, value: Tensor) -> Tensor:
        return value.expand((*self.batch_shape, self.dim))

    @abstractmethod
    def _log_mass(self) -> Tensor:
        """The log of ∫ exp(−(|x−loc|/width)^power) dx over the support, for each coordinate."""

    @abstractmethod
    def _quantile(self, probability: Tensor) -> Tensor:
        """The inverse distribution function, coordinate by coordinate, for probabilities in (0, 1)."""

    @property
    def mode(self) -> Tensor:
        """The location."""
        return self._full(self.loc)

    def _log_density(self, value: Tensor) -> Tensor:
        self._check_value(value)
        exponent = distance_power(self._standard(value), self._integral.power)
        return -(exponent + self._log_mass()).sum(dim=-1)

    def _draw(self, shape: Size, generator: torch.Generator | None) -> Tensor:
        return self._quantile(self._uniform((*shape, *self.batch_shape, self.dim), generator))


def _common_shape(loc: Tensor, others: list[Tensor], family: str) -> Size:
    """What loc and the other parameters broadcast to; loc must already have the full number of coordinates."""
    try:
        shape = torch.broadcast_shapes(loc.shape, *(other.shape for other in others if other.ndim))
    except RuntimeError:
        shapes = ", ".join(str(tuple(value.shape)) for value in (loc, *others))
        raise ValueError(f"The parameters of {family} do not broadcast: their shapes are {shapes}.") from None
    if shape[-1] != loc.shape[-1]:
        raise ValueError(
            f"loc of {family} holds vectors of length {loc.shape[-1]}, but another parameter holds vectors of "
            f"length {shape[-1]}; give loc the shape (..., {shape[-1]})."
        )
    return shape


def as_power(power: Any, family: str, tables: PowerIntegral | None = None) -> float:
    """A power as a plain number, or a sentence why it cannot be one.

    Reading it from a tensor waits for the tensor's device, unless the tables for it are given.
    """
    if isinstance(power, Tensor):
        if power.numel() != 1 or power.requires_grad:
            raise ValueError(
                f"power of {family} is one fixed number for all coordinates, without a gradient, not a tensor "
                f"of shape {tuple(power.shape)} with requires_grad={power.requires_grad}. Pass a float; for "
                "different powers use a product of distributions."
            )
        power = power.item() if tables is None else tables.power
    power = float(power)
    if not POWERS[0] <= power <= POWERS[1]:
        raise ValueError(f"power of {family} must lie between {POWERS[0]:g} and {POWERS[1]:g}, not {power:g}.")
    return power


def matching_lp(power: float, width: Parameter, family: str) -> Similarity:
    """−Σ|a−b|^power / width^power; one width per coordinate has a match for power 2 only."""
    widths = torch.as_tensor(width, dtype=torch.float64).detach()
    if widths.numel() == 1:
        return LpSimilarity(power, widths.item() ** power)
    if power == 2.0 and widths.ndim == 1:
        return Anisotropic(len(widths), 2.0 / widths.square(), trainable=False)
    raise ValueError(
        f"{family} with a scale of shape {tuple(widths.shape)} has no similarity that matches it: one number "
        "fits LpSimilarity, and one per coordinate fits Anisotropic if the family is normal. Rescale the "
        "coordinates to a common scale, or choose a similarity yourself."
    )
