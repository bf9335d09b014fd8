"""Where the families live, as torch constraints over whole vectors (``event_dim == 1``)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import constraints

from identica.spaces import default_atol


def row_norm(x: Tensor) -> Tensor:
    """The norm of each row: ``(..., d) -> (..., 1)``.

    Added up in float64: in float32 the squares of entries below 1e-19 or above 1e19 leave its range.
    """
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float64).to(x.dtype)


class OnSphere(constraints.Constraint):
    """Vectors whose norm is the radius, up to rounding. ``radius`` is a number or ``(..., 1)``."""

    event_dim = 1
    is_discrete = False

    def __init__(self, radius: Tensor) -> None:
        self.radius = radius

    def check(self, value: Tensor) -> Tensor:
        """``(..., d) -> (...)`` bool."""
        return ((row_norm(value) - self.radius).abs() <= default_atol(value.dtype) * 10 * self.radius)[..., 0]

    def require(self, value: Tensor, family: str) -> None:
        """Raise a sentence unless every row lies on the sphere (waits for the device)."""
        if not bool(self.check(value).all()):
            raise ValueError(
                f"{family} lives on a sphere, but some rows of the value are not on it (their norm is not the "
                "radius). Project them first, for example with Sphere(dim, radius).project(x)."
            )


class InBox(constraints.Constraint):
    """Vectors between ``low`` and ``high`` in every coordinate, edges included."""

    event_dim = 1
    is_discrete = False

    def __init__(self, low: Tensor, high: Tensor) -> None:
        self.low, self.high = low, high

    def check(self, value: Tensor) -> Tensor:
        """``(..., d) -> (...)`` bool."""
        return ((value >= self.low) & (value <= self.high)).all(dim=-1)
