"""Where on a light its samples lie.

Neighbouring points of a surface use different patterns of one family, so that a pixel, which is a mean over some of
them, has seen more of the light than each of them has.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def square_patterns(count: int, variants: int = 1) -> NDArray[np.float64]:
    """Families of ``count`` points spread evenly over [−½, ½)²: ``(variants, count, 2)``; lattices of Fibonacci's kind.

    >>> square_patterns(2).round(3)
    array([[[-0.25 , -0.191],
            [ 0.25 ,  0.427]]])
    """
    point, variant = np.arange(count)[None, :], np.arange(variants)[:, None]
    across = (point + (variant + 0.5) / variants) / count
    along = (point * _GOLDEN + 0.309 + variant * _GOLDEN / count) % 1.0
    return np.stack([across, along], axis=-1) - 0.5


def disk_patterns(count: int, variants: int = 1) -> NDArray[np.float64]:
    """Families of ``count`` points spread evenly over the unit disk: ``(variants, count, 2)``; sunflowers' spirals.

    >>> round(float((disk_patterns(16) ** 2).sum(axis=-1).mean()), 6)  # of a uniform disk: 1/2
    0.5
    """
    point, variant = np.arange(count)[None, :], np.arange(variants)[:, None]
    radius = np.sqrt((point + (variant + 0.5) / variants) / count)
    angle = 2.0 * math.pi * (point + variant / 3.0) * (1.0 - _GOLDEN)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)
