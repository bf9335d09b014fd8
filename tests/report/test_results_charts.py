from __future__ import annotations

from xml.etree import ElementTree

import pytest

from identica.report.results_charts import FigurePoint, Nines, Pair, Spent, comparison, figure, learning, spent_chart


def parse(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(f"<root>{svg}</root>")


def numbers(root: ElementTree.Element, what: str, name: str) -> list[float]:
    return [float(element.get(name) or "nan") for element in root.findall(f".//{what}")]


def words(svg: str) -> str:
    return parse(svg).find(".//svg").get("aria-label") or ""  # type: ignore[union-attr]


def test_every_nine_takes_the_same_room() -> None:
    axis = Nines.up_to(99.99, 0.0, 100.0)
    places = [axis(score) for score in (0.0, 90.0, 99.0, 99.9, 99.99)]
    steps = [b - a for a, b in zip(places, places[1:], strict=False)]
    assert steps == pytest.approx([steps[0]] * 4) and places[0] == 0.0
    assert axis(-5.0) == 0.0 and axis(100.0) == 100.0
    assert [label for _, label in axis.labels()] == ["0", "50", "90", "99", "99.9", "99.99"]


def test_a_comparison_has_a_dot_for_each_seed_and_a_mark_for_the_paper() -> None:
    svg = comparison([Pair("1", [99.0, 99.5], (99.0, 0.1)), Pair("2<", [], (58.0, 3.0)), Pair("3", [40.0], None)], "R²")
    root = parse(svg)
    assert len(root.findall(".//circle")) == 3 and len(root.findall(".//rect")) == 2
    first, better, low = numbers(root, "circle", "cx")
    mark = numbers(root, "line[@class='paper']", "x1")[0]
    assert first == mark and low < first < better
    assert "row 2<: paper 58.00 ± 3.00" in words(svg) and "row 3: ours 40.00" in words(svg)


def test_nothing_to_compare_is_said() -> None:
    assert "Nothing to draw" in comparison([Pair("1", [], None)], "R²")


def test_a_learning_curve_is_one_thin_line_for_each_seed_and_metric() -> None:
    r2 = [(0, [(0, 0.5), (10, 0.99)]), (3, [(0, 0.4), (10, 0.9)])]
    root = parse(learning([r2, r2[:1]], ["R²", "MCC"], 99.5, best=99.5))
    lines = root.findall(".//polyline")
    assert [line.get("class") for line in lines] == ["thin c2", "thin c1", "thin c1"]
    assert [line.find("title").text for line in lines] == ["MCC, seed 0", "R², seed 0", "R², seed 3"]  # type: ignore[union-attr]
    start, end = (tuple(map(float, point.split(","))) for point in (lines[1].get("points") or "").split())
    assert start[0] < end[0] and end[1] < start[1]  # to the right, and up
    assert root.find(".//line[@class='reference']/title").text == "paper 99.50"  # type: ignore[union-attr]
    assert "R² ends between 90.00 and 99.00 percent" in words(learning([r2, []], ["R²", "MCC"], None, best=99.5))
    assert "No learning curve" in learning([[], []], ["R²", "MCC"], None, best=0.0)


def test_a_figure_has_a_logarithmic_axis_and_the_pairs_at_their_place() -> None:
    points = [FigurePoint(2.0**k, 10.0 * k, [99.0, 98.0] if k < 5 else []) for k in range(7)]
    svg = figure(points, 8.0, "R²", "concentration", described=True)
    root = parse(svg)
    dots = numbers(root, "circle", "cx")
    assert len(dots) == 10 and len(set(dots)) == 5
    steps = [b - a for a, b in zip(dots[::2], dots[2::2], strict=False)]
    assert steps == pytest.approx([steps[0]] * 4, abs=0.2)
    assert numbers(root, "line[@class='pairs']", "x1")[0] == dots[6]  # 8 = 2³
    assert len(root.findall(".//rect[@class='described']")) == 2
    high, _ = root.findall(".//rect[@class='described']")
    end = float(high.get("x") or 0) + float(high.get("width") or 0)
    assert end == pytest.approx(dots[2], abs=0.2)  # a quarter of 8 = 2¹
    assert "the pairs are at 8" in words(svg) and "at 16 R² 98.50" in words(svg)
    plain = figure(points, 8.0, "R²", "concentration", described=False)
    assert "described" not in plain


def test_a_figure_that_was_not_run_still_shows_the_mass() -> None:
    svg = figure([FigurePoint(2.0**k, 5.0, []) for k in range(3)], 1.0, "R²", "x", described=True)
    assert len(parse(svg).findall(".//polyline")) == 1 and "Not run" in words(svg)


def test_time_is_drawn_from_ours_to_theirs() -> None:
    svg = spent_chart([Spent("a & b", 100.0, (36e3, 72e3)), Spent("c", 50.0, (36e3, 36e3))])
    root = parse(svg)
    ours, less = numbers(root, "circle", "cx")
    low, short = numbers(root, "rect", "x")
    assert less < ours < low
    wide, shown = numbers(root, "rect", "width")
    assert shown == 6.0 < wide and short + shown / 2 == pytest.approx(low, abs=0.1)  # one number still is a bar to see
    labels = {text.text: float(text.get("x") or 0) for text in root.findall(".//text")}
    assert labels["1 min"] < ours < labels["1 h"] < labels["10 h"] and low == pytest.approx(labels["10 h"], abs=0.1)
    assert "a & b: ours 100.0 s, the authors 10 to 20 h" in words(svg)


def test_what_took_no_time_is_not_drawn_as_if_it_had_taken_a_second() -> None:
    svg = spent_chart([Spent("a", 100.0, (36e3, 72e3)), Spent("shared", 0.0, (36e3, 72e3))])
    assert len(parse(svg).findall(".//circle")) == 1 and "shared" not in svg
    assert "Nothing to draw" in spent_chart([Spent("shared", 0.0, (36e3, 72e3))])
