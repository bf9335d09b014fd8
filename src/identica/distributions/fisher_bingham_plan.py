"""How many tries the Fisher-Bingham sampler needs, worked out on the host before anything is drawn.

The probability that a proposal is accepted is known exactly, because both the bound L and the integral I of
exp(ηᵀx − ½ xᵀΛx) over the sphere are:

    P = L · I · (2π)^(−d/2) det(Λ+s)^½ exp(−½ ηᵀ(Λ+s)⁻¹η − ½ s).
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from itertools import combinations

import torch
from torch import Tensor

from identica.distributions.fisher_bingham_normalizer import log_sphere_integral
from identica.distributions.fisher_bingham_sampler import (
    HIGHEST_FLOAT32,
    Proposal,
    SpreadBins,
    build_bins,
    build_proposal,
)

#: Probability that a row finds no accepted proposal among all its tries.
LEFTOVER = 1e-9
MOST_TRIES = 1 << 20
#: The precision times the radius squared, and the radius, up to which the number of tries is worked out.
HIGHEST_PRECISION = 1000.0
LARGEST_RADIUS = 10.0
#: Beyond this float64 rounds so much that a part of the draws is refused however often they are tried.
_TOO_HIGH = 1e12
#: What the smallest acceptance found is multiplied with, as the search for it covers some locations only.
SAFETY = 0.95
#: Bins are used where they keep this share of the acceptances, so not for very uneven precisions.
WORTHWHILE = 0.9
_ANGLES = 17
_LEVELS = 5


@dataclass(frozen=True)
class SamplingPlan:
    """What the sampler wants to know about the precision beforehand."""

    #: All entries of the precision are equal: the distribution is von Mises-Fisher.
    isotropic: bool
    #: Newton steps for the shift s.
    steps: int
    #: Proposals per row when their number is fixed.
    tries: int
    #: A shortcut for one precision and locations on the unit sphere, on the CPU.
    bins: SpreadBins | None = field(default=None, compare=False)


#: For parameters that cannot be looked at without waiting for the device. With precisions between 0 and 1000
#: and up to 512 dimensions the acceptance is lowest, 0.068, for one free coordinate among 299 tight ones.
BLIND_PLAN = SamplingPlan(isotropic=False, steps=6, tries=330)


def look(precision: Tensor, squared_radius: float = 1.0) -> SamplingPlan:
    """A plan from a glance at the precision ``(..., d)``; the number of tries is that for the worst case."""
    isotropic = bool((precision == precision[..., :1]).all())
    smallest, largest = torch.aminmax(precision, dim=-1)
    steps = _newton_steps(smallest, largest, squared_radius)
    return SamplingPlan(isotropic, steps, BLIND_PLAN.tries)


def make_plan(precision: Tensor, dtype: torch.dtype, *, waits: bool = True) -> SamplingPlan:
    """The plan for one precision ``(d,)`` at any location.

    It holds for spheres up to the radius √(1000 / max λ), but at least 1 and at most 10; on larger ones the
    tries may leave more than 1e-9 of the rows. Where nobody ``waits`` for the device, so that the number of tries is
    fixed, a warning says when it is too small.
    """
    precision = precision.detach().to("cpu", torch.float64)
    highest = min(max(1.0, HIGHEST_PRECISION / max(precision.max().item(), 1e-300)), LARGEST_RADIUS**2)
    glance = look(precision, squared_radius=highest)
    if glance.isotropic or precision.ndim != 1:
        return glance
    if precision.max().item() > _TOO_HIGH:
        raise ValueError(
            f"Fisher-Bingham draws need precisions of at most {_TOO_HIGH:g} where they are not all equal, not "
            f"{precision.max().item():g}: float64 has too few digits for more."
        )
    unit = hard_locations(precision)

    def rates(squared_radius: float, bins: SpreadBins | None = None) -> Tensor:
        scaled = (squared_radius * precision)[:, None].expand_as(unit)
        return acceptance(scaled, build_proposal(scaled, unit, glance.steps, bins))

    here = rates(1.0)
    lowest = min(here.min().item(), *(rates(r).min().item() for r in {math.sqrt(highest), highest} - {1.0}), 1.0)
    tries = _tries(lowest, precision.max().item(), dtype, waits)
    bins = build_bins(precision, glance.steps, dtype)
    worthwhile = bool((rates(1.0, bins) > WORTHWHILE * here).all())
    return SamplingPlan(False, glance.steps, tries, bins if worthwhile else None)


def _tries(lowest: float, largest: float, dtype: torch.dtype, waits: bool) -> int:
    """How many leave less than 1e-9 of the rows, given the lowest acceptance in float64; NaN where it is too low."""
    if not waits and largest > HIGHEST_FLOAT32:
        lowest *= math.exp(-torch.finfo(dtype).eps * largest)  # what the bound leaves room for, for rounding
    share = min(SAFETY * lowest, 0.999)
    needed = math.log(LEFTOVER) / math.log1p(-share) if share > 0 else math.inf
    if needed > MOST_TRIES and not waits:
        warnings.warn(
            f"Precisions up to {largest:g} are too large or too uneven for {dtype} on this device: {MOST_TRIES} tries "
            f"may leave more than {LEFTOVER:g} of the Fisher-Bingham draws, which keep a proposal that does not have "
            "the right law. Lower the precisions, or draw on the CPU.",
            stacklevel=3,
        )
    return math.ceil(min(needed, MOST_TRIES))


def acceptance(precision: Tensor, proposal: Proposal) -> Tensor:
    """The exact probability that a proposal is accepted: ``precision: (d, n) -> (n,)``."""
    d = len(precision)
    shifted = proposal.scale.pow(-2)
    shift = (shifted - precision).mean(dim=0)
    log_constant = shifted.log().sum(dim=0) - proposal.centre.square().sum(dim=0) - shift
    log_integral = log_sphere_integral(precision, proposal.pull)
    return torch.exp(proposal.log_bound + log_integral + 0.5 * log_constant - 0.5 * d * math.log(2.0 * math.pi))


def _newton_steps(smallest: Tensor, largest: Tensor, squared_radius: float) -> int:
    """As many as bring the acceptance within two per cent of what it is when s has settled."""
    ratio = (1.0 + squared_radius * largest) / (1.0 + squared_radius * smallest)
    worst = ratio.max().item() if ratio.numel() else 1.0
    return max(1, round(0.5 * math.log2(worst))) if math.isfinite(worst) else BLIND_PLAN.steps


def hard_locations(precision: Tensor) -> Tensor:
    """Locations ``(d, m)`` among which acceptance is lowest: arcs between two coordinate axes.

    As for the Kantorovich inequality, the worst locations mix a loose and a tight coordinate. Coordinates
    of equal precision are interchangeable, so one of each kind stands for all; of many kinds, a few.
    """
    order = torch.argsort(precision)
    levels = order[torch.linspace(0, len(order) - 1, min(_LEVELS, len(order))).round().long()]
    angles = torch.linspace(0.0, 0.5 * math.pi, _ANGLES, dtype=precision.dtype)
    columns = [torch.full_like(precision, len(precision) ** -0.5)]
    for first, second in combinations(levels.tolist(), 2):
        for angle in angles:
            column = torch.zeros_like(precision)
            column[first], column[second] = angle.cos(), angle.sin()
            columns.append(column)
    return torch.stack(columns, dim=1)
