"""Which triangle each sample of the picture shows, by a depth buffer, in PyTorch, one scene at a time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from identica.render import scene

#: Samples in this many pixels around the picture are drawn too: the pixels' filter reaches there.
MARGIN = 2
#: Bits of a key that hold the triangle; the others hold the depth.
TRIANGLE_BITS = 13
DEPTH_LEVELS = 1 << (31 - TRIANGLE_BITS)
EMPTY = 0x7FFFFFFF


@dataclass(frozen=True, eq=False)
class Hits:
    """The samples that show the object.

    sample: (P,), number in the square of samples, row by row. triangle: (P,). weights: three tensors (P,), the
    barycentric coordinates on the triangle.
    """

    sample: Tensor
    triangle: Tensor
    weights: tuple[Tensor, Tensor, Tensor]


def project(vertices: Tensor, rotation: Tensor, location: Tensor, resolution: int, supersampling: int) -> Tensor:
    """Vertices on the screen: column and row in samples, and the inverse of the depth: ``(3, V)``."""
    rows = projection(rotation.unsqueeze(0), location.unsqueeze(0), resolution, supersampling)[0]
    x, y, z = vertices.unbind(1)
    column, row, depth = (a * x + b * y + c * z + d for a, b, c, d in rows)
    inverse = 1.0 / depth.clamp(min=0.1)
    return torch.stack([column * inverse, row * inverse, inverse])


def projection(rotation: Tensor, location: Tensor, resolution: int, supersampling: int) -> Tensor:
    """Column times depth, row times depth, and depth, of points of the object: ``(B, 3, 4)``, for x, y, z and 1."""
    middle = (resolution / 2 + MARGIN) * supersampling - 0.5
    scale = scene.FOCAL * resolution * supersampling
    rows = []
    for factor, axis, share in ((scale, scene.RIGHT, middle), (-scale, scene.UP, middle), (0.0, scene.UP, 1.0)):
        a, b, c = (factor * u + share * w for u, w in zip(axis, scene.FORWARD, strict=True))
        shift = [location[:, k] - scene.CAMERA[k] for k in range(3)]
        turned = a * rotation[:, 0] + b * rotation[:, 1] + c * rotation[:, 2]
        rows.append(torch.cat([turned, (a * shift[0] + b * shift[1] + c * shift[2]).unsqueeze(1)], dim=1))
    return torch.stack(rows, dim=1)


def rasterise(screen: Tensor, triangles: Tensor, side: int) -> Hits:
    """The nearest triangle at every sample of a ``side × side`` square.

    Every triangle is tested at the samples of its box on the screen. Depth and number go into one key, so that the
    least key at a sample is the answer.
    """
    corners = screen[:, triangles]  # (3, T, 3): column, row, inverse depth of each corner
    low = corners[:2].amin(dim=2).ceil().clamp(min=0).int()
    high = corners[:2].amax(dim=2).floor().clamp(max=side - 1).int()
    width, height = (high - low + 1).clamp(min=0).unbind(0)
    area = width * height
    kept = (area > 0).nonzero().squeeze(1)
    pair, within = _pairs(area[kept])
    triangle = kept[pair]
    column = low[0][triangle] + within % width[triangle]
    row = low[1][triangle] + torch.div(within, width[triangle], rounding_mode="floor")
    a, b, c, inverse = _inside(corners, triangle, column, row)
    inside = ((a >= 0) & (b >= 0) & (c >= 0)).nonzero().squeeze(1)
    nearest, furthest = screen[2].max(), screen[2].min()
    level = ((nearest - inverse[inside]) / (nearest - furthest) * (DEPTH_LEVELS - 1)).clamp(min=0).int()
    key = (level << TRIANGLE_BITS) + triangle[inside].int()
    buffer = torch.full((side * side,), EMPTY, dtype=torch.int32, device=screen.device)
    buffer.scatter_reduce_(0, (row[inside] * side + column[inside]).long(), key, reduce="amin")
    return hits_of(buffer, corners, side)


def hits_of(buffer: Tensor, corners: Tensor, side: int) -> Hits:
    """What a depth buffer shows: where the key is not ``EMPTY``."""
    sample = (buffer != EMPTY).nonzero().squeeze(1)
    triangle = (buffer[sample] & ((1 << TRIANGLE_BITS) - 1)).long()
    column, row = sample % side, torch.div(sample, side, rounding_mode="floor")
    a, b, c, inverse = _inside(corners, triangle, column, row)
    # From the screen's coordinates to the triangle's: each corner counts by its inverse depth.
    weights = [w * corners[2, triangle, k] / inverse for k, w in enumerate((a, b, c))]
    return Hits(sample, triangle, (weights[0], weights[1], weights[2]))


def _pairs(counts: Tensor) -> tuple[Tensor, Tensor]:
    """For counts 2, 3: the numbers 0 0 1 1 1 and, within each, 0 1 0 1 2."""
    number = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    first = counts.cumsum(0) - counts
    return number, torch.arange(len(number), device=counts.device) - first[number]


def _inside(corners: Tensor, triangle: Tensor, column: Tensor, row: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Barycentric coordinates on the screen, all positive inside, and the inverse depth there."""
    x, y, inverse = corners
    x0, x1, x2 = x.unbind(1)
    y0, y1, y2 = y.unbind(1)
    # Two coordinates are planes over the screen; what they start from and how they rise is known per triangle.
    area = (x1 - x0) * (y2 - y0) - (x2 - x0) * (y1 - y0)
    area = torch.where(area.abs() < 1e-9, torch.inf, area)
    planes = torch.stack([x0, y0, (y2 - y0) / area, (x0 - x2) / area, (y0 - y1) / area, (x1 - x0) / area], dim=1)
    at = planes.index_select(0, triangle)
    dx, dy = column - at[:, 0], row - at[:, 1]
    b = dx * at[:, 2] + dy * at[:, 3]
    c = dx * at[:, 4] + dy * at[:, 5]
    a = 1.0 - b - c
    z = inverse.index_select(0, triangle)
    return a, b, c, a * z[:, 0] + b * z[:, 1] + c * z[:, 2]
