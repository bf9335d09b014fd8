"""Exact draws from exp(ηᵀx − ½ xᵀΛx) on the unit sphere, by rejection from a projected normal.

The density does not change when s·I is added to Λ, so it is the normal N(m, (Λ+s)⁻¹), m = (Λ+s)⁻¹η,
restricted to the sphere. Draw y from that normal and project it, x = y/|y|. The density of x is that of
the restriction times the radial integral

    J(x) = ∫ r^(d−1) exp(−½ a (r²−1) + b (r−1)) dr,    a = xᵀ(Λ+s)x,  b = ηᵀx,

so accepting x with probability L/J(x), where L ≤ J everywhere, leaves exactly the restriction.

All functions take the coordinates as the first axis, ``(d, n)``: sums over them run along contiguous memory.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from identica.distributions.fisher_bingham_normalizer import saddle_shift
from identica.distributions.radial import log_radial_width

#: Elements of noise drawn at once, at most, when all tries are made whatever their outcome.
_BLOCK_ELEMENTS = 1 << 22
#: Proposals per round for the few rows that are left: as many as cost little more than one.
_REMAINING_PROPOSALS = 2048
_MOST_PROPOSALS_PER_ROW = 64
#: With early finish, rows that were refused this often keep their last proposal, and a warning says so. About
#: 10 √(λ_max / λ_min) tries leave less than 1e-9 of the rows, so these are enough for ratios up to 1e10.
_EARLY_FINISH_TRIES = 1 << 20
#: Largest precision on the unit sphere up to which float32 is used where float64 is as good.
HIGHEST_FLOAT32 = 1e6
_SERIES_NODES = 128
_BINS = 256
#: By how much, relatively, the squared radius may differ from one for bins to be used.
BINS_SLACK = 1e-4


@dataclass(frozen=True)
class Proposal:
    """The normal to draw from, row by row: y = scale · (centre + standard normal)."""

    pull: Tensor  # η, (d, n)
    scale: Tensor  # (λ+s)^(−½), (d, n)
    centre: Tensor  # (λ+s)^(½) m, (d, n)
    log_bound: Tensor  # log L, (n,)

    def rows(self, index: Tensor) -> Proposal:
        """The same for some of the rows."""
        return Proposal(
            self.pull.index_select(1, index),
            self.scale.index_select(1, index),
            self.centre.index_select(1, index),
            self.log_bound.index_select(0, index),
        )


@dataclass(frozen=True)
class SpreadBins:
    """s and log L read off from ηᵀΛ⁻¹η alone, for one Λ and locations on the unit sphere; see :func:`build_bins`."""

    lowest: float
    per_unit: float
    shift: Tensor  # (bins,)
    log_bound: Tensor  # (bins,)

    def look_up(self, spread: Tensor) -> tuple[Tensor, Tensor]:
        """``(n,) -> (n,), (n,)``."""
        index = ((spread - self.lowest) * self.per_unit).clamp_(0, len(self.shift) - 1).long()
        return self.shift.index_select(0, index), self.log_bound.index_select(0, index)


def build_proposal(precision: Tensor, unit: Tensor, steps: int, bins: SpreadBins | None = None) -> Proposal:
    """The proposal for ``precision: (d, n)`` and η = Λ · unit with ``unit: (d, n)``.

    ``steps`` of Newton's method choose s, unless there are bins to read it off from; both affect how often
    proposals are accepted, and nothing else.
    """
    d = unit.shape[0]
    pull = precision * unit
    spread = (pull * unit).sum(dim=0)  # ηᵀΛ⁻¹η
    if bins is not None:
        shift, log_bound = bins.look_up(spread)
    else:
        shift = saddle_shift(precision, pull, steps=steps, weight=1.0 - 1.0 / d)
        log_bound = log_lower_bound(shift, spread, precision.amin(dim=0), precision.amax(dim=0), d)
    scale = (precision + shift).rsqrt_()
    return Proposal(pull, scale, scale * pull, log_bound)


def build_bins(precision: Tensor, steps: int, dtype: torch.dtype) -> SpreadBins:
    """Bins of ηᵀΛ⁻¹η between its extremes λ_min and λ_max for one ``precision: (d,)`` in float64.

    Every s is allowed, so each bin may have one of its own: the s for a location that mixes the loosest and the
    tightest coordinate such that it falls into the middle of the bin. L is the bound at the upper edge, where
    the set over which it is taken is largest; rounding, and a radius of not exactly one, make it a bit larger.
    """
    smallest, largest = precision.min(), precision.max()
    edges = torch.linspace(0.0, 1.0, _BINS + 1, dtype=precision.dtype)
    tight = 0.5 * (edges[1:] + edges[:-1])
    pull = torch.zeros(len(precision), _BINS, dtype=precision.dtype)
    pull[precision.argmin()], pull[precision.argmax()] = smallest * (1.0 - tight).sqrt(), largest * tight.sqrt()
    columns = precision[:, None].expand_as(pull)
    shift = saddle_shift(columns, pull, steps=steps, weight=1.0 - 1.0 / len(precision)).to(dtype)
    upper = torch.lerp(smallest, largest, edges[1:]) * (1.0 + BINS_SLACK)
    widest = (smallest * (1.0 - BINS_SLACK)).to(dtype), (largest * (1.0 + BINS_SLACK)).to(dtype)
    log_bound = log_lower_bound(
        shift, upper.to(dtype), widest[0].expand(_BINS), widest[1].expand(_BINS), len(precision)
    )
    return SpreadBins(smallest.item(), _BINS / (largest - smallest).item(), shift, log_bound)


def draw_early_finish(proposal: Proposal, samples: int, generator: torch.Generator | None) -> Tensor:
    """Directions ``(d, samples · n)``, not yet normalised; the later tries are for refused rows only."""
    d, n = proposal.scale.shape
    y, accepted = _propose(proposal, _noise(proposal, (samples, n), generator))
    y = y.reshape(d, -1)
    left = torch.nonzero(~accepted.reshape(-1))[:, 0]
    tries = 1
    while len(left) and tries < _EARLY_FINISH_TRIES:
        repeats = min(max(_REMAINING_PROPOSALS // len(left), 1), _MOST_PROPOSALS_PER_ROW)
        rows = proposal.rows(left % n)
        again, accepted = _first_accepted(rows, (repeats, len(left)), generator)
        y.index_copy_(1, left, again)
        left = left[~accepted & torch.isfinite(rows.log_bound)]  # NaN parameters accept nothing, ever
        tries += repeats
    if tries >= _EARLY_FINISH_TRIES and len(left):
        warnings.warn(
            f"{len(left)} of {samples * n} Fisher-Bingham draws were refused {tries} times and keep their last "
            "proposal, which does not have the right law: the precisions are too uneven. Bring them closer together.",
            stacklevel=2,
        )
    return y


def draw_fixed_tries(proposal: Proposal, samples: int, tries: int, generator: torch.Generator | None) -> Tensor:
    """The same with all tries made for all rows, so that nothing depends on the data: can be captured."""
    d, n = proposal.scale.shape
    block = min(max(_BLOCK_ELEMENTS // max(d * samples * n, 1), 1), tries)
    y, accepted = _first_accepted(proposal, (block, samples, n), generator)
    for _ in range(math.ceil(tries / block) - 1):
        again, accepted_now = _first_accepted(proposal, (block, samples, n), generator)
        y = torch.where(accepted, y, again)
        accepted = accepted | accepted_now
    return y.reshape(d, -1)


def _noise(proposal: Proposal, shape: tuple[int, ...], generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    like = proposal.scale
    normal = torch.randn((len(like), *shape), generator=generator, device=like.device, dtype=like.dtype)
    uniform = torch.rand(shape, generator=generator, device=like.device, dtype=like.dtype)
    return normal, uniform


def _first_accepted(
    proposal: Proposal, shape: tuple[int, ...], generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """The first of ``shape[0]`` proposals that is accepted, else the first; and whether there was one."""
    y, accepted = _propose(proposal, _noise(proposal, shape, generator))
    if shape[0] == 1:
        return y[:, 0], accepted[0]
    first = accepted.to(torch.uint8).argmax(dim=0, keepdim=True)
    return y.gather(1, first.expand(len(y), *first.shape))[:, 0], accepted.any(dim=0)


def _propose(proposal: Proposal, noise: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Proposals y ``(d, ..., n)`` and whether they are accepted, ``(..., n)``; uses up the noise."""
    normal, uniform = noise
    d = len(normal)
    between = (d, *(1,) * (normal.ndim - 2), -1)
    scale = proposal.scale.view(between)
    whitened = normal.add_(proposal.centre.view(between))
    y = whitened * scale
    # Fresh memory costs more than the arithmetic here, so the noise's is used again and again.
    quadratic = whitened.square_().sum(dim=0)  # a |y|²
    linear = torch.mul(y, proposal.pull.view(between), out=normal).sum(dim=0)  # b |y|
    size = torch.mul(y, y, out=normal).sum(dim=0)
    log_ratio = log_radial_ratio(torch.sqrt(quadratic / size), linear * quadratic.rsqrt(), d)
    return y, uniform.log_() < proposal.log_bound - log_ratio


def log_radial_ratio(root_a: Tensor, beta: Tensor, d: int) -> Tensor:
    """The log of J, given √a and β = b/√a.

    With t = ½ (β + √(β² + 4d)) the mode of r^d exp(−½ r² + β r),

        log J = ½ (t − √a)² + d (√a/t − 1 − log(√a/t)) − ½ log(d + t²) + q_d(t),

    where q_d, up to a constant a small correction to Laplace's approximation, is a polynomial in
    (t² − d)/(t² + d).
    """
    t = _mode(beta, d)
    squared = t.square()
    total = squared + d
    gap = root_a - t
    excess = gap / t
    value = excess.log1p().neg_().add_(excess).mul_(d).add_(gap.square_(), alpha=0.5)
    value.add_(torch.log(total), alpha=-0.5)
    return value.add_(_horner(correction_series(d, t.dtype), squared.sub_(d).div_(total)))


def mean_radius(root_a: Tensor, beta: Tensor, d: int) -> Tensor:
    """The mean of r under r^(d−1) exp(−½ a r² + b r), the derivative of log J in b, plus one."""
    t = _mode(beta, d)
    total = t.square() + d
    slopes = tuple(k * c for k, c in enumerate(correction_series(d, t.dtype)))[1:]
    slope = _horner(slopes, 1.0 - 2.0 * d / total)
    share = 1.0 - d / total
    return t / root_a * (1.0 - share / total + 4.0 * share * d / total.square() * slope)


def _mode(beta: Tensor, d: int) -> Tensor:
    # This form loses digits where β is far below −√d; such points oppose the pull and are not accepted anyway.
    return torch.sqrt(beta.square() + 4.0 * d).add_(beta).mul_(0.5)


def _horner(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    value = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value.mul_(x).add_(coefficient)
    return value


@lru_cache(maxsize=256)
def correction_series(d: int, dtype: torch.dtype) -> tuple[float, ...]:
    """Coefficients of q_d as a polynomial in (t² − d)/(t² + d) ∈ [−1, 1], to 1e-10 (float32: 1e-7).

    q_d(t) = log ∫ exp(−d (e^v − 1 − v) − ½ t² (e^v − 1)²) dv + ½ log(d + t²) is smooth up to both ends,
    where t is 0 and infinite, so that its Chebyshev series converges quickly.
    """
    tolerance = 1e-10 if dtype == torch.float64 else 1e-7
    nodes = np.polynomial.chebyshev.chebpts1(_SERIES_NODES)
    squared = torch.tensor(d * (1.0 + nodes) / (1.0 - nodes))
    correction = log_radial_width(squared, d) + 0.5 * torch.log(d + squared)
    series = np.polynomial.chebyshev.chebfit(nodes, correction.numpy(), _SERIES_NODES - 1)
    left_out = np.abs(series)[::-1].cumsum()[::-1]
    kept = series[: max(2, int((left_out > tolerance).sum()))]
    return tuple(np.polynomial.chebyshev.cheb2poly(kept).tolist())


def log_lower_bound(shift: Tensor, spread: Tensor, smallest: Tensor, largest: Tensor, d: int) -> Tensor:
    """A number log L below log J(x) for all x of the sphere, row by row: all arguments ``(n,)``.

    With a' = xᵀΛx every x has λ_min ≤ a' ≤ λ_max, and b² ≤ ηᵀΛ⁻¹η · a' by Cauchy and Schwarz: a convex
    set of (a', b). On it log J is convex, because it is a log-integral of exponentials linear in a and b.
    So the plane tangent to it at *any* point lies below it everywhere, and the least value of the plane
    over the set, which is elementary, is a true bound; a point near the minimum makes it tight.
    """
    a, b = _near_minimum(shift, spread, smallest, largest, d)
    quadratic = a + shift
    root_a = quadratic.sqrt()
    value = log_radial_ratio(root_a, b / root_a, d)
    radius = mean_radius(root_a, b / root_a, d)
    slope_b = radius - 1.0
    slope_a = 0.5 - 0.5 * (d + b * radius) / quadratic  # −½ (E r² − 1), E r² by partial integration
    # Least value of slope_a a' − |slope_b| √(spread a') over √a' between √λ_min and √λ_max.
    pull = slope_b.abs() * spread.sqrt()
    tiny = torch.finfo(pull.dtype).tiny
    best = torch.where(slope_a > 0, 0.5 * pull / slope_a.clamp_min(tiny), largest.sqrt())
    best = torch.minimum(torch.maximum(best, smallest.sqrt()), largest.sqrt())
    lowest = (slope_a * best - pull) * best
    # Room for rounding here and in log J, and for what the correction's series leaves out.
    # In float32 the first costs most acceptances where λ is above HIGHEST_FLOAT32.
    margin = torch.finfo(value.dtype).eps * (largest + d) + (1e-9 if value.dtype == torch.float64 else 1e-5)
    return value + (lowest - slope_a * a - slope_b * b) - margin


def _near_minimum(shift: Tensor, spread: Tensor, smallest: Tensor, largest: Tensor, d: int) -> tuple[Tensor, Tensor]:
    """Where on the convex set J is about smallest: where its integrand peaks near r = 1, a as large as it gets.

    The peak is at r = 1 where a − b = d. On the curved edge, b = √(spread · a'), that is a quadratic equation
    in √a'; on the straight edges b takes the value for which the mean of r is about 1.
    """
    root = spread.sqrt()
    root_a = 0.5 * (root + torch.sqrt((spread + 4.0 * (d - shift)).clamp_min(0.0)))
    root_a = torch.minimum(torch.maximum(root_a, smallest.sqrt()), largest.sqrt())
    a = root_a.square()
    edge = root * root_a
    inside = (a + shift) - (d - 1) * (1.0 + 1.0 / (d - 1 + a + shift))
    return a, torch.maximum(torch.minimum(edge, inside), -edge)
