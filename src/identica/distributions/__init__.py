"""Distributions on the spaces of :mod:`identica.spaces`: exact samplers, normalised densities."""

from identica.distributions.box_uniform import BoxUniform
from identica.distributions.sphere_uniform import SphereUniform

__all__ = ["BoxUniform", "SphereUniform"]
