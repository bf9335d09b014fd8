"""How the papers' tables name distributions: a family and its numbers, as plain data.

The tables say "Normal" for three different things: truncated on a box, projected on a sphere, and the
usual one elsewhere. A :class:`Law` is what the table says; :mod:`identica.experiments.parts` makes it the
distribution that is meant.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import dataclass
from typing import Any, Literal

Family = Literal["uniform", "vmf", "normal", "laplace", "generalized_normal", "fisher_bingham", "digits", "views"]

_NAMES = {
    "uniform": "Uniform",
    "vmf": "vMF",
    "normal": "Normal",
    "laplace": "Laplace",
    "digits": "MNIST",
    "views": "views",
}


@dataclass(frozen=True)
class Law:
    """One entry of a table: ``normal(0.05)`` is "Normal (σ = 0.05)". Where only the form matters, no scale.

    >>> generalized_normal(3, 0.05).label, generalized_normal(3).label, vmf(10).label
    ('GenNorm β=3, 0.05', 'GenNorm β=3', 'vMF κ=10')
    """

    family: Family
    scale: float | None = None
    concentration: float | None = None
    power: float | None = None
    precision: tuple[float, ...] | None = None

    @property
    def label(self) -> str:
        """As the tables print it, in few letters."""
        if self.precision is not None:
            return f"Λ = {_runs(self.precision)}"
        name = _NAMES.get(self.family)
        if name is None:
            name = f"GenNorm β={self.power:g}" + ("" if self.scale is None else ",")
        if self.concentration is not None:
            return f"{name} κ={self.concentration:g}"
        return name if self.scale is None else f"{name} {self.scale:g}"

    @property
    def width_and_power(self) -> tuple[float, float]:
        """(λ, β) of the density ∝ exp(−(|d|/λ)^β) per coordinate; a normal law has λ = σ√2.

        >>> laplace(0.05).width_and_power
        (0.05, 1.0)
        """
        power = {"laplace": 1.0, "normal": 2.0, "generalized_normal": self.power}.get(self.family)
        if power is None or self.scale is None:
            raise ValueError(f"{self.label} is not a normal, Laplace or generalised normal law with a scale.")
        return self.scale * (math.sqrt(2.0) if self.family == "normal" else 1.0), power

    @property
    def tightness(self) -> float:
        """The number by which figures order laws of one family: κ, or 1/σ² (0 for the uniform law)."""
        if self.family == "uniform":
            return 0.0
        if self.concentration is not None:
            return self.concentration
        if self.scale is None:
            raise ValueError(f"{self.label} has no scale, hence no concentration.")
        return self.scale**-2

    def to_dict(self) -> dict[str, Any]:
        """The family and the numbers it has."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


def _runs(values: tuple[float, ...]) -> str:
    """Equal neighbours together, and many that are equally far apart by their ends.

    >>> _runs((5.0, 5.0, 25.0, 25.0)), _runs((5.0, 10.0, 15.0, 20.0, 25.0))
    ('5 ×2, 25 ×2', '5 … 25')
    """
    gaps = [b - a for a, b in itertools.pairwise(values)]
    if len(gaps) > 2 and gaps[0] != 0 and all(math.isclose(gap, gaps[0]) for gap in gaps):
        return f"{values[0]:g} … {values[-1]:g}"
    counted = [(value, len(list(group))) for value, group in itertools.groupby(values)]
    return ", ".join(f"{value:g}" if count == 1 else f"{value:g} ×{count}" for value, count in counted)


UNIFORM = Law("uniform")
#: Real images, whose latents nobody knows, and what augmentation makes of one.
DIGITS, VIEWS = Law("digits"), Law("views")


def vmf(concentration: float) -> Law:
    """Von Mises-Fisher with concentration κ."""
    return Law("vmf", concentration=float(concentration))


def normal(scale: float | None = None) -> Law:
    """Density ∝ exp(−½ (d/σ)²) per coordinate."""
    return Law("normal", scale)


def laplace(scale: float | None = None) -> Law:
    """Density ∝ exp(−|d|/λ) per coordinate."""
    return Law("laplace", scale)


def generalized_normal(power: float, scale: float | None = None) -> Law:
    """Density ∝ exp(−(|d|/λ)^β) per coordinate."""
    return Law("generalized_normal", scale, power=float(power))


def fisher_bingham(*precision: float) -> Law:
    """Density ∝ exp(−½ dᵀΛd) on the sphere with the diagonal Λ = ``precision``, one number for each dimension.

    >>> fisher_bingham(*[5] * 5, *[25] * 5).label
    'Λ = 5 ×5, 25 ×5'
    """
    return Law("fisher_bingham", precision=tuple(map(float, precision)))
