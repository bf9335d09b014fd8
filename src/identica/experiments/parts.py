"""From what a table says to the parts of this library: process, encoder, objective."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from identica.distributions import (
    BoxUniform,
    Conditional,
    GeneralizedNormal,
    LatentDistribution,
    ProjectedGeneralizedNormal,
    ProjectedLaplace,
    ProjectedNormal,
    SphereUniform,
    TruncatedGeneralizedNormal,
    TruncatedLaplace,
    TruncatedNormal,
    VonMisesFisher,
)
from identica.experiments.catalogue import Row, SpaceName
from identica.experiments.laws import Law
from identica.similarities import DotProduct, LpSimilarity, Similarity
from identica.spaces import Box, Euclidean, Space, Sphere

_FAMILIES: dict[tuple[str, str], type[LatentDistribution]] = {
    ("sphere", "vmf"): VonMisesFisher,
    ("sphere", "normal"): ProjectedNormal,
    ("sphere", "laplace"): ProjectedLaplace,
    ("sphere", "generalized_normal"): ProjectedGeneralizedNormal,
    ("box", "normal"): TruncatedNormal,
    ("box", "laplace"): TruncatedLaplace,
    ("box", "generalized_normal"): TruncatedGeneralizedNormal,
}
_UNIFORM: dict[str, Callable[[int], LatentDistribution]] = {"sphere": SphereUniform, "box": BoxUniform}


def make_space(name: SpaceName, dim: int) -> Space:
    """S^(dim−1), [0, 1]^dim or R^dim."""
    return {"sphere": Sphere, "box": Box, "unbounded": Euclidean}[name](dim)


def make_conditional(law: Law, space: SpaceName) -> Conditional:
    """The law around an anchor: truncated on the box, projected on the sphere.

    >>> from identica.experiments.laws import normal
    >>> make_conditional(normal(0.05), "sphere")
    Conditional(ProjectedNormal, scale=0.05)
    """
    if space == "unbounded":
        width, power = law.width_and_power
        return Conditional(GeneralizedNormal, scale=width, power=power)
    family = _FAMILIES.get((space, law.family))
    if family is None:
        raise ValueError(f"There is no conditional {law.label} on the {space} space.")
    numbers = {"scale": law.scale, "concentration": law.concentration, "power": law.power}
    return Conditional(family, **{name: value for name, value in numbers.items() if value is not None})


def make_marginal(law: Law, space: SpaceName, dim: int) -> LatentDistribution:
    """The law of the anchors: uniform, or around the first basis vector, the box's centre or the origin."""
    if law.family == "uniform":
        if space not in _UNIFORM:
            raise ValueError(f"There is no uniform law on the {space} space.")
        return _UNIFORM[space](dim)
    centre = torch.full((dim,), 0.5 if space == "box" else 0.0)
    if space == "sphere":
        centre[0] = 1.0
    return make_conditional(law, space)(centre)


def matched_temperature(conditional: Law, p: float) -> float:
    """τ such that E‖z − z̃‖_p^p / τ is dim/p, which is what it is for pairs with density ∝ exp(−‖z − z̃‖_p^p / τ).

    For pairs ∝ exp(−(|d|/λ)^β): τ = p λ^p Γ((p+1)/β) / Γ(1/β), which is λ^β for p = β. Truncation to a box is
    not taken into account.

    >>> from identica.experiments.laws import laplace
    >>> matched_temperature(laplace(0.05), 1), round(matched_temperature(laplace(0.05), 2), 6)
    (0.05, 0.01)
    """
    width, power = conditional.width_and_power
    return p * width**p * math.exp(math.lgamma((p + 1.0) / power) - math.lgamma(1.0 / power))


def power_of(model: Law) -> float | None:
    """The p of −‖·‖_p^p that a model's law stands for; None for von Mises-Fisher, which is a dot product."""
    powers = {"laplace": 1.0, "normal": 2.0, "generalized_normal": model.power}
    return powers.get(model.family)


def make_similarity(row: Row, *, matched: bool) -> Similarity:
    """The similarity of the row's model.

    On the sphere ⟨a, b⟩/τ with the model's own τ = 1/κ. Elsewhere −‖a − b‖_p^p / τ with τ = 1 as in paper A,
    or, ``matched``, with the temperature that fits the width of the pairs: on unbounded codes and in
    boxes with learned sides it only sets the scale, and spares the training the way there.
    """
    p = power_of(row.model)
    if p is None:
        if row.model.concentration is None:
            raise ValueError(f"{row.model.label} does not name a similarity.")
        return DotProduct(1.0 / row.model.concentration)
    return LpSimilarity(p, matched_temperature(row.conditional, p) if matched else 1.0)
