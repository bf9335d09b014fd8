"""The generalised normal distribution on a box."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.types import Device

from identica.distributions.base import Parameter
from identica.distributions.power_family import as_power, matching_lp
from identica.distributions.power_integral import PowerIntegral, power_integral
from identica.distributions.truncated_base import TruncatedFamily
from identica.similarities import Similarity


class TruncatedGeneralizedNormal(TruncatedFamily):
    """Density ∝ exp(−Σ(|x−loc|/scale)^power) on the box between ``low`` and ``high``.

    ``loc: (..., d)`` in the closed box; ``power`` is one number for all coordinates (1: Laplace, 2: normal
    with standard deviation scale/√2); the other parameters are numbers or broadcast to loc.

    >>> loc = torch.tensor([0.0, 0.5])
    >>> TruncatedGeneralizedNormal(loc, scale=0.05, power=3.0).mean
    tensor([0.0253, 0.5000])
    """

    parameters = ("loc", "scale", "power", "low", "high")
    settings = ("power",)

    def __init__(
        self,
        loc: Tensor,
        scale: Parameter,
        power: Parameter,
        low: Parameter = 0.0,
        high: Parameter = 1.0,
        *,
        validate_args: bool | None = None,
        tables: PowerIntegral | None = None,
    ) -> None:
        self.power = as_power(power, type(self).__name__, tables)
        super().__init__(loc, scale, self.power, low, high, validate_args=validate_args, tables=tables)

    @classmethod
    def prepare_tables(cls, device: Device, dtype: torch.dtype, **parameters: Parameter) -> PowerIntegral:
        """The integral of exp(−|s|^power) and its inverse; kept for each power, device and precision."""
        return power_integral(as_power(parameters["power"], cls.__name__), device, dtype)

    @classmethod
    def matching_similarity(cls, **parameters: Parameter) -> Similarity:
        """``LpSimilarity(power, scale**power)``; one scale per coordinate: ``Anisotropic`` if power is 2."""
        power = as_power(parameters["power"], cls.__name__)
        return matching_lp(power, parameters["scale"], cls.__name__)
