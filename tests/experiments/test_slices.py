"""``identica reproduce`` for several experiments at once, and in slices of some minutes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from identica.cli.app import run
from identica.experiments import catalogue, find, find_all, read
from identica.experiments.running import runner, tasks, time_limit
from identica.experiments.running.folders import RunFolders
from identica.experiments.running.reproduce import make_plans, reproduce
from identica.experiments.running.time_limit import TimeIsUp
from tests.experiments.tiny import unfinished

TABLE1, TABLE2 = find("clica/table1"), find("clica/table2")
pytestmark = pytest.mark.usefixtures("tiny_budgets")


def test_after_some_minutes_it_stops_and_continues_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    monkeypatch.setattr(time_limit, "time", clock)
    arguments = ["reproduce", "clica/table1", "--rows", "5,7", "--seeds", "1", "--budget", "tiny", "--device", "cpu"]
    arguments += ["--out", str(tmp_path)]
    codes, said = [], []
    while not codes or (codes[-1] and len(codes) < 9):
        codes.append(run([*arguments, "--minutes", "0.1"]))  # six seconds are as many looks at the clock
        said.append(capsys.readouterr())
    # Two contrastive models of six steps and a supervised one of four, which both rows share. The sixth step is the
    # last of the first model, which is finished; looking before the third takes a second, too.
    assert codes == [75, 75, 0] and not any(out for out, _ in said[:-1])
    advice = "rows are left. Run the same command again to continue."
    assert [err.splitlines()[-1] for _, err in said[:-1]] == [f"The time is up: {k} of 2 {advice}" for k in (2, 1)]
    assert run([*arguments, "--out", str(tmp_path / "straight"), "--minutes", "1e6"]) == 0
    ours, straight = (
        [(one.row, one.seed, one.scores) for one in read(out / "clica-table1.jsonl")]
        for out in (tmp_path, tmp_path / "straight")
    )
    assert ours == straight and unfinished(tmp_path) == []


def test_the_time_may_be_up_while_another_process_has_the_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at whether the other one has finished takes a minute here, and nothing else any time."""
    clock = Asleep()
    monkeypatch.setattr(time_limit, "time", clock)
    monkeypatch.setattr(tasks, "time", clock)
    settings: dict[str, Any] = {"rows": ["5"], "seeds": 1, "budget": "tiny", "device": "cpu", "quiet": True}
    (plan,) = make_plans(TABLE1, ["5"], "tiny", torch.device("cpu"))
    with RunFolders(tmp_path).claim(plan.model_hashes["supervised"], wait=False) as ours:
        assert ours
        with pytest.raises(TimeIsUp, match="1 of 1 rows are left"):
            reproduce(TABLE1, out=tmp_path, minutes=3, **settings)
    assert clock.now == 180.0 and (tmp_path / ".runs" / plan.model_hashes["contrastive"]).is_dir()
    (result,) = reproduce(TABLE1, out=tmp_path, **settings)
    assert len(result.receipts) == 1


def test_when_the_time_is_up_and_another_process_has_done_the_rest_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"rows": ["5"], "seeds": 1, "budget": "tiny", "device": "cpu", "quiet": True}
    reproduce(TABLE1, out=tmp_path / "theirs", **settings)
    (plan,) = make_plans(TABLE1, ["5"], "tiny", torch.device("cpu"))
    clock = Asleep()
    monkeypatch.setattr(time_limit, "time", clock)
    monkeypatch.setattr(tasks, "time", clock)
    written = "clica-table1.jsonl"
    monkeypatch.setattr(clock, "wake", lambda: shutil.copy(tmp_path / "theirs" / written, tmp_path / "ours" / written))
    with RunFolders(tmp_path / "ours").claim(plan.model_hashes["contrastive"], wait=False):
        (result,) = reproduce(TABLE1, out=tmp_path / "ours", minutes=1, **settings)
    assert len(result.receipts) == 1


def test_calls_of_any_length_come_to_an_end_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(time_limit, "time", clock)
    settings: dict[str, Any] = {"rows": ["5"], "seeds": 1, "budget": "tiny", "device": "cpu", "quiet": True}
    calls = 0
    while True:
        clock.now += 1e3  # more than it has, before it begins
        calls += 1
        assert calls < 20
        try:
            (result,) = reproduce(TABLE1, out=tmp_path, minutes=1e-6, **settings)
            break
        except TimeIsUp:
            continue
    assert len(result.receipts) == 1 and calls > 5  # a step each


@pytest.mark.parametrize("harm", ["none", "damaged", "another commit"])
def test_a_model_is_measured_once_however_many_calls_its_row_takes(
    harm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured, real = [], runner._evaluated

    def counted(plan: Any, model: str, *rest: Any) -> Any:
        measured.append(model)
        return real(plan, model, *rest)

    monkeypatch.setattr(runner, "_evaluated", counted)
    clock = Clock()
    monkeypatch.setattr(time_limit, "time", clock)
    settings: dict[str, Any] = {"rows": ["5"], "seeds": 1, "budget": "tiny", "device": "cpu", "quiet": True}
    first = {"contrastive", "supervised"}
    while not (kept := list(tmp_path.glob(".runs/*/seeds-0/scored-0.json"))):
        clock.now += 1e3
        with pytest.raises(TimeIsUp):  # a step each
            reproduce(TABLE1, out=tmp_path, minutes=1e-6, **settings)
    (done,) = measured
    if harm == "damaged":
        kept[0].write_bytes(kept[0].read_bytes()[:-9])
    elif harm == "another commit":
        monkeypatch.setenv("IDENTICA_COMMIT", "4567def")
    (result,) = reproduce(TABLE1, out=tmp_path, **settings)
    assert sorted(measured[1:]) == sorted({*first - {done}, "identity"} | (set() if harm == "none" else {done}))
    monkeypatch.setattr(runner, "_evaluated", real)
    (straight,) = reproduce(TABLE1, out=tmp_path / "straight", **settings)
    assert result.receipts[0].scores == straight.receipts[0].scores
    assert result.receipts[0].per_dimension == straight.receipts[0].per_dimension


def test_rows_that_are_computed_wait_for_the_next_call_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(time_limit, "time", clock)
    limit = time_limit.TimeLimit(1.0)
    limit._trained, clock.now = True, 1e3
    plans = make_plans(find("aninfonce/figure10"), ["scan"], "smoke", torch.device("cpu"))
    wanted = tasks.Wanted(find("aninfonce/figure10"), plans, (0, 1))
    runner = tasks.TaskRunner((wanted,), tmp_path, (), torch.device("cpu"), limit, False, True)
    with pytest.raises(TimeIsUp, match="1 of 1 rows are left"):
        runner.run()
    assert read(tmp_path / "aninfonce-figure10.jsonl") == ()


class Asleep:
    """Stands in for ``time``, which passes while one sleeps."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += 60.0
        self.wake()

    def wake(self) -> None:
        """What others do meanwhile."""


class Clock:
    """Stands in for ``time``: every look at it takes a second."""

    now = 0.0

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now


def test_several_experiments_share_what_they_have_in_common(
    tmp_path: Path, trained: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--budget", "tiny", "--seeds", "1", "--device", "cpu", "--quiet", "--out", str(tmp_path)]
    assert run(["reproduce", "clica/table2", "clica/table1", "clica/table2", *arguments]) == 0
    paths = [tmp_path / f"clica-table{k}.jsonl" for k in (2, 1)]
    assert capsys.readouterr().out.splitlines() == [str(path) for path in paths]
    first, second = ([one.row for one in read(path)] for path in paths)
    assert first == [row.number for row in TABLE2.rows] and second == [row.number for row in TABLE1.rows]
    both = [one for path in paths for one in read(path)]
    hashes = [info["hash"] for one in both for info in one.models.values()]
    assert len(trained) == len({h for one in both for h in _trained_hashes(one)}) < len(hashes)
    (row8,) = [one for one in read(paths[1]) if one.row == "8"]
    assert row8.models["contrastive"]["shared_with"] == "clica/table2, row 10"


def _trained_hashes(receipt: Any) -> list[str]:
    return [info["hash"] for model, info in receipt.models.items() if model != "identity"]


def test_a_paper_stands_for_its_experiments() -> None:
    every = [experiment.id for experiment in catalogue()]
    assert sorted(one.id for one in find_all(["all"])) == sorted(every)
    scaling = [one.id for one in find_all(["aninfonce"])]
    assert sorted(scaling) == sorted(name for name in every if name.startswith("aninfonce/"))
    assert scaling.index("aninfonce/figure9") < scaling.index("aninfonce/figure4")  # which takes its models over
    assert [one.id for one in find_all(["clica/table2", "clica/table1", "clica/table2"])] == [
        "clica/table2",
        "clica/table1",
    ]


def test_data_that_a_later_experiment_lacks_are_named_before_the_first_is_trained(
    tmp_path: Path, trained: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("IDENTICA_DATA", raising=False)
    arguments = ["--budget", "smoke", "--out", str(tmp_path)]
    assert run(["reproduce", "clica/table1", "aninfonce/figure7", *arguments]) == 2
    assert "--data DIR" in capsys.readouterr().err and trained == [] and list(tmp_path.iterdir()) == []
