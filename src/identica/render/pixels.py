"""From samples to pixels: the Blackman–Harris filter."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

#: The filter's reach: a pixel sees what is less than this many pixels from its centre.
REACH = 1.5


def blackman_harris(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The filter at distances of x pixels, up to a factor: Blackman and Harris' four cosines over ±1.5 pixels."""
    t = 2.0 * math.pi * (x / (2.0 * REACH) + 0.5)
    window = 0.35875 - 0.48829 * np.cos(t) + 0.14128 * np.cos(2 * t) - 0.01168 * np.cos(3 * t)
    return np.where(np.abs(x) < REACH, window, 0.0)


def sample_weights(resolution: int, supersampling: int, margin: int) -> NDArray[np.float64]:
    """How much each of the samples in a row counts for each pixel of it: ``(pixels, samples)``, rows sum to 1."""
    pixels = np.arange(resolution) + 0.5
    samples = (np.arange((resolution + 2 * margin) * supersampling) + 0.5) / supersampling - margin
    weights = blackman_harris(samples[None, :] - pixels[:, None])
    return weights / weights.sum(axis=1, keepdims=True)


def interpolation(resolution: int, supersampling: int, margin: int, step: int) -> NDArray[np.float64]:
    """How samples in a row follow from points every ``step`` pixels, by cubic interpolation: ``(samples, points)``."""
    samples = (np.arange((resolution + 2 * margin) * supersampling) + 0.5) / supersampling
    place = samples / step + 1.0
    base = np.floor(place).astype(int)
    count = grid_points(resolution, margin, step)
    weights = np.zeros((len(samples), count))
    t = place - base
    for offset, weight in zip((-1, 0, 1, 2), _cubic(t), strict=True):
        np.add.at(weights, (np.arange(len(samples)), np.clip(base + offset, 0, count - 1)), weight)
    return weights


def grid_points(resolution: int, margin: int, step: int) -> int:
    """How many points, ``step`` pixels apart, a row of pixels needs for interpolation."""
    return math.ceil((resolution + 2 * margin) / step) + 4


def grid_positions(resolution: int, margin: int, step: int) -> NDArray[np.float64]:
    """Where those points are, in pixels from the picture's edge."""
    return np.arange(-1.0, grid_points(resolution, margin, step) - 1) * step - margin


def _cubic(t: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Catmull and Rom's weights of the four points around t in [0, 1)."""
    t2, t3 = t * t, t * t * t
    return (0.5 * (-t + 2 * t2 - t3), 0.5 * (2 - 5 * t2 + 3 * t3), 0.5 * (t + 4 * t2 - 3 * t3), 0.5 * (t3 - t2))
