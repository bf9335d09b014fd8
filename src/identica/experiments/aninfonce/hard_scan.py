"""The loss at the true latents as a function of one precision, where all negatives are hard ones (B, Fig. 10A)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from identica._numbers import whole_number
from identica.distributions.fisher_bingham_ratio import ratio_precision
from identica.processes import PairProcess

#: Anchors whose candidates are drawn at once.
_AT_ONCE = 8192
_NEWTON_STEPS = 50


@dataclass(frozen=True)
class Scan:
    """The loss at each of ``precisions``, and where on the way between them it is smallest.

    above: for each precision, mean of the loss less that at the minimum, in nats; above_errors: its standard errors.
        All are computed from the same draws, so that these errors are far smaller than that of ``least_loss``.
    minimum, standard_error: the λ̂ at which the loss of these draws is smallest, and by how much others would move it.
    target: Λ⁺ − Λ⁻, where it is smallest in expectation.
    """

    precisions: tuple[float, ...]
    above: tuple[float, ...]
    above_errors: tuple[float, ...]
    least_loss: float
    minimum: float
    standard_error: float
    target: float
    anchors: int


def scan(process: PairProcess, precisions: Sequence[float], anchors: int, seed: int = 0) -> Scan:
    """Scan λ̂ of u = −½ λ̂ ‖z̃ − z‖² at the true latents, against hard negatives alone.

    Positives and negatives have the densities p±(z̃|z) = exp(−½ λ± ‖z̃ − z‖²) / C±(z) with respect to the surface of
    the sphere. The normaliser C± is an integral over z̃, hence a function of z alone (for a λ± that is the same in all
    directions not even of z), so that

        log p⁺(z̃|z) − log p⁻(z̃|z) = −½ (λ⁺ − λ⁻) ‖z̃ − z‖² + c(z)

    holds exactly on the sphere, without a correction for its curvature, and c(z) cancels in the loss. One positive
    among M negatives of its own is told apart best by this ratio (B, Thm C.1), for any M: the expected loss is smallest
    at λ̂ = λ⁺ − λ⁻ exactly (B, Cor. B.1), with one negative as with many. Joined by uniform ones it would not be.

    Negatives are not shared, so the anchors are independent and λ̂ is an ordinary M-estimator: with gᵢ the slope and hᵢ
    the curvature of the loss of anchor i in λ̂, its standard error is √Var(g) / (mean(h) √anchors).

    process: isotropic Fisher-Bingham pairs with hard negatives; its mixing is left out. All in float64.
    """
    if process.negative_conditional is None:
        raise ValueError("A scan over hard negatives needs some: give the process a negative_conditional.")
    target = ratio_precision(process.conditional, process.negative_conditional, process.dim)  # type: ignore[arg-type]
    if not bool((target == target[0]).all()):
        raise ValueError(f"A scan of one number needs a Λ⁺ − Λ⁻ with equal entries, not {target.tolist()}.")
    distances = _distances(process, whole_number(anchors, "anchors", least=2), seed)
    minimum = _minimum(distances, target[0].item())
    slope, curvature = _derivatives(distances, minimum)
    error = (slope.std() / (curvature.mean() * math.sqrt(anchors))).item()
    least = _losses(distances, minimum)
    above = [_losses(distances, value) - least for value in precisions]
    return Scan(
        precisions=tuple(float(value) for value in precisions),
        above=tuple(difference.mean().item() for difference in above),
        above_errors=tuple(difference.std().item() / math.sqrt(anchors) for difference in above),
        least_loss=least.mean().item(),
        minimum=minimum,
        standard_error=error,
        target=target[0].item(),
        anchors=anchors,
    )


def _distances(process: PairProcess, anchors: int, seed: int) -> Tensor:
    """½ ‖z̃ − z‖² of the positive, then of each negative: ``(anchors, 1 + M)``."""
    bare = PairProcess(
        process.marginal,
        process.conditional,
        negative_conditional=process.negative_conditional,
        negatives_per_anchor=process.negatives_per_anchor,
    ).to(dtype=torch.float64)
    generator = torch.Generator(device=bare.device).manual_seed(seed)
    parts = []
    for start in range(0, anchors, _AT_ONCE):
        pairs = bare.sample(min(_AT_ONCE, anchors - start), generator)
        assert pairs.z_neg is not None
        candidates = torch.cat([pairs.z_pos[:, None], pairs.z_neg], dim=1)
        parts.append(0.5 * (candidates - pairs.z[:, None]).square().sum(dim=-1))
    return torch.cat(parts)


def _losses(distances: Tensor, precision: float) -> Tensor:
    """InfoNCE of each anchor: ``(n, 1 + M) -> (n,)``."""
    logits = -precision * distances
    return torch.logsumexp(logits, dim=1) - logits[:, 0]


def _derivatives(distances: Tensor, precision: float) -> tuple[Tensor, Tensor]:
    """Slope and curvature of each anchor's loss in the precision, both ``(n,)``: D⁺ − E D, and Var D.

    E and Var are over the candidates, weighed by how likely the loss takes each for the positive.
    """
    weights = torch.softmax(-precision * distances, dim=1)
    mean = (weights * distances).sum(dim=1)
    variance = (weights * (distances - mean[:, None]).square()).sum(dim=1)
    return distances[:, 0] - mean, variance


def _minimum(distances: Tensor, start: float) -> float:
    """Newton's method on the mean loss, which is convex in the precision."""
    precision = start
    for _ in range(_NEWTON_STEPS):
        slope, curvature = _derivatives(distances, precision)
        step = (slope.mean() / curvature.mean()).item()
        precision = max(precision - step, 0.5 * precision)
        if abs(step) < 1e-10 * precision:
            break
    return precision
