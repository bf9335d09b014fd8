"""The parts of a process: how they are drawn from, moved, checked and described."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, constraints
from torch.types import Device

from identica._devices import usable_device
from identica._numbers import whole_number
from identica.distributions.base import LatentDistribution
from identica.distributions.conditional import Conditional
from identica.distributions.fisher_bingham import FisherBingham
from identica.distributions.fisher_bingham_ratio import ratio_precision
from identica.distributions.foreign import sample_with
from identica.distributions.product import ProductDistribution
from identica.distributions.supports import InBox, OnSphere
from identica.distributions.von_mises_fisher import VonMisesFisher
from identica.mixing import Mixing
from identica.spaces import Box, Euclidean, Product, Space, Sphere

ConditionalLike = Conditional | Callable[[Tensor], Distribution]


def as_vectors(distribution: Distribution) -> Distribution:
    """A distribution over vectors; one over numbers, like ``Normal(z, 0.1)``, gets independent coordinates."""
    if distribution.event_shape == () and len(distribution.batch_shape) > 0:
        return Independent(distribution, 1)
    return distribution


def moved_marginal(marginal: Distribution, device: torch.device, dtype: torch.dtype) -> Distribution:
    """The marginal there; a foreign distribution, which cannot move, stays as it is."""
    if isinstance(marginal, ProductDistribution):
        parts = (moved_marginal(part, device, dtype) for part in marginal.parts)
        return ProductDistribution(*parts, validate_args=marginal._validate)
    return marginal.to(device, dtype) if isinstance(marginal, LatentDistribution) else marginal


def moved_mixing(mixing: Mixing | None, device: Device, dtype: torch.dtype | None) -> Mixing | None:
    """The mixing there: itself if nothing has to move, else a moved copy."""
    if mixing is None:
        return None
    tensors = chain(mixing.parameters(), mixing.buffers())
    place = None if device is None else usable_device(device)
    if all(
        t.device == (place or t.device) and (dtype is None or not t.is_floating_point() or t.dtype == dtype)
        for t in tensors
    ):
        return mixing
    return copy.deepcopy(mixing).to(device=place, dtype=dtype)


def space_of(distribution: Distribution) -> Space | None:
    """The space a distribution over vectors lives on, or None if its support is not one of ours.

    >>> from identica.distributions import SphereUniform
    >>> space_of(SphereUniform(3))
    Sphere(dim=3, radius=1.0)
    """
    if isinstance(distribution, ProductDistribution):
        spaces = [space_of(part) for part in distribution.parts]
        return Product(*(s for s in spaces if s is not None)) if None not in spaces else None
    dim = int(distribution.event_shape[0])
    try:
        support: Any = distribution.support
    except NotImplementedError:
        return None
    if isinstance(support, OnSphere):
        return Sphere(dim, float(support.radius)) if support.radius.numel() == 1 else None
    if isinstance(support, constraints.independent):
        support = support.base_constraint
    if isinstance(support, InBox):
        return _box(dim, support.low, support.high)
    if isinstance(support, constraints.interval):
        return _box(dim, support.lower_bound, support.upper_bound)
    if support in (constraints.real, constraints.real_vector):
        return Euclidean(dim)
    return None


def _box(dim: int, low: Any, high: Any) -> Box:
    edges = [torch.as_tensor(edge, dtype=torch.float64).expand(dim).tolist() for edge in (low, high)]
    return Box(dim, _one_or_all(edges[0]), _one_or_all(edges[1]))


def _one_or_all(values: list[float]) -> float | tuple[float, ...]:
    return values[0] if len(set(values)) == 1 else tuple(values)


def describe_marginal(marginal: Distribution) -> dict[str, Any]:
    """``{"family": ..., "parameters": {...}}``, or the name alone for a foreign distribution."""
    if isinstance(marginal, ProductDistribution):
        return {"family": "ProductDistribution", "parts": [describe_marginal(part) for part in marginal.parts]}
    if not isinstance(marginal, LatentDistribution):
        return {"family": f"torch {type(marginal).__name__}"}
    values = {name: getattr(marginal, name) for name in marginal.parameters}
    plain = {name: value.tolist() if isinstance(value, Tensor) else value for name, value in values.items()}
    return {"family": type(marginal).__name__, "parameters": plain}


def describe_conditional(conditional: ConditionalLike | None) -> dict[str, Any] | str | None:
    """The conditional's own description, "user function" for a function, None for nothing."""
    if conditional is None:
        return None
    return conditional.to_dict() if isinstance(conditional, Conditional) else "user function"


def checked_counts(negative_conditional: object, negatives: int, positives: int) -> tuple[int, int]:
    """Both as whole numbers; there are negatives exactly if there is somewhere to draw them from."""
    negatives = whole_number(negatives, "negatives_per_anchor", least=0)
    positives = whole_number(positives, "positives_per_anchor")
    if (negative_conditional is not None) != (negatives > 0):
        raise ValueError(
            "Hard negatives need both negative_conditional (where they come from) and negatives_per_anchor of "
            "at least 1 (how many); without hard negatives give neither."
        )
    return negatives, positives


def checked_marginal(marginal: Distribution) -> tuple[Distribution, int]:
    """The marginal as one distribution over vectors, and their length."""
    if not isinstance(marginal, Distribution):
        raise TypeError(f"The marginal must be a distribution, such as SphereUniform(10), not {marginal!r}.")
    marginal = as_vectors(marginal)
    if marginal.batch_shape != () or len(marginal.event_shape) != 1:
        raise ValueError(
            f"The marginal must be one distribution over vectors, but {marginal!r} has batch shape "
            f"{tuple(marginal.batch_shape)} and event shape {tuple(marginal.event_shape)}; expected () and "
            "(d,)."
        )
    return marginal, int(marginal.event_shape[0])


def check_conditional(
    conditional: ConditionalLike, name: str, z: Tensor, marginal: Distribution, generator: torch.Generator
) -> None:
    """The conditional takes anchors ``z: (n, d)`` of the marginal and gives a distribution for each."""
    if not callable(conditional):
        raise TypeError(
            f"The {name} must be a Conditional or a function from anchors to a distribution, not "
            f"{conditional!r}; for example Conditional(VonMisesFisher, concentration=10.0)."
        )
    try:
        distribution = conditional(z)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(
            f"The {name} cannot be placed at anchors of shape {tuple(z.shape)} drawn from {marginal!r}: {error}"
        ) from error
    if not isinstance(distribution, Distribution):
        raise TypeError(f"The {name} must return a distribution, not {type(distribution).__name__}.")
    distribution = as_vectors(distribution)
    shape = (*distribution.batch_shape, *distribution.event_shape)
    if len(distribution.event_shape) != 1 or shape != tuple(z.shape):
        raise ValueError(
            f"The {name} must give each anchor one distribution over vectors of length {z.shape[1]}, but for "
            f"anchors of shape {tuple(z.shape)} its batch shape is {tuple(distribution.batch_shape)} and its "
            f"event shape {tuple(distribution.event_shape)}."
        )
    if not bool(torch.isfinite(sample_with(distribution, (), generator)).all()):
        raise ValueError(f"The {name} draws NaN or infinite latents around anchors from {marginal!r}.")


def check_mixing(mixing: Mixing, z: Tensor) -> None:
    """The mixing takes latents ``z: (n, d)`` and gives one finite observation for each."""
    if mixing.dim is not None and mixing.dim != z.shape[1]:
        raise ValueError(
            f"The mixing takes latents of length {mixing.dim}, but the marginal draws vectors of length "
            f"{z.shape[1]}; make the mixing with dimension {z.shape[1]}."
        )
    try:
        x = mixing(z)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"The mixing failed on latents of shape {tuple(z.shape)}: {error}") from error
    if not isinstance(x, Tensor) or x.ndim < 2 or len(x) != len(z):
        got = f"a tensor of shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(
            f"The mixing must turn latents ({len(z)}, d) into a tensor of {len(z)} observations, (n, ...); "
            f"it returned {got}."
        )
    if not bool(torch.isfinite(x).all()):
        raise ValueError("The mixing returns NaN or infinite observations for latents drawn from the marginal.")


def warn_of_close_negatives(conditional: ConditionalLike, negative: ConditionalLike | None, dim: int) -> None:
    """Say so if hard negatives lie as close to their anchors as positives, which no similarity can match."""
    both = (conditional, negative)
    if all(isinstance(part, Conditional) and part.family in (FisherBingham, VonMisesFisher) for part in both):
        try:
            ratio_precision(*both, dim)  # type: ignore[arg-type]
        except ValueError as error:
            warnings.warn(str(error), stacklevel=3)
