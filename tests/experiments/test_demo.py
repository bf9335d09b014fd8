"""The demo at smoke size, through the command line, and its report."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from identica.cli.app import run
from identica.diagnostics.identification import Level
from identica.experiments.demo import demo_process, run_demo
from identica.report.demo import explain


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


def test_headings_descend_one_by_one_and_table_headers_say_what_they_head(folder: Path) -> None:
    page = (folder / "report.html").read_text(encoding="utf-8")
    levels = [int(level) for level in re.findall(r"<h(\d)", page)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))
    headers = re.findall(r"<th\b[^>]*>", page)
    assert headers and all('scope="col"' in header or 'scope="row"' in header for header in headers)
    assert re.search(r'aria-label="training loss by step, from [\d.]+ to [\d.]+; smallest possible [\d.]+"', page)


def test_a_short_run_is_not_explained_as_a_finished_one(folder: Path) -> None:
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count("Not identified") == page.count("Training has not got there yet: after 60 steps") == 2
    assert "not a failure of training" not in page


def test_the_explanation_follows_what_was_found() -> None:
    def says(name: str, found: Level) -> str:
        return explain(name, found, 1000, 0.02)

    assert "Theorem 6" in says("matched", "permutation") and "not got there" not in says("matched", "permutation")
    assert "not got there" in says("matched", "affine") and "not got there" in says("matched", "none")
    assert "not a failure of training" in says("mismatched", "affine")
    assert "not got there" in says("mismatched", "none") and "linear map still finds" not in says("mismatched", "none")
    assert "luck" in says("mismatched", "permutation")


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


def test_a_new_demo_forgets_all_models_of_the_last_one_at_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)

    def interrupted(*_: object, out: Path, **__: object) -> None:
        assert not list(tmp_path.glob("*/*.safetensors"))
        (out / "checkpoint.safetensors").write_bytes(b"")
        raise KeyboardInterrupt

    monkeypatch.setattr("identica.experiments.demo.train", interrupted)
    assert run(["demo", "--out", str(tmp_path)]) == 130
    error = capsys.readouterr().err
    assert f"kept in {tmp_path}: run the same command with --resume" in error and len(error.splitlines()) == 1


@pytest.mark.parametrize("below", ["", "folder"])
def test_a_file_in_the_place_of_the_folder_is_named(
    tmp_path: Path, below: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "afile"
    file.touch()
    assert run(["demo", "--out", str(file / below)]) == 2
    error = capsys.readouterr().err
    assert str(file / below) in error and "choose another with --out." in error and len(error.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_whole_demo_recovers_the_factors_and_the_wrong_objective_loses_them(tmp_path: Path, seed: int) -> None:
    result = run_demo(tmp_path, seed=seed, quiet=True)
    matched, mismatched = result["matched"].evaluation.scores, result["mismatched"].evaluation.scores
    assert min(matched.values()) >= 0.995
    assert mismatched["r2"] >= 0.99 and mismatched["mcc"] <= 0.9
