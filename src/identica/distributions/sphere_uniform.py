"""The uniform distribution on a sphere."""

from __future__ import annotations

import torch
from torch import Size, Tensor
from torch.distributions import constraints

from identica.distributions.base import LatentDistribution, Parameter, as_numbers, require_positive
from identica.distributions.fused import MOST_FUSED_DIMENSIONS
from identica.distributions.supports import OnSphere
from identica.spaces import Sphere


class SphereUniform(LatentDistribution):
    """Uniform on the sphere of the given radius in R^dim (A, Eq. 2: the marginal p(z) = 1/|Z|).

    A normal vector divided by its norm is exactly uniform, in any dimension.

    >>> x = SphereUniform(3, radius=2.0).sample(1000, generator=torch.Generator().manual_seed(0))
    >>> x.shape, bool(Sphere(3, radius=2.0).contains(x).all())
    (torch.Size([1000, 3]), True)
    """

    parameters = ("dim", "radius")
    settings = ("dim",)
    arg_constraints = {"radius": constraints.positive}
    has_rsample = False

    def __init__(self, dim: int, radius: Parameter = 1.0, *, validate_args: bool | None = None) -> None:
        Sphere(dim)  # checks dim
        self.radius = as_numbers(radius, "radius", "SphereUniform")
        if self.radius.ndim and self.radius.shape[-1] != 1:
            raise ValueError(
                f"radius of SphereUniform is one number per row: a number or shape (..., 1), not "
                f"{tuple(self.radius.shape)}."
            )
        super().__init__(self.radius.shape[:-1], dim, validate_args)
        if self._validate:
            require_positive(self.radius, "radius", "SphereUniform")

    @property
    def support(self) -> constraints.Constraint:
        """The sphere of this radius."""
        return OnSphere(self.radius)

    @property
    def mean(self) -> Tensor:
        """The origin, by symmetry; shape ``(*batch, d)``."""
        return self.radius.new_zeros((*self.batch_shape, self.dim))

    @property
    def variance(self) -> Tensor:
        """radius² / d for each coordinate."""
        return (self.radius**2 / self.dim).expand((*self.batch_shape, self.dim))

    def entropy(self) -> Tensor:
        """Log of the surface area; shape ``(*batch,)``."""
        radius = self.radius[..., 0] if self.radius.ndim else self.radius
        return Sphere(self.dim).log_volume() + (self.dim - 1) * radius.log()

    def log_prob(self, value: Tensor) -> Tensor:
        """Minus the log surface area, for every point of the sphere: ``(..., d) -> (...)``."""
        self._check_value(value)
        if self._validate:
            OnSphere(self.radius).require(value, "SphereUniform")
        return (-self.entropy()).expand(torch.broadcast_shapes(value.shape[:-1], self.batch_shape))

    def _why_no_rsample(self) -> str:
        return "nothing but its radius could carry a gradient. Multiply draws of SphereUniform(dim) by your radius."

    def _draw(self, shape: Size, generator: torch.Generator | None) -> Tensor:
        direction = self._normal((*shape, *self.batch_shape, self.dim), generator)
        return Sphere(self.dim).project(direction) * self.radius

    def _draw_fused(self, shape: Size, generator: torch.Generator | None) -> Tensor | None:
        if self.dim > MOST_FUSED_DIMENSIONS:
            return None
        from identica.distributions.triton_sphere import draw_sphere_uniform

        return draw_sphere_uniform(shape, self.batch_shape, self.dim, self.radius, generator)
