"""The radial integral of a normal vector, which every family made by projection onto the sphere meets.

A vector y = r x with |x| = 1 has density ∝ r^(d-1) exp(-a r²/2 + b r) along the ray through x, when y is
normal. Its integral over r is a parabolic cylinder function; here it is a quadrature that neither
overflows nor cancels.

>>> log_radial_integral(torch.tensor(1.0), torch.tensor(0.0), 4)  # log ∫ r³ exp(-r²/2) dr = log 2
tensor(0.6931)
"""

from __future__ import annotations

import torch
from torch import Tensor

#: The integrand is cut where it has fallen to exp(-CUTOFF) of its peak.
CUTOFF = 36.0
_BISECTIONS = 12


def log_radial_integral(a: Tensor, b: Tensor, d: int) -> Tensor:
    """The log of ∫₀^∞ r^(d-1) exp(-½ a r² + b r) dr, elementwise; a > 0 (or a = 0 where b < 0), b real, d ≥ 1.

    With the mode ρ of r^d exp(-½ a r² + b r), that is aρ² - bρ = d, and r = ρ e^v the integrand is

        ρ^d exp(½aρ² - d) · exp(-d (e^v - 1 - v) - ½ aρ² (e^v - 1)²) dv,

    two penalties that are zero at v = 0 and free of cancellation for every a and b. The trapezoid rule in
    v converges geometrically. Accurate to rounding (1e-12 relative to max(1, |result|) in float64), with
    derivatives of every order in a and b.
    """
    a, b = torch.broadcast_tensors(a, b)
    with torch.no_grad():
        mode = radial_mode(a, b, d)
        curvature = a * mode**2
        v, log_step = _nodes(curvature, d)
        exponent = -_penalty(v, curvature.unsqueeze(-1), d)
        peak = d * mode.log() + 0.5 * curvature - d + log_step
    if a.requires_grad or b.requires_grad:
        # The nodes r stand still and the exponent is linear in a and b, so adding terms whose value is
        # zero gives the sum its exact derivatives without touching its carefully computed value.
        r = mode.unsqueeze(-1) * v.exp()
        change_a = (a - a.detach()).unsqueeze(-1)
        change_b = (b - b.detach()).unsqueeze(-1)
        exponent = exponent - 0.5 * change_a * r**2 + change_b * r
    return peak + torch.logsumexp(exponent, dim=-1)


def log_radial_width(curvature: Tensor, d: int) -> Tensor:
    """The log of ∫ exp(-d (e^v - 1 - v) - ½ curvature (e^v - 1)²) dv, what remains after the peak value.

    Close to ½ log(2π / (d + curvature)), Laplace's approximation.
    """
    v, log_step = _nodes(curvature, d)
    return log_step + torch.logsumexp(-_penalty(v, curvature.unsqueeze(-1), d), dim=-1)


def radial_mode(a: Tensor, b: Tensor, d: int) -> Tensor:
    """The positive root of a ρ² - b ρ = d, where r^d exp(-½ a r² + b r) peaks."""
    root = torch.hypot(b, 2.0 * (d * a).sqrt())
    # Of the two forms of the root, each is taken where it does not subtract.
    return torch.where(b > 0, (b + root) / (2.0 * a), 2.0 * d / (root - b))


def _nodes(curvature: Tensor, d: int) -> tuple[Tensor, Tensor]:
    """Equidistant nodes ``(..., count)`` over where the integrand is not negligible, and their log distance."""
    left, right = _reach(curvature, d, -1.0), _reach(curvature, d, 1.0)
    count = _node_count(d)
    step = (left + right) / (count - 1)
    index = torch.arange(count, device=curvature.device, dtype=curvature.dtype)
    return step.unsqueeze(-1) * index - left.unsqueeze(-1), step.log()


def _penalty(v: Tensor, curvature: Tensor, d: int) -> Tensor:
    """How far the log integrand lies below its peak at v."""
    growth = torch.expm1(v)
    return d * (growth - v) + 0.5 * curvature * growth**2


def _reach(curvature: Tensor, d: int, side: float) -> Tensor:
    """Distance from the peak at which the integrand is negligible, on the left (-1) or right (+1)."""
    # Bounds on the penalty give distances that are surely far enough: e^(-x) - 1 + x ≥ x²/(2 + x) and
    # 1 - e^(-x) ≥ x/(1 + x) on the left, e^x - 1 ≥ x and e^x - 1 - x ≥ x²/2 on the right.
    if side < 0:
        enough = (CUTOFF + (CUTOFF**2 + 8.0 * d * CUTOFF) ** 0.5) / (2.0 * d)
        steepness = (curvature / (2.0 * CUTOFF)).sqrt() - 1.0
        far = torch.where(steepness * enough > 1.0, 1.0 / steepness, enough)
    else:
        far = (2.0 * CUTOFF / (d + curvature)).sqrt()
    near = torch.zeros_like(far)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (near + far)
        beyond = _penalty(side * middle, curvature, d) >= CUTOFF
        near, far = torch.where(beyond, near, middle), torch.where(beyond, middle, far)
    return far


def _node_count(d: int) -> int:
    """Nodes for full accuracy: the left tail falls only like e^(dv), so small d needs more."""
    return 36 + 256 // d
