"""What the numbers of receipts are in, by their names, and how they are written: receipts hold fractions."""

from __future__ import annotations

from typing import Literal

from identica.experiments.claims import Above, Anticorrelated, AtLeast, AtMost, Claim, Near, Rises, Steadier
from identica.experiments.receipts.verdicts import ClaimResult

Unit = Literal["percent", "nats", "steps", "plain"]

#: By the end of a score's name. What is not here is a share of something or a relative error, and in percent.
_UNITS: dict[str, Unit] = {
    "_loss": "nats",
    "correlation": "plain",
    "kolmogorov": "plain",
    "dip": "plain",
    "minimum": "plain",
    "minimum_error": "plain",
    "learned_precision": "plain",
    "mean_code": "plain",
}


def unit_of(score: str) -> Unit:
    """What a score is in.

    >>> unit_of("style_r2"), unit_of("precision_error"), unit_of("excess_loss"), unit_of("steps_to_0.9")
    ('percent', 'percent', 'nats', 'steps')
    """
    if score.startswith("steps_to"):
        return "steps"
    return next((unit for end, unit in _UNITS.items() if score.endswith(end)), "percent")


def bare(score: str, value: float) -> str:
    """A score without its unit, which the head of a column has."""
    unit = unit_of(score)
    return _signed(
        f"{100 * value:.2f}" if unit == "percent" else f"{value:,.0f}" if unit == "steps" else f"{value:.4f}"
    )


def written(score: str, value: float, *, difference: bool = False) -> str:
    """A score, or a difference of two, with its unit.

    >>> written("r2", 0.9992), written("r2", -0.00577, difference=True), written("excess_loss", 0.00279)
    ('99.92 %', '−0.58 points', '0.0028 nats')
    """
    unit = {"percent": " points" if difference else " %", "nats": " nats", "steps": " steps", "plain": ""}
    return bare(score, value) + unit[unit_of(score)]


def found_text(result: ClaimResult) -> str:
    """The number that decided a claim, as the claim counts it; a dash without one."""
    return "–" if result.found is None else _found(result.claim, result.found.value)


def _found(claim: Claim, value: float) -> str:
    if isinstance(claim, AtLeast | AtMost):
        return written(claim.quantity.score, value)
    if isinstance(claim, Above | Steadier | Rises):
        return written(claim.quantity.score, value, difference=True)
    if isinstance(claim, Near):
        return f"{value:.1f} standard errors" if claim.error is not None else f"{100 * value:.2f} % off"
    if isinstance(claim, Anticorrelated):
        return _signed(f"{value:.2f}")
    return _signed(f"{value:.4g}")


def _signed(text: str) -> str:
    return text.replace("-", "−")
