"""What latents mean, against Python's own colours and plain rotations."""

from __future__ import annotations

import colorsys
import math

import numpy as np
import pytest
import torch

from identica.render import scene


@pytest.mark.parametrize("saturation", [1.0, 0.8, 0.6])
def test_hues_wrap(saturation: float) -> None:
    angle = torch.linspace(-math.pi / 2, math.pi / 2, 37, dtype=torch.float64)
    want = [colorsys.hsv_to_rgb(float(a) / (2 * math.pi) % 1.0, saturation, 1.0) for a in angle]
    torch.testing.assert_close(scene.hue_to_rgb(angle, saturation), torch.tensor(want, dtype=torch.float64))


def test_rotations_come_one_after_the_other() -> None:
    alpha, beta, gamma = 0.3, -1.1, 0.7

    def about(axis: int, angle: float) -> np.ndarray:
        matrix, (i, j) = np.eye(3), [(1, 2), (2, 0), (0, 1)][axis]
        matrix[i, i] = matrix[j, j] = math.cos(angle)
        matrix[j, i], matrix[i, j] = math.sin(angle), -math.sin(angle)
        return matrix

    got = scene.rotation_matrix(*(torch.tensor([a], dtype=torch.float64) for a in (alpha, beta, gamma)))[0]
    np.testing.assert_allclose(got.numpy(), about(2, gamma) @ about(1, beta) @ about(0, alpha), atol=1e-12)


def test_places() -> None:
    latents = torch.zeros(2, 10)
    latents[1] = torch.tensor([1.0, -1.0, 0.5, 0, 0, 0, 1.0, 0, 0, 0])
    placement = scene.place(latents)
    half = scene.EXTENT / 2
    torch.testing.assert_close(placement.location, torch.tensor([[0.0, 0.0, half], [3.0, -3.0, 1.5 + half]]))
    height = 6.0 + scene.EXTENT
    torch.testing.assert_close(
        placement.spot, torch.tensor([[0.0, 4.0, height], [4.0, 0.0, height]]), atol=1e-5, rtol=0
    )
    way = placement.location - placement.spot
    torch.testing.assert_close(placement.axis, way / way.norm(dim=1, keepdim=True))


def test_the_camera_looks_at_the_origin() -> None:
    right, up, forward = (np.array(v) for v in (scene.RIGHT, scene.UP, scene.FORWARD))
    np.testing.assert_allclose(np.cross(right, up), -forward, atol=1e-12)
    camera = np.array(scene.CAMERA)
    np.testing.assert_allclose(forward, -camera / np.linalg.norm(camera), atol=1e-12)
