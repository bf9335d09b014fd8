"""Tables 4 and 5 in a report, from made-up receipts: factors, scenes drawn again, scores by seconds."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image

from identica.experiments import Experiment, Receipt, find
from identica.render import FACTORS, ThreeDIdentScene
from identica.report import inversion_charts as charts
from identica.report.results import Block, gather
from identica.report.results_page import results_page
from identica.report.results_three_d_ident import Inversion, inversions, recovery
from tests.processes.painting import Painting
from tests.report.test_results_page import in_a_browser, probed

TABLE4, TABLE5 = find("clica/table4"), find("clica/table5")
TRUE = (2000 * torch.rand(12, 10, generator=torch.Generator().manual_seed(0)) - 1000).round().int().tolist()
CURVE = {"step": [0, 6, 6, 8], "r2": [0.0, 0.5, 0.4, 0.9], "mcc": [0.2, 0.7, 0.6, 0.95], "loss": [None, 3, None, 2]}


@pytest.fixture(autouse=True)
def _painted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scene that takes no time."""
    monkeypatch.setattr(charts, "_scene", lambda: Painting(16))


def made_up(experiment: Experiment, row: str, seed: int = 0, **changes: Any) -> Receipt:
    """Everything is off by 0.1; row "3" by 0.2."""
    off = 200 if row == "3" else 100
    info: dict[str, Any] = {"hash": f"{row} a", "curve": CURVE, "curve_seconds": [1.0, 20.0, 22.0, 60.0]}
    info |= {"resolutions": [[64, 6], [128, 2]]}
    info |= {"recovered": {"unit": 1e-3, "true": TRUE, "recovered": [[v + off for v in row] for row in TRUE]}}
    scores = {"r2": 0.9, "mcc": 0.95, "r2_train": 0.91, "mcc_train": 0.96}
    factors = {name: [score - 0.01 * k + 0.002 * seed for k in range(10)] for name, score in scores.items()}
    data: dict[str, Any] = {
        "models": {"contrastive": info, "supervised": {**info, "hash": "s"}},
        "scores": {"contrastive": scores, "supervised": scores, "identity": scores},
        "per_dimension": {"contrastive": factors, "supervised": factors},
    }
    data |= {"experiment": experiment.id, "row": row, "seed": seed, "budget": "fast", "config": {}, "config_hash": "c"}
    return Receipt(**(data | {"steps": 8, "batch": 4, "seconds": 60.0, "device": "H200"} | changes))


def block_of(experiment: Experiment, *receipts: Receipt) -> Block:
    return next(one.main for one in gather(receipts).sections if one.experiment.id == experiment.id)


def shown(experiment: Experiment, *receipts: Receipt) -> Inversion:
    found = inversions(gather(receipts)).of(block_of(experiment, *receipts))
    assert found is not None
    return found


def without(receipt: Receipt, *names: str) -> Receipt:
    models = {
        model: {name: value for name, value in info.items() if name not in names}
        for model, info in receipt.models.items()
    }
    return Receipt(**(receipt.__dict__ | {"models": models}))


# Factors in numbers


def test_every_factor_has_a_mean_over_seeds_and_rows_share_the_supervised_model() -> None:
    found = shown(TABLE4, *(made_up(TABLE4, row, seed) for row in ("1", "3") for seed in range(3)))
    assert [line.name for line in found.lines] == ["Row 1", "Row 3", "Supervised"]
    assert found.images == "test images" and found.lines[0].setting == "Normal 0.1, snapped → Box, Normal"
    assert found.lines[0].cells[0] == ("90.2", "95.2") and found.lines[0].cells[9] == ("81.2", "86.2")


def test_table_5_has_its_own_scores_and_refers_to_the_pictures_of_table_4() -> None:
    receipts = [made_up(table, "1") for table in (TABLE4, TABLE5)]
    test, train = (shown(table, *receipts) for table in (TABLE4, TABLE5))
    assert train.images == "training images" and train.lines[0].cells[0] == ("91.0", "96.0")
    assert len(test.views) == len(test.timed) == 2 and test.elsewhere == ()
    assert train.views == train.timed == () and train.elsewhere == ("clica/table4",)
    alone = shown(TABLE5, receipts[1])
    assert len(alone.views) == 2 and alone.elsewhere == ()
    # What is followed are test images, so that the paper's figure of training images is no line to reach.
    assert "the paper has" in test.timed[0][2] and "the paper has" not in alone.timed[0][2]


# Scores by seconds


def test_scores_by_seconds_end_where_the_receipt_says_and_mark_the_stages() -> None:
    name, _, chart = shown(TABLE4, made_up(TABLE4, "1"), made_up(TABLE4, "1", 1)).timed[0]
    picture = ElementTree.fromstring(chart)
    words = picture.get("aria-label") or ""
    assert name == "Row 1" and "R², seed 0 ends at 90.00 percent after 60 seconds" in words
    lines = picture.findall("polyline")
    assert len(lines) == 4
    frame = [float(value) for value in re.findall(r"[\d.]+", lines[-1].get("points") or "")[::2]]
    assert frame == pytest.approx([46 + 242 * at / 60 for at in (1, 20, 22, 60)], abs=0.1)
    stages = [line for line in picture.findall("line") if line.findtext("title") in ("64 px", "128 px")]
    assert [float(line.get("x1") or 0) for line in stages] == pytest.approx([46, 46 + 242 * 20 / 60], abs=0.1)
    assert {text.text for text in picture.findall("text")} >= {"64 px", "128 px", "seconds of training"}


@pytest.mark.parametrize("resolutions", [None, "x", [1], [["a", 2]], [[64, 5], [128, 3]]])
def test_stages_that_do_not_fit_the_curve_are_left_out(resolutions: Any) -> None:
    receipt = made_up(TABLE4, "1")
    receipt.models["contrastive"]["resolutions"] = resolutions  # type: ignore[index]
    assert "px" not in re.sub(r"max-width:\d+px", "", shown(TABLE4, receipt).timed[0][2])


# Latents recovered


def test_scatters_show_where_each_latent_came_out() -> None:
    first, supervised = shown(TABLE4, made_up(TABLE4, "3")).views
    assert (first.name, supervised.name, first.count, first.seed) == ("Row 3", "Supervised", 12, 0)
    assert first.off == pytest.approx(0.2) and len(first.scatters) == 10
    picture = ElementTree.fromstring(first.scatters[7])
    assert (picture.get("aria-label") or "").startswith("object hue, recovered against true, 12 latents, off by 0.200")
    (dots,) = picture.findall("path")
    places = [[float(v) for v in place] for place in re.findall(r"M([\d.]+) ([\d.]+)h0", dots.get("d") or "")]
    true = [row[7] / 1000 for row in TRUE]
    assert [x for x, _ in places] == pytest.approx([40 + 142 * (v + 1.1) / 2.2 for v in true], abs=0.06)
    assert [y for _, y in places] == pytest.approx([158 - 134 * (v + 0.2 + 1.3) / 2.6 for v in true], abs=0.06)
    assert "R² 83.0" in first.scatters[7]


def test_originals_stand_above_what_was_recovered_and_in_the_page_once() -> None:
    page = results_page(gather([made_up(TABLE4, row) for row in ("1", "3")]))
    strips = re.findall(r"<div class=\"strips\">(.*?)</div>", page)
    assert len(strips) == 3 and page.count('id="original-') == 8
    for each in strips:
        assert re.findall(r'href="#(original-\d)"', each) == [f"original-{k + 1}" for k in range(8)]
        halves = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", each)]
        assert [half.get("role") for half in halves] == ["img", "img"]
        for half in halves:
            for group in half.findall("g"):
                above, below = group.find("use"), group.find("image")
                assert above is not None and below is not None and above.get("x") == below.get("x")
                assert float(above.get("y") or 0) + charts.TILE < float(below.get("y") or 0)
    assert f"x {TRUE[0][0] / 1000:.2f} → {TRUE[0][0] / 1000 + 0.1:.2f}" in strips[0]
    assert "scene 5, off by 0.10 on average, 0.10 in" in strips[0] and "off by 0.20" in strips[1]


def pixels(address: str) -> np.ndarray:
    return np.array(Image.open(io.BytesIO(base64.b64decode(address.removeprefix("data:image/png;base64,")))))


def test_pictures_are_those_of_the_scene_and_values_beyond_its_range_are_moved_to_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(charts, "TILE", 32)
    charts._scene.cache_clear()
    beyond = (1.5, *[0.25] * 8, -7.0)
    (picture,) = charts.drawn((beyond,))
    (expected,) = ThreeDIdentScene(resolution=32).render(torch.tensor([[1.0, *[0.25] * 8, -1.0]]))
    assert np.array_equal(pixels(picture), expected.permute(1, 2, 0).numpy())
    assert charts.drawn((beyond,)) == (picture,)
    charts._scene.cache_clear()


# Receipts as they are


@pytest.mark.parametrize(
    "strange",
    [
        None,
        [],
        {},
        {"unit": None, "true": TRUE, "recovered": TRUE},
        {"unit": 1e-3, "true": [], "recovered": []},
        {"unit": 1e-3, "true": TRUE, "recovered": TRUE[1:]},
        {"unit": 1e-3, "true": TRUE, "recovered": [*TRUE[1:], TRUE[0][1:]]},
        {"unit": 1e-3, "true": TRUE, "recovered": [*TRUE[1:], ["x"] * 10]},
    ],
)
def test_what_cannot_be_drawn_is_not(strange: Any) -> None:
    assert recovery({"recovered": strange}) is None


def test_older_receipts_are_shown_with_what_they_have() -> None:
    older = without(made_up(TABLE4, "1"), "recovered", "curve_seconds", "resolutions")
    found = shown(TABLE4, older)
    assert len(found.lines) == 2 and found.timed == found.views == ()
    page = results_page(gather([older]))
    section = page.split('id="clica-table4"')[1].split("</section>")[0]
    assert "Factor by factor" in section and "<details open><summary>Learning curves" in section
    assert "made visible" not in section and 'id="original-' not in page
    bare = Receipt(**(older.__dict__ | {"per_dimension": {}, "models": {}}))
    assert shown(TABLE4, bare).lines == () and "Factor by factor" not in results_page(gather([bare]))


def test_a_seed_without_latents_does_not_hide_the_others() -> None:
    (view, _) = shown(TABLE4, without(made_up(TABLE4, "1"), "recovered"), made_up(TABLE4, "1", 1)).views
    assert view.seed == 1


def test_the_page_is_whole_and_the_same_every_time() -> None:
    receipts = [made_up(table, "1") for table in (TABLE4, TABLE5)]
    page = results_page(gather(receipts))
    assert page == results_page(gather(receipts))
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(set(ids)) == len(ids) and {f"original-{k}" for k in range(1, 9)} <= set(ids)
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"|url\(|@import', page)
    for svg in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL):
        picture = ElementTree.fromstring(svg)
        assert picture.get("aria-label") or picture.get("aria-hidden") == "true"
    parts = [page.split(f'id="clica-table{k}"')[1].split("</section>")[0] for k in (4, 5)]
    assert "made visible" in parts[0] and "drawn with clica/table4" in parts[1]
    assert all(f'data-label="{factor}"' in part for part in parts for factor in FACTORS)


@in_a_browser
@pytest.mark.parametrize("width", [1280, 400])
def test_pictures_fit_a_phone_and_are_seen(tmp_path: Path, width: int) -> None:
    probe = """<script>
    const box = (element) => element.getBoundingClientRect();
    const tiles = [...document.querySelectorAll(".strips use, .strips image")].map(box);
    parent.postMessage({
      width: document.documentElement.scrollWidth,
      tiles: tiles.length, smallest: Math.min(...tiles.map((tile) => Math.min(tile.width, tile.height))),
      wide: [...document.querySelectorAll("svg, table, p")].filter((e) => box(e).right > innerWidth + 1).length,
    }, "*");
    </script>"""
    page = results_page(gather([made_up(TABLE4, row) for row in ("1", "3")]))
    seen = probed(tmp_path, page, width=width, where="#clica-table4", probe=probe)
    assert seen["width"] == width and seen["wide"] == 0 and seen["tiles"] == 3 * 16 and seen["smallest"] > 60
