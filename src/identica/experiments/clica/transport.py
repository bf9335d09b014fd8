"""How far a marginal is from uniform: ½∫|p − uniform|, the probability mass one would have to move.

Both marginals of A's Figure 2 fall off with one number: −cos θ on the sphere, the squared distance from the
centre in the box. So p exceeds the uniform density exactly where that number S is below some c, and
½∫|p − uniform| = P(S < c) − U(S < c), with S under p and under the uniform law.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import integrate, special

from identica.experiments.catalogue import Entry


def transported_mass(row: Entry, dim: int) -> float:
    """The mass for the row's marginal, between 0 and 1.

    >>> from identica.experiments.clica.tables import FIGURE2
    >>> masses = [transported_mass(row, 10) for row in FIGURE2.rows if row.curve == FIGURE2.curves[0]]
    >>> f"{masses[0]:.4f} {masses[-1]:.4f}"
    '0.0020 0.9971'
    """
    if row.marginal.family == "uniform":
        return 0.0
    if row.space == "sphere" and row.marginal.concentration is not None:
        return sphere_mass(row.marginal.concentration, dim)
    if row.space == "box" and row.marginal.family == "normal" and row.marginal.scale is not None:
        return box_mass(row.marginal.scale, dim)
    raise ValueError(f"The transported mass of {row.marginal.label} on the {row.space} is not known here.")


def sphere_mass(concentration: float, dim: int) -> float:
    """For a von Mises-Fisher law on the unit sphere in R^dim. One-dimensional quadrature over θ."""

    def integral(kappa: float, until: float) -> float:
        """∫₀^until exp(κ(cos θ − 1)) sin^(dim−2)θ dθ."""
        value, _ = integrate.quad(
            lambda angle: math.exp(kappa * (math.cos(angle) - 1.0)) * math.sin(angle) ** (dim - 2),
            *(0.0, until),
            epsabs=0.0,
            epsrel=1e-11,
            limit=200,
        )
        return value

    tight, flat = integral(concentration, math.pi), integral(0.0, math.pi)
    if concentration == 0.0:
        return 0.0
    cosine = 1.0 + math.log(tight / flat) / concentration  # where exp(κ(cos θ − 1)) / tight = 1 / flat
    angle = math.acos(max(-1.0, min(1.0, cosine)))
    return integral(concentration, angle) / tight - integral(0.0, angle) / flat


def box_mass(scale: float, dim: int) -> float:
    """For a normal law around the centre of [0, 1]^dim, truncated to the box."""
    rate = 0.5 / scale**2
    one_side = math.sqrt(math.pi / rate) * special.erf(0.5 * math.sqrt(rate))  # ∫ exp(−rate y²) over |y| < ½
    threshold = -dim * math.log(one_side) / rate  # where exp(−rate Σy²) / one_side^dim = 1
    return _squares_below(threshold, rate, dim) - _squares_below(threshold, 0.0, dim)


def _squares_below(threshold: float, rate: float, dim: int) -> float:
    """P(Σᵢ yᵢ² < threshold) for independent yᵢ with density ∝ exp(−rate y²) on |y| < ½.

    The characteristic function is a power of ∫ exp(−(rate − it) y²) dy = √(π/a) erf(√a/2) with a = rate − it.
    Σy² is bounded by dim/4, so that the midpoint sum of Gil-Pelaez's integral with this step is exact but
    for where it ends; the terms there fall off like t^(−1 − dim/2): 1e-12 is left at dim = 10, 1e-5 at dim = 1.
    """
    step = math.pi / dim
    terms = math.ceil(100.0 * max(rate, 20.0) / step)
    t = (np.arange(terms) + 0.5) * step

    def side(a: np.ndarray) -> np.ndarray:
        root = np.sqrt(a.astype(np.complex128))
        return np.sqrt(np.pi) / root * special.erf(0.5 * root)

    origin = side(np.array([rate]))[0].real if rate else 1.0
    phi = (side(rate - 1j * t) / origin) ** dim
    return float(0.5 - np.sum((np.exp(-1j * t * threshold) * phi).imag / t) * step / np.pi)
