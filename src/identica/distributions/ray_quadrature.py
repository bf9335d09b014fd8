"""Integrals along a ray from the origin, for vectors with independent coordinates.

If y = loc + noise has the density ∝ exp(-Σᵢ (|yᵢ - locᵢ| / sᵢ)^β), the density of its direction u is an
integral over the points r u of the ray:

    ∫₀^∞ r^(d-1) exp(-Σᵢ |r uᵢ/sᵢ - locᵢ/sᵢ|^β) dr.

Each coordinate puts a kink (β = 1) or a cusp (β < 1) at r = locᵢ/uᵢ, and the peak may be a thousand times
narrower than its place, or, for β < 1, one of several. So the integral is taken over log r, in panels:

1. A mesh of edges starts with everything from e^-230 to e^230. Between two edges every term is smallest at
   one of them, or zero if its kink lies between; that bounds the integrand from above, for every β. Panels
   whose bound is negligible are dropped and the edges respaced to where the integrand is and changes.
2. The kinks become edges too, and each panel gets a Gauss-Legendre rule. For powers
   that leave |r - kink|^β rough at the ends of a panel, its nodes are drawn towards them.

The relative error stays below 1e-7 for powers from 0.2 to 20, at every scale. Far out, where the log of the
integral is -1e6 or -1e30, that log is right to rounding.

>>> zero, one = torch.zeros(2, dtype=torch.float64), torch.tensor([1.0, 0.0], dtype=torch.float64)
>>> bool(log_ray_integral(one, zero, 1.0).abs() < 1e-12)  # log ∫ r exp(-r) dr = 0
True
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from identica.distributions.power_integral import distance_power

#: The integrand is ignored where it is below exp(-NEGLIGIBLE) of its peak.
NEGLIGIBLE = 32.0
_FARTHEST = 230.0
_PANELS = 16
_SCANS = 10
#: Numbers held at once in one intermediate tensor: what fits a CPU's cache, what fills a GPU.
_BUDGET_CPU, _BUDGET_ELSEWHERE = 2**20, 2**25


def log_ray_integral(slope: Tensor, offset: Tensor, power: float) -> Tensor:
    """The log of ∫₀^∞ r^(d-1) exp(-Σᵢ |r slopeᵢ - offsetᵢ|^power) dr, row by row.

    ``slope``, ``offset``: ``(..., d)`` in float64, at least one slope of each row not zero. Returns ``(...)``,
    differentiable in both. Memory does not grow with the number of rows beyond that of the inputs, with or
    without gradients; time grows with d³, for power 1 with d².
    """
    slope, offset = torch.broadcast_tensors(slope, offset)
    batch, d = slope.shape[:-1], slope.shape[-1]
    # Coordinates come first from here on: sums over them are then sums of long vectors, also for small d.
    slope, offset = slope.reshape(-1, d).T.contiguous(), offset.reshape(-1, d).T.contiguous()
    chunk = _rows_at_once(d, power, slope.device)
    remember = torch.is_grad_enabled() and (slope.requires_grad or offset.requires_grad)
    parts = []
    for start in range(0, slope.shape[1], chunk):
        inputs = (slope[:, start : start + chunk], offset[:, start : start + chunk], power)
        if remember:
            parts.append(checkpoint(_integrate, *inputs, use_reentrant=False, preserve_rng_state=False))
        else:
            parts.append(_integrate(*inputs))
    return torch.cat(parts).reshape(batch) if parts else slope.new_zeros(batch)


def _rows_at_once(d: int, power: float, device: torch.device) -> int:
    budget = _BUDGET_CPU if device.type == "cpu" else _BUDGET_ELSEWHERE
    nodes = len(_rule(_is_smooth(power), device)[0])
    return max(1, budget // ((_PANELS + d) * (max(nodes, d) if power == 1.0 else nodes * d)))


def _integrate(slope: Tensor, offset: Tensor, power: float) -> Tensor:
    """The log integral of a chunk of rows: ``(d, n), (d, n) -> (n,)``."""
    d = len(slope)
    with torch.no_grad():  # the nodes stand still when the integral is differentiated
        edges = _panel_edges(slope, offset, power)
        position, weight = _rule(_is_smooth(power), slope.device)
        width = edges.diff(dim=-1).unsqueeze(-1)
        log_r = edges[:, :-1, None] + width * position
        log_weight = d * log_r + (width * weight).log()
        r = log_r.exp()
    if power == 1.0:
        # Between two kinks the exponent is linear in r, with a sign for each coordinate.
        middle = (0.5 * (edges[:, :-1] + edges[:, 1:])).exp()
        sign = torch.sign(_signed(middle, slope, offset)).detach()
        steepness, level = ((sign * line.unsqueeze(-1)).sum(dim=0).unsqueeze(-1) for line in (slope, offset))
        exponent = steepness * r - level
    else:
        exponent = distance_power(_signed(r, slope, offset), power).sum(dim=0)
    return torch.logsumexp((log_weight - exponent).flatten(1), dim=-1)


def _is_smooth(power: float) -> bool:
    """Whether |t|^power has at least two derivatives on each side of zero, up to zero."""
    return power == 1.0 or power >= 2.0


def _signed(r: Tensor, slope: Tensor, offset: Tensor) -> Tensor:
    """The arguments r slope - offset: ``(n, ...), (d, n), (d, n) -> (d, n, ...)``."""
    shape = (*slope.shape, *(1,) * (r.ndim - 1))
    return torch.addcmul(-offset.reshape(shape), r, slope.reshape(shape))


def _panel_edges(slope: Tensor, offset: Tensor, power: float) -> Tensor:
    """Edges in log r, ``(n, panels + d + 1)`` in rising order, that hold the integrand and its kinks."""
    kinks = torch.where(slope == 0, 0.0, offset / slope).clamp_min(0.0).log().T
    mesh = torch.linspace(-_FARTHEST, _FARTHEST, _PANELS + 1, device=slope.device, dtype=slope.dtype)
    mesh = mesh.expand(len(kinks), -1)
    for _ in range(_SCANS):
        # Below power 1 each kink may be a narrow peak of its own, which the mesh alone would miss.
        scanned = _joined(mesh, kinks) if power < 1.0 else mesh
        mesh = _respaced(scanned, *_importance(scanned, slope, offset, power))
    return _joined(mesh, kinks)


def _joined(mesh: Tensor, kinks: Tensor) -> Tensor:
    """The edges of the mesh and the kinks in rising order; kinks beyond its ends move to the ends."""
    kinks = torch.minimum(torch.maximum(kinks, mesh[:, :1]), mesh[:, -1:])
    return torch.cat([mesh, kinks], dim=-1).sort(dim=-1).values


def _importance(mesh: Tensor, slope: Tensor, offset: Tensor, power: float) -> tuple[Tensor, Tensor]:
    """How much of the integrand and of its variation lies in each panel: ``(n, edges) -> (n, edges - 1)``.

    Zero where the integrand is negligible for certain.
    """
    d = len(slope)
    signed = _signed(mesh.exp(), slope, offset)
    terms = distance_power(signed, power)
    height = d * mesh - terms.sum(dim=0)
    peak = height.amax(dim=-1, keepdim=True)
    same_side = (signed[..., 1:] > 0) == (signed[..., :-1] > 0)
    least = torch.where(same_side, torch.minimum(terms[..., 1:], terms[..., :-1]), 0.0).sum(dim=0)
    # The last term: where the heights are enormous, they are known to rounding only.
    kept = d * mesh[:, 1:] - least >= peak - NEGLIGIBLE - 1e-12 * peak.abs()
    below = torch.nan_to_num(height - peak, nan=-NEGLIGIBLE, neginf=-NEGLIGIBLE).clamp_min(-NEGLIGIBLE)
    # A quarter of the log height: the integrand's flanks deserve panels as well as its top.
    mass = mesh.diff(dim=-1) * (0.25 * torch.maximum(below[:, 1:], below[:, :-1])).exp()
    return mass * kept, below.diff(dim=-1).abs() * kept


def _respaced(mesh: Tensor, mass: Tensor, variation: Tensor) -> Tensor:
    """New edges, ``(n, panels + 1)``, such that all panels hold equal shares of mass plus variation."""
    tiny = torch.finfo(mesh.dtype).tiny
    share = mass / mass.sum(dim=-1, keepdim=True).clamp_min(tiny)
    share = share + variation / variation.sum(dim=-1, keepdim=True).clamp_min(tiny)
    cumulative = torch.nn.functional.pad(share.cumsum(dim=-1), (1, 0))
    fraction = torch.linspace(0, 1, _PANELS + 1, device=mesh.device, dtype=mesh.dtype)
    wanted = cumulative[:, -1:] * fraction
    panel = torch.searchsorted(cumulative[:, 1:-1].contiguous(), wanted, right=True)
    start, stop = cumulative.gather(-1, panel), cumulative.gather(-1, panel + 1)
    inside = ((wanted - start) / (stop - start).clamp_min(tiny)).clamp(0.0, 1.0)
    return torch.lerp(mesh.gather(-1, panel), mesh.gather(-1, panel + 1), inside)


@lru_cache(maxsize=16)
def _rule(smooth: bool, device: torch.device) -> tuple[Tensor, Tensor]:
    """Nodes in (0, 1) and weights: Gauss-Legendre, drawn towards both ends unless the integrand is smooth."""
    x, weight = np.polynomial.legendre.leggauss(12 if smooth else 24)
    t, weight = 0.5 * (x + 1.0), 0.5 * weight
    if not smooth:
        t, weight = t**3 * (10.0 - 15.0 * t + 6.0 * t**2), 30.0 * (t * (1.0 - t)) ** 2 * weight
    # The rule outlives the caller's inference mode, so it must not be made of inference tensors.
    with torch.inference_mode(False):
        return torch.as_tensor(t, device=device), torch.as_tensor(weight, device=device)
