"""The page of ``identica verify`` and its pictures."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from identica.diagnostics.theory import Check, Curve, Line, Matrix
from identica.report.theory_charts import HEIGHT, WIDTH, Scale, colours, picture
from identica.report.verify import TOPICS, write_verify_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
LOG = Curve(
    "loss <of> M & more",
    "M",
    "nats",
    (
        Line("truth", ((1.0, 2.0), (10.0, 0.2), (1000.0, 0.002)), "dots"),
        Line("c/M", ((1.0, 2.0), (1000.0, 0.002)), "dashed"),
        Line("bent", ((1.0, 3.0), (10.0, math.nan), (1000.0, -1.0))),
    ),
    log_x=True,
    log_y=True,
    band=(0.01, 0.1, "null"),
)
MATRIX = Matrix("floors", ("pairs <1>", "pairs 2"), ("u 1", "u 2"), ((0.0, 0.02), (0.04, 0.0)))


def check(topic: str, measured: float = 0.0) -> Check:
    curve = MATRIX if topic == "mismatch" else LOG
    return Check(topic, "a < b", "A, Thm 1", "quantity", measured, 0.0, 0.1, "why", curve=curve)  # type: ignore[arg-type]


def parse(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(f"<root>{svg}</root>")


def test_every_point_is_drawn_inside_the_frame() -> None:
    root = parse(picture(LOG))
    for circle in root.findall(".//circle"):
        assert 0 <= float(circle.get("cx") or -1) <= WIDTH and 0 <= float(circle.get("cy") or -1) <= HEIGHT
    assert len(root.findall(".//circle")) == 5  # three dots, two finite points of the short line
    assert root.find(".//rect[@class='band']") is not None
    assert "null" in "".join(root.itertext())


def test_a_logarithmic_axis_has_equal_steps_for_equal_ratios() -> None:
    scale = Scale.of([1e-5, 1.0], True, 0.0, 100.0)
    steps = [scale(10.0**-k) - scale(10.0 ** -(k + 1)) for k in range(5)]
    assert steps == pytest.approx([steps[0]] * 5)
    assert {"10⁻⁵", "1"} >= {label for _, label in scale.labels()} - {"10⁻⁴", "0.001", "0.01", "0.1"}


def test_a_short_logarithmic_axis_has_labels_too() -> None:
    scale = Scale.of([10.0, 80.0], True, 0.0, 100.0)
    assert [label for _, label in scale.labels()] == ["10", "20", "50"]
    assert [place for place, _ in scale.labels()] == pytest.approx([scale(value) for value in (10.0, 20.0, 50.0)])


def test_equal_axes_make_a_circle_round() -> None:
    around = tuple((math.cos(t), math.sin(t)) for t in [k * math.pi / 8 for k in range(17)])
    root = parse(picture(Curve("circle", "x", "y", (Line("", around),), equal=True)))
    places = [tuple(map(float, p.split(","))) for p in root.find(".//polyline").get("points").split()]  # type: ignore[union-attr]
    width = max(x for x, _ in places) - min(x for x, _ in places)
    height = max(y for _, y in places) - min(y for _, y in places)
    assert width == pytest.approx(height, abs=0.3)


def test_a_dashed_line_has_the_colour_of_the_line_it_goes_with() -> None:
    assert [colour for _, colour in colours(LOG.lines)] == ["c1", "c1", "c2"]


def test_a_matrix_shows_each_value_and_the_largest_strongest() -> None:
    root = parse(picture(MATRIX))
    strength = [float(cell.get("fill-opacity") or "nan") for cell in root.findall(".//rect")]
    assert strength == [0.0, 0.5, 1.0, 0.0]
    assert "0.040" in "".join(root.itertext())


def test_the_page_names_every_question_and_the_failures(tmp_path: Path) -> None:
    checks = [check(topic) for topic in TOPICS] + [check("limit", measured=5.0)]
    text = write_verify_report(checks, tmp_path / "page.html", facts=[("Seed", "0")]).read_text(encoding="utf-8")
    for title, _ in TOPICS.values():
        assert f"{title}</h2>" in text
    assert text.count('class="exhibit fails"') == 1 and "a &lt; b" in text and "a < b" not in text
    anchors = set(re.findall(r'href="#(\w+)"', text))
    assert anchors == set(TOPICS) == set(re.findall(r'<h2 id="(\w+)"', text))
    for svg in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL):
        parse(svg)


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the PATH")
@pytest.mark.parametrize("extra", [[], ["--force-dark-mode"]], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_opens_without_errors(tmp_path: Path, extra: list[str], width: int) -> None:
    page, shot = write_verify_report([check(topic) for topic in TOPICS], tmp_path / "p.html"), tmp_path / "p.png"
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    command += ["--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}"]
    command += [f"--window-size={width},3000", f"--screenshot={shot}", *extra, page.as_uri()]
    log = subprocess.run(command, capture_output=True, text=True, timeout=120).stderr
    assert "CONSOLE" not in log
    assert shot.stat().st_size > 50_000
