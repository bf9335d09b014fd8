"""The normal distribution on a box."""

from __future__ import annotations

import math

from torch import Tensor

from identica.distributions.base import Parameter
from identica.distributions.power_family import matching_lp
from identica.distributions.power_integral import PowerIntegral
from identica.distributions.truncated_base import TruncatedFamily
from identica.similarities import Similarity


class TruncatedNormal(TruncatedFamily):
    """Density ∝ exp(−½ Σ((x−loc)/scale)²) on the box between ``low`` and ``high``.

    ``loc: (..., d)`` in the closed box; the other parameters are numbers or broadcast to loc. The scale is
    the standard deviation before truncation.

    >>> import torch
    >>> normal = TruncatedNormal(torch.tensor([0.0, 0.5]), scale=0.1)
    >>> normal.cdf(torch.tensor([0.1, 0.6]))
    tensor([0.6827, 0.8413])
    """

    parameters = ("loc", "scale", "low", "high")
    width_per_scale = math.sqrt(2.0)

    def __init__(
        self,
        loc: Tensor,
        scale: Parameter,
        low: Parameter = 0.0,
        high: Parameter = 1.0,
        *,
        validate_args: bool | None = None,
        tables: PowerIntegral | None = None,
    ) -> None:
        super().__init__(loc, scale, 2.0, low, high, validate_args=validate_args, tables=tables)

    @classmethod
    def matching_similarity(cls, **parameters: Parameter) -> Similarity:
        """``LpSimilarity(2, 2 scale²)``; one scale per coordinate: ``Anisotropic`` with precision 1/scale²."""
        return matching_lp(2.0, parameters["scale"] * cls.width_per_scale, cls.__name__)
