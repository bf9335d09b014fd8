"""The three lights, in PyTorch, one scene at a time: where they are seen from a point, and how bright.

Everything happens in the object's own space, where its shadows are looked up: lights and camera are turned into it.
A vector is three tensors, one for each coordinate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from identica.render import formulas, scene
from identica.render.formulas import dot
from identica.render.tracing import Vector

#: How far shadows of the sun are looked for, and a little more than the tangent of its angular radius.
SUN_REACH, SUN_SLOPE = 20.0, 0.1
#: Half the area light's diagonal.
SQUARE_RADIUS = 0.7072


class Light:
    """A light in the object's space.

    round: whether its samples' coordinates lie in the unit disk, or else in a square of side 1. few: how many samples
    are enough for a point that sees all of it; the spotlight needs more, because of the edge of its cone.
    """

    round: ClassVar[bool] = True
    few: ClassVar[int] = 1

    def middle(self, point: Vector) -> tuple[Vector, Tensor, Tensor]:
        """Direction to its middle, the distance, and the slope of a cone that holds all of it."""
        raise NotImplementedError

    def sample(self, point: Vector, a: Tensor, b: Tensor) -> tuple[Vector, Tensor, Tensor]:
        """Direction to the sample (a, b), its distance, and the irradiance on a surface that faces it."""
        raise NotImplementedError

    def reaches(self, point: Vector, normal: Vector) -> Tensor:
        """Whether any of its light can fall on a point, if nothing is in the way."""
        middle, _, slope = self.middle(point)
        return dot(normal, middle) > -slope


@dataclass(frozen=True, eq=False)
class Sun(Light):
    """The sun overhead; the world's axes x, y, z in the object's space."""

    across: Vector
    along: Vector
    up: Vector

    def middle(self, point: Vector) -> tuple[Vector, Tensor, Tensor]:
        """Straight up, as far as shadows reach."""
        like = point[0]
        up = (self.up[0].expand_as(like), self.up[1].expand_as(like), self.up[2].expand_as(like))
        return up, torch.full_like(like, SUN_REACH), torch.full_like(like, SUN_SLOPE)

    def sample(self, point: Vector, a: Tensor, b: Tensor) -> tuple[Vector, Tensor, Tensor]:
        """The same for all points."""
        direction = formulas.toward_sun(a, b, self.across, self.along, self.up)
        return direction, torch.full_like(a, SUN_REACH), torch.full_like(a, scene.SUN_IRRADIANCE)


@dataclass(frozen=True, eq=False)
class Square(Light):
    """The area light overhead, which shines down."""

    round = False
    few = 4

    centre: Vector
    across: Vector
    along: Vector
    up: Vector

    def middle(self, point: Vector) -> tuple[Vector, Tensor, Tensor]:
        """Its centre; a ball of half its diagonal holds it."""
        return _to_ball(self.centre, SQUARE_RADIUS, point)

    def sample(self, point: Vector, a: Tensor, b: Tensor) -> tuple[Vector, Tensor, Tensor]:
        """A point of the square."""
        to = formulas.toward_square(point, a, b, self.centre, self.across, self.along)
        squared = dot(to, to)
        inverse = squared.rsqrt()
        weight = formulas.square_irradiance(dot(to, self.up), squared, 1.0 / len(a))
        return _scaled(to, inverse), 1.0 / inverse, weight


@dataclass(frozen=True, eq=False)
class Disk(Light):
    """The spotlight: a disk that faces whatever it shines on, and a cone around its axis."""

    few = 16

    centre: Vector
    axis: Vector

    def middle(self, point: Vector) -> tuple[Vector, Tensor, Tensor]:
        """Its centre; a ball of its radius holds it."""
        return _to_ball(self.centre, scene.SPOT_RADIUS, point)

    def sample(self, point: Vector, a: Tensor, b: Tensor) -> tuple[Vector, Tensor, Tensor]:
        """A point of the disk."""
        middle, distance, _ = self.middle(point)
        to = formulas.toward_disk(middle, distance, a, b)
        inverse = dot(to, to).rsqrt()
        return _scaled(to, inverse), 1.0 / inverse, formulas.disk_irradiance(-dot(to, self.axis), distance, inverse)

    def reaches(self, point: Vector, normal: Vector) -> Tensor:
        """Only within 17.5°, and the disk's own radius, of the axis."""
        middle, _, slope = self.middle(point)
        cosine = -dot(middle, self.axis)
        sine = (1.0 - cosine.square()).clamp(min=0).sqrt()
        return (dot(normal, middle) > -slope) & (cosine + sine * slope > formulas.SPOT_COSINE)


def _to_ball(centre: Vector, radius: float, point: Vector) -> tuple[Vector, Tensor, Tensor]:
    to = centre[0] - point[0], centre[1] - point[1], centre[2] - point[2]
    squared = dot(to, to)
    inverse = squared.rsqrt()
    slope = radius * (squared - radius**2).clamp(min=1e-4).rsqrt()
    return _scaled(to, inverse), squared * inverse, slope


def _scaled(vector: Vector, factor: Tensor) -> Vector:
    return vector[0] * factor, vector[1] * factor, vector[2] * factor
