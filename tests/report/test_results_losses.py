"""Figures that compare losses: their claims, numbers and panels, from made-up receipts."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from identica.experiments import Receipt, catalogue, find
from identica.experiments.aninfonce.rows import LossExperiment, LossRow
from identica.report.loss_table import caption, headings, precisions, table_rows
from identica.report.markdown import markdown
from identica.report.results import Block, gather
from identica.report.results_losses import panels
from identica.report.results_page import results_page

FIGURE2 = find("aninfonce/figure2")


def made_up(row: LossRow, seed: int, **changes: Any) -> Receipt:
    """As training might have left it: AnInfoNCE finds everything, InfoNCE loses the style."""
    scores: dict[str, dict[str, float]] = {}
    per_dimension: dict[str, dict[str, list[float | None]]] = {}
    models: dict[str, dict[str, Any]] = {}
    for model in row.models:
        good = model == "aninfonce"
        style = 0.998 if good else 0.02
        scores[model] = {"r2": (0.999 + style) / 2, "mcc": 0.995, "content_r2": 0.999, "style_r2": style}
        scores[model] |= {"within_r2": 0.99, "excess_loss": 0.004 if good else 2.5}
        curve: dict[str, Any] = {"step": [0, 10], "content_r2": [0.5, 0.999], "style_r2": [0.5, style]}
        curve |= {"loss": [None, 3.0], "r2": [0.5, 0.9], "mcc": [0.4, 0.9]}
        if good:
            found = [value * (1.002 + 0.002 * seed) for value in reversed(row.precisions[0])]
            scores[model]["precision_error"] = 0.002 + 0.002 * seed
            per_dimension[model] = {"precision": [*found], "precision_standard_error": [0.03] * len(found)}
            curve["precision"] = [[1.0] * len(found), found]
        elif row.losses["infonce"].learned:
            per_dimension[model] = {"temperature": [0.125]}
        models[model] = {"hash": f"{model} {row.number}", "curve": curve, "minimal_loss": 2.9}
        models[model]["similarities"] = {"positives": [0.0, 0.5, 1.5], "negatives": [0.5, 1.0, 0.5]}
    data: dict[str, Any] = {"experiment": FIGURE2.id, "row": row.number, "x": dict(row.x), "seed": seed}
    data |= {"budget": "fast", "scores": scores, "per_dimension": per_dimension, "models": models, "config": {}}
    data |= {"config_hash": "abc", "steps": 20_000, "batch": 4096, "seconds": 40.0, "device": "H200"}
    return Receipt(**(data | {"precision": "tf32"} | changes))


@pytest.fixture(scope="module")
def receipts() -> list[Receipt]:
    return [made_up(row, seed) for row in FIGURE2.rows if isinstance(row, LossRow) for seed in range(3)]


def block_of(receipts: list[Receipt]) -> Block:
    return next(one.main for one in gather(receipts).sections if one.experiment.id == FIGURE2.id)


def test_claims_are_judged_and_counted(receipts: list[Receipt]) -> None:
    block = block_of(receipts)
    assert len(block.claims) == len(FIGURE2.claims) and all(one.verdict and one.verdict.good for one in block.claims)
    assert block.tally == "2 reproduced, 8 trends hold"
    some = block_of([one for one in receipts if one.row in ("1", "2", "3")])
    assert [one.verdict is None for one in some.claims].count(True) == 4
    bad = [made_up(FIGURE2.row("3"), 0, scores={"aninfonce": {"r2": 0.9, "precision_error": 0.3}})]  # type: ignore[arg-type]
    assert "1 short, 1 trend does not hold" in block_of(bad).tally


def test_the_text_has_the_claims_and_a_line_for_each_loss(receipts: list[Receipt]) -> None:
    text = markdown(gather(receipts)).split("## aninfonce/figure2\n")[1].split("\n## ")[0]
    assert "The paper prints few numbers" in text
    assert re.search(r"every entry of Λ̂ is within 1 % of the truth +\| +0.40 % \| trend holds", text)
    assert re.search(r"recovers content up to Λ₂ = 25: R² ≥ 0.997 +\| +99.90 % \| trend holds", text)
    assert re.search(r"within 0.01 nats of its minimum +\| +0.0040 nats \| trend holds", text)
    line, other = [line for line in text.splitlines() if line.startswith("| 3 ")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:3] == ["3", "S⁹, Λ = 5 ×5, 25 ×5", "AnInfoNCE"]
    assert cells[3:6] == ["99.85 ± 0.00 (3)", "99.70", "reproduced"]
    assert cells[6:11] == ["99.90", "99.80", "99.00", "99.50", "73"], "two blocks of five, each up to a rotation"
    assert cells[11] == "5.02, 25.10 (± 0.03)" and cells[12:15] == ["0.40 %", "0.0040", "120"]
    assert [cell.strip() for cell in other.strip("|").split("|")][:3] == ["3", "–", "InfoNCE, τ = 1"]
    linear = [line.split("|")[11].strip() for line in text.splitlines() if line.startswith("| linear")]
    assert linear == ["100", "100"]
    assert "MCC promised: of codes that are right up to a rotation" in text
    assert "| τ = 0.1250 " in text and text.count("InfoNCE, τ = 1 ") == 8


def test_rows_without_receipts_say_so() -> None:
    block = block_of([])
    rows = list(table_rows(block))
    assert headings(block) == ("Row", "Pairs", "Loss", "R²", "Paper")
    assert len(rows) == 18 and all(len(row) == 5 and row[3] == "not run" for row in rows)
    assert panels(block) == []
    text = markdown(gather([])).split("## aninfonce/figure2\n")[1].split("\n## ")[0]
    assert "### Not run" in text and "loses style" in text and "| linear" not in text  # empty lines help nobody
    failed = made_up(FIGURE2.row("1"), 0, scores={}, per_dimension={}, models={})  # type: ignore[arg-type]
    assert next(table_rows(block_of([failed])))[3] == "no score"


def test_precisions_are_compared_in_order_of_size_and_averaged(receipts: list[Receipt]) -> None:
    result = next(one for one in block_of(receipts).rows if one.row.number == "3")
    pairs = precisions(result, "aninfonce")
    assert [truth for truth, _ in pairs] == [5.0] * 5 + [25.0] * 5
    assert [value for _, value in pairs] == pytest.approx([5.0 * 1.004] * 5 + [25.0 * 1.004] * 5)
    assert precisions(result, "infonce") == []


def test_panels_show_content_and_style_precisions_and_the_detail_over_time(receipts: list[Receipt]) -> None:
    drawn = dict(panels(block_of(receipts)))
    titles = list(drawn)
    assert titles[:3] == ["Content and style", "InfoNCE at Λ₂ = 25", "How far Λ̂ is off"] and len(titles) == 7
    for chart in drawn.values():
        ElementTree.fromstring(chart.partition("</svg>")[0] + "</svg>")
    first = drawn["Content and style"]
    assert "AnInfoNCE, style from 0.998 to 0.998" in first and "InfoNCE, style from 0.02 to 0.02" in first
    assert first.count("<polyline") == 4 and first.count("stroke-dasharray") == 2
    assert ">Λ₂</text>" in first and ">precision</text>" not in first
    assert ">temperature τ</text>" in drawn["InfoNCE at Λ₂ = 25"]
    off = drawn["How far Λ̂ is off"]
    assert off.count("<circle") == 70 and 'class="dot c1"' in off
    assert "AnInfoNCE from 0.4 to 0.4" in off and "the truth from 0 to 0" in off, "in percent, of two and three seeds"
    assert 'class="curve reference"' in off, "the zero line has no colour of a loss"
    time = drawn["Λ̂ over time, S⁹, Λ = 5 ×5, 25 ×5, AnInfoNCE, seed 0"]
    assert time.count("<polyline") == 10 + 2 and time.count("stroke-dasharray") == 2, "and two levels of Λ"
    loss = drawn["The loss over time, S⁹, Λ = 5 ×5, 25 ×5, batches of 4,096, seed 0"]
    assert "minimum from 2.9 to 2.9" in loss and loss.count("<polyline") == 3, "both losses, and one minimum"
    similarities = next(chart for title, chart in drawn.items() if title.startswith("Similarities"))
    assert similarities.count("<polyline") == 4 and "AnInfoNCE, positives from 0 to 1.5" in similarities


def test_precisions_of_turned_codes_are_marked_where_training_ends() -> None:
    experiment = find("aninfonce/figure3")
    row = experiment.row("C")
    assert isinstance(row, LossRow)
    charts = []
    for config in ({}, {"aninfonce": {"turned": {"n": 8}}}):
        receipt = made_up(row, 0, experiment=experiment.id, config=config)
        block = next(one.main for one in gather([receipt]).sections if one.experiment.id == experiment.id)
        charts.append(next(chart for title, chart in panels(block) if title.startswith("Λ̂ over time")))
    plain, turned = charts
    assert "turned to their axes" not in plain and "turned to their axes" in turned
    assert turned.count("<circle") == plain.count("<circle") + 10


def test_the_page_has_it_and_survives_strange_receipts(receipts: list[Receipt]) -> None:
    page = results_page(gather(receipts))
    section = page.split('id="aninfonce-figure2"')[1].split("</section>")[0]
    assert section.count("<svg") == 7 and section.count(">trend holds</span>") == 8
    assert section.count(">reproduced</span>") == 2, "what the tally counts can be found"
    assert "<summary>All 11 rows in numbers: R² from 50.95 to 99.85; 2 reproduced</summary>" in section
    assert "InfoNCE at τ = 1 loses style" in section and "25.10" in section
    strange = {
        "aninfonce": {
            "similarities": {"positives": ["x"]},
            "curve": {"step": [0, "x"], "precision": [None, [1.0]], "loss": [None]},
        }
    }
    one = made_up(FIGURE2.row("3"), 0, models=strange, per_dimension={"aninfonce": {"precision": [1.0, None]}})  # type: ignore[arg-type]
    assert "aninfonce-figure2" in results_page(gather([one]))


def test_details_and_plots_are_about_rows_that_exist() -> None:
    experiments = [one for one in catalogue() if isinstance(one, LossExperiment)]
    assert len(experiments) >= 6
    for experiment in experiments:
        assert all(experiment.row(number) for number in experiment.details)
        for plot in experiment.plots:
            shown = [row for row in experiment.rows if plot.shows(row.x)]
            assert len(shown) > 1 and all(q.model in experiment.models for _, q in plot.lines)
            assert plot.by is None or all(plot.by in row.x for row in shown)


def test_an_ensembles_two_precisions_are_drawn_against_each_other() -> None:
    experiment = find("aninfonce/figure11")
    (row,) = experiment.rows
    found: dict[str, Any] = {"precision": [5.0, 25.0, None], "precision 2": [25.0, 5.0, 1.0]}
    curve = {"step": [0, 10], "precision": [[1.0, 1.0], [5.0, 25.0]], "precision 2": [[1.0, 1.0], [25.0, 5.0]]}
    data: dict[str, Any] = {"experiment": experiment.id, "row": row.number, "x": dict(row.x), "seed": 0}
    data |= {"scores": {"ensemble": {"r2": 0.99, "mcc": 0.6}}, "per_dimension": {"ensemble": found}, "budget": "fast"}
    data |= {"models": {"ensemble": {"hash": "e", "curve": curve}}, "config": {}, "config_hash": "abc", "steps": 10}
    receipt = Receipt(**data | {"batch": 8, "seconds": 1.0, "device": "H200", "precision": "tf32"})
    block = next(one.main for one in gather([receipt]).sections if one.experiment.id == experiment.id)
    drawn = dict(panels(block))
    assert drawn["Two Λ̂ of one encoder, code by code"].count("<circle") == 2
    time = next(chart for title, chart in drawn.items() if title.startswith("Λ̂ over time"))
    assert time.count("<polyline") == 4 and time.count("stroke-dasharray") == 2


def test_points_in_named_groups_share_a_line() -> None:
    experiment = find("aninfonce/figure4")
    assert isinstance(experiment, LossExperiment)
    plot = next(plot for plot in experiment.plots if plot.title.startswith("Do many dimensions"))
    groups = {row.number: plot.group(row.x) for row in experiment.rows if plot.shows(row.x)}
    assert groups["d40-p75-b16384"] == "matched temperature" and groups["d40-p75-b16384-w4"] == "four times it"
    assert groups["d40-p75-b16384-w4-long"] == "four times it, given time" and "d40-p75-b4096" not in groups


def of_scaling(experiment_id: str, numbers: list[str]) -> Block:
    """Receipts of points with one loss each."""
    experiment = find(experiment_id)
    receipts = []
    for place, number in enumerate(numbers):
        row = experiment.row(number)
        value = 0.9 + 0.01 * place
        scores = {"r2": value, "mcc": 0.4, "content_r2": value, "style_r2": value, "within_r2": value}
        data: dict[str, Any] = {"experiment": experiment.id, "row": number, "x": dict(row.x), "seed": 0, "config": {}}
        data |= {"scores": {"infonce": scores}, "budget": "fast", "config_hash": "c", "seconds": 1.0, "batch": 64}
        receipts.append(Receipt(**data, steps=100, device="H200", precision="tf32"))
    return next(one.main for one in gather(receipts).sections if one.experiment is experiment)


def test_where_all_precisions_are_equal_there_are_no_columns_on_blocks_and_none_is_empty() -> None:
    block = of_scaling("aninfonce/figure8", ["p25", "p75"])
    assert headings(block) == ("Row", "Pairs", "Loss", "R²", "MCC", "MCC promised", "Seconds")
    assert caption(block) == "R² and MCC in percent, mean ± standard deviation (seeds)"
    assert not any(remark.startswith("Within") for remark in block.remarks)
    assert any(remark.startswith("MCC promised") for remark in block.remarks)


def test_groups_are_in_order_and_named_once() -> None:
    block = of_scaling("aninfonce/figure4", ["d20-p75-b256", "d20-p75-b1024", "d20-p25-b256", "d20-p25-b1024"])
    drawn = dict(panels(block))
    assert re.findall(r"</i>([^<]*)</span>", drawn["20 dimensions"]) == ["Λ = 25", "Λ = 75"]
    assert re.findall(r"</i>([^<]*)</span>", drawn["Λ = 75"]) == ["20 dimensions"]
    assert ">batch size</text>" in drawn["Λ = 75"]


def test_where_all_precisions_are_equal_the_axis_is_theirs() -> None:
    block = of_scaling("aninfonce/figure8", ["p25", "p75"])
    for result in block.run:
        result.receipts[0].scores["infonce"]["steps_to_0.7"] = 500.0  # type: ignore[index]
    chart = dict(panels(block))["Steps to a target"]
    assert ">Λ</text>" in chart and "Λ₂" not in chart


def test_a_target_that_a_run_never_reached_is_among_what_did_not_come_out() -> None:
    block = of_scaling("aninfonce/figure8", ["p25", "p75"])
    says, steps = "R² = 0.9 takes more steps at Λ = 75 than at 25", "steps_to_0.9"
    block.run[0].receipts[0].scores["infonce"][steps] = 600.0  # type: ignore[index]
    assert (says, "not reached in every run") in block.misses
    block.run[1].receipts[0].scores["infonce"][steps] = 900.0  # type: ignore[index]
    assert says not in dict(block.misses)
    half = of_scaling("aninfonce/figure8", ["p25"])
    (claim,) = [one for one in half.claims if one.claim.says == says]
    assert half.unjudged(claim) == "not enough results" and says not in dict(half.misses)
