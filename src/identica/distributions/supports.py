"""Where the families live, as torch constraints over whole vectors (``event_dim == 1``)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import constraints

from identica.spaces import default_atol


class OnSphere(constraints.Constraint):
    """Vectors whose norm is the radius, up to rounding. ``radius`` is a number or ``(..., 1)``."""

    event_dim = 1
    is_discrete = False

    def __init__(self, radius: Tensor) -> None:
        self.radius = radius

    def check(self, value: Tensor) -> Tensor:
        """``(..., d) -> (...)`` bool."""
        norm = torch.linalg.vector_norm(value, dim=-1, keepdim=True)
        return ((norm - self.radius).abs() <= default_atol(value.dtype) * 10 * self.radius)[..., 0]

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
