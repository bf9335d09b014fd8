"""What the projected families share: add noise in R^d, then go back to the sphere."""

from __future__ import annotations

import torch
from torch import Size, Tensor

from identica.distributions.base import (
    LatentDistribution,
    Parameter,
    as_loc,
    as_parameter,
    batch_shape_of,
    require,
    require_finite,
    require_positive,
)
from identica.distributions.supports import OnSphere, row_norm
from identica.spaces import Sphere


class Projected(LatentDistribution):
    """x = ‖loc‖ · y/‖y‖ with y = loc + scale · noise, coordinate by coordinate (A, Table 1).

    A family states its noise in ``_noise`` and the density of the direction in ``_log_density``.
    """

    has_rsample = True

    def __init__(self, loc: Tensor, scale: Parameter, validate_args: bool | None) -> None:
        family = type(self).__name__
        self.loc = as_loc(loc, family)
        if self.loc.shape[-1] < 2:
            raise ValueError(f"{family} lives on a sphere in R^d with d of at least 2, but loc has d = 1.")
        self.scale = as_parameter(scale, self.loc, "scale", family)
        super().__init__(batch_shape_of(self.loc, self.scale), self.loc.shape[-1], validate_args)
        if self._validate:
            require_finite(self.loc, "loc", family)
            require(self.radius > 0, f"loc of {family} must not be zero: its norm is the radius of the sphere.")
            require_positive(self.scale, "scale", family)

    @property
    def radius(self) -> Tensor:
        """The radius of the sphere, ‖loc‖: ``(..., 1)``."""
        return row_norm(self.loc)

    @property
    def support(self) -> OnSphere:
        """The sphere of radius ‖loc‖."""
        return OnSphere(self.radius)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density with respect to the surface measure of the sphere: ``(..., d) -> (...)``.

        It depends on the direction of the value only, so its gradient is tangent to the sphere. It is
        computed in float64, and returned in the precision of value and parameters.
        """
        self._check_value(value)
        if self._validate:
            self.support.require(value, type(self).__name__)
        direction = Sphere(self.dim).project(value.double())
        radius = self.radius.double()
        # On the unit sphere first: rescaling x by the radius divides its density by radius^(d-1).
        loc, scale = torch.broadcast_tensors(self.loc / radius, self.scale / radius)
        density = self._log_density(direction, loc, scale)
        return (density - (self.dim - 1) * radius.log()[..., 0]).to(torch.promote_types(value.dtype, self.dtype))

    def _log_density(self, direction: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
        """The log density on the unit sphere: all float64 and ``(..., d)``, loc and direction of norm one."""
        raise NotImplementedError

    def _noise(self, shape: Size, generator: torch.Generator | None) -> Tensor:
        """Independent noise of scale 1."""
        raise NotImplementedError

    def _draw(self, shape: Size, generator: torch.Generator | None) -> Tensor:
        noise = self._noise(Size((*shape, *self.batch_shape, self.dim)), generator)
        return Sphere(self.dim).project(torch.addcmul(self.loc, self.scale, noise)) * self.radius
