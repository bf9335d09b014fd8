from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identica.report.charts import Series, heatmap, line_chart, scatter
from identica.report.frame import ticks

numbers = st.floats(-1e6, 1e6, allow_nan=False)


@given(numbers, st.floats(1e-3, 1e6))
def test_ticks_are_round_few_and_inside(low: float, span: float) -> None:
    high = low + span
    values = ticks(low, high)
    assert 1 <= len(values) <= 7
    assert all(low - 1e-6 * span <= v <= high + 1e-6 * span for v in values)
    steps = {round((b - a) / span, 6) for a, b in zip(values, values[1:], strict=False)}
    assert len(steps) <= 1


def parse(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(f"<root>{svg}</root>")


def test_a_line_chart_is_well_formed_and_stays_in_its_frame() -> None:
    curve = Series("a <b> & c", [(0, 1.0), (5, 3.0), (10, math.nan), (15, 2.0)])
    root = parse(line_chart([curve], x_label="step", y_label="loss", reference=(0.5, "floor <here>")))
    points = root.find(".//polyline").get("points").split()  # type: ignore[union-attr]
    assert len(points) == 3  # the NaN is left out
    for point in points:
        x, y = map(float, point.split(","))
        assert 0 <= x <= 480 and 0 <= y <= 280
    assert "floor <here>" in "".join(root.itertext())


def test_the_highest_point_is_drawn_highest() -> None:
    root = parse(line_chart([Series("a", [(0, 1.0), (1, 2.0)])], x_label="", y_label=""))
    low, high = (float(p.split(",")[1]) for p in root.find(".//polyline").get("points").split())  # type: ignore[union-attr]
    assert high < low


def test_nothing_to_draw_is_said() -> None:
    assert "No points" in line_chart([Series("a", [])], x_label="", y_label="")


@pytest.mark.parametrize("value", [0.0, 0.25, 1.0])
def test_a_heatmap_shows_each_value(value: float) -> None:
    root = parse(heatmap([[value, 0.5]], rows=["z1"], columns=["h1", "h2"], title="correlations"))
    cells = root.findall(".//rect")
    assert float(cells[0].get("fill-opacity") or "nan") == value
    assert f"{value:.2f}" in "".join(root.itertext())


def test_a_scatter_has_one_dot_per_point() -> None:
    root = parse(scatter([(0.0, 1.0), (1.0, 2.0), (2.0, 1.5)], x_label="z", y_label="h", note="r = 1"))
    assert len(root.findall(".//circle")) == 3


def label(svg: str) -> str:
    return parse(svg).find(".//svg").get("aria-label") or ""  # type: ignore[union-attr]


def test_charts_say_what_they_show() -> None:
    curve = Series("training loss", [(50, 1.379), (100, math.nan), (1000, 0.802)])
    chart = line_chart([curve], x_label="step", y_label="", reference=(0.79, "smallest possible"))
    assert label(chart) == "training loss by step, from 1.38 to 0.802; smallest possible 0.79"
    two = line_chart(
        [Series("R²", [(0, 0.5), (1, 0.9)]), Series("MCC", [(0, 0.25), (1, 0.75)])], x_label="step", y_label=""
    )
    assert label(two) == "R² by step, from 0.5 to 0.9; MCC by step, from 0.25 to 0.75"
    matrix = heatmap([[1.0, 0.02], [0.0, 0.9]], rows=["z1", "z2"], columns=["h2", "h1"], title="correlations")
    assert label(matrix) == "correlations, in the columns h2, h1. z1: 1.00, 0.02; z2: 0.00, 0.90"
    assert label(scatter([(0.0, 1.0), (1.0, 2.0)], x_label="z1", y_label="h1", note="r")) == "h1 against z1. r"
