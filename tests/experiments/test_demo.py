"""The demo at smoke size, through the command line, and its report."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from identica.cli.app import run
from identica.experiments.demo import demo_process, run_demo


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo folder")
    assert run(["demo", "--out", str(out), "--steps", "60", "--quiet"]) == 0
    return out


class Checker(HTMLParser):
    """Collects tags, and links to anything outside the page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.outside += [v for k, v in attrs if k in ("src", "href") and v and not v.startswith(("#", "data:"))]


def test_the_report_is_whole_and_self_contained(folder: Path) -> None:
    page = (folder / "report.html").read_text(encoding="utf-8")
    checker = Checker()
    checker.feed(page)
    assert checker.outside == [] and "script" not in checker.tags
    assert checker.tags.count("svg") == 2 * (2 + 1 + 5)  # two runs: two curves, a matrix, five factors
    assert "prefers-color-scheme: dark" in page
    assert not re.search(r"\bnan\b|\binf\b|undefined|\{\{", page)
    for words in ("Identity", "Supervised", "smallest possible", "nats"):
        assert words in page


def test_a_second_demo_replaces_the_first_and_resume_repeats_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run_demo(folder, steps=60, resume=True, quiet=True)
    assert all(row.run is None or row.run.step == 60 for row in result.rows)
    assert run(["demo", "--out", str(folder), "--steps", "60", "--quiet"]) == 0
    assert capsys.readouterr().out.strip() == str(folder / "report.html")
    assert run(["demo", "--out", str(folder), "--steps", "61", "--quiet", "--resume"]) == 2
    assert "steps was 60 and is now 61" in capsys.readouterr().err


def test_the_excess_over_the_floor_is_positive(folder: Path) -> None:
    result = run_demo(folder, steps=60, resume=True, quiet=True)
    for name in ("matched", "mismatched"):
        excess = result[name].excess
        assert excess is not None and excess.mean > 5 * excess.standard_error


def test_the_process_is_the_one_described() -> None:
    data = demo_process(0).to_dict()
    assert data["conditional"] == {"family": "TruncatedLaplace", "parameters": {"scale": 0.05}}
    assert json.dumps(data)
    assert demo_process(0).to_dict() == data and demo_process(1).to_dict() != data


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_whole_demo_recovers_the_factors_and_the_wrong_objective_loses_them(tmp_path: Path, seed: int) -> None:
    result = run_demo(tmp_path, seed=seed, quiet=True)
    matched, mismatched = result["matched"].evaluation.scores, result["mismatched"].evaluation.scores
    assert min(matched.values()) >= 0.995
    assert mismatched["r2"] >= 0.99 and mismatched["mcc"] <= 0.9
