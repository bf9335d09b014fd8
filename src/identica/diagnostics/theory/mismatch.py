"""A wrong similarity breaks what the theorems say it must, and nothing else.

Two ways to be wrong. p = 2 matches normal pairs, so isometry and affinity hold; but rotations are isometries of L2
and of no other Lp, so on a space that does not stop them the axes are lost. A p other than the pairs' cannot match
their density at all: already on the line |h(z) − h(z̃)|^q = c |z − z̃|^p has no solution, so the smallest possible
loss is out of reach and the best map is no isometry.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from identica.diagnostics.theory.check import STANDARD_ERRORS, Check, Curve, Line, Matrix
from identica.diagnostics.theory.isometries import along_training, distortion, fitted_map
from identica.diagnostics.theory.quadrature import unit_rule
from identica.diagnostics.theory.sampling import Estimate
from identica.diagnostics.theory.session import Session
from identica.distributions import GeneralizedNormal
from identica.metrics import linear_r2
from identica.metrics.geometry import orthogonality, permutation_distance
from identica.similarities import LpSimilarity

POWERS = (1.0, 1.5, 2.0, 3.0, 4.0)
#: Powers of the pairs and of the similarity in the table of floors; width of the pairs there.
TABLE, WIDTH = (1.0, 2.0, 3.0), 0.3


def rotation_cost(power: float, angle: float, nodes: int = 20_000) -> float:
    """KL(p ‖ q_h) for h a rotation of R² and pairs ∝ exp(−‖z − z̃‖_p^p), in nats.

    The normaliser is the same for both, so it is E‖Rε‖_p^p − E‖ε‖_p^p. In polar coordinates the radius integrates
    out: with s(φ) = |cos φ|^p + |sin φ|^p it is (2/p) (∫ s(φ+θ) s(φ)^(−1−2/p) dφ / ∫ s(φ)^(−2/p) dφ − 1).
    """
    phi = (torch.arange(nodes, dtype=torch.float64) + 0.5) * (2 * math.pi / nodes)

    def size(at: Tensor) -> Tensor:
        return at.cos().abs() ** power + at.sin().abs() ** power

    turned = (size(phi + angle) * size(phi) ** (-1 - 2 / power)).sum() / (size(phi) ** (-2 / power)).sum()
    return (2 / power) * (float(turned) - 1)


def sampled_rotation_cost(session: Session, power: float, angles: Tensor) -> list[Estimate]:
    """The same from draws of the package's distribution and its similarity, for each angle."""
    n = session.effort.anchors * session.effort.repeats
    pairs = GeneralizedNormal(torch.zeros(2, dtype=torch.float64), 1.0, power)
    noise = pairs.sample((n,), generator=session.generator(f"rotation {power}"))
    similarity, origin = LpSimilarity(power), torch.zeros_like(noise)
    truth = similarity(noise, origin)
    costs = []
    for angle in angles.tolist():
        c, s = math.cos(angle), math.sin(angle)
        turned = noise @ torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
        costs.append(Estimate.of(truth - similarity(turned, origin)))
    return costs


def only_p_two_is_blind(session: Session) -> Check:
    """A, Theorem D: a rotation costs nothing with p = 2, and a known amount with any other p."""
    angles = torch.linspace(0, math.pi / 2, 13, dtype=torch.float64)
    lines, measured = [], {}
    for power in POWERS:
        measured[power] = sampled_rotation_cost(session, power, angles)
        degrees = [math.degrees(angle) for angle in angles.tolist()]
        fine = torch.linspace(0, math.pi / 2, 61, dtype=torch.float64).tolist()
        dots = tuple(zip(degrees, (cost.mean for cost in measured[power]), strict=True))
        lines.append(Line(f"p = {power:g}", dots, "dots"))
        label = "" if len(lines) > 1 else "predicted"
        lines.append(Line(label, tuple((math.degrees(a), rotation_cost(power, a)) for a in fine), "dashed"))
    half = measured[1.0][6]
    return Check(
        topic="mismatch",
        claim="With p = 1 turning two axes by 45° costs 3/√2 − 2 nats, so that no turned map is a minimiser",
        theorem="A, Thm D, 6",
        quantity="loss of latents turned by 45° less that of the latents, p = 1, pairs in R², sampled [nats]",
        measured=half.mean,
        predicted=rotation_cost(1.0, math.pi / 4),
        tolerance=STANDARD_ERRORS * half.standard_error,
        tolerance_is=f"5 standard errors of {half.standard_error:.4f}",
        curve=Curve(
            "What turning the latents costs", "angle [degrees]", "loss above the smallest [nats]", tuple(lines)
        ),
        note="Two axes exchanged (90°) are free again: a permutation.",
    )


def p_two_cannot_see_a_rotation(session: Session) -> Check:
    """A, Theorem 6 excludes α = 2 for a reason."""
    angles = torch.linspace(0, math.pi / 2, 13, dtype=torch.float64)
    return Check(
        topic="mismatch",
        claim="With p = 2 a rotation costs nothing: no amount of data can find the axes",
        theorem="A, Thm 6, α ≠ 2",
        quantity="largest change of the loss over rotations by 0° to 90°, p = 2, sampled [nats]",
        measured=max(abs(cost.mean) for cost in sampled_rotation_cost(session, 2.0, angles)),
        predicted=0.0,
        tolerance=1e-9,
        tolerance_is="rounding: every pair keeps its loss",
        curve=Curve(
            "Codes at distance one from the origin: only for p = 2 does turning change nothing",
            "first code",
            "second code",
            tuple(Line(f"p = {power:g}", _unit_circle(power)) for power in POWERS),
            equal=True,
        ),
    )


def _unit_circle(power: float, points: int = 181) -> tuple[tuple[float, float], ...]:
    """Points with |a|^p + |b|^p = 1, once around."""
    angles = torch.linspace(0, 2 * math.pi, points, dtype=torch.float64)
    direction = torch.stack([angles.cos(), angles.sin()], dim=1)
    size = direction.abs().pow(power).sum(dim=1, keepdim=True).pow(1 / power)
    return tuple((a, b) for a, b in (direction / size).tolist())


def p_two_keeps_isometry(session: Session) -> Check:
    """What p = 2 on unbounded codes must still have: A, Proposition 4 and Theorem 5."""
    run = session.normal
    return Check(
        topic="mismatch",
        claim="Trained with p = 2 into all of R^N, the encoder is still an isometry, affine and orthogonal",
        theorem="A, Prop. 4, Thm 5",
        quantity="relative distortion of ‖h − h̃‖₂² over independent pairs",
        measured=distortion(run, run.looks[-1]),
        predicted=0.0,
        tolerance=session.effort.distortion,
        tolerance_is=run.leftover,
        relation="≤",
        curve=along_training(run),
        note=f"1 − R² is {1 - linear_r2(run.z, run.h).score:.4f}, the distance to an orthogonal map "
        f"{orthogonality(run.z, run.h).score:.4f}.",
    )


def p_two_loses_the_axes(session: Session) -> Check:
    """What p = 2 on unbounded codes cannot have."""
    matched = permutation_distance(session.laplace.z, session.laplace.h).score
    values = fitted_map(session.normal).abs()
    rows = tuple(tuple(line) for line in (values / values.max()).tolist())
    names = tuple(range(1, len(rows) + 1))
    return Check(
        topic="mismatch",
        claim="But its codes are mixtures: the axes are lost",
        theorem="A, Thm 6, α ≠ 2",
        quantity="relative distance of the fitted map to the nearest generalized permutation",
        measured=permutation_distance(session.normal.z, session.normal.h).score,
        predicted=session.effort.distortion,
        tolerance=0.0,
        tolerance_is="more than a permutation may score; a random rotation scores 0.53 on average, and less than 0.1 "
        "once in 400 times",
        relation="≥",
        curve=Matrix(
            "Size of the entries of the fitted map h ≈ Az, p = 2",
            tuple(f"h{i}" for i in names),
            tuple(f"z{i}" for i in names),
            rows,
        ),
        note=f"The L1 encoder, whose axes are right, scored {matched:.4f}.",
    )


def smallest_excess(pairs: float, similarity: float, nodes: int = 40) -> float:
    """The smallest KL(p ‖ q_h) over all maps h of [0, 1] into R, each node's code being free, in nats.

    Pairs ∝ exp(−|(z − z̃)/width|^p), q_h ∝ exp(−|h − h̃|^q). Quasi-Newton from three bent starts.
    """
    z, weights = unit_rule(nodes)
    log_p = (weights.log() - ((z[:, None] - z).abs() / WIDTH) ** pairs).log_softmax(dim=1)

    def excess(h: Tensor) -> Tensor:
        u = LpSimilarity(similarity).pairwise(h[:, None], h[:, None])
        log_q = (weights.log() + u).log_softmax(dim=1)
        return (weights * (log_p.exp() * (log_p - log_q)).sum(dim=1)).sum()

    found = []
    for scale in (0.5, 1.0, 2.0):
        start = scale * (z + 0.1 * torch.sin(2 * math.pi * z)) / WIDTH
        found.append(_minimum(excess, start.clone().requires_grad_()))
    return min(found)


def _minimum(function: Callable[[Tensor], Tensor], start: Tensor) -> float:
    optimizer = torch.optim.LBFGS(
        [start], max_iter=400, history_size=20, line_search_fn="strong_wolfe", tolerance_grad=1e-10
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = function(start)
        value.backward()
        return value

    optimizer.step(closure)
    return float(function(start.detach()))


def wrong_power_misses_the_floor(session: Session) -> Check:
    """Outside the theorems: the similarity's p is not the pairs'."""
    session.notify("best maps under a wrong p", 0.0)
    floors = [[smallest_excess(pairs, similarity) for similarity in TABLE] for pairs in TABLE]
    matched = max(abs(floors[i][i]) for i in range(len(TABLE)))
    mismatched = min(floors[i][j] for i in range(len(TABLE)) for j in range(len(TABLE)) if i != j)
    return Check(
        topic="mismatch",
        claim="With another p than the pairs' the smallest possible loss is out of reach of every map",
        theorem="A, Prop. 4, its assumption of a match",
        quantity="smallest excess over all maps of an interval, best of the six wrong combinations [nats]",
        measured=mismatched,
        predicted=max(1000 * matched, 1e-4),
        tolerance=0.0,
        tolerance_is=f"a thousand times what the right combinations leave ({matched:.0e}), at least 1e-4",
        relation="≥",
        curve=Matrix(
            "Smallest excess [nats]: pairs (rows) and similarity (columns)",
            tuple(f"pairs p={p:g}" for p in TABLE),
            tuple(f"u p={p:g}" for p in TABLE),
            tuple(tuple(max(value, 0.0) for value in row) for row in floors),
        ),
    )
