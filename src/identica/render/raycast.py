"""Rays against every triangle, in double precision: slow, simple, and what the fast ways are tested against."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from identica.render.mesh import Mesh

#: Pairs of a ray and a triangle that are tested at once.
_TOGETHER = 1 << 21


def first_hit(origins: Tensor, directions: Tensor, mesh: Mesh) -> tuple[Tensor, Tensor]:
    """How far along its direction each ray first meets the mesh, and which triangle there.

    origins, directions: (R, 3) → (R,), infinite where a ray meets nothing, and (R,), where it is then −1. Both sides
    of a triangle count. A ray o + t d meets the triangle a, a + e, a + f at o + t d = a + v e + w f with v, w ≥ 0 and
    v + w ≤ 1, which Cramer's rule solves (Möller and Trumbore, 1997).
    """
    corners = torch.from_numpy(mesh.vertices[mesh.triangles])
    distance = torch.full((len(origins),), torch.inf, dtype=torch.float64)
    triangle = torch.full((len(origins),), -1)
    for some in _meet_box(origins.double(), directions.double(), mesh).split(max(1, _TOGETHER // len(corners))):
        distance[some], triangle[some] = _first_hit(origins[some].double(), directions[some].double(), corners)
    return distance, triangle


def is_hidden(points: Tensor, targets: Tensor, mesh: Mesh, skip: float = 1e-6) -> Tensor:
    """Whether the mesh is between points and targets, ``(R, 3)``; the first share ``skip`` of the way is let off."""
    way = targets - points
    distance, _ = first_hit(points + skip * way, way * (1.0 - skip), mesh)
    return distance < 1.0


def _meet_box(origins: Tensor, directions: Tensor, mesh: Mesh) -> Tensor:
    """The numbers of the rays that meet the mesh's box; the others meet no triangle."""
    low, high = (torch.from_numpy(end(mesh.vertices, axis=0)) for end in (np.min, np.max))
    inverse = 1.0 / torch.where(directions == 0, 1e-300, directions)
    a, b = (low - 1e-9 - origins) * inverse, (high + 1e-9 - origins) * inverse
    enter, leave = torch.minimum(a, b).amax(dim=1).clamp(min=0), torch.maximum(a, b).amin(dim=1)
    return (enter <= leave).nonzero().squeeze(1)


def _first_hit(origin: Tensor, direction: Tensor, corners: Tensor) -> tuple[Tensor, Tensor]:
    a = corners[None, :, 0]
    e, f = corners[None, :, 1] - a, corners[None, :, 2] - a
    d, o = direction[:, None], origin[:, None] - a
    p, q = torch.linalg.cross(d, f.expand(len(d), -1, -1)), torch.linalg.cross(o, e.expand(len(d), -1, -1))
    scale = 1.0 / (e * p).sum(dim=2)
    v, w, t = (o * p).sum(dim=2) * scale, (d * q).sum(dim=2) * scale, (f * q).sum(dim=2) * scale
    t = torch.where((v >= 0) & (w >= 0) & (v + w <= 1) & (t > 0), t, torch.inf)
    distance, triangle = t.min(dim=1)
    return distance, torch.where(distance.isfinite(), triangle, -1)
