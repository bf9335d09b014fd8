"""The rule, case by case."""

from __future__ import annotations

import dataclasses
import math

import pytest

from identica.experiments.catalogue import Published, Row, find
from identica.experiments.clica.tables import FIGURE2, TABLE1, TABLE2
from identica.experiments.clica.workshop import SYNTHETIC_AU
from identica.experiments.receipts.verdicts import (
    Stat,
    comparable,
    curve_results,
    judge,
    judge_curve,
    pooled_deviation,
    results,
    row_result,
)
from tests.experiments.receipts import receipt

ROW1, ROW8, ROW10 = TABLE1.row("1"), TABLE2.row("8"), TABLE2.row("10")


def says(row: Row, model: str, mean: float, sd: float | None = 0.1, seeds: int = 5) -> tuple[str, bool | None] | None:
    verdict = judge(row, model, Stat(mean, sd, seeds))  # type: ignore[arg-type]
    return None if verdict is None else (verdict.text, verdict.good)


@pytest.mark.parametrize("model", ["contrastive", "supervised"])
def test_a_mean_is_reproduced_down_to_a_tenth_of_a_point_below(model: str) -> None:
    figure = ROW1.published[model].mean  # type: ignore[index]
    assert says(ROW1, model, 100.0) == says(ROW1, model, figure) == ("reproduced", True)
    assert says(ROW1, model, figure - 0.1) == ("reproduced", True)
    assert says(ROW1, model, figure - 0.11) == ("short by 0.11", False)
    assert says(ROW1, model, figure - 12.346) == ("short by 12.35", False)


def test_what_theory_forbids_must_stay_low_whatever_the_paper_has() -> None:
    assert says(ROW8, "contrastive", 40.0) == ("stays low as predicted", True)
    assert says(ROW8, "contrastive", 69.99) == ("stays low as predicted", True)
    assert says(ROW8, "contrastive", 70.0) == ("does not stay low", False)
    assert says(ROW8, "supervised", 99.97) == ("reproduced", True)


def test_identity_agrees_within_two_pooled_deviations() -> None:
    # Equal deviations of 2.79 pool to 2.79: two of them are 5.58.
    assert says(ROW1, "identity", 66.98 + 5.57, 2.79) == ("agrees", True)
    assert says(ROW1, "identity", 66.98 - 5.57, 2.79) == ("agrees", True)
    assert says(ROW1, "identity", 66.98 + 5.59, 2.79) == ("differs", False)
    assert says(ROW1, "identity", 66.98 + 5.57, 0.0) == ("differs", False)  # pooled: 1.97
    assert says(ROW1, "identity", 66.98 + 5.57, None, seeds=1) == ("agrees", True)  # the paper's alone


def test_the_pooled_deviation_weighs_by_seeds() -> None:
    assert pooled_deviation(Stat(0, 1.0, 11), Published(0, 2.0, 5)) == pytest.approx(math.sqrt((10 + 16) / 14))
    assert pooled_deviation(Stat(0, None, 1), Published(0, 2.0, 1)) == 2.0


def test_a_row_that_nobody_recovered_and_no_theory_covers_falls_as_it_falls() -> None:
    for mean in (20.0, 43.8, 99.0):
        assert says(ROW10, "contrastive", mean) == ("as it falls", None)
    assert says(ROW10, "supervised", 90.0) == ("short by 9.97", False)


def test_infonce_is_a_baseline_only_beside_what_replaces_it() -> None:
    alone, beside = find("aninfonce/figure7").row("neighbours"), find("aninfonce/mnist-views").row("1")
    assert says(alone, "infonce", 95.32) == ("short by 1.38", False)  # type: ignore[arg-type]
    assert says(alone, "infonce", 96.65) == ("reproduced", True)  # type: ignore[arg-type]
    assert says(beside, "infonce", 20.0) == ("as it falls", None)  # type: ignore[arg-type]


def test_where_identity_is_another_score_than_the_papers_it_is_not_judged() -> None:
    assert says(find("clica/table4").row("1"), "identity", 50.0) is None  # type: ignore[arg-type]


def test_without_a_figure_only_a_promise_is_judged() -> None:
    promised, silent = SYNTHETIC_AU.row("1"), SYNTHETIC_AU.row("2")
    assert says(promised, "contrastive", 95.0) == ("trend holds", True)
    assert says(promised, "contrastive", 94.9) == ("trend does not hold", False)
    assert says(silent, "contrastive", 99.0) == ("as it falls", None)
    assert says(promised, "identity", 50.0) is None
    assert says(FIGURE2.rows[0], "contrastive", 99.0) is None  # judged as a curve
    assert judge(ROW1, "contrastive", None) is None


def test_means_and_deviations_are_in_percent_over_seeds() -> None:
    stat = Stat.of([0.98, 0.99, 1.00])
    assert (stat.mean, stat.sd, stat.seeds) == (pytest.approx(99.0), pytest.approx(1.0), 3)
    assert str(stat) == "99.00 ± 1.00" and str(Stat.of([0.5])) == "50.00" and Stat.of([0.5]).sd is None


# Curves


def test_a_curve_stays_high_and_collapses() -> None:
    good = [(0.1, 99.9), (2.5, 99.0), (5.0, 95.0), (10.0, 93.0), (64.0, 40.0)]
    verdict = judge_curve(good, reference=10.0)
    assert verdict is not None and verdict.good and verdict.text == "trend holds"
    assert judge_curve(good[::-1], reference=10.0) == verdict
    early = judge_curve([(0.1, 98.9), *good[1:]], reference=10.0)
    assert early is not None and early.good is False and "98.90" in early.text
    late = judge_curve([*good[:-1], (64.0, 95.0)], reference=10.0)
    assert late is not None and late.good is False and "still 95.00" in late.text
    assert judge_curve(good[:-1], reference=10.0) is None and judge_curve(good[2:], reference=10.0) is None


def test_a_figure_is_judged_curve_by_curve() -> None:
    first = [row for row in FIGURE2.rows if row.curve == FIGURE2.curves[0]]
    scores = {row.number: 0.999 if row.marginal.tightness < 20 else 0.3 for row in first}
    receipts = [receipt(number, r2=score, experiment="clica/figure2") for number, score in scores.items()]
    curves = curve_results(FIGURE2, results(FIGURE2, receipts, "fast"))
    assert [curve.verdict and curve.verdict.text for curve in curves] == ["trend holds", None, None]
    assert [len(curve.points) for curve in curves] == [9, 9, 11]


# From receipts


def test_a_row_is_averaged_over_its_seeds() -> None:
    receipts = [receipt(seed=seed, r2=score) for seed, score in enumerate((0.99, 0.995, 1.0))]
    result = row_result(TABLE1, ROW1, [*receipts, receipt("2", r2=0.1), receipt(budget="paper", r2=0.2)], "fast")
    cell = result["contrastive"]
    assert cell.ours is not None and cell.ours.mean == pytest.approx(99.5) and cell.ours.seeds == 3
    assert cell.verdict is not None and cell.verdict.good and cell.published == Published(99.42, 0.05)
    assert result["identity"].ours is None and result["identity"].verdict is None


def test_a_seed_computed_again_counts_once_and_a_failed_one_not_at_all() -> None:
    failed = receipt(seed=1, scores={}, failed="contrastive: The loss was NaN.")
    result = row_result(TABLE1, ROW1, [receipt(r2=0.5), receipt(r2=1.0), failed], "fast")
    assert result["contrastive"].ours == Stat(100.0, None, 1)
    assert result.failures == ("seed 1: contrastive: The loss was NaN.",)


def test_only_equal_settings_are_averaged() -> None:
    old = [receipt(seed=seed, config_hash="old", r2=0.5) for seed in range(3)]
    new = [receipt(seed=seed, config_hash="new", r2=0.9) for seed in range(3)]
    assert comparable("clica/table1", "1", [*old, *new], "fast") == tuple(new)
    assert comparable("clica/table1", "1", [*new, *old], "fast") == tuple(old)
    assert comparable("clica/table1", "1", [*old, *new[:2]], "fast") == tuple(old)
    assert comparable("clica/table1", "1", [*new[:2], *old[::-1], new[2]], "fast") == tuple(new)
    assert comparable("clica/table1", "1", old, "paper") == ()


def test_every_row_has_a_result_also_without_receipts() -> None:
    empty = results(TABLE2, [], "fast")
    assert [result.row.number for result in empty] == [row.number for row in TABLE2.rows]
    assert all(cell.ours is None and cell.verdict is None for result in empty for cell in result.cells)


def test_seconds_add_up() -> None:
    receipts = [dataclasses.replace(receipt(seed=seed), seconds=2.5) for seed in range(2)]
    assert row_result(TABLE1, ROW1, receipts, "fast").seconds == 5.0
