"""The experiments on MNIST in a report, from made-up receipts."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from identica.experiments import Experiment, Receipt, find
from identica.report.loss_table import headings, table_rows
from identica.report.markdown import markdown
from identica.report.results import Block, gather
from identica.report.results_losses import panels
from identica.report.results_page import results_page

VIEWS, FIGURE7, FIGURE3 = (find(f"aninfonce/{name}") for name in ("mnist-views", "figure7", "figure3"))
HISTOGRAM = {"digit": 4, "latent": 7, "low": -2.0, "high": 2.0, "density": [0.3, 0.1, 0.1, 0.5], "dip": 0.0625}


def made_up(experiment: Experiment, row: str, scores: dict[str, dict[str, float]], **changes: Any) -> Receipt:
    data: dict[str, Any] = {"experiment": experiment.id, "row": row, "seed": 0, "budget": "fast", "scores": scores}
    data |= {"config": {}, "config_hash": "abc", "steps": 10, "batch": 8, "seconds": 4.0, "device": "H200"}
    return Receipt(**(data | {"precision": "tf32"} | changes))


def block_of(experiment: Experiment, *receipts: Receipt) -> Block:
    return next(one.main for one in gather(receipts).sections if one.experiment.id == experiment.id)


@pytest.fixture
def trade_off() -> Receipt:
    losses = {"infonce": (0.96, 0.35, 0.54, 0.57), "aninfonce": (0.93, 0.45, 0.6, 0.62)}
    names = ("class_accuracy", "r2", "crop_accuracy", "blur_accuracy")
    scores = {model: dict(zip(names, values, strict=True)) | {"mcc": 0.4} for model, values in losses.items()}
    return made_up(VIEWS, "1", scores, per_dimension={"aninfonce": {"precision": [3.0, 21.0]}})


def latents(**changes: Any) -> Receipt:
    scores = {"share": 0.9, "bimodal": 0.1, "largest_dip": 0.06, "kolmogorov": 0.2, "marginal_kolmogorov": 0.05}
    return made_up(FIGURE7, "latents", {"vae": scores}, **({"models": {"vae": {"histograms": [HISTOGRAM]}}} | changes))


def test_ours_stands_beside_the_papers(trade_off: Receipt) -> None:
    block = block_of(VIEWS, trade_off)
    (title, chart) = panels(block)[0]
    assert title == "What can be read off the codes: AnInfoNCE; InfoNCE, τ = 1"
    assert "InfoNCE, ours: 0.960, 0.350, 0.540, 0.570; InfoNCE, paper: 0.970, 0.340, 0.530, 0.580" in chart
    ElementTree.fromstring(chart)
    verdicts = [one.verdict for one in block.claims]
    assert [verdict.good for verdict in verdicts if verdict] == [True] * 4 and verdicts[4:] == [None] * 4


def test_the_table_has_the_columns_of_its_experiment_and_no_empty_ones(trade_off: Receipt) -> None:
    block = block_of(VIEWS, trade_off)
    assert headings(block) == (
        *("Row", "Pairs", "Loss", "R²", "Paper", "Verdict", "MCC", "Λ̂", "Class", "Crop", "Blur", "Seconds"),
    )
    first, second, *_ = table_rows(block)
    assert first[2:5] == ("AnInfoNCE", "45.00 (1)", "44.00") and first[5] == block.rows[0]["aninfonce"].verdict
    assert first[6:] == ("40.00", "3.00 … 21.00", "93.00", "60.00", "62.00", "4.0")
    assert second[2:5] == ("InfoNCE, τ = 1", "35.00 (1)", "34.00")
    text = markdown(gather([trade_off])).split("## aninfonce/mnist-views\n")[1].split("\n## ")[0]
    assert re.search(r"\| Class \|  Crop \|", text) and "Content" not in text


def test_histograms_are_drawn_beside_a_normal_law() -> None:
    block = block_of(FIGURE7, latents())
    ((title, chart),) = panels(block)
    assert title == "Latents of the views of single digits, seed 0"
    assert "a 4, latent 7, dip 0.062 from 0.3 to 0.5" in chart and chart.count("<polyline") == 2 and ">normal<" in chart
    assert headings(block)[3:] == (
        *("share", "Paper", "Two modes", "Largest dip", "From normal", "All digits from normal", "Seconds"),
    )
    line = next(iter(table_rows(block)))
    assert line[2:5] == ("VAE", "90.00 (1)", "") and line[5:9] == ("10.00", "0.0600", "0.2000", "0.0500")
    assert [one.verdict.good for one in block.claims if one.verdict] == [True] * 3


def test_classifier_and_neighbours_are_shares() -> None:
    domain = made_up(FIGURE7, "domain", {"classifier": {"share": 0.985}})
    near = made_up(FIGURE7, "neighbours", {"infonce": {"share": 0.9, "knn_accuracy": 0.9, "r2": 0.3, "mcc": 0.2}})
    block = block_of(FIGURE7, domain, near)
    assert [one.verdict.good for one in block.claims if one.verdict] == [True, False]
    assert block.rows[1]["classifier"].verdict is not None
    assert block.rows[1]["classifier"].verdict.text == "short by 0.60"
    assert block.misses[:2] == [
        ("Row domain, Classifier", "short by 0.60"),
        ("Row neighbours, InfoNCE", "short by 6.70"),
    ]


@pytest.mark.parametrize(
    "histograms", [None, "x", [1], [{}], [HISTOGRAM | {"density": ["x"]}], [HISTOGRAM | {"low": None}]]
)
def test_strange_receipts_do_no_harm(histograms: Any) -> None:
    strange = latents(models={"vae": {"histograms": histograms}})
    assert panels(block_of(FIGURE7, strange)) == []


def test_the_page_shows_what_there_is() -> None:
    half = made_up(VIEWS, "1", {"infonce": {"r2": 0.3}, "aninfonce": {"r2": 0.3}})
    assert panels(block_of(VIEWS, half)) == []
    page = results_page(gather([latents(), half, made_up(FIGURE3, "C", {"aninfonce": {"r2": 0.9}})]))
    assert all(f'id="aninfonce-{name}"' in page for name in ("figure3", "figure7", "mnist-views"))
