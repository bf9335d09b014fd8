"""The uniform distribution on a box."""

from __future__ import annotations

import torch
from torch import Size, Tensor
from torch.distributions import constraints

from identica.distributions.base import LatentDistribution, Parameter, as_numbers, require
from identica.distributions.supports import InBox
from identica.spaces import Box


class BoxUniform(LatentDistribution):
    """Uniform on the box between ``low`` and ``high`` in R^dim; each a number or broadcastable to (..., dim).

    >>> BoxUniform(2, low=-1.0).log_prob(torch.zeros(2))
    tensor(-1.3863)
    """

    parameters = ("dim", "low", "high")
    settings = ("dim",)
    arg_constraints = {"low": constraints.real, "high": constraints.real}
    has_rsample = True

    def __init__(
        self, dim: int, low: Parameter = 0.0, high: Parameter = 1.0, *, validate_args: bool | None = None
    ) -> None:
        Box(dim)  # checks dim
        tensors = [v for v in (low, high) if isinstance(v, Tensor) and v.dtype.is_floating_point]
        like = as_numbers(tensors[0], "low and high", "BoxUniform") if tensors else torch.empty(0)
        self.low = as_numbers(low, "low", "BoxUniform", like)
        self.high = as_numbers(high, "high", "BoxUniform", like)
        try:
            shape = torch.broadcast_shapes(self.low.shape, self.high.shape, (dim,))
        except RuntimeError:
            shape = torch.Size()
        if not shape or shape[-1] != dim:
            raise ValueError(
                f"low {tuple(self.low.shape)} and high {tuple(self.high.shape)} must be numbers or broadcast "
                f"to (..., {dim})."
            )
        super().__init__(shape[:-1], dim, validate_args)
        if self._validate:
            require(
                torch.isfinite(self.high - self.low) & (self.low < self.high),
                "BoxUniform needs finite edges with low < high in every dimension.",
            )

    @property
    def support(self) -> constraints.Constraint:
        """The closed box."""
        return InBox(self.low, self.high)

    def _full(self, value: Tensor) -> Tensor:
        return value.expand((*self.batch_shape, self.dim))

    @property
    def mean(self) -> Tensor:
        """The centre of the box."""
        return self._full(0.5 * (self.low + self.high))

    @property
    def variance(self) -> Tensor:
        """(high − low)² / 12 for each coordinate."""
        return self._full((self.high - self.low) ** 2 / 12)

    def entropy(self) -> Tensor:
        """Log volume of the box."""
        return self._full((self.high - self.low).log()).sum(dim=-1)

    def log_prob(self, value: Tensor) -> Tensor:
        """Minus the log volume inside the closed box, −inf outside, NaN for NaN: ``(..., d) -> (...)``."""
        self._check_value(value)
        inside = self.support.check(value)
        density = torch.where(inside, -self.entropy(), -torch.inf)
        return torch.where(value.isnan().any(dim=-1), torch.nan, density)

    def cdf(self, value: Tensor) -> Tensor:
        """P(xᵢ ≤ valueᵢ), coordinate by coordinate: ``(..., d) -> (..., d)``."""
        self._check_value(value)
        return ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)

    def icdf(self, value: Tensor) -> Tensor:
        """The quantiles of each coordinate, for probabilities in [0, 1]: ``(..., d) -> (..., d)``."""
        self._check_probability(value)
        return self._quantile(value.to(self.dtype))

    def _draw(self, shape: Size, generator: torch.Generator | None) -> Tensor:
        return self._quantile(self._uniform((*shape, *self.batch_shape, self.dim), generator))

    def _draw_fused(self, shape: Size, generator: torch.Generator | None) -> Tensor | None:
        from identica.distributions.triton_coordinates import draw_box_uniform

        return draw_box_uniform(shape, Size((*self.batch_shape, self.dim)), self.low, self.high, generator)

    def _quantile(self, u: Tensor) -> Tensor:
        return torch.minimum(torch.lerp(*torch.broadcast_tensors(self.low, self.high, u)), self.high)
