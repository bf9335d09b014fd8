"""How long it will take, and what is shown of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from identica.experiments.running import progress as shown
from identica.experiments.running.pace import Pace, Work, duration
from identica.experiments.running.progress import TableProgress
from identica.training import Record


def test_kinds_are_timed_apart_and_unknown_ones_guessed() -> None:
    pace = Pace()
    assert pace.seconds([Work("a", 10)]) is None
    pace.observe(Work("a", 100), 1.0)
    pace.observe(Work("a", 100), 3.0)
    assert pace.seconds([Work("a", 1000)]) == pytest.approx(20.0)
    assert pace.seconds([Work("b", 1000)]) == pytest.approx(20.0)
    assert pace.seconds([Work("supervised", 1000, supervised=True)]) == pytest.approx(10.0)
    pace.observe(Work("supervised", 10, supervised=True), 0.01)
    assert pace.seconds([Work("supervised", 1000, supervised=True)]) == pytest.approx(1.0)


def test_a_contrastive_step_is_guessed_from_a_supervised_one() -> None:
    pace = Pace()
    pace.observe(Work("supervised", 10, supervised=True), 1.0)
    assert pace.seconds([Work("a", 10)]) == pytest.approx(2.0)


@pytest.mark.parametrize(("seconds", "words"), [(119, "119 s"), (121, "2 min"), (3600, "1 h 0 min"), (7e5, "8 d 2 h")])
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_the_estimate_covers_the_whole_table(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(shown.time, "monotonic", lambda: now)
    state: Any = SimpleNamespace(step=0)
    with TableProgress("clica/table1, fast") as progress:
        progress.ahead = [Work("a", 100), Work("a", 100)]
        progress.begin("row 1, contrastive", progress.ahead[0])
        progress.on_start(state, SimpleNamespace())  # type: ignore[arg-type]
        assert progress.seconds_left() is None
        for state.step in range(1, 101):
            now += 3.0 if state.step <= 5 else 0.5  # the first steps compile
            progress.on_step(state)
            if state.step == 50:
                assert progress.seconds_left() == pytest.approx(75.0)
                progress.on_evaluation(state, Record(50, 1.0, {"r2": 0.5}))
        progress.end()
        assert progress.seconds_left() == pytest.approx(50.0)
    err = capsys.readouterr().err
    assert err.count("clica/table1, fast: about ") == 1 and "contrastive  step 50 of 100  R² 0.5000  75 s left" in err
    assert progress.ahead == [Work("a", 100)]


def test_steps_are_counted_over_all_stages(capsys: Any) -> None:
    state: Any = SimpleNamespace(step=0)
    with TableProgress("clica/table4, fast") as progress:
        progress.begin("row 1, contrastive", Work("exact", 100))
        for steps in (70, 20):
            state.step = 0
            progress.on_start(state, SimpleNamespace())  # type: ignore[arg-type]
            for state.step in range(1, steps + 1):
                progress.on_step(state)
        progress.on_evaluation(state, Record(20, 1.0, {"r2": 0.5}))
    assert "row 1, contrastive  step 90 of 100  R² 0.5000" in capsys.readouterr().err


def test_quiet_says_nothing(capsys: Any) -> None:
    with TableProgress("x", quiet=True) as progress:
        progress.say("hello")
        progress.on_evaluation(SimpleNamespace(step=1), Record(1, 1.0, {"r2": 0.5}))  # type: ignore[arg-type]
    assert capsys.readouterr().err == ""
