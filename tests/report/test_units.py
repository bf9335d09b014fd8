"""Numbers that decided claims are written in what they are in, whatever the claim."""

from __future__ import annotations

import pytest

from identica.experiments import catalogue
from identica.experiments.claims import Above, Anticorrelated, AtLeast, AtMost, Claim, Found, Near, Quantity, Rises
from identica.experiments.receipts.verdicts import ClaimResult
from identica.report.units import bare, found_text

R2, LOSS, STEPS = (Quantity("aninfonce", score) for score in ("style_r2", "excess_loss", "steps_to_0.9"))
ERROR, DISTANCE = Quantity("aninfonce", "precision_error"), Quantity("scan", "minimum")


@pytest.mark.parametrize(
    ("claim", "value", "text"),
    [
        (AtLeast("", (), R2, 0.9), 0.99924, "99.92 %"),
        (AtMost("", (), R2, 0.5), -0.0046, "−0.46 %"),
        (AtMost("", (), ERROR, 0.01), 0.00296, "0.30 %"),
        (AtMost("", (), LOSS, 0.01), 0.00279, "0.0028 nats"),
        (Above("", (), R2, R2), -0.00577, "−0.58 points"),
        (Rises("", (), STEPS), 1067.2, "1,067 steps"),
        (Near("", (), DISTANCE, 50.0, 0.02), 0.00121, "0.12 % off"),
        (Near("", (), DISTANCE, 50.0, 3.0, Quantity("scan", "minimum_error")), 0.91, "0.9 standard errors"),
        (Anticorrelated("", (), R2, R2, -0.8), -1.0, "−1.00"),
        (AtMost("", (), Quantity("ensemble", "precision_correlation"), -0.4), -0.52028, "−0.5203"),
    ],
)
def test_every_number_has_its_unit(claim: Claim, value: float, text: str) -> None:
    assert found_text(ClaimResult(claim, Found(True, value), None)) == text


def test_nothing_found_is_a_dash() -> None:
    assert found_text(ClaimResult(AtLeast("", (), R2, 0.9), None, None)) == "–"


def test_in_a_column_the_unit_is_in_the_head() -> None:
    assert (bare("r2", 0.9992), bare("excess_loss", 0.0028), bare("largest_dip", 0.06)) == ("99.92", "0.0028", "0.0600")


def test_no_sentence_of_the_catalogue_is_left_with_a_bare_fraction() -> None:
    """Scores are fractions in receipts: whatever is claimed of one is found in percent or in points."""
    scores = ("r2", "mcc", "accuracy", "share", "bimodal", "overlap")
    claims = [claim for experiment in catalogue() for claim in experiment.claims]
    written = {
        claim.says: found_text(ClaimResult(claim, Found(True, 0.5), None))
        for claim in claims
        if str(getattr(getattr(claim, "quantity", None), "score", "")).endswith(scores)
    }
    assert len(written) > 30
    exceptions = {claim.says for claim in claims if isinstance(claim, Anticorrelated)}
    assert all(says in exceptions or text.startswith("50.00 ") for says, text in written.items()), written
