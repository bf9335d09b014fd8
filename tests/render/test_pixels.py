"""The pixels' filter and the patterns of light samples."""

from __future__ import annotations

import numpy as np
import pytest

from identica.render import pixels
from identica.render.patterns import disk_patterns, square_patterns


def test_the_filter_is_three_pixels_wide() -> None:
    x = np.array([0.0, 1.49, 1.5, 1.51])
    values = pixels.blackman_harris(x)
    assert values[0] == pytest.approx(1.0) and values[1] < 1e-3 and values[2] == 0 and values[3] == 0
    np.testing.assert_allclose(pixels.blackman_harris(-x), values)


@pytest.mark.parametrize("supersampling", [1, 2, 4])
def test_weights_sum_to_one_and_are_the_same_for_all_pixels(supersampling: int) -> None:
    weights = pixels.sample_weights(16, supersampling, 2)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    for pixel in range(1, 16):
        np.testing.assert_allclose(
            weights[pixel, pixel * supersampling :], weights[0, : -pixel * supersampling], atol=1e-12
        )


@pytest.mark.parametrize("step", [1, 2, 5])
def test_interpolation_is_exact_for_parabolas(step: int) -> None:
    """Catmull and Rom's cubic reproduces polynomials of the second degree."""
    rows = pixels.interpolation(20, 2, 2, step)
    points = pixels.grid_positions(20, 2, step)
    samples = (np.arange(48) + 0.5) / 2 - 2
    for power in (0, 1, 2):
        np.testing.assert_allclose(rows @ points**power, samples**power, atol=1e-9)


@pytest.mark.parametrize("count", [1, 4, 8, 16, 32])
def test_patterns_cover_the_lights(count: int) -> None:
    """All variants together have the moments of a uniform disk or square; every one of them lies within."""
    disk, square = disk_patterns(count, 16), square_patterns(count, 16)
    assert disk.shape == square.shape == (16, count, 2)
    assert (disk**2).sum(axis=-1).max() <= 1.0 and np.abs(square).max() <= 0.5
    assert np.abs(disk.mean(axis=(0, 1))).max() < 0.1 and np.abs(square.mean(axis=(0, 1))).max() < 0.1
    np.testing.assert_allclose((disk**2).mean(axis=(0, 1)), 0.25, atol=0.06)
    np.testing.assert_allclose((square**2).mean(axis=(0, 1)), 1 / 12, atol=0.03)
