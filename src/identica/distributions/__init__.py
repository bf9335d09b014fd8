"""Distributions on the spaces of :mod:`identica.spaces`: exact samplers, normalised densities."""

from identica.distributions.base import LatentDistribution
from identica.distributions.box_uniform import BoxUniform
from identica.distributions.conditional import Conditional
from identica.distributions.fisher_bingham import FisherBingham
from identica.distributions.fisher_bingham_ratio import ratio_precision
from identica.distributions.generalized_normal import GeneralizedNormal
from identica.distributions.product import ProductDistribution
from identica.distributions.projected_generalized_normal import ProjectedGeneralizedNormal
from identica.distributions.projected_laplace import ProjectedLaplace
from identica.distributions.projected_normal import ProjectedNormal
from identica.distributions.sphere_uniform import SphereUniform
from identica.distributions.truncated_generalized_normal import TruncatedGeneralizedNormal
from identica.distributions.truncated_laplace import TruncatedLaplace
from identica.distributions.truncated_normal import TruncatedNormal
from identica.distributions.von_mises_fisher import VonMisesFisher

__all__ = [
    "BoxUniform",
    "Conditional",
    "FisherBingham",
    "GeneralizedNormal",
    "LatentDistribution",
    "ProductDistribution",
    "ProjectedGeneralizedNormal",
    "ProjectedLaplace",
    "ProjectedNormal",
    "SphereUniform",
    "TruncatedGeneralizedNormal",
    "TruncatedLaplace",
    "TruncatedNormal",
    "VonMisesFisher",
    "ratio_precision",
]
