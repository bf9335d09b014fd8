"""Where latents and codes live: the sphere, the box, Euclidean space, and products of them.

``dim`` is always the dimension of the ambient space, the length of the vectors one handles:
``Sphere(10)`` is the nine-dimensional sphere in ten-dimensional space.

>>> Sphere(3, radius=2.0).project(torch.tensor([0.0, 0.0, 5.0]))
tensor([0., 0., 2.])
>>> bool(Box(2).contains(torch.tensor([0.5, 1.5])))
False
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from identica._numbers import as_float, whole_number

#: Points of a space: a tensor, or a numpy array or (nested) list of numbers, which becomes one.
Points = Tensor | np.ndarray[Any, Any] | Sequence[Any]


class Space(ABC):
    """A subset of R^dim that one can test membership of, project onto and measure.

    Points are tensors, numpy arrays or lists; whole numbers are first turned into torch's default dtype.
    """

    dim: int

    @abstractmethod
    def contains(self, x: Points, atol: float | None = None) -> Tensor:
        """Whether each row of ``x: (..., dim)`` lies in the space, up to ``atol``; returns ``(...)`` bool.

        The default tolerance is 1e-5 in float32, 1e-9 in float64 and 1e-2 in half precision, relative
        to the size of the space.
        """

    @abstractmethod
    def project(self, x: Points) -> Tensor:
        """The nearest point of the space, row by row: ``(..., dim) -> (..., dim)``."""

    @abstractmethod
    def log_volume(self) -> float:
        """Log of the surface area (sphere) or volume (box); infinite for Euclidean space."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain data that :func:`space_from_dict` turns back into the space."""

    def _rows(self, x: Points) -> Tensor:
        """``x`` as a floating-point tensor of shape ``(..., dim)``."""
        if not isinstance(x, Tensor):
            try:
                x = torch.tensor(x)
            except (TypeError, ValueError, RuntimeError):
                raise TypeError(
                    f"{self} holds vectors of numbers, which this {type(x).__name__} is not; pass a tensor of "
                    f"shape (..., {self.dim}), or an array or list of numbers."
                ) from None
        if x.ndim == 0 or x.shape[-1] != self.dim:
            raise ValueError(
                f"{self} holds vectors of length {self.dim}, but the last axis of the input of shape "
                f"{tuple(x.shape)} is not {self.dim}; pass a tensor of shape (..., {self.dim})."
            )
        return x if x.is_floating_point() else x.to(torch.get_default_dtype())


def default_atol(dtype: torch.dtype) -> float:
    """Tolerance for membership: what a normalisation in that precision leaves, with room to spare."""
    return {torch.float64: 1e-9, torch.float32: 1e-5}.get(dtype, 1e-2)


@dataclass(frozen=True)
class Sphere(Space):
    """The sphere of the given radius around the origin of R^dim."""

    dim: int
    radius: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", whole_number(self.dim, "dim", least=2))
        radius = as_float(self.radius)
        if not (math.isfinite(radius) and radius > 0):
            raise ValueError(f"The radius of a sphere must be positive and finite, not {self.radius!r}.")
        object.__setattr__(self, "radius", radius)

    def contains(self, x: Points, atol: float | None = None) -> Tensor:
        """Whether the norm of each row is the radius, up to ``atol`` (default: relative to the radius)."""
        x = self._rows(x)
        if atol is None:
            atol = default_atol(x.dtype) * self.radius
        return (torch.linalg.vector_norm(x, dim=-1) - self.radius).abs() <= atol

    def project(self, x: Points) -> Tensor:
        """Rescale each row to the radius. The zero vector, equally far from all points, goes to +e_1.

        A row with an infinite or NaN entry has no direction and becomes NaN.
        """
        x = self._rows(x)
        # Dividing by the largest entry first keeps tiny and huge rows from under- and overflowing.
        largest = x.abs().amax(dim=-1, keepdim=True)
        is_zero = largest == 0
        scaled = x / torch.where(is_zero, torch.ones_like(largest), largest).detach()
        norm = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
        unit = scaled / torch.where(is_zero, torch.ones_like(norm), norm)
        first = torch.zeros_like(x)
        first[..., 0] = 1.0
        return self.radius * torch.where(is_zero, first, unit)

    def log_volume(self) -> float:
        """log(2 π^(d/2) r^(d-1) / Γ(d/2)), the surface area."""
        d = self.dim
        return math.log(2.0) + 0.5 * d * math.log(math.pi) + (d - 1) * math.log(self.radius) - math.lgamma(0.5 * d)

    def to_dict(self) -> dict[str, Any]:
        """``{"space": "sphere", "dim": ..., "radius": ...}``."""
        return {"space": "sphere", "dim": self.dim, "radius": self.radius}


@dataclass(frozen=True)
class Box(Space):
    """The closed box between ``low`` and ``high``; each a number or one number per dimension."""

    dim: int
    low: float | tuple[float, ...] = 0.0
    high: float | tuple[float, ...] = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", whole_number(self.dim, "dim"))
        given = {"low": self.low, "high": self.high}
        for name, value in given.items():
            if isinstance(value, Tensor | np.ndarray):
                value = value.tolist()
            if isinstance(value, Sequence) and not isinstance(value, str):
                value = tuple(as_float(v) for v in value)
                if len(value) != self.dim:
                    raise ValueError(
                        f"{name} has {len(value)} entries, but the box has {self.dim} dimensions; "
                        f"give one number, or {self.dim}."
                    )
            else:
                value = as_float(value)
            object.__setattr__(self, name, value)
        if not all(-math.inf < a < b < math.inf for a, b in zip(*self._edges(), strict=True)):
            raise ValueError(
                f"A box needs finite edges with low < high in every dimension, not low={given['low']!r}, "
                f"high={given['high']!r}."
            )

    def _edges(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        low = self.low if isinstance(self.low, tuple) else (self.low,) * self.dim
        high = self.high if isinstance(self.high, tuple) else (self.high,) * self.dim
        return low, high

    def edges(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """``low`` and ``high`` as tensors of shape ``(dim,)``, on the device and in the dtype of ``like``."""
        low, high = self._edges()
        dtype = like.dtype if like.is_floating_point() else torch.get_default_dtype()
        return like.new_tensor(low, dtype=dtype), like.new_tensor(high, dtype=dtype)

    def contains(self, x: Points, atol: float | None = None) -> Tensor:
        """Whether every coordinate of each row lies between the edges, up to ``atol``."""
        x = self._rows(x)
        low, high = self.edges(x)
        slack = (high - low) * default_atol(x.dtype) if atol is None else atol
        return ((x >= low - slack) & (x <= high + slack)).all(dim=-1)

    def project(self, x: Points) -> Tensor:
        """Clamp each coordinate to the edges."""
        x = self._rows(x)
        if isinstance(self.low, float) and isinstance(self.high, float):
            return x.clamp(self.low, self.high)
        low, high = self.edges(x)
        return torch.minimum(torch.maximum(x, low), high)

    def log_volume(self) -> float:
        """Sum of the logs of the side lengths."""
        return math.fsum(math.log(b - a) for a, b in zip(*self._edges(), strict=True))

    def to_dict(self) -> dict[str, Any]:
        """``{"space": "box", "dim": ..., "low": ..., "high": ...}``."""
        return {"space": "box", "dim": self.dim, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Euclidean(Space):
    """All of R^dim."""

    dim: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", whole_number(self.dim, "dim"))

    def contains(self, x: Points, atol: float | None = None) -> Tensor:
        """Whether each row is finite."""
        x = self._rows(x)
        return torch.isfinite(x).all(dim=-1)

    def project(self, x: Points) -> Tensor:
        """The input itself: every point is in the space."""
        x = self._rows(x)
        return x

    def log_volume(self) -> float:
        """Infinity."""
        return math.inf

    def to_dict(self) -> dict[str, Any]:
        """``{"space": "euclidean", "dim": ...}``."""
        return {"space": "euclidean", "dim": self.dim}


@dataclass(frozen=True, init=False)
class Product(Space):
    """Several spaces side by side: a vector is the concatenation of a point of each."""

    spaces: tuple[Space, ...]

    def __init__(self, *spaces: Space) -> None:
        if not spaces or not all(isinstance(space, Space) for space in spaces):
            raise ValueError("Product needs at least one space, as in Product(Sphere(3), Box(2)).")
        object.__setattr__(self, "spaces", tuple(spaces))

    @property
    def dim(self) -> int:  # type: ignore[override]
        """The sum of the parts' dimensions."""
        return sum(self.dims)

    @property
    def dims(self) -> tuple[int, ...]:
        """The dimension of each part."""
        return tuple(space.dim for space in self.spaces)

    def split(self, x: Points) -> tuple[Tensor, ...]:
        """The coordinates of ``x: (..., dim)`` that belong to each part."""
        x = self._rows(x)
        return torch.split(x, list(self.dims), dim=-1)

    def contains(self, x: Points, atol: float | None = None) -> Tensor:
        """Whether every part lies in its space."""
        inside = [s.contains(part, atol) for s, part in zip(self.spaces, self.split(x), strict=True)]
        return torch.stack(inside).all(dim=0)

    def project(self, x: Points) -> Tensor:
        """Each part projected onto its space."""
        return torch.cat([s.project(part) for s, part in zip(self.spaces, self.split(x), strict=True)], dim=-1)

    def log_volume(self) -> float:
        """Sum of the parts' log volumes."""
        return sum(space.log_volume() for space in self.spaces)

    def to_dict(self) -> dict[str, Any]:
        """``{"space": "product", "spaces": [...]}``."""
        return {"space": "product", "spaces": [space.to_dict() for space in self.spaces]}

    def __repr__(self) -> str:
        return f"Product({', '.join(map(repr, self.spaces))})"


def space_from_dict(data: dict[str, Any]) -> Space:
    """The inverse of ``to_dict``."""
    kind = data.get("space")
    if kind == "sphere":
        return Sphere(data["dim"], data["radius"])
    if kind == "box":
        return Box(data["dim"], data["low"], data["high"])
    if kind == "euclidean":
        return Euclidean(data["dim"])
    if kind == "product":
        return Product(*(space_from_dict(part) for part in data["spaces"]))
    raise ValueError(f"Unknown space {kind!r}: expected sphere, box, euclidean or product.")
