"""The contrastive loss of known maps, sampled with the package's own processes and losses, M by M."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from identica.diagnostics.theory.quadrature import (
    Map,
    Population,
    on_interval,
    on_sphere,
    sphere_rule,
    split_rule,
)
from identica.distributions import BoxUniform, Conditional, SphereUniform, TruncatedLaplace, VonMisesFisher
from identica.functional import info_nce_terms
from identica.processes import PairProcess
from identica.similarities import DotProduct, LpSimilarity, Similarity

#: The pairs and the similarity of all checks on known maps. h(z) = √(τκ)·z and h(z) = (τ/λ)·z are their minimisers.
CONCENTRATION, SCALE, TEMPERATURE = 4.0, 0.25, 0.5
BOX_DIM = 2
RADIUS = math.sqrt(TEMPERATURE * CONCENTRATION)
STRETCH = TEMPERATURE / SCALE


@dataclass(frozen=True)
class KnownMap:
    """A map from latents to codes under a process: what to sample from, and what should come out.

    ``log_mean(z)``: log E exp u(h(z), h(z⁻)) of each row, by quadrature.
    """

    name: str
    process: PairProcess
    similarity: Similarity
    h: Map
    population: Population
    log_mean: Callable[[Tensor], Tensor]


def known_maps(nodes: int) -> dict[str, KnownMap]:
    """On the sphere and on the box, the true latents (up to scale) and a smoothly bent copy of them."""
    maps = [
        _on_sphere("sphere, truth", lambda z: RADIUS * z, nodes),
        _on_sphere("sphere, bent", lambda z: RADIUS * _bent_direction(z), nodes),
        _on_box("box, truth", lambda z: STRETCH * z, nodes),
        _on_box("box, bent", lambda z: STRETCH * (z + 0.1 * torch.sin(2 * math.pi * z)), nodes),
    ]
    return {known.name: known for known in maps}


def _bent_direction(z: Tensor) -> Tensor:
    moved = z + 0.4 * z.roll(1, dims=-1).square()
    return moved / moved.norm(dim=-1, keepdim=True)


def _on_sphere(name: str, h: Map, nodes: int) -> KnownMap:
    process = PairProcess(SphereUniform(3), Conditional(VonMisesFisher, concentration=CONCENTRATION))
    points, weights = sphere_rule(nodes)
    codes, log_weights = h(points), (weights / weights.sum()).log()
    return KnownMap(
        name,
        process.to(dtype=torch.float64),
        DotProduct(TEMPERATURE),
        h,
        on_sphere(h, concentration=CONCENTRATION, temperature=TEMPERATURE, nodes=nodes),
        lambda z: (h(z) @ codes.T / TEMPERATURE + log_weights).logsumexp(dim=1),
    )


def _on_box(name: str, h: Map, nodes: int) -> KnownMap:
    """``h`` acts on each coordinate alone, so that expectations are products over coordinates."""
    process = PairProcess(BoxUniform(BOX_DIM), Conditional(TruncatedLaplace, scale=SCALE))

    def log_mean(z: Tensor) -> Tensor:
        flat = z.reshape(-1)
        candidates, weights = split_rule(flat, nodes)
        u = -(h(candidates) - h(flat)[:, None]).abs() / TEMPERATURE
        return (u + weights.log()).logsumexp(dim=1).reshape(z.shape).sum(dim=1)

    one = on_interval(h, scale=SCALE, temperature=TEMPERATURE, power=1.0, nodes=nodes)
    return KnownMap(
        name, process.to(dtype=torch.float64), LpSimilarity(1, TEMPERATURE), h, one.copies(BOX_DIM), log_mean
    )


@dataclass(frozen=True)
class Estimate:
    """A mean over independent batches and its standard error."""

    mean: float
    standard_error: float

    @staticmethod
    def of(batches: Tensor) -> Estimate:
        """From one value for each batch, ``(repeats,)``."""
        return Estimate(float(batches.mean()), float(batches.std() / len(batches) ** 0.5))


@dataclass(frozen=True)
class SampledLoss:
    """The loss with M negatives.

    normalised: loss − log M + log|Z|. gap: its distance to the limit, with what is known to be zero on average
    taken out pair by pair, so that it has far less noise. without_positive: how much the loss falls when the
    positive leaves the denominator.
    """

    negatives: int
    normalised: Estimate
    gap: Estimate
    without_positive: Estimate


@torch.no_grad()
def sampled_losses(
    known: KnownMap, negatives: tuple[int, ...], *, anchors: int, repeats: int, generator: torch.Generator
) -> tuple[SampledLoss, ...]:
    """The loss for each M, from ``repeats`` batches of ``anchors`` pairs, each batch with negatives of its own."""
    rows: dict[int, list[Tensor]] = {m: [] for m in negatives}
    for _ in range(repeats):
        pairs = known.process.sample(anchors, generator)
        others = known.h(known.process.sample(max(negatives), generator).z)
        h, h_pos, log_mean = known.h(pairs.z), known.h(pairs.z_pos), known.log_mean(pairs.z)
        for m in negatives:
            rows[m].append(_batch(known, h, h_pos, others[:m], log_mean))
    columns = [(m, torch.stack(rows[m]).T) for m in negatives]
    return tuple(SampledLoss(m, *(Estimate.of(values) for values in column)) for m, column in columns)


def _batch(known: KnownMap, h: Tensor, h_pos: Tensor, h_neg: Tensor, log_mean: Tensor) -> Tensor:
    """The three quantities of :class:`SampledLoss`, averaged over one batch: ``(3,)``."""
    with_positive = info_nce_terms(h, h_pos, h_neg, similarity=known.similarity).per_item
    negatives_only = info_nce_terms(h, h_pos, h_neg, similarity=known.similarity, include_positive=False).per_item
    normalised = with_positive - math.log(len(h_neg)) + known.population.log_volume
    # Minus u(z, z̃) + log E e^u, whose mean is the limit; and minus (mean of e^u over the negatives) / E e^u − 1,
    # whose mean is zero and which is nearly all of the noise of many anchors that share their negatives.
    aligned = known.similarity(h, h_pos)
    limit = log_mean - aligned + known.population.log_volume
    surplus = (negatives_only + aligned - math.log(len(h_neg)) - log_mean).expm1()
    return torch.stack(
        [normalised.mean(), (normalised - limit - surplus).mean(), (with_positive - negatives_only).mean()]
    )
