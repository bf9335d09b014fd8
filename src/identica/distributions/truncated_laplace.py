"""The Laplace distribution on a box."""

from __future__ import annotations

from torch import Tensor

from identica.distributions.base import Parameter
from identica.distributions.power_family import matching_lp
from identica.distributions.power_integral import PowerIntegral
from identica.distributions.truncated_base import TruncatedFamily
from identica.similarities import Similarity


class TruncatedLaplace(TruncatedFamily):
    """Density ∝ exp(−Σ|x−loc|/scale) on the box between ``low`` and ``high``.

    ``loc: (..., d)`` in the closed box; the other parameters are numbers or broadcast to loc.

    >>> import torch
    >>> laplace = TruncatedLaplace(torch.tensor([0.0, 0.5]), scale=0.05)
    >>> laplace.cdf(torch.tensor([0.05, 0.5]))
    tensor([0.6321, 0.5000])
    """

    parameters = ("loc", "scale", "low", "high")

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
        super().__init__(loc, scale, 1.0, low, high, validate_args=validate_args, tables=tables)

    @classmethod
    def matching_similarity(cls, **parameters: Parameter) -> Similarity:
        """``LpSimilarity(1, scale)``, for one scale for all coordinates."""
        return matching_lp(1.0, parameters["scale"], cls.__name__)
