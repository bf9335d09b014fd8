"""The teapot: its patches and the triangles they are cut into."""

from __future__ import annotations

import numpy as np
import pytest

from identica.render.mesh import Mesh, bezier, corner_normals, teapot
from identica.render.patches import control_points


def de_casteljau(points: np.ndarray, t: float) -> np.ndarray:
    """A point of a Bézier curve by repeated halving: an independent way to it."""
    while len(points) > 1:
        points = (1 - t) * points[:-1] + t * points[1:]
    return points[0]


def test_there_are_32_patches() -> None:
    """The published list has 306 points, some of them twice; 290 are different."""
    points = np.concatenate(list(control_points().values()))
    assert points.shape == (32, 4, 4, 3)
    assert len(np.unique(points.reshape(-1, 3).round(9), axis=0)) == 290


@pytest.mark.parametrize("u, v", [(0.0, 0.0), (1.0, 0.0), (0.3, 0.8), (0.5, 0.5)])
def test_a_point_of_a_patch(u: float, v: float) -> None:
    patches = np.concatenate(list(control_points().values()))
    got = bezier(patches, np.array([u]), np.array([v]))[:, 0, 0]
    want = [de_casteljau(np.stack([de_casteljau(row, v) for row in patch]), u) for patch in patches]
    np.testing.assert_allclose(got, want, atol=1e-12)


def test_the_body_is_round() -> None:
    """Halfway through a quarter, a cubic with inner points at 0.56 r is 0.71 √2 times as far out as at its ends."""
    body = control_points()["body"][4]
    middle, end = bezier(body, np.array([1.0]), np.array([0.5, 0.0]))[0]
    assert np.hypot(*end[:2]) == pytest.approx(2.0)
    assert np.hypot(*middle[:2]) == pytest.approx(2.0 * 0.71 * np.sqrt(2.0))


def test_the_mesh_is_that_of_the_data_set() -> None:
    mesh = teapot()
    assert mesh.vertices.shape == (3242, 3) and mesh.triangles.shape == (6320, 3)
    np.testing.assert_allclose(mesh.vertices.min(axis=0) / 1.5, [-1.4021, -1.5593, -0.9067], atol=1e-4)
    np.testing.assert_allclose(mesh.vertices.max(axis=0) / 1.5, [1.5593, 1.4021, 1.0926], atol=1e-4)
    extent = mesh.vertices.max(axis=0) - mesh.vertices.min(axis=0)
    assert extent.max() == pytest.approx(4.442117, abs=1e-5)


def test_normals_have_unit_length_and_point_outwards() -> None:
    mesh = teapot()
    np.testing.assert_allclose(np.linalg.norm(mesh.normals, axis=1), 1.0, atol=1e-12)
    corners = mesh.vertices[mesh.triangles]
    faces = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    assert ((faces[:, None] * mesh.normals[mesh.triangles]).sum(axis=2) > 0).mean() > 0.99
    belly = np.abs(mesh.vertices[:, 2]) < 0.3
    outside = np.hypot(*mesh.vertices[:, :2].T) > 1.5
    part = belly & outside & (np.hypot(*mesh.vertices[:, :2].T) < 2.0)
    assert ((mesh.vertices * mesh.normals)[part, :2].sum(axis=1) > 0).mean() > 0.9


def test_normals_of_a_cube() -> None:
    """By angles, each face counts the same at a corner, however it is cut into triangles."""
    mesh = cube()
    np.testing.assert_allclose(mesh.normals, np.sign(mesh.vertices) / np.sqrt(3.0), atol=1e-12)


def cube() -> Mesh:
    """The cube [−1, 1]³ as twelve triangles."""
    vertices = np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    triangles = np.array([t for a, b, c, d in quads for t in ((a, b, c), (a, c, d))])
    return Mesh(vertices, corner_normals(vertices, triangles), triangles)
