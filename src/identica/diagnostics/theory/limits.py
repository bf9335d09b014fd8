"""The loss becomes a cross-entropy as M grows, with and without the positive in the denominator."""

from __future__ import annotations

from identica.diagnostics.theory.check import STANDARD_ERRORS, Check, Curve, Line
from identica.diagnostics.theory.sampling import SampledLoss
from identica.diagnostics.theory.session import Session


def sphere_limit(session: Session) -> Check:
    """A, Theorem 1, for the true latents and for a map that is no minimiser."""
    return _limit(session, "sphere", "A, Thm 1 (Eq. 14)")


def box_limit(session: Session) -> Check:
    """A, Proposition 3 and Theorem 3, likewise."""
    return _limit(session, "box", "A, Prop. 3, Thm 3 (Eq. 56, 62)")


def _limit(session: Session, space: str, theorem: str) -> Check:
    checks = []
    names = [name for name in session.known if name.startswith(space)]
    for name in names:
        population, last = session.known[name].population, session.losses[name][-1]
        remainder = abs(population.first_order) / last.negatives
        checks.append(
            Check(
                topic="limit",
                claim=f"On the {space}, loss − log M + log|Z| approaches the cross-entropy, whatever the map",
                theorem=theorem,
                quantity=f"loss − log M + log|Z| at M = {last.negatives}, {_title(name)}",
                measured=last.normalised.mean,
                predicted=population.cross_entropy,
                tolerance=STANDARD_ERRORS * last.normalised.standard_error + remainder,
                tolerance_is=f"5 standard errors of {last.normalised.standard_error:.4f}, and c/M = {remainder:.4f}",
                curve=_limit_curve(session, space, names),
                note="The cross-entropy is computed by quadrature, without the library's samplers and losses.",
            )
        )
    return max(checks, key=lambda check: check.error / check.tolerance)


def _title(name: str) -> str:
    space, _, kind = name.partition(", ")
    return {"truth": "h = true latents", "bent": "h = bent latents"}[kind]


def _limit_curve(session: Session, space: str, names: list[str]) -> Curve:
    lines = []
    for name in names:
        losses, limit = session.losses[name], session.known[name].population.cross_entropy
        measured = tuple((float(s.negatives), s.normalised.mean) for s in losses)
        lines.append(Line(_title(name), measured))
        label = "" if len(lines) > 1 else "cross-entropy, predicted"
        lines.append(Line(label, tuple((float(m), limit) for m in _ends(losses)), "dashed"))
    return Curve(
        f"The loss on the {space}", "number of negatives M", "loss − log M + log|Z| [nats]", tuple(lines), log_x=True
    )


def rate(session: Session) -> Check:
    """One order beyond the proofs: how fast the limit is approached."""
    name = "sphere, bent"
    population, last = session.known[name].population, session.losses[name][-1]
    error, next_order = last.gap.standard_error * last.negatives, population.first_order**2 / last.negatives
    return Check(
        topic="limit",
        claim="The limit is approached from above, like c/M with a known c",
        theorem="A, Eq. 58, one order further",
        quantity=f"M · (loss − log M + log|Z| − cross-entropy) at M = {last.negatives}, bent map on the sphere",
        measured=last.gap.mean * last.negatives,
        predicted=population.first_order,
        tolerance=STANDARD_ERRORS * error + next_order,
        tolerance_is=f"5 standard errors of {error:.3f}, and the next order, c²/M = {next_order:.3f}",
        curve=_gap_curve(session),
        note="c = E[e^u(z,z̃) / E e^u] − ½ E[Var e^u / (E e^u)²]: the positive's own term, less the bias of a "
        "logarithm of a mean.",
    )


def without_positive(session: Session) -> Check:
    """The remark after A, Eq. 1."""
    checks = []
    for name, known in session.known.items():
        last, weight = session.losses[name][-1], known.population.positive_weight
        error, next_order = last.without_positive.standard_error * last.negatives, weight**2 / last.negatives
        checks.append(
            Check(
                topic="positive",
                claim="Leaving the positive out of the denominator changes the loss by c⁺/M: nothing in the limit",
                theorem="A, remark on Eq. 1",
                quantity=f"M · (loss with − loss without the positive) at M = {last.negatives}, {name}",
                measured=last.without_positive.mean * last.negatives,
                predicted=weight,
                tolerance=STANDARD_ERRORS * error + next_order,
                tolerance_is=f"5 standard errors of {error:.3f}, and the next order, c⁺²/M = {next_order:.3f}",
                curve=_positive_curve(session),
                note="c⁺ = E[e^u(z,z̃) / E e^u], by quadrature. Shown is the map that is furthest off.",
            )
        )
    return max(checks, key=lambda check: check.error / check.tolerance)


def _gap_curve(session: Session) -> Curve:
    """The gap over M as dots, c/M as dashed lines, both axes logarithmic."""
    lines: list[Line] = []
    for name, losses in session.losses.items():
        lines.append(Line(name, tuple((float(s.negatives), s.gap.mean) for s in losses), "dots"))
        constant, label = session.known[name].population.first_order, "" if len(lines) > 1 else "c/M, predicted"
        lines.append(Line(label, tuple((float(m), constant / m) for m in _ends(losses)), "dashed"))
    y_label = "loss − log M + log|Z| − cross-entropy"
    return Curve("The distance to the limit", "number of negatives M", y_label, tuple(lines), log_x=True, log_y=True)


def _positive_curve(session: Session) -> Curve:
    """M times what the positive adds to the loss, over M, and the constant that it should become."""
    lines: list[Line] = []
    for name, losses in session.losses.items():
        scaled = tuple((float(s.negatives), s.negatives * s.without_positive.mean) for s in losses)
        lines.append(Line(name, scaled))
        constant, label = session.known[name].population.positive_weight, "" if len(lines) > 1 else "c⁺, predicted"
        lines.append(Line(label, tuple((float(m), constant) for m in _ends(losses)), "dashed"))
    y_label = "M · (loss with − without the positive)"
    return Curve("What the positive adds, times M", "number of negatives M", y_label, tuple(lines), log_x=True)


def _ends(losses: tuple[SampledLoss, ...]) -> tuple[int, int]:
    return losses[0].negatives, losses[-1].negatives
