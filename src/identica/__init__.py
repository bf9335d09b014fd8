"""identica: representations that are provably the data's own factors."""

from identica._version import __version__
from identica.distributions import BoxUniform, SphereUniform
from identica.spaces import Box, Euclidean, Product, Space, Sphere

__all__ = ["Box", "BoxUniform", "Euclidean", "Product", "Space", "Sphere", "SphereUniform", "__version__"]
