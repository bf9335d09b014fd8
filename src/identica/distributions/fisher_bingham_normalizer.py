"""The integral of exp(ηᵀx − ½ xᵀΛx) over the unit sphere, for diagonal Λ ≥ 0.

Adding s·I to Λ changes the integrand by a constant on the sphere, so the sphere can be put in as a delta
function written as a Fourier integral over s, and the normal integral over x then done in closed form:

    ∫ exp(ηᵀx − ½ xᵀΛx) dx = (2π)^(d/2) / (2πi) ∫ exp(½ s + ½ Σ ηᵢ²/(λᵢ+s)) Π (λᵢ+s)^(−½) ds

along any line to the right of all −λᵢ. All functions here take the coordinates as the first axis, so that
sums over them run along contiguous memory: ``precision, pull: (d, n)``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

#: The contour ends where the integrand has fallen to about exp(-CUTOFF) of its value at the saddle point.
CUTOFF = 36.0
#: Nodes when the parameters cannot be looked at: enough for precisions up to 1e5 with any ratio.
DEFAULT_NODES = 1024
#: Enough for precisions up to 1e9 with any ratio.
MAX_NODES = 1 << 20
_SADDLE_STEPS = 8
#: Below the root for every precision and pull on the unit sphere.
LOWEST_SHIFT = 0.25
_CHUNK_ELEMENTS = 1 << 21


def log_sphere_integral(precision: Tensor, pull: Tensor) -> Tensor:
    """The log of ∫ exp(pullᵀx − ½ xᵀ diag(precision) x) over the unit sphere: ``(d, n), (d, n) -> (n,)``.

    In float64 to 1e-11, or to the rounding error of the largest precision where that is more, for precisions up to
    1e9; beyond 1e5 that needs parameters on the CPU, where the number of nodes follows from them.
    It has derivatives of every order: the first in ``pull`` is the mean of x, the first in ``precision`` is
    −½ times the mean of x².
    """
    precision, pull = torch.broadcast_tensors(precision, pull)
    d, rows = precision.shape
    with torch.no_grad():
        shift = saddle_shift(precision, pull, steps=_SADDLE_STEPS)
        bend = _bend(precision + shift, pull)
        nodes = _node_count(precision + shift, bend)
    per_chunk = max(1, _CHUNK_ELEMENTS // (d * nodes))
    if rows <= per_chunk:
        return _contour_integral(precision, pull, shift, bend, nodes)
    # Bounded memory forwards and backwards: each chunk keeps its inputs only and is computed anew for
    # its gradient.
    chunks = [
        checkpoint(_contour_integral, *chunk, nodes, use_reentrant=False, preserve_rng_state=False)
        for chunk in zip(
            precision.split(per_chunk, dim=1),
            pull.split(per_chunk, dim=1),
            shift.split(per_chunk),
            bend.split(per_chunk),
            strict=True,
        )
    ]
    return torch.cat(chunks)


def saddle_shift(precision: Tensor, pull: Tensor, *, steps: int, weight: float = 1.0) -> Tensor:
    """The s > 0 with Σ (ηᵢ/(λᵢ+s))² + weight Σ 1/(λᵢ+s) = 1: ``(d, n), (d, n) -> (n,)``.

    With weight 1 this is the saddle point of the integrand above, where the normal vector
    N((Λ+s)⁻¹η, (Λ+s)⁻¹) has squared norm one on average. Newton's method on the reciprocal of the left
    side, which is nearly linear in s; two steps settle precisions within a factor of ten of each other,
    six those between 0 and 1000. No result depends on how far it has converged.
    """
    d = precision.shape[0]
    shift = torch.full_like(pull[0], 0.5 * (d - 1))
    for _ in range(steps):
        inverse = (precision + shift).reciprocal_()
        fit = (pull * inverse).square_()
        left = fit.sum(dim=0) + weight * inverse.sum(dim=0)
        slope = 2.0 * fit.mul_(inverse).sum(dim=0) + weight * inverse.square_().sum(dim=0)
        # The first step may land below the root, even below zero; from there on they rise towards it.
        shift = torch.addcdiv(shift, (left - 1.0) * left, slope).clamp_min_(LOWEST_SHIFT)
    return shift


def _bend(base: Tensor, pull: Tensor) -> Tensor:
    """(Σ pᵢ √(λᵢ+s))², pᵢ ∝ (ηᵢ/(λᵢ+s))² + 1/(λᵢ+s): how wide the contour opens, ``(d, n), (d, n) -> (n,)``.

    pᵢ is what coordinate i has of the squared norm at the saddle point. The wider the contour, the later it
    ends and the more often the integrand oscillates on it; the narrower, the more a pole exp(½ ηᵢ²/(λᵢ+s))
    that it passes on its way left makes it rise. A coordinate of little weight may be passed closely.
    """
    inverse = base.reciprocal()
    weight = (pull * inverse).square_() + inverse
    return ((weight * base.sqrt()).sum(dim=0) / weight.sum(dim=0)).square_()


def _node_count(base: Tensor, bend: Tensor) -> int:
    """The wider the contour, compared with the smallest λ + s, the more the integrand oscillates."""
    if base.device.type != "cpu" or base.numel() == 0:
        return DEFAULT_NODES
    ratio = (bend / base.amin(dim=0)).max().item()
    if not math.isfinite(ratio):  # NaN parameters, unvalidated: any count gives NaN
        return DEFAULT_NODES
    return min(64 + math.ceil(28.0 * math.sqrt(ratio)), MAX_NODES)


def _contour_integral(precision: Tensor, pull: Tensor, shift: Tensor, bend: Tensor, nodes: int) -> Tensor:
    """The trapezoid rule along the parabola s = shift + A (2iu − u²), A = bend, u = σ sinh v.

    The parabola leaves the saddle point upwards, where the integrand falls fastest, and bends left around
    all singularities so that exp(½ s) makes it fall for good. The integrand at the conjugate point is the
    conjugate, hence v ≥ 0 only. Real arithmetic throughout: torch's complex logarithm is many times slower.
    """
    d = precision.shape[0]
    squared_pull = pull.square()
    base = precision + shift  # λ + s at the saddle point, (d, n)
    with torch.no_grad():
        curvature = (squared_pull / base**3 + 0.5 / base**2).sum(dim=0)
        spread = 1.0 / (bend * curvature.sqrt())  # σ: twice the width of the saddle
        furthest = torch.asinh((2.0 * CUTOFF / bend).sqrt() / spread)
        step = furthest / (nodes - 1)
        index = torch.arange(nodes, device=base.device, dtype=base.dtype)
        v = step.unsqueeze(-1) * index
        u = spread.unsqueeze(-1) * torch.sinh(v)
        # ds / i = 2A (1 + iu) σ cosh(v) dv; the first node lies on the axis and counts half.
        weight = (2.0 / math.pi * bend * spread * step).unsqueeze(-1) * torch.cosh(v)
        weight = torch.where(index == 0, 0.5 * weight, weight)
        real = -bend.unsqueeze(-1) * u.square()  # of s - shift, (n, nodes)
        imaginary = 2.0 * bend.unsqueeze(-1) * u
    base, squared_pull = base.unsqueeze(-1), squared_pull.unsqueeze(-1)
    x = base + real  # λ + s = x + i·imaginary, (d, n, nodes)
    size = x.square() + imaginary.square()
    # Differences to the value at the saddle point: what remains is of order one there.
    fit = squared_pull * (x / size - 1.0 / base)
    log_size = 0.5 * real + 0.5 * fit.sum(dim=0) - 0.25 * (size / base.square()).log().sum(dim=0)
    turned = squared_pull / size
    phase = 0.5 * imaginary * (1.0 - turned.sum(dim=0)) - 0.5 * torch.atan2(imaginary, x).sum(dim=0)
    total = (weight * log_size.exp() * (torch.cos(phase) - u * torch.sin(phase))).sum(dim=-1)
    base, squared_pull = base.squeeze(-1), squared_pull.squeeze(-1)
    peak = 0.5 * shift + 0.5 * (squared_pull / base).sum(dim=0) - 0.5 * base.log().sum(dim=0)
    return 0.5 * d * math.log(2.0 * math.pi) + peak + total.log()
