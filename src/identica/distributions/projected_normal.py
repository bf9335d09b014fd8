"""A normal vector around loc, projected back onto the sphere."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Size, Tensor
from torch.distributions import constraints

from identica.distributions.base import Parameter
from identica.distributions.projected import Projected
from identica.distributions.radial import log_radial_integral


class ProjectedNormal(Projected):
    """x = ‖loc‖ · y/‖y‖ with y ~ N(loc, diag(scale²)), on the sphere of radius ‖loc‖ (A, Table 1).

    ``loc: (..., d)``, not zero; ``scale``, the standard deviation, is a number or broadcasts to loc.

    >>> loc = torch.tensor([2.0, 0.0, 0.0])
    >>> x = ProjectedNormal(loc, scale=0.1).sample(1000, generator=torch.Generator().manual_seed(0))
    >>> torch.allclose(x.norm(dim=-1), torch.tensor(2.0)), bool((x[:, 0] > 1.5).all())
    (True, True)
    """

    parameters = ("loc", "scale")
    arg_constraints = {"loc": constraints.real_vector, "scale": constraints.positive}

    def __init__(self, loc: Tensor, scale: Parameter, *, validate_args: bool | None = None, tables: Any = None) -> None:
        super().__init__(loc, scale, validate_args)

    @property
    def mode(self) -> Tensor:
        """loc, if one scale serves all coordinates; otherwise the density peaks elsewhere."""
        if self.scale.ndim and self.scale.shape[-1] != 1:
            raise NotImplementedError(
                "ProjectedNormal with one scale per coordinate has no closed form for its mode, which in "
                "general is not loc. With one scale for all (a number, or shape (..., 1)) the mode is loc."
            )
        return self.loc.expand((*self.batch_shape, self.dim))

    def _log_density(self, direction: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
        return log_normal_direction(direction, loc, scale)

    def _noise(self, shape: Size, generator: torch.Generator | None) -> Tensor:
        return self._normal(shape, generator)


def log_normal_direction(direction: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    """The log of ∫ r^(d-1) N(r u; loc, diag(scale²)) dr for directions u, all ``(..., d)``; returns ``(...)``.

    The exponent of the integrand is -½ a r² + b r - ½ c.
    """
    u, m = direction / scale, loc / scale
    a, b, c = (u * u).sum(dim=-1), (u * m).sum(dim=-1), (m * m).sum(dim=-1)
    log_mass = scale.log().sum(dim=-1) + 0.5 * loc.shape[-1] * math.log(2.0 * math.pi)
    return log_radial_integral(a, b, loc.shape[-1]) - 0.5 * c - log_mass
