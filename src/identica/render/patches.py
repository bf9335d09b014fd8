"""Newell's teapot as data: 32 bicubic Bézier patches, in the units they were published in (1975, public domain).

Two kinds of patches make it up, and both repeat themselves, so that far fewer than the 512 control points need to be
written down. Rim, body, lid and bottom are solids of revolution: one profile turned through four quarters. Handle
and spout are tubes: one half, mirrored at the plane Y = 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Where a quarter circle's inner control points lie, as a share of the radius (0.5523 would be nearest a circle).
QUARTER = 0.56
#: The knob of the lid was rounded: 0.45 for a radius of 0.8.
KNOB = 0.5625

#: part -> profiles of four control points each, (radius, height, share), from one rim of the patch to the other.
REVOLVED: dict[str, list[list[tuple[float, float, float]]]] = {
    "body": [
        [(1.4, 2.4, QUARTER), (1.3375, 2.53125, QUARTER), (1.4375, 2.53125, QUARTER), (1.5, 2.4, QUARTER)],
        [(1.5, 2.4, QUARTER), (1.75, 1.875, QUARTER), (2.0, 1.35, QUARTER), (2.0, 0.9, QUARTER)],
        [(2.0, 0.9, QUARTER), (2.0, 0.45, QUARTER), (1.5, 0.225, QUARTER), (1.5, 0.15, QUARTER)],
        [(1.5, 0.15, QUARTER), (1.5, 0.075, QUARTER), (1.425, 0.0, QUARTER), (0.0, 0.0, QUARTER)],
    ],
    "lid": [
        [(0.0, 3.15, QUARTER), (0.8, 3.15, KNOB), (0.0, 2.85, QUARTER), (0.2, 2.7, QUARTER)],
        [(0.2, 2.7, QUARTER), (0.4, 2.55, QUARTER), (1.3, 2.55, QUARTER), (1.3, 2.4, QUARTER)],
    ],
}

#: part -> sections along the tube, four to a patch: (X, Z) on one side, (X, Z) on the other, half the width.
TUBES: dict[str, list[list[tuple[float, float, float, float, float]]]] = {
    "handle": [
        [
            (-1.6, 2.025, -1.5, 2.25, 0.3),
            (-2.3, 2.025, -2.5, 2.25, 0.3),
            (-2.7, 2.025, -3.0, 2.25, 0.3),
            (-2.7, 1.8, -3.0, 1.8, 0.3),
        ],
        [
            (-2.7, 1.8, -3.0, 1.8, 0.3),
            (-2.7, 1.575, -3.0, 1.35, 0.3),
            (-2.5, 1.125, -2.65, 0.9375, 0.3),
            (-2.0, 0.9, -1.9, 0.6, 0.3),
        ],
    ],
    "spout": [
        [
            (1.7, 1.425, 1.7, 0.6, 0.66),
            (2.6, 1.425, 3.1, 0.825, 0.66),
            (2.3, 2.1, 2.4, 2.025, 0.25),
            (2.7, 2.4, 3.3, 2.4, 0.25),
        ],
        [
            (2.7, 2.4, 3.3, 2.4, 0.25),
            (2.8, 2.475, 3.525, 2.49375, 0.25),
            (2.9, 2.475, 3.45, 2.5125, 0.15),
            (2.8, 2.4, 3.2, 2.4, 0.15),
        ],
    ],
}


def control_points() -> dict[str, NDArray[np.float64]]:
    """The control points of each part: ``(patches, 4, 4, 3)``; the patches' normals ∂v × ∂u point outwards.

    >>> {name: len(patches) for name, patches in control_points().items()}
    {'body': 16, 'lid': 8, 'handle': 4, 'spout': 4}
    """
    parts = {
        name: np.stack([_turned(profile, quarter) for profile in profiles for quarter in range(4)])
        for name, profiles in REVOLVED.items()
    }
    for name, sections in TUBES.items():
        parts[name] = np.stack([_half_tube(four, side) for four in sections for side in (-1.0, 1.0)])
    return parts


def _turned(profile: list[tuple[float, float, float]], quarter: int) -> NDArray[np.float64]:
    """A profile turned from +X towards −Y through one quarter, then by ``quarter`` further ones."""
    points = np.empty((4, 4, 3))
    for row, (radius, height, share) in enumerate(profile):
        inner = radius * share
        points[row] = [(radius, 0, height), (radius, -inner, height), (inner, -radius, height), (0, -radius, height)]
    for _ in range(quarter):
        points = np.stack([points[..., 1], -points[..., 0], points[..., 2]], axis=-1)
    return points


def _half_tube(sections: list[tuple[float, float, float, float, float]], side: float) -> NDArray[np.float64]:
    """Half of a tube, on the side Y = −width or Y = +width."""
    points = np.empty((4, 4, 3))
    for row, (x0, z0, x1, z1, width) in enumerate(sections):
        y = side * width
        points[row] = [(x0, 0, z0), (x0, y, z0), (x1, y, z1), (x1, 0, z1)]
    return points if side < 0 else points[:, ::-1]
