"""The ledger: nothing that was written is lost, whoever stops when."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from identica.experiments.receipts import ledger
from identica.experiments.receipts.ledger import LedgerWarning, append, ledger_path, read, read_folder, set_aside_path
from identica.experiments.receipts.receipt import Receipt
from tests.experiments.receipts import receipt

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return ledger_path(tmp_path, "clica/table1")


def start_writer(path: Path, name: str, count: int) -> subprocess.Popen[bytes]:
    """A process of its own that appends ``count`` receipts; they are long, so that writes could interleave."""
    code = f"""
from pathlib import Path
from identica.experiments.receipts.ledger import append
from tests.experiments.receipts import receipt
for seed in range({count}):
    append(Path({str(path)!r}), receipt({name!r}, seed, config={{"filler": "x" * 20000}}))
"""
    paths = f"{ROOT / 'src'}:{ROOT}"
    return subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": paths})


def test_what_is_appended_is_read_in_order(path: Path) -> None:
    written = (receipt("1", 0, commit="abc"), receipt("11b", 1, x={"κ": 0.5}), receipt("2", failed="NaN."))
    for one in written:
        append(path, one)
    assert read(path) == written
    assert read_folder(path.parent) == written
    assert path.name == "clica-table1.jsonl"
    assert read(path.with_name("none.jsonl")) == () and read_folder(path.parent / "none") == ()


def test_a_line_is_plain_json_with_the_promised_names(path: Path) -> None:
    append(path, receipt())
    (line,) = path.read_text().splitlines()
    data = json.loads(line)
    assert data["experiment"] == "clica/table1" and data["scores"]["contrastive"]["r2"] == 0.9
    assert {"row", "seed", "budget", "steps", "batch", "seconds", "device", "config", "config_hash"} <= set(data)
    assert "failed" not in data and data["commit"] is None


@pytest.mark.parametrize("keep", [1, 40, -2])
def test_a_torn_last_line_is_set_aside_and_nothing_else_is_lost(path: Path, keep: int) -> None:
    append(path, receipt("1"))
    whole, torn = path.read_bytes(), receipt("2").to_json().encode()[:keep]
    path.write_bytes(whole + torn)
    with pytest.warns(LedgerWarning, match="Line 2 of .* is torn"):
        assert read(path) == (receipt("1"),)
    assert path.read_bytes() == whole + torn  # reading changes nothing
    with pytest.warns(LedgerWarning, match="was torn.*moved to"):
        append(path, receipt("3"))
    assert set_aside_path(path).read_bytes() == torn + b"\n"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(path) == (receipt("1"), receipt("3"))


def test_a_whole_line_that_lacks_only_its_end_is_finished(path: Path) -> None:
    append(path, receipt("1"))
    path.write_bytes(path.read_bytes()[:-1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        append(path, receipt("2"))
        assert read(path) == (receipt("1"), receipt("2"))
    assert not set_aside_path(path).exists()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("<<<<<<< HEAD", "Expecting value"),
        ("[1, 2]", "not a JSON object"),
        ('{"experiment": "clica/table1"}', "lacks budget, config, config_hash, row, scores, seed"),
        (receipt().to_json().replace("0.9", '"high"'), "scores are not all numbers"),
        (receipt().to_json().replace('"seed": 0', '"seed": "0"'), "its seed"),
        (receipt().to_json().replace('{"r2": 0.9, "mcc": 0.5}', "0.9"), "its scores"),
        (b"\xff\xfe".decode("latin-1"), "cannot be read"),
    ],
)
def test_a_line_that_says_nothing_is_left_out_with_its_number(path: Path, line: str, why: str) -> None:
    append(path, receipt("1"))
    path.write_bytes(path.read_bytes() + line.encode("latin-1", "replace") + b"\n")
    append(path, receipt("2"))
    with pytest.warns(LedgerWarning, match=f"Line 2 of .*{why}"):
        assert read(path) == (receipt("1"), receipt("2"))


def test_a_receipt_without_any_score_is_read_back() -> None:
    failed = Receipt("clica/figure2", "1", 0, "fast", {}, {"a": 1}, "h", failed="The loss was NaN at step 7.")
    assert Receipt.from_json(failed.to_json()) == failed


def test_what_a_newer_version_adds_is_ignored() -> None:
    data = json.loads(receipt().to_json()) | {"mood": "good"}
    assert Receipt.from_json(json.dumps(data)) == receipt()


def test_a_score_that_is_not_a_number_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        append(path, receipt(r2=float("nan")))
    assert not path.exists() or path.read_bytes() == b""


def test_two_writers_at_once_lose_nothing(path: Path) -> None:
    writers = [start_writer(path, name, 60) for name in ("1", "2")]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        keys = [one.key for one in read(path)]
    assert len(keys) == 120 and len(set(keys)) == 120


def test_a_writer_killed_at_any_moment_leaves_only_whole_lines(path: Path) -> None:
    writer = start_writer(path, "1", 100_000)
    deadline = time.monotonic() + 30
    while (not path.exists() or path.stat().st_size < 500_000) and time.monotonic() < deadline:
        time.sleep(0.01)
    writer.send_signal(signal.SIGKILL)
    writer.wait(timeout=30)
    append(path, receipt("2"))
    seeds = [one.seed for one in read(path) if one.row == "1"]
    assert len(seeds) > 10 and seeds == list(range(len(seeds)))
    assert read(path)[-1] == receipt("2")


def test_a_place_that_cannot_be_written_to_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Not a directory"):
        append(tmp_path / "file" / "ledger.jsonl", receipt())


def test_a_disk_that_takes_a_part_of_a_line_gets_the_rest(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(ledger.os, "write", lambda descriptor, content: write(descriptor, content[:7]))
    append(path, receipt())
    assert read(path) == (receipt(),)
