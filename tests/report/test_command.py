"""``identica report`` as a person meets it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from identica.cli.app import run
from tests.report.ledgers import write


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command runs, with two rows in ``results``."""
    monkeypatch.delenv("IDENTICA_DEBUG", raising=False)
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "results", "clica/table1", "1,5", seeds=2)
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_two_files_are_written_and_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report"]) == 0
    assert names(folder) == ["RESULTS.md", "report.html", "results"]
    said = capsys.readouterr()
    assert "Written: RESULTS.md and, to open in a browser, report.html" in said.out and said.err == ""
    assert "2 reproduced, 12 not run" in " ".join(said.out.split())
    first = {path: path.read_bytes() for path in (folder / "RESULTS.md", folder / "report.html")}
    assert run(["report", "--quiet"]) == 0  # over the earlier ones
    assert capsys.readouterr().out.split() == ["RESULTS.md", "report.html"]
    assert {path: path.read_bytes() for path in first} == first


def test_the_files_go_where_they_are_wanted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "results").rename(folder / "mine")
    assert run(["report", "--results", "mine", "--out", "a/b", "--markdown", "c/ours.md"]) == 0
    assert (folder / "a" / "b" / "report.html").exists() and (folder / "c" / "ours.md").exists()
    assert run(["report", "--results", "mine", "--out", "page.html", "--markdown", "c/ours.md"]) == 0
    assert run(["report", "--results", "mine", "--out", "pages"]) == 0
    assert sorted(path.name for path in Path("pages").iterdir()) == ["RESULTS.md", "report.html"]
    assert (folder / "page.html").exists()


def failing(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one sentence of a command that fails."""
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("Error: ") and len(error.splitlines()) == 1 and "Traceback" not in error
    return error


def test_without_results_nothing_is_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = names(folder)
    assert "There is no folder nowhere" in failing(["report", "--results", "nowhere", "--out", "new"], capsys)
    (folder / "empty").mkdir()
    assert "holds no receipts" in failing(["report", "--results", "empty", "--out", "new"], capsys)
    assert names(folder) == sorted([*before, "empty"])


def test_a_file_that_somebody_else_wrote_is_kept(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "README.md").write_text("# Mine\n")
    (folder / "report.html").write_text("<p>mine</p>")
    assert "README.md was not made by" in failing(["report", "--markdown", "README.md", "--out", "p"], capsys)
    assert "report.html was not made by" in failing(["report"], capsys)
    assert (folder / "README.md").read_text() == "# Mine\n" and not (folder / "RESULTS.md").exists()
    assert (folder / "report.html").read_text() == "<p>mine</p>"


def test_places_that_cannot_be_written_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "file").write_text("x")
    assert "file is a file" in failing(["report", "--out", "file/page.html"], capsys)
    assert "results is a folder" in failing(["report", "--markdown", "results"], capsys)
    if os.geteuid() != 0:  # root may write anywhere
        (folder / "locked").mkdir(mode=0o500)
        assert "locked cannot hold" in failing(["report", "--out", "locked"], capsys)
    assert not (folder / "RESULTS.md").exists() and not (folder / "report.html").exists()


def test_what_cannot_be_read_is_a_warning(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = folder / "results" / "clica-table1.jsonl"
    with ledger.open("a") as file:
        file.write('{"experiment": "clica/')
    before = ledger.read_bytes()
    assert run(["report"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "Warning: Line 5 of clica-table1.jsonl is torn: whoever wrote it was stopped. It is left out.",
    ]
    assert ledger.read_bytes() == before
