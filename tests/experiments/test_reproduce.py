"""``identica reproduce`` from end to end, with a budget of a few steps."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from identica.cli.app import run
from identica.experiments import find, read
from identica.experiments.aninfonce.hard_plan import ScanPlan
from identica.experiments.clica.budgets import RECIPES
from identica.experiments.clica.plan import Plan
from identica.experiments.planning import NoScore
from identica.experiments.running.folders import RunFolders
from identica.experiments.running.progress import TableProgress
from identica.experiments.running.provenance import commit
from identica.experiments.running.reproduce import reproduce
from identica.training.checkpoint import FILE_NAME
from tests.experiments.tiny import RECIPE, everywhere, unfinished

ROOT = Path(__file__).resolve().parents[2]
TABLE1, TABLE2 = find("clica/table1"), find("clica/table2")
pytestmark = pytest.mark.usefixtures("tiny_budgets")


def start(out: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.experiments.tiny", "reproduce", *arguments, "--out", str(out)]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


def test_the_commit_is_that_of_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IDENTICA_COMMIT")
    if not (ROOT / ".git").exists():
        pytest.skip("This source is not a git checkout.")
    said = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert (commit() or "").removesuffix("-dirty") == said.stdout.strip()


# The table


def test_receipts_hold_what_was_promised(tmp_path: Path, trained: list[str]) -> None:
    results = reproduce(TABLE1, rows=["1", "2"], budget="tiny", device="cpu", out=tmp_path, quiet=True)
    receipts = read(tmp_path / "clica-table1.jsonl")
    assert [(one.row, one.seed) for one in receipts] == [("1", 0), ("1", 1), ("2", 0), ("2", 1)]
    assert trained == ["InfoNCE"] * 2 + ["Supervised"] * 2 + ["InfoNCE"] * 2  # row 2 shares row 1's
    first, second = receipts[0], receipts[2]
    for one in receipts:
        assert set(one.scores) == set(one.per_dimension) == {"identity", "supervised", "contrastive"}
        assert all(set(scores) == {"r2", "mcc"} for scores in one.scores.values())
        assert all(len(values) == 10 for parts in one.per_dimension.values() for values in parts.values())
        assert one.commit == "0123abc" and one.device.startswith("cpu") and one.versions["torch"] == torch.__version__
        assert (one.steps, one.batch, one.precision, one.budget, one.failed) == (6, 32, "fp32", "tiny", None)
        assert one.models["contrastive"]["curve"]["step"] == [0, 3, 6]
        assert one.models["contrastive"]["curve"]["loss"][0] is None
        assert one.models["contrastive"]["trained_together"] == 2
    assert first.scores["supervised"] == second.scores["supervised"]
    assert (
        second.models["supervised"]["shared_with"] == second.models["identity"]["shared_with"] == "clica/table1, row 1"
    )
    assert "shared_with" not in first.models["supervised"] and "shared_with" not in second.models["contrastive"]
    assert second.seconds == pytest.approx(second.models["contrastive"]["seconds"], abs=2e-3), "what is shared is free"
    assert first.scores["contrastive"] != second.scores["contrastive"]
    assert first.scores["identity"] != receipts[1].scores["identity"]  # another seed, another mixing
    assert [len(result.receipts) for result in results] == [2, 2]
    assert not (tmp_path / ".runs").exists()


def test_what_is_finished_is_not_computed_again(tmp_path: Path, trained: list[str]) -> None:
    settings: dict[str, Any] = {"rows": ["5"], "budget": "tiny", "out": tmp_path, "quiet": True, "device": "cpu"}
    reproduce(TABLE1, seeds=1, **settings)
    before = (tmp_path / "clica-table1.jsonl").read_bytes()
    trained.clear()
    reproduce(TABLE1, seeds=1, **settings)
    assert trained == [] and (tmp_path / "clica-table1.jsonl").read_bytes() == before
    reproduce(TABLE1, seeds=2, **settings)  # one more seed
    assert trained == ["InfoNCE", "Supervised"]
    trained.clear()
    (result,) = reproduce(TABLE1, seeds=2, force=True, **settings)
    assert trained == ["InfoNCE"] * 2 + ["Supervised"] * 2
    lines = (tmp_path / "clica-table1.jsonl").read_bytes()
    assert lines.startswith(before) and lines.count(b"\n") == 4 and len(result.receipts) == 2
    scores = [one.scores for one in read(tmp_path / "clica-table1.jsonl")]
    assert scores[:2] == scores[2:]  # same seed, same numbers


def test_results_of_another_folder_and_of_an_equal_row_elsewhere_are_used(tmp_path: Path, trained: list[str]) -> None:
    reproduce(TABLE1, rows=["5"], seeds=1, budget="tiny", device="cpu", out=tmp_path / "a", quiet=True)
    trained.clear()
    settings: dict[str, Any] = {"seeds": 1, "budget": "tiny", "device": "cpu", "quiet": True}
    (result,) = reproduce(TABLE1, rows=["5"], out=tmp_path / "b", have=[tmp_path / "a"], **settings)
    assert trained == [] and len(result.receipts) == 1 and not (tmp_path / "b").exists()
    # Row 8 of Table 2 is row 5 of Table 1 with the other score.
    (result,) = reproduce(TABLE2, rows=["8"], out=tmp_path / "b", have=str(tmp_path / "a"), **settings)
    assert trained == []
    (receipt,) = read(tmp_path / "b" / "clica-table2.jsonl")
    assert receipt.models["contrastive"]["shared_with"] == "clica/table1, row 5" and receipt.seconds == 0.0
    assert result["contrastive"].ours is not None


def test_a_figure_and_the_workshop_loss_run_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--budget", "tiny", "--seeds", "1", "--out", str(tmp_path), "--device", "cpu"]
    assert run(["reproduce", "clica/figure2", "--rows", "1,9", *options]) == 0
    printed = capsys.readouterr().out
    assert "Mass to move" in printed and "0.015625" in printed and "Trend: trend does not hold" in printed
    (first, _) = read(tmp_path / "clica-figure2.jsonl")
    assert first.x == {"concentration": 2.0**-6} and set(first.scores) == {"contrastive"}
    assert run(["reproduce", "clica-workshop/synthetic-au", "--rows", "1", *options]) == 0
    assert "trend does not hold" in capsys.readouterr().out


def test_a_seed_that_diverges_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Plan.encoder

    def broken(self: Plan, model: Any, seed: int) -> Any:
        encoder = real(self, model, seed)
        if model == "contrastive" and seed == 0:
            encoder.skip.weight.data *= 1e25  # type: ignore[union-attr] # squared distances overflow
        return encoder

    monkeypatch.setattr(Plan, "encoder", broken)
    (result,) = reproduce(TABLE1, rows=["5"], budget="tiny", device="cpu", out=tmp_path, quiet=True)
    failed, fine = read(tmp_path / "clica-table1.jsonl")
    assert failed.failed == "contrastive: The loss was NaN or infinite at step 1." and fine.failed is None
    assert set(failed.scores) == {"identity", "supervised"} and set(fine.scores) == set(TABLE1.models)
    assert result["contrastive"].ours is not None and result["contrastive"].ours.seeds == 1
    assert result["supervised"].ours is not None and result["supervised"].ours.seeds == 2
    assert result.failures == ("seed 0: contrastive: The loss was NaN or infinite at step 1.",)


def test_where_all_seeds_diverge_all_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wild = replace(RECIPE, lr=1e30)
    monkeypatch.setitem(RECIPES.by_budget, "tiny", everywhere(wild))
    (result,) = reproduce(TABLE1, rows=["5"], budget="tiny", device="cpu", out=tmp_path, quiet=True)
    receipts = read(tmp_path / "clica-table1.jsonl")
    assert len(receipts) == 2 and result["contrastive"].ours is None and len(result.failures) == 2
    for receipt in receipts:
        assert receipt.failed is not None and receipt.failed.startswith("contrastive: ")
        assert "contrastive" not in receipt.scores and "supervised" in receipt.scores


# The command


def test_the_command_prints_ours_beside_the_papers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["reproduce", "clica/table2", "--rows", "7,8", "--budget", "tiny", "--out", str(tmp_path)]
    assert run([*arguments, "--device", "cpu"]) == 0
    out, _ = capsys.readouterr()
    assert "99.85 ± 0.01" in out and "short by" in out and "stays low as predicted" in out
    assert "Row 8: " in out and str(tmp_path) in out.replace("\n", "")
    assert run([*arguments, "--quiet"]) == 0
    assert capsys.readouterr() == (f"{tmp_path / 'clica-table2.jsonl'}\n", "")
    assert run(["catalog", "--results", str(tmp_path)]) == 0
    assert "tiny 2/10, 2 seeds" in capsys.readouterr().out


def test_the_table_fits_into_100_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for table, rows in (("clica/table1", "1,7,11b"), ("clica/table2", "8")):
        assert run(["reproduce", table, "--rows", rows, "--budget", "tiny", "--out", str(tmp_path)]) == 0
    assert run(["catalog"]) == run(["catalog", "clica/table1"]) == run(["catalog", "clica/figure2"]) == 0
    out = capsys.readouterr().out
    assert max(len(line) for line in out.splitlines() if "Receipts" not in line) <= 100
    assert "model Unbounded, GenNorm β=3 " in out and "stays low as predicted" in out  # neither broken nor cut


def test_the_catalogue_of_a_paper_lists_its_experiments_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["catalog", "aninfonce"]) == 0
    out = capsys.readouterr().out
    assert "aninfonce/figure2" in out and "aninfonce/mnist-views" in out and "clica" not in out


def test_the_catalogue_lists_experiments_and_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["catalog", "--results", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "clica/table1" in out and "none yet" in out
    assert run(["catalog", "clica/table2"]) == 0
    assert "58.26" in capsys.readouterr().out
    assert run(["catalog", "--results", str(tmp_path / "nowhere")]) == 2
    assert "There is no folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["clica/table9"], "No such experiment 'clica/table9'. Did you mean 'clica/table"),
        (["clica/table1", "--rows", "1,13"], "clica/table1 has no row '13'. Its rows are 1, 2"),
        (["clica/table1", "--budget", "fst"], "No such budget 'fst'. Did you mean 'fast'?"),
        (["clica/table1", "--device", "cuda:99"], "The device 'cuda:99' cannot be used here"),
        (["clica/table1", "--out", "/proc/results", "--budget", "tiny"], "The folder /proc/results cannot hold"),
        (["clica/table1", "--out", __file__, "--budget", "tiny"], "is a file, and the results need a folder"),
        (["clica/table1", "aninfonc"], "No such experiment 'aninfonc'. Did you mean 'aninfonce'?"),
        (["clica/table1", "--rows", ","], "No row of clica/table1 is named: leave the rows out for all"),
        (["clica/table1", "--have", "/nowhere"], "There is no folder /nowhere to read results from"),
        (["clica", "--rows", "1"], "name one experiment alone, or leave the rows out"),
        (["clica/table1", "--minutes", "0"], "minutes must be a number above 0, not 0.0"),
        (["clica/table1", "--minutes", "nan"], "minutes must be a number above 0, not nan"),
        (["clica/table1", "--minutes", "5", "--force"], "with a limit of time it might never end"),
    ],
)
def test_mistakes_are_sentences(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str], trained: list[str]
) -> None:
    assert run(["reproduce", *arguments]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("Error: ") and sentence in err and len(err.splitlines()) == 1
    assert out == "" and trained == []


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_read_only_folder_is_named_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], trained: list[str]
) -> None:
    tmp_path.chmod(0o500)
    assert run(["reproduce", "clica/table1", "--budget", "tiny", "--out", str(tmp_path)]) == 2
    assert "cannot hold the results (Permission denied)" in capsys.readouterr().err and trained == []


def test_a_torn_line_is_set_aside_and_trained_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["reproduce", "clica/table1", "--rows", "5", "--budget", "tiny", "--out", str(tmp_path), "--quiet"]
    assert run(arguments) == 0
    path = tmp_path / "clica-table1.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    capsys.readouterr()
    assert run(arguments) == 0
    err = capsys.readouterr().err
    assert err.count(f"Warning: Line 2 of {path} is torn") == 1 and "It was moved to" in err and "Traceback" not in err
    again = [(one.seed, one.scores) for one in read(path)]
    assert again == [(one["seed"], one["scores"]) for one in map(json.loads, whole.splitlines())]


# Interruptions


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=lambda how: how.name)
def test_interrupted_or_killed_the_same_command_continues_to_the_same_end(
    tmp_path: Path, how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start(tmp_path, "clica/table1", "--rows", "5", "--budget", "slow", "--device", "cpu")
    wait_for(lambda: bool(unfinished(tmp_path)))
    process.send_signal(how)
    _, err = process.communicate(timeout=30)
    assert not (tmp_path / "clica-table1.jsonl").exists()
    if how == signal.SIGINT:
        assert process.returncode == 130 and "Traceback" not in err
        sentence = "Interrupted: what was being trained is kept. Run the same command again to continue."
        assert err.splitlines()[-1] == f"Error: {sentence}"
    started: list[int] = []
    monkeypatch.setattr(TableProgress, "on_start", lambda self, state, config: started.append(state.step))
    settings: dict[str, Any] = {"rows": ["5"], "budget": "slow", "device": "cpu", "quiet": True}
    reproduce(TABLE1, out=tmp_path, **settings)
    assert started[0] > 0 and started[1] == 0 and unfinished(tmp_path) == []
    reproduce(TABLE1, out=tmp_path / "undisturbed", **settings)
    (continued,), (whole,) = (read(out / "clica-table1.jsonl") for out in (tmp_path, tmp_path / "undisturbed"))
    for model, scores in whole.scores.items():  # equal but for the number of threads
        assert continued.scores[model] == pytest.approx(scores, rel=1e-3)


def test_ctrl_c_between_two_rows_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], trained: list[str]
) -> None:
    arguments = ["reproduce", "clica/table1", "--rows", "1,5", "--budget", "tiny", "--out", str(tmp_path), "--quiet"]
    with monkeypatch.context() as patch:

        def interrupted(self: TableProgress, label: str, work: object) -> None:
            if label.startswith("row 5"):
                raise KeyboardInterrupt

        patch.setattr(TableProgress, "begin", interrupted)
        assert run(arguments) == 130
    path = tmp_path / "clica-table1.jsonl"
    expected = f"Error: Interrupted: what is finished is in {path}. Run the same command again to continue.\n"
    assert capsys.readouterr().err == expected
    assert [one.row for one in read(path)] == ["1", "1"]
    trained.clear()
    assert run(arguments) == 0
    assert [one.row for one in read(path)] == ["1", "1", "5", "5"] and trained.count("InfoNCE") == 2


def test_a_checkpoint_that_cannot_be_used_is_no_obstacle(tmp_path: Path, trained: list[str]) -> None:
    settings: dict[str, Any] = {"rows": ["5"], "seeds": 1, "budget": "tiny", "device": "cpu", "quiet": True}
    reproduce(TABLE1, out=tmp_path / "a", **settings)
    (receipt,) = read(tmp_path / "a" / "clica-table1.jsonl")
    broken = tmp_path / "b" / ".runs" / receipt.models["contrastive"]["hash"] / "seeds-0"
    broken.mkdir(parents=True)
    (broken / FILE_NAME).write_bytes(b"half a check")
    with pytest.warns(UserWarning, match="starts afresh"):
        reproduce(TABLE1, out=tmp_path / "b", **settings)
    (again,) = read(tmp_path / "b" / "clica-table1.jsonl")
    assert again.scores == receipt.scores and not broken.exists()


# Several at once


@pytest.mark.distributed
def test_two_processes_divide_a_table_and_lose_nothing(tmp_path: Path) -> None:
    arguments = ["clica/table2", "--rows", "1,2,6,8", "--budget", "tiny", "--device", "cpu", "--quiet"]
    processes = [start(tmp_path, *arguments) for _ in range(2)]
    for process in processes:
        _, err = process.communicate(timeout=100)
        assert process.returncode == 0, err
    keys = [one.key for one in read(tmp_path / "clica-table2.jsonl")]
    assert len(keys) == len(set(keys)) == 8
    assert not (tmp_path / ".runs").exists()


def test_a_run_can_be_claimed_once(tmp_path: Path) -> None:
    folders = RunFolders(tmp_path)
    with folders.claim("a", wait=False) as mine:
        assert mine
        with folders.claim("a", wait=False) as also, folders.claim("b", wait=False) as other:
            assert not also and other
    with folders.claim("a", wait=False) as again:
        assert again
    assert not folders.root.exists()
    folders.folder("a").mkdir(parents=True)
    with folders.claim("a", wait=True):
        pass
    assert folders.folder("a").exists()  # unfinished work stays
    folders.forget("a")
    shutil.rmtree(folders.root)
    folders.forget("a")


def test_what_cannot_be_computed_for_one_seed_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan, real = find("aninfonce/figure10"), ScanPlan.computed

    def computed(plan: ScanPlan, model: str, seed: int, device: torch.device) -> Any:
        if seed == 0:
            raise NoScore("There is nothing to look at.")
        return real(plan, model, seed, device)

    monkeypatch.setattr(ScanPlan, "computed", computed)
    reproduce(scan, rows=["scan"], seeds=2, budget="smoke", device="cpu", out=tmp_path, quiet=True)
    first, second = read(tmp_path / "aninfonce-figure10.jsonl")
    assert first.failed == "scan: There is nothing to look at." and first.scores == {}
    assert second.failed is None and "minimum" in second.scores["scan"]
