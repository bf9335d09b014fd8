"""When the marginal is not uniform, the limit of the loss is no cross-entropy but bounds one, from both sides.

With p_min ≤ p(z̃) ≤ p_max the partition function obeys

    E_z̃~p e^(−δ) / p_max ≤ C_h(z) = ∫ e^(−δ) dz̃ ≤ E_z̃~p e^(−δ) / p_min,

so alignment + uniformity − log p_max is a *lower* bound of the cross-entropy, and with p_min an upper one. W prints
the first as an upper bound (Eq. 54, 62); multiplying by p/p_max ≤ 1 makes an integral smaller, not larger.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from identica.diagnostics.theory.check import STANDARD_ERRORS, Check, Curve, Line
from identica.diagnostics.theory.quadrature import split_rule, unit_rule
from identica.diagnostics.theory.sampling import BOX_DIM, SCALE, STRETCH, TEMPERATURE, Estimate
from identica.diagnostics.theory.session import Session
from identica.distributions import Conditional, TruncatedLaplace, TruncatedNormal
from identica.functional import info_nce
from identica.processes import PairProcess
from identica.similarities import LpSimilarity

#: Widths of the truncated normal marginal, from nearly uniform to a peak at the centre.
WIDTHS = (4.0, 1.0, 0.7, 0.5, 0.4, 0.3, 0.25, 0.2)
#: The one at which the loss is sampled too.
SAMPLED = 0.3


@dataclass(frozen=True)
class Sides:
    """Both sides of the bound, for one width of the marginal, in ``BOX_DIM`` dimensions."""

    cross_entropy: float
    contrastive: float
    log_max: float
    log_min: float

    @property
    def lower(self) -> float:
        """Alignment + uniformity − log p_max (W, Eq. 63)."""
        return self.contrastive - self.log_max

    @property
    def upper(self) -> float:
        """The same with p_min."""
        return self.contrastive - self.log_min


def sides(width: float, nodes: int) -> Sides:
    """By quadrature, for the true latents: coordinates are independent, so one is computed and the rest added."""
    z, weights = unit_rule(nodes)
    candidates, inner = split_rule(z, nodes)
    normaliser = float((weights * _bump(z, width)).sum())
    outer = weights * _bump(z, width) / normaliser
    distance = (candidates - z[:, None]).abs()
    conditional = (inner.log() - distance / SCALE).softmax(dim=1)
    u = -STRETCH * distance / TEMPERATURE
    alignment = float(outer @ (conditional * u).sum(dim=1))
    log_partition = float(outer @ (u + inner.log()).logsumexp(dim=1))
    negatives = inner.log() + (_bump(candidates, width) / normaliser).log()
    log_mean = float(outer @ (u + negatives).logsumexp(dim=1))
    lowest, highest = (math.log(float(_bump(torch.tensor(at), width)) / normaliser) for at in (0.0, 0.5))
    values = (log_partition - alignment, log_mean - alignment, highest, lowest)
    return Sides(*(BOX_DIM * value for value in values))


def _bump(z: Tensor, width: float) -> Tensor:
    return (-0.5 * ((z - 0.5) / width).square()).exp()


def p_max_is_a_lower_bound(session: Session) -> Check:
    """W, Proposition A.4.2, the right way round, with the loss sampled."""
    exact = sides(SAMPLED, session.effort.nodes)
    sampled = _sampled_contrastive(session)
    lower = sampled.mean - exact.log_max
    return Check(
        topic="marginal",
        claim="For any marginal, loss − log M − log p_max is at most the cross-entropy in the limit",
        theorem="W, Prop. A.4.2, turned round",
        quantity=f"loss − log M − log p_max, sampled, box, truncated normal marginal of width {SAMPLED}",
        measured=lower,
        predicted=exact.cross_entropy,
        tolerance=STANDARD_ERRORS * sampled.standard_error,
        tolerance_is=f"5 standard errors of {sampled.standard_error:.4f}; the cross-entropy is by quadrature",
        relation="≤",
        curve=_bounds(session.effort.nodes),
        note=f"W prints this as an upper bound. It is not one: here it lies {exact.cross_entropy - lower:.3f} nats "
        f"below the cross-entropy (by quadrature {exact.cross_entropy - exact.lower:.3f}). The proof "
        "multiplies the integrand by p/p_max ≤ 1, which makes it smaller.",
    )


def p_min_is_an_upper_bound(session: Session) -> Check:
    """The bound that W needs, for all widths, by quadrature."""
    all_sides = [sides(width, session.effort.nodes) for width in WIDTHS]
    widest = all_sides[0]
    slack = min(min(s.upper - s.cross_entropy, s.cross_entropy - s.lower) for s in all_sides)
    return Check(
        topic="marginal",
        claim="With p_min it is an upper bound, and both close on the cross-entropy as the marginal becomes uniform",
        theorem="W, Prop. A.4.2, completed",
        quantity=f"smallest slack of either bound over {len(WIDTHS)} marginals, by quadrature [nats]",
        measured=slack,
        predicted=0.0,
        tolerance=1e-9,
        tolerance_is="rounding",
        relation="≥",
        curve=Curve(
            "How far each bound is from the cross-entropy",
            "p_max / p_min − 1",
            "nats",
            (
                Line("with p_min", _slacks(all_sides, "upper")),
                Line("with p_max", _slacks(all_sides, "lower")),
            ),
            log_x=True,
            log_y=True,
        ),
        note=f"At the widest marginal, where p_max/p_min = {math.exp(widest.log_max - widest.log_min):.3f}, the bounds "
        f"are {widest.upper - widest.lower:.3f} nats apart.",
    )


def _slacks(all_sides: list[Sides], side: str) -> tuple[tuple[float, float], ...]:
    return tuple((math.expm1(s.log_max - s.log_min), abs(getattr(s, side) - s.cross_entropy)) for s in all_sides)


def _bounds(nodes: int) -> Curve:
    rows = [(1 / width, sides(width, nodes)) for width in WIDTHS]
    return Curve(
        "Both bounds, from a nearly uniform marginal to a narrow one",
        "1 / width of the marginal",
        "nats",
        (
            Line("with p_min", tuple((x, s.upper) for x, s in rows)),
            Line("cross-entropy", tuple((x, s.cross_entropy) for x, s in rows)),
            Line("with p_max", tuple((x, s.lower) for x, s in rows)),
        ),
    )


@torch.no_grad()
def _sampled_contrastive(session: Session) -> Estimate:
    """The loss − log M with the largest M, without the positive in the denominator, which would only add c⁺/M."""
    centre = torch.full((BOX_DIM,), 0.5, dtype=torch.float64)
    process = PairProcess(TruncatedNormal(centre, SAMPLED), Conditional(TruncatedLaplace, scale=SCALE))
    generator, negatives = session.generator("marginal"), max(session.effort.negatives)
    batches = []
    for _ in range(session.effort.repeats):
        pairs = process.sample(session.effort.anchors, generator)
        others = STRETCH * process.sample(negatives, generator).z
        loss = info_nce(
            STRETCH * pairs.z,
            STRETCH * pairs.z_pos,
            others,
            similarity=LpSimilarity(1, TEMPERATURE),
            include_positive=False,
        )
        batches.append(float(loss) - math.log(negatives))
    return Estimate.of(torch.tensor(batches, dtype=torch.float64))
