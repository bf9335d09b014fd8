"""How far it is to the object's surface: a grid of signed distances that shadow rays are traced through.

The grid is built from the mesh, once for each cell size, which takes two seconds at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import ndimage
from torch import Tensor

from identica.render.mesh import Mesh, teapot

#: Cells around the object's box.
MARGIN = 3
#: Distances nearer than this many cells are the least over the triangles of seven corners, not of one.
_NEAR = 2.5
#: Corners that are handled at once.
_TOGETHER = 1 << 15


@dataclass(frozen=True, eq=False)
class DistanceGrid:
    """Signed distances at the corners of cubic cells: negative inside, where "inside" is behind the nearest surface.

    values: (X, Y, Z); corner number (i, j, k) lies at ``low + cell · (i, j, k)``.
    """

    values: Tensor
    low: tuple[float, float, float]
    cell: float

    @property
    def high(self) -> tuple[float, float, float]:
        """The opposite corner."""
        x, y, z = (low + self.cell * (n - 1) for low, n in zip(self.low, self.values.shape, strict=True))
        return x, y, z


@cache
def teapot_grid(cell: float) -> DistanceGrid:
    """The teapot's distances."""
    return bake(teapot(), cell)


def bake(mesh: Mesh, cell: float) -> DistanceGrid:
    """Distances to a mesh, on a grid that holds it.

    Every corner that the surface passes close by remembers a triangle that does. Any corner asks the nearest such one,
    and if it is near, also that one's six neighbours; the distance is the least to the triangles it was told.
    """
    low = mesh.vertices.min(axis=0) - MARGIN * cell
    size = np.ceil((mesh.vertices.max(axis=0) - low) / cell).astype(int) + MARGIN + 1
    owner = _owners(mesh, low, cell, size)
    nearest = ndimage.distance_transform_edt(owner < 0, return_distances=False, return_indices=True)
    told = torch.from_numpy(np.ravel_multi_index(tuple(nearest.reshape(3, -1)), tuple(size)))
    axes = [torch.arange(int(n), dtype=torch.float32) * cell + float(start) for n, start in zip(size, low, strict=True)]
    x, y, z = (axis.flatten().float() for axis in torch.meshgrid(*axes, indexing="ij"))
    table, owners = _triangle_table(mesh), torch.from_numpy(owner.reshape(-1))
    values = torch.empty_like(x)
    for some in torch.arange(len(x)).split(_TOGETHER):
        triangles = table.index_select(1, owners[told[some]])
        values[some] = signed_distance(x[some], y[some], z[some], triangles)
    _ask_neighbours(values, (x, y, z), told, owners, table, cell, (int(size[1] * size[2]), int(size[2]), 1))
    first, second, third = (float(v) for v in low)
    return DistanceGrid(values.view(*(int(n) for n in size)), (first, second, third), cell)


def _ask_neighbours(
    values: Tensor,
    points: tuple[Tensor, ...],
    told: Tensor,
    owners: Tensor,
    table: Tensor,
    cell: float,
    strides: tuple[int, int, int],
) -> None:
    """Near the surface, take the least distance to the triangles of seven corners, in place."""
    near = (values.abs() < _NEAR * cell).nonzero().squeeze(1)
    for some in near.split(_TOGETHER):
        here = [p.index_select(0, some) for p in points]
        best = values[some]
        for stride in strides:
            for offset in (-stride, stride):
                candidate = owners[(told[some] + offset).clamp(0, len(owners) - 1)]
                triangles = table.index_select(1, candidate.clamp(min=0))
                found = signed_distance(here[0], here[1], here[2], triangles)
                best = torch.where((candidate >= 0) & (found.abs() < best.abs()), found, best)
        values[some] = best


def _owners(mesh: Mesh, low: NDArray[np.float64], cell: float, size: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each corner that has some of the surface in its cell, the triangle that comes nearest; −1 for the others."""
    corners = mesh.vertices[mesh.triangles]
    owner = np.full(int(size.prod()), -1, dtype=np.int64)
    longest = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2).max(axis=1)
    pieces = np.ceil(2.0 * longest / cell).astype(int)  # points half a cell apart
    place, triangle, distance = [], [], []
    for count in np.unique(pieces):
        chosen = np.flatnonzero(pieces == count)
        i, j = np.meshgrid(np.arange(count + 1), np.arange(count + 1), indexing="ij")
        inside = i + j <= count
        u, v = i[inside] / count, j[inside] / count
        weights = np.stack([1.0 - u - v, u, v], axis=1)
        points = (np.einsum("pk,tkx->tpx", weights, corners[chosen]).reshape(-1, 3) - low) / cell
        at = np.rint(points)
        place.append(np.ravel_multi_index(tuple(at.astype(int).T), tuple(size)))
        triangle.append(np.repeat(chosen, len(weights)))
        distance.append(((points - at) ** 2).sum(axis=1))
    order = np.argsort(-np.concatenate(distance), kind="stable")  # the nearest is written last
    owner[np.concatenate(place)[order]] = np.concatenate(triangle)[order]
    return owner.reshape(tuple(size))


def _triangle_table(mesh: Mesh) -> Tensor:
    """What the distance to a triangle needs: ``(18, T)``: a corner, two edges, and the normals at the three corners."""
    a, b, c = (mesh.vertices[mesh.triangles[:, k]] for k in range(3))
    normals = mesh.normals[mesh.triangles].reshape(-1, 9)
    return torch.from_numpy(np.concatenate([a, b - a, c - a, normals], axis=1).T.copy()).float()


def signed_distance(x: Tensor, y: Tensor, z: Tensor, triangles: Tensor) -> Tensor:
    """Distance of each point to a triangle of its own, negative behind it: ``(n,)`` each, triangles ``(18, n)``.

    "Behind" is judged by the normal that the corners' normals give at the nearest point, which is right on edges too,
    where two triangles would give different answers.
    """
    ax, ay, az, bx, by, bz, cx, cy, cz, *normals = triangles
    px, py, pz = x - ax, y - ay, z - az
    v, w = _nearest_weights(
        bx * px + by * py + bz * pz,
        cx * px + cy * py + cz * pz,
        bx * bx + by * by + bz * bz,
        bx * cx + by * cy + bz * cz,
        cx * cx + cy * cy + cz * cz,
    )
    u = 1.0 - v - w
    away = px - v * bx - w * cx, py - v * by - w * cy, pz - v * bz - w * cz
    side = sum(d * (u * normals[k] + v * normals[3 + k] + w * normals[6 + k]) for k, d in enumerate(away))
    distance = (away[0].square() + away[1].square() + away[2].square()).sqrt()
    return torch.where(torch.as_tensor(side) < 0, -distance, distance)


def _nearest_weights(d1: Tensor, d2: Tensor, bb: Tensor, bc: Tensor, cc: Tensor) -> tuple[Tensor, Tensor]:
    """Where in a triangle the nearest point is: weights of its second and third corner.

    d1, d2: the point's inner products with the two edges from the first corner; bb, bc, cc: the edges' own. The squared
    distance is, up to what does not depend on (v, w), v²bb + 2vw·bc + w²cc − 2v·d1 − 2w·d2.
    """
    scale = 1.0 / (bb * cc - bc * bc)
    v, w = (cc * d1 - bc * d2) * scale, (bb * d2 - bc * d1) * scale
    least = torch.full_like(v, torch.inf).masked_fill_((v >= 0) & (w >= 0) & (v + w <= 1), -torch.inf)
    on_ab, on_ac = (d1 / bb).clamp(0, 1), (d2 / cc).clamp(0, 1)
    on_bc = ((d2 - d1 + bb - bc) / (bb + cc - 2 * bc)).clamp(0, 1)
    zero = torch.zeros_like(v)
    for s, t in ((on_ab, zero), (zero, on_ac), (1 - on_bc, on_bc)):
        value = s * s * bb + 2 * s * t * bc + t * t * cc - 2 * s * d1 - 2 * t * d2
        nearer = value < least
        v, w, least = torch.where(nearer, s, v), torch.where(nearer, t, w), torch.where(nearer, value, least)
    return v, w
