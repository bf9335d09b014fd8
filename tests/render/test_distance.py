"""The grid of distances, against closed forms and every triangle."""

from __future__ import annotations

import numpy as np
import torch
from scipy.spatial import cKDTree

from identica.render.distance import DistanceGrid, bake
from identica.render.mesh import teapot
from identica.render.raycast import first_hit
from tests.render.test_mesh import cube


def corner_positions(grid: DistanceGrid) -> torch.Tensor:
    steps = [torch.arange(n) * grid.cell + low for n, low in zip(grid.values.shape, grid.low, strict=True)]
    return torch.stack(torch.meshgrid(*steps, indexing="ij"), dim=-1).double()


def test_distances_to_a_cube() -> None:
    """Outside: the distance to the nearest point of the box; inside: the least to its six faces, negative."""
    grid = bake(cube(), 0.13)
    beyond = corner_positions(grid).abs() - 1.0
    want = beyond.clamp(min=0).norm(dim=-1) + beyond.amax(dim=-1).clamp(max=0)
    error = (grid.values.double() - want).abs()
    assert error.max() < 0.15 * grid.cell and (error < 1e-5).double().mean() > 0.98
    assert ((grid.values < 0) == (want < 0))[want.abs() > 1e-6].all()


def test_distances_to_the_teapot() -> None:
    """Against the nearest of many points of its surface, drawn by area; they are at most so far apart."""
    mesh, grid = teapot(), bake(teapot(), 0.0968)
    corners = mesh.vertices[mesh.triangles]
    areas = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
    random = np.random.default_rng(0)
    chosen = random.choice(len(areas), 100_000, p=areas / areas.sum())
    u, v = random.random((2, 100_000))
    u, v = np.where(u + v > 1, 1 - u, u), np.where(u + v > 1, 1 - v, v)
    points = np.einsum("kp,pkx->px", np.stack([1 - u - v, u, v]), corners[chosen])
    asked = corner_positions(grid).reshape(-1, 3)[::37]
    want = torch.from_numpy(cKDTree(points).query(asked.numpy())[0])
    got = grid.values.reshape(-1)[::37].abs().double()
    error = got - want
    assert error.max() < grid.cell  # too large only by the choice of candidates
    assert error.min() > -0.06  # too small only by the points' spacing
    assert error.abs().mean() < 0.01


def test_inside_and_outside() -> None:
    """Where four rays in different directions meet the surface first from within, the distance is negative."""
    mesh, grid = teapot(), bake(teapot(), 0.0968)
    positions, values = corner_positions(grid).reshape(-1, 3)[::331], grid.values.reshape(-1)[::331]
    corners = torch.from_numpy(mesh.vertices[mesh.triangles])
    faces = torch.linalg.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    inside = torch.ones(len(positions), dtype=torch.bool)
    outside = inside.clone()
    for direction in ([1.0, 0.1, 0.2], [-1.0, 0.3, -0.1], [0.1, 1.0, 0.3], [0.2, -1.0, -0.3]):
        way = torch.tensor(direction, dtype=torch.float64).expand_as(positions)
        _, triangle = first_hit(positions, way, mesh)
        from_within = ((faces[triangle] * way).sum(dim=1) > 0) & (triangle >= 0)
        inside &= from_within
        outside &= ~from_within
    clear = values.abs() > grid.cell
    assert inside.sum() > 50 and outside.sum() > 200
    # Handle and spout reach into the body: next to them one is inside it, but outside what is nearest.
    assert (values[inside & clear] < 0).double().mean() > 0.95
    assert (values[outside & clear] > 0).double().mean() > 0.99
