"""What rows of paper B show of their training: negatives are named, and only what can be compared stands together."""

from __future__ import annotations

from typing import Any

import pytest

from identica.experiments import Receipt, RowResult, find
from identica.report.loss_table import optima_of
from identica.report.results import gather
from identica.report.results_over_time import over_time
from identica.report.theory_charts import curve_chart

FIGURE10, FIGURE12, FIGURE3 = (find(f"aninfonce/figure{k}") for k in (10, 12, 3))
CURVE: dict[str, Any] = {"step": [0, 100], "r2": [0.5, 0.9], "content_r2": [0.5, 0.9], "style_r2": [0.1, 0.2]}


def result_of(experiment: Any, number: str, batches: dict[str, int], **changes: Any) -> RowResult:
    """A row whose models were trained with batches of these sizes; every loss falls from 2 to 1."""
    models: dict[str, Any] = {}
    for model in experiment.row(number).models:
        models[model] = {"hash": model, "curve": {**CURVE, "loss": [2.0, 1.0]}, "minimal_loss": 0.5}
        if model in ("hard", "aninfonce"):
            models[model]["curve"]["precision"] = [[60.0, 70.0], [55.0, 65.0]]
    data: dict[str, Any] = {"experiment": experiment.id, "row": number, "seed": 4, "budget": "fast", "models": models}
    data |= {"scores": {model: {"r2": 0.9} for model in models}, "config_hash": "c", "steps": 100, "batch": 64}
    data |= {"config": {model: {"train": {"batch_size": size}} for model, size in batches.items()}, "device": "H200"}
    (block,) = (one.main for one in gather([Receipt(**data | changes)]).sections if one.experiment is experiment)
    return next(one for one in block.rows if one.row.number == number)


def titled(result: RowResult, start: str) -> Any:
    (curve,) = [curve for curve in over_time(result) if curve.title.startswith(start)]
    return curve


BATCHES = {"infonce": 1024, "continued": 1024, "larger": 2560, "hard": 1024}


def test_titles_name_the_process_and_its_negatives() -> None:
    result = result_of(FIGURE10, "hard-45", BATCHES)
    assert [curve.title for curve in over_time(result)] == [
        "R² over time, S¹⁹, Λ⁺ = 150 ×20, Λ⁻ = 45 ×20, seed 4",
        "The loss over time, S¹⁹, Λ⁺ = 150 ×20, Λ⁻ = 45 ×20, batches of 1,024, seed 4",
        "Λ̂ over time, S¹⁹, Λ⁺ = 150 ×20, Λ⁻ = 45 ×20, then AnInfoNCE, 3 hard negatives, seed 4",
    ]


def test_no_level_is_drawn_for_a_precision_that_no_theorem_promises() -> None:
    joined = titled(result_of(FIGURE10, "hard-45", BATCHES), "Λ̂ over time")
    assert [line.kind for line in joined.lines] == ["line", "line"]
    row = FIGURE10.row("hard-45")
    assert optima_of(row, "hard") == () and optima_of(FIGURE10.row("scan"), "scan") == ((50.0,) * 20,)
    alone = titled(result_of(FIGURE3, "1", {}), "Λ̂ over time")
    assert [(line.name, line.kind) for line in alone.lines[:2]] == [("Λ", "dashed"), ("", "dashed")]
    assert [line.points[0][1] for line in alone.lines[:2]] == [5.0, 25.0]
    assert curve_chart(alone).count('class="curve reference"') == 2, "levels have no colour of a code"


@pytest.mark.parametrize("known", [True, False], ids=["settings", "older receipts"])
def test_losses_with_other_candidates_are_not_drawn_beside_each_other(known: bool) -> None:
    curve = titled(result_of(FIGURE10, "hard-45", BATCHES if known else {}), "The loss over time")
    assert [line.name for line in curve.lines] == ["InfoNCE, τ = 0.00667", "minimum", "then InfoNCE, τ = 0.00667"]
    both = titled(result_of(FIGURE3, "C", {"aninfonce": 4096, "infonce": 4096} if known else {}), "The loss over time")
    assert [line.name for line in both.lines] == ["AnInfoNCE", "minimum", "InfoNCE, τ = 1"]


def test_neither_are_other_batches_nor_what_is_no_cross_entropy() -> None:
    curve = titled(result_of(FIGURE3, "C", {"aninfonce": 16_384, "infonce": 4096}), "The loss over time")
    assert [line.name for line in curve.lines] == ["AnInfoNCE", "minimum"] and "batches of 16,384" in curve.title
    assert [line.name for line in titled(result_of(FIGURE12, "uniform", {}), "The loss over time").lines] == [
        *("AnInfoNCE", "minimum"),
    ]


def test_scores_are_named_by_their_losses() -> None:
    whole = titled(result_of(FIGURE10, "hard-45", BATCHES), "R² over time")
    assert [line.name for line in whole.lines][-1] == "then AnInfoNCE, 3 hard negatives"
    blocks = titled(result_of(FIGURE3, "1", {}), "R² over time")
    assert [line.name for line in blocks.lines][:2] == ["AnInfoNCE, content", "AnInfoNCE, style"]
