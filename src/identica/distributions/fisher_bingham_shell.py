"""The shell approximation to Fisher-Bingham draws, with which paper B's experiments were run: for comparison.

Draw y from the normal N(μ, Λ⁻¹) of the whole space, keep it if its norm is within a tenth of the sphere's, and
project it. That is not the Fisher-Bingham law: the direction x of a kept y has the density

    q(x) = (1/P) |Λ/2π|^½ ∫ r^(d−1) exp(−½ (r x − μ)ᵀΛ(r x − μ)) dr,    0.9 ≤ r ≤ 1.1,

an average of Fisher-Bingham densities over radii, which r^(d−1) draws outwards. P is the probability that y is kept,

    P = |Λ/2π|^½ exp(−½ μᵀΛμ) ∫ r^(d−1) I(r²Λ, rΛμ) dr,    I(Λ, η) = ∫ exp(ηᵀx − ½ xᵀΛx) dx over the unit sphere,

and I is known (:mod:`.fisher_bingham_normalizer`), so that both are one-dimensional integrals of smooth functions.

All functions are about the unit sphere and take the coordinates as the first axis, ``(d, n)``.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from identica.distributions.fisher_bingham_normalizer import log_sphere_integral

#: By how much, relatively, the norm of what is kept may differ from the radius.
HALF_WIDTH = 0.1
#: Probability that a row finds nothing to keep among a fixed number of tries, as far as they may be that many.
LEFTOVER = 1e-9
MOST_TRIES = 4096
#: What keeps less than this share of its proposals is refused: half a million of them for each draw.
LEAST_KEPT = 2e-6
#: How many locations are looked at for the worst, and what the smallest share kept there is multiplied with.
_LOCATIONS = 48
_SAFETY = 0.95
#: On the CPU, rows for which this many proposals were not kept end with the last of them.
_EARLY_FINISH_TRIES = 1 << 24
_ELEMENTS_AT_ONCE = 1 << 20
_MOST_AT_ONCE = 256
#: Enough for precisions up to 1e4, whose normal has a tenth of the shell's half width.
_NODES = 64


@dataclass(frozen=True)
class ShellPlan:
    """How often to try where the number of tries is fixed, and how likely a row then keeps none of them.

    ``leftover`` is the probability at the worst location that was looked at, or None if the precision was one
    number, which has no dimension, or different from row to row.
    """

    tries: int
    leftover: float | None


#: For parameters that cannot be looked at.
BLIND_SHELL = ShellPlan(MOST_TRIES, None)


def make_shell_plan(precision: Tensor, locations: Tensor, *, waits: bool) -> ShellPlan:
    """The plan for one ``precision: (d,)``, judged at ``locations: (d, m)`` on the unit sphere, in float64.

    Where nobody ``waits`` for the device the number of tries is fixed, and a warning says when they are too few.
    """
    some = locations[:, :: max(1, locations.shape[1] // _LOCATIONS)]
    lowest = _SAFETY * log_kept(precision[:, None].expand_as(some), some).min().exp().item()
    if not lowest >= LEAST_KEPT:
        raise ValueError(
            f"The shell approximation keeps less than {LEAST_KEPT:g} of its proposals at this precision (smallest "
            f'entry {precision.min().item():g}): use method="exact", which has no such limit.'
        )
    tries = min(math.ceil(math.log(LEFTOVER) / math.log1p(-min(lowest, 0.999))), MOST_TRIES)
    leftover = (1.0 - lowest) ** tries
    if leftover > LEFTOVER and not waits:
        warnings.warn(
            f"The shell approximation keeps as little as {lowest:.2g} of its proposals at this precision. Of the "
            f"{tries} tries made on this device up to {leftover:.1g} of the draws keep none, and are projected from "
            "wherever they fell.",
            stacklevel=2,
        )
    return ShellPlan(tries, leftover)


def log_kept(precision: Tensor, unit: Tensor) -> Tensor:
    """The log of P, the probability that a proposal is kept: ``(d, n), (d, n) -> (n,)`` in float64."""
    radius, log_weight = _radii(unit.device)
    d, n = unit.shape
    pull = precision * unit
    scaled = (precision[:, None] * radius.square()[:, None]).expand(d, _NODES, n).reshape(d, -1)
    log_integral = log_sphere_integral(scaled, (pull[:, None] * radius[:, None]).reshape(d, -1)).reshape(_NODES, n)
    # More than 36 nats below the largest the contour integral is rounding, which may be negative.
    log_integral = torch.where(log_integral.isnan() & pull.isfinite().all(dim=0), -torch.inf, log_integral)
    log_terms = log_integral + (log_weight + (d - 1) * radius.log())[:, None]
    constant = 0.5 * (precision.log().sum(dim=0) - d * math.log(2.0 * math.pi) - (pull * unit).sum(dim=0))
    return torch.logsumexp(log_terms, dim=0) + constant


def log_shell_density(quadratic: Tensor, linear: Tensor, d: int) -> Tensor:
    """The log of ∫ r^(d−1) exp(−½ a r² + b r) dr over the shell, a = xᵀΛx and b = μᵀΛx of any shape, in float64."""
    radius, log_weight = _radii(quadratic.device)
    total = torch.full_like(quadratic, -torch.inf)
    for r, weight in zip(radius.unbind(), (log_weight + (d - 1) * radius.log()).unbind(), strict=True):
        total = torch.logaddexp(total, weight + r * (linear - 0.5 * r * quadratic))  # one node at a time: less memory
    return total


def _radii(device: torch.device) -> tuple[Tensor, Tensor]:
    """Gauss-Legendre nodes of the shell's radii and the logs of their weights."""
    nodes, weights = (torch.tensor(values, dtype=torch.float64, device=device) for values in _legendre())
    return 1.0 + HALF_WIDTH * nodes, (HALF_WIDTH * weights).log()


@lru_cache(maxsize=1)
def _legendre() -> tuple[list[float], list[float]]:
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return nodes.tolist(), weights.tolist()


def draw_shell_early_finish(scale: Tensor, unit: Tensor, samples: int, generator: torch.Generator | None) -> Tensor:
    """Kept proposals ``(d, samples · n)``, not yet projected; rows without one try again.

    scale: Λ^(−½), ``(d, n)`` or ``(d, 1)``; unit: the locations, ``(d, n)``.
    """
    d, n = unit.shape
    scale = scale.expand(d, n)
    left = torch.arange(samples * n)
    y = unit.new_empty(d, samples * n)
    tries = 0
    while len(left) and tries < _EARLY_FINISH_TRIES:
        at_once = min(max(_ELEMENTS_AT_ONCE // (d * len(left)), 1), _MOST_AT_ONCE)
        rows = left % n
        found, kept = _first_kept(scale[:, rows], unit[:, rows], (at_once, len(left)), generator)
        y.index_copy_(1, left, found)
        left = left[~kept & found.isfinite().all(dim=0)]  # NaN parameters keep nothing, ever
        tries += at_once
    return y


def draw_shell_fixed_tries(
    scale: Tensor, unit: Tensor, samples: int, tries: int, generator: torch.Generator | None
) -> Tensor:
    """The same with all tries made for all rows, so that nothing depends on the data: can be captured."""
    d, n = unit.shape
    at_once = min(max(4 * _ELEMENTS_AT_ONCE // max(d * samples * n, 1), 1), tries)
    shape = (at_once, samples, n)
    y, kept = _first_kept(scale, unit, shape, generator)
    for _ in range(math.ceil(tries / at_once) - 1):
        again, kept_now = _first_kept(scale, unit, shape, generator)
        y = torch.where(kept, y, again)
        kept = kept | kept_now
    return y.reshape(d, -1)


def _first_kept(
    scale: Tensor, unit: Tensor, shape: tuple[int, ...], generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """The first of ``shape[0]`` proposals to be kept, else the first of all; and whether there was one."""
    d = len(unit)
    between = (d, *(1,) * (len(shape) - 1), -1)
    normal = torch.randn((d, *shape), generator=generator, device=unit.device, dtype=unit.dtype)
    y = normal.mul_(scale.reshape(between)).add_(unit.reshape(between))
    kept = (y.square().sum(dim=0).sqrt() - 1.0).abs() <= HALF_WIDTH
    first = kept.to(torch.uint8).argmax(dim=0, keepdim=True)
    return y.gather(1, first.expand(d, *first.shape))[:, 0], kept.any(dim=0)
