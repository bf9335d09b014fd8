"""What a figure must show: each kind of rule, and that it is never judged on half of its rows."""

from __future__ import annotations

import pytest

from identica.experiments import Receipt, catalogue, claim_results, find, results
from identica.experiments.claims import Above, AtLeast, AtMost, Claim, Quantity, Rises, Steadier
from tests.experiments.receipts import receipt

R2, OTHER = Quantity("aninfonce", "r2"), Quantity("infonce", "r2")


def of(row: str, *scores: float, other: float = 0.1) -> list[Receipt]:
    return [
        receipt(row, seed, scores={"aninfonce": {"r2": score}, "infonce": {"r2": other}})
        for seed, score in enumerate(scores)
    ]


@pytest.mark.parametrize(
    ("claim", "holds", "value"),
    [
        (AtLeast("", ("1", "2"), R2, 0.6), True, 0.6),
        (AtLeast("", ("1", "2"), R2, 0.61), False, 0.6),
        (AtMost("", ("1", "2"), R2, 0.9), True, 0.9),
        (AtMost("", ("1", "2"), R2, 0.89), False, 0.9),
        (Above("", ("1", "2"), R2, OTHER, 0.3), True, 0.3),
        (Above("", ("1", "2"), R2, OTHER, 0.31), False, 0.3),
        (Rises("", ("1", "2"), R2), True, 0.3),
        (Rises("", ("2", "1"), R2), False, -0.3),
        (Rises("", ("1", "2", "1"), R2, slack=0.31), False, -0.3),  # it ends where it began
        (Rises("", ("0", "2", "1"), R2, slack=0.31), True, -0.3),
    ],
)
def test_means_over_seeds_are_compared_and_the_worst_row_decides(claim: Claim, holds: bool, value: float) -> None:
    receipts = {"0": of("0", 0.5), "1": of("1", 0.5, 0.7, other=0.3), "2": of("2", 0.9)}
    found = claim.found(receipts)
    assert found is not None and found.holds == holds and found.value == pytest.approx(value)
    assert claim.found({"0": receipts["0"], "1": receipts["1"]}) is None  # a row without results
    failed = receipt("2", scores={"infonce": {"r2": 0.1}})
    assert claim.found({**receipts, "2": [failed]}) is None  # a row whose only seed failed


@pytest.mark.parametrize(
    ("ours", "theirs", "holds"),
    [
        ((0.5,), (0.5,), False),  # a tie is no lead
        ((0.51,), (0.5,), True),
        # Leads of 0.02, 0.02, −0.02: 0.007 on average, with a standard error of 0.013.
        ((0.52, 0.72, 0.28), (0.5, 0.7, 0.3), False),
        # The same mean lead, which every seed has, however much the seeds differ among themselves.
        ((0.51, 0.71, 0.31), (0.5, 0.7, 0.3), True),
    ],
)
def test_a_lead_must_exceed_the_noise_of_the_seeds(
    ours: tuple[float, ...], theirs: tuple[float, ...], holds: bool
) -> None:
    receipts = [
        receipt("1", seed, scores={"aninfonce": {"r2": a}, "infonce": {"r2": b}})
        for seed, (a, b) in enumerate(zip(ours, theirs, strict=True))
    ]
    claim = Above("", ("1",), R2, OTHER)
    found = claim.found({"1": receipts})
    assert found is not None and found.holds == holds
    one_failed = claim.found({"1": [*receipts, receipt("1", 9, scores={"infonce": {"r2": 0.9}})]})
    assert one_failed == found  # where one model failed there is no lead
    assert claim.found({"1": [receipt("1", 0, scores={"aninfonce": {"r2": 0.9}}), receipt("1", 1, scores={})]}) is None


def test_a_target_that_one_seed_never_reached_has_no_mean() -> None:
    steps = Quantity("infonce", "steps_to_0.9")
    reached, never = {"r2": 0.95, "steps_to_0.9": 100.0}, {"r2": 0.85}
    rows = {
        "1": [receipt("1", seed, scores={"infonce": reached}) for seed in (0, 1)],
        "2": [receipt("2", 0, scores={"infonce": reached}), receipt("2", 1, scores={"infonce": never})],
        "3": [receipt("3", 0, scores={"infonce": reached}), receipt("3", 1, scores={})],  # diverged
    }
    assert [steps.mean(rows[name]) for name in "123"] == [100.0, None, 100.0]
    assert Rises("", ("1", "2"), steps).found(rows) is None


def test_smoke_is_not_judged() -> None:
    experiment = find("aninfonce/figure2")
    good = {"content_r2": 0.998, "style_r2": 0.998, "r2": 0.998}
    scores = {"aninfonce": good, "infonce": good}
    receipts = [receipt(row, experiment=experiment.id, scores=scores, budget="smoke") for row in ("1", "2", "3")]
    rows = results(experiment, receipts, "smoke")
    assert all(cell.verdict is None for row in rows for cell in row.cells)
    claims = claim_results(experiment, rows)
    assert any(one.found is not None for one in claims) and all(one.verdict is None for one in claims)


def test_steadier_compares_deviations_and_needs_two_seeds() -> None:
    claim = Steadier("", ("1",), R2, OTHER)
    one, two = of("1", 0.5, 0.7), of("1", 0.5, 0.7)
    two[1].scores["infonce"]["r2"] = 0.9  # type: ignore[index]
    apart, together = claim.found({"1": two}), claim.found({"1": one})
    assert apart is not None and apart.holds and apart.value == pytest.approx((0.8 - 0.2) / 2**0.5)
    assert together is not None and not together.holds
    assert claim.found({"1": of("1", 0.5)}) is None


def test_claims_are_about_rows_and_models_that_exist() -> None:
    for experiment in catalogue():
        for claim in experiment.claims:
            for number in claim.rows:
                models = experiment.models_of(experiment.row(number))
                quantities = [getattr(claim, name) for name in ("quantity", "other") if hasattr(claim, name)]
                assert quantities and all(quantity.model in models for quantity in quantities), (experiment.id, claim)


def test_the_verdict_says_whether_the_trend_holds() -> None:
    experiment = find("aninfonce/figure2")
    good = {"content_r2": 0.998, "style_r2": 0.998, "r2": 0.998}
    receipts = [
        receipt(row, experiment=experiment.id, scores={"aninfonce": good, "infonce": good}) for row in ("1", "2", "3")
    ]
    found = {one.claim.says: one for one in claim_results(experiment, results(experiment, receipts, "fast"))}
    said = {one.verdict.text for text, one in found.items() if "up to Λ₂ = 25" in text and one.verdict}
    assert said == {"trend holds"}
    assert found["AnInfoNCE keeps style beyond: R² ≥ 0.95"].verdict is None
