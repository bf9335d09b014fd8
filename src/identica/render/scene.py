"""The scene that latents describe: where the object is, where the spotlight is, and what colours they have."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

#: Largest extent of the object; the scene is measured by it.
EXTENT = 4.442117
GROUND = -EXTENT

CAMERA = (8.0, 0.0, 8.0)
RIGHT = (0.0, 1.0, 0.0)
UP = (-math.sqrt(0.5), 0.0, math.sqrt(0.5))
FORWARD = (-math.sqrt(0.5), 0.0, -math.sqrt(0.5))
#: Focal length over the sensor's width: 35 mm / 50 mm.
FOCAL = 0.7

SUN_IRRADIANCE = 0.5
SUN_RADIUS = 0.1993 / 2  # as an angle
AREA_HEIGHT, AREA_RADIANCE = 7.0, 12.5  # a square of side 1
SPOT_INTENSITY = 3000.0 / (4.0 * math.pi)
SPOT_RADIUS = 0.5
SPOT_DISTANCE, SPOT_HEIGHT = 4.0, 6.0 + EXTENT

OBJECT_SATURATION, SPOT_SATURATION, GROUND_SATURATION = 1.0, 0.8, 0.6


@dataclass(frozen=True, eq=False)
class Placement:
    """What latents mean in the scene, for a batch of them.

    rotation: (B, 3, 3), from the object's axes to the world's. location, spot (where the spotlight is), axis (where
    it points): (B, 3). object_colour, spot_colour, ground_colour: (B, 3), linear RGB.
    """

    rotation: Tensor
    location: Tensor
    spot: Tensor
    axis: Tensor
    object_colour: Tensor
    spot_colour: Tensor
    ground_colour: Tensor


def place(latents: Tensor) -> Placement:
    """The scene of latents ``(B, 10)`` in [−1, 1]: position, three Euler angles, angle of the spotlight, three hues.

    Everything is computed on the latents' device, from them alone, so that it can be part of a captured graph.

    The object stands at 3·(x, y, z) + (0, 0, EXTENT / 2), turned by Rz(γ)·Ry(β)·Rx(α). The spotlight moves on a half
    circle and always points at the object. All angles are latents times π/2.
    """
    x, y, z = (3.0 * latents[:, k] for k in range(3))
    location = torch.stack([x, y, z + EXTENT / 2], dim=1)
    angles = latents[:, 3:] * (math.pi / 2)
    turn = angles[:, 3]
    height = torch.full_like(turn, SPOT_HEIGHT)
    spot = torch.stack([SPOT_DISTANCE * turn.sin(), SPOT_DISTANCE * turn.cos(), height], dim=1)
    axis = location - spot
    return Placement(
        rotation=rotation_matrix(angles[:, 0], angles[:, 1], angles[:, 2]),
        location=location,
        spot=spot,
        axis=axis / axis.norm(dim=1, keepdim=True),
        object_colour=hue_to_rgb(angles[:, 4], OBJECT_SATURATION),
        spot_colour=hue_to_rgb(angles[:, 5], SPOT_SATURATION),
        ground_colour=hue_to_rgb(angles[:, 6], GROUND_SATURATION),
    )


def rotation_matrix(alpha: Tensor, beta: Tensor, gamma: Tensor) -> Tensor:
    """Rz(γ)·Ry(β)·Rx(α): ``(B, 3, 3)``."""
    ca, sa, cb, sb, cg, sg = alpha.cos(), alpha.sin(), beta.cos(), beta.sin(), gamma.cos(), gamma.sin()
    rows = [
        [cg * cb, cg * sb * sa - sg * ca, cg * sb * ca + sg * sa],
        [sg * cb, sg * sb * sa + cg * ca, sg * sb * ca - cg * sa],
        [-sb, cb * sa, cb * ca],
    ]
    return torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)


def hue_to_rgb(angle: Tensor, saturation: float) -> Tensor:
    """HSV with H = angle / 2π, wrapped to [0, 1), and V = 1, as RGB: ``(B,)`` → ``(B, 3)``.

    >>> hue_to_rgb(torch.tensor([0.0, -2 * math.pi / 3]), 1.0)
    tensor([[1., 0., 0.],
            [0., 0., 1.]])
    """
    sixths = angle * (3.0 / math.pi)
    # Each channel is a trapezium around its own hue: red at 0, green at 2, blue at 4 sixths.
    away = torch.stack([torch.remainder(sixths - own + 3.0, 6.0) - 3.0 for own in (0.0, 2.0, 4.0)], dim=-1)
    return 1.0 - saturation * (1.0 - (2.0 - away.abs()).clamp(0.0, 1.0))


def turned(vectors: Tensor, rotation: Tensor) -> Tensor:
    """Directions of the world along the object's axes: ``(..., 3)`` by ``(..., 3, 3)``, v R.

    Without a matrix product, whose precision a training run may have lowered.
    """
    x, y, z = (vectors[..., k, None] * rotation[..., k, :] for k in range(3))
    return x + y + z
