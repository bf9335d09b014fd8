"""Laplace noise around loc, projected back onto the sphere."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.types import Device

from identica.distributions.base import Parameter
from identica.distributions.power_integral import PowerIntegral, power_integral
from identica.distributions.projected_generalized_normal import ProjectedGeneralizedNormal


class ProjectedLaplace(ProjectedGeneralizedNormal):
    """x = ‖loc‖ · y/‖y‖ with y of density ∝ exp(-Σ|y-loc|/scale), on the sphere of radius ‖loc‖ (A, Table 1).

    ``loc: (..., d)``, not zero; ``scale`` is a number or broadcasts to loc.

    >>> loc = torch.tensor([1.0, 0.0])
    >>> ProjectedLaplace(loc, scale=0.5).log_prob(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]))
    tensor([ 0.0333, -3.3863, -3.3863])
    """

    parameters = ("loc", "scale")
    settings = ()

    def __init__(
        self,
        loc: Tensor,
        scale: Parameter,
        *,
        validate_args: bool | None = None,
        tables: PowerIntegral | None = None,
    ) -> None:
        super().__init__(loc, scale, 1.0, validate_args=validate_args, tables=tables)

    @classmethod
    def prepare_tables(cls, device: Device, dtype: torch.dtype, **parameters: Parameter) -> PowerIntegral:
        """The quantile function of the Laplace distribution."""
        return power_integral(1.0, device, dtype)
