"""The teapot as triangles, in the object's own coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from identica.render.patches import control_points

#: Subdivisions of a patch along each side, as in the data set's mesh.
SEGMENTS = 10
#: From the patches' units to the data set's, and the height of its origin there.
PATCH_SCALE, PATCH_HEIGHT = 0.634686, 0.906694
#: The data set's object is scaled once more when it is put into the scene.
OBJECT_SCALE = 1.5

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Mesh:
    """Triangles with a normal at each corner.

    vertices: (V, 3); normals: (V, 3), of unit length and outwards; triangles: (T, 3), counter-clockwise from outside.
    """

    vertices: Floats
    normals: Floats
    triangles: Indices

    @property
    def radius(self) -> float:
        """Of the sphere about the origin that holds the mesh."""
        return float(np.linalg.norm(self.vertices, axis=1).max())


@cache
def teapot(segments: int = SEGMENTS) -> Mesh:
    """The teapot at the size it has in the scene, about the origin that it is turned around.

    Normals are averaged within a part (body with rim and bottom, lid, handle, spout), each triangle counting by
    its angle at the corner; where parts meet, there is an edge.

    >>> len(teapot().triangles), teapot().vertices.max(axis=0).round(3)
    (6320, array([2.339, 2.103, 1.639]))
    """
    vertices, normals, triangles, offset = [], [], [], 0
    for patches in control_points().values():
        part_vertices, part_triangles = _tessellate(patches, segments)
        part_vertices = _into_the_scene(part_vertices)
        vertices.append(part_vertices)
        normals.append(corner_normals(part_vertices, part_triangles))
        triangles.append(part_triangles + offset)
        offset += len(part_vertices)
    return Mesh(np.concatenate(vertices), np.concatenate(normals), np.concatenate(triangles))


def bezier(points: Floats, u: Floats, v: Floats) -> Floats:
    """Points of patches: control points ``(..., 4, 4, 3)`` at ``u: (n,)`` × ``v: (m,)`` → ``(..., n, m, 3)``.

    S(u, v) = Σᵢⱼ bᵢ(u) bⱼ(v) Pᵢⱼ with Bernstein's b₀ … b₃ = (1−t)³, 3t(1−t)², 3t²(1−t), t³.
    """
    return np.einsum("ni,mj,...ijk->...nmk", _bernstein(u), _bernstein(v), points)


def _bernstein(t: Floats) -> Floats:
    s = 1.0 - t
    return np.stack([s**3, 3 * t * s**2, 3 * t**2 * s, t**3], axis=-1)


def _tessellate(patches: Floats, segments: int) -> tuple[Floats, Indices]:
    """Vertices and triangles of some patches: corners that coincide are one, triangles without area are left out."""
    steps = np.linspace(0.0, 1.0, segments + 1)
    points = bezier(patches, steps, steps).reshape(-1, 3)
    _, first, same = np.unique(points.round(6), axis=0, return_index=True, return_inverse=True)
    side = segments + 1
    i, j = (k.ravel() for k in np.meshgrid(np.arange(segments), np.arange(segments), indexing="ij"))
    corner = i * side + j
    quads = np.stack([corner, corner + 1, corner + side + 1, corner + side], axis=1)
    triangles = np.concatenate([quads[:, [0, 1, 2]], quads[:, [0, 2, 3]]])
    every = (np.arange(len(patches))[:, None, None] * side * side + triangles).reshape(-1, 3)
    every = same.reshape(-1)[every]
    distinct = (every[:, 0] != every[:, 1]) & (every[:, 1] != every[:, 2]) & (every[:, 2] != every[:, 0])
    return points[first], every[distinct]


def _into_the_scene(points: Floats) -> Floats:
    """From the patches' axes to the object's: turned by an eighth, scaled, about another origin."""
    x, y, z = points.T
    turned = np.stack([(x + y) / np.sqrt(2.0), (y - x) / np.sqrt(2.0), z], axis=1)
    return OBJECT_SCALE * (PATCH_SCALE * turned - [0.0, 0.0, PATCH_HEIGHT])


def corner_normals(vertices: Floats, triangles: Indices) -> Floats:
    """The normal at each vertex: the mean of its triangles' normals, weighted by their angles there."""
    corners = vertices[triangles]
    faces = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    faces /= np.linalg.norm(faces, axis=1, keepdims=True)
    total = np.zeros_like(vertices)
    for k in range(3):
        a, b = corners[:, (k + 1) % 3] - corners[:, k], corners[:, (k + 2) % 3] - corners[:, k]
        cosine = (a * b).sum(axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
        np.add.at(total, triangles[:, k], np.arccos(cosine.clip(-1.0, 1.0))[:, None] * faces)
    return total / np.linalg.norm(total, axis=1, keepdims=True)
