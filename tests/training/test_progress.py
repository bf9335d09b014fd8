"""The progress bar at the widths people have: nothing that matters may be cut off."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from identica.training import TrainConfig
from identica.training.progress import ProgressBar, describe_record
from identica.training.state import Record

RECORD = Record(400, 9.5, {"r2": 0.9912, "mcc": 0.9876}, {"loss": 10.8012, "accuracy": 0.5})


class Position:
    """All that the bar reads of a run's state."""

    step = 0


def shown(description: str, width: int, steps: int = 1000) -> list[str]:
    """The last frame of a bar at step 400, as lines without colours."""
    console = Console(width=width, force_terminal=True, file=StringIO(), color_system="standard")
    bar, state = ProgressBar(description, console), Position()
    as_state: Any = state
    bar.on_start(as_state, TrainConfig(steps=steps))
    for step in (100, 200, 300, 400):
        state.step = step
        bar.on_step(as_state)
    bar.on_evaluation(as_state, RECORD)
    bar.close()
    assert isinstance(console.file, StringIO)
    last = console.file.getvalue().split("\x1b[2K")[-1]  # each frame erases the one before
    return [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", line) for line in last.splitlines()]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    ("description", "steps"), [("matched (L1)   ", 1000), ("a description longer than any", 300_000)]
)
def test_everything_fits(description: str, steps: int, width: int) -> None:
    lines = shown(description, width, steps)
    text = "\n".join(lines)
    assert all(len(line) <= width for line in lines)
    assert text.count("━") >= 8, "no bar"
    assert re.search(r"\d:\d\d:\d\d", text), "no time left"
    assert f"400/{steps}" in text and "steps/s" in text
    assert "loss 10.8012  R² 0.9912  MCC 0.9876" in text
    assert "…" not in text or len(description) > 28
    assert sum(bool(line.strip()) for line in lines) == (1 if width == 120 else 2)


def test_a_description_is_shown_as_it_is_written() -> None:
    assert any("run [3]" in line for line in shown("run [3]", 80))


def test_a_record_in_words() -> None:
    assert describe_record(RECORD) == "loss 10.8012  R² 0.9912  MCC 0.9876"
    assert describe_record(Record(0, 0.0, {"r2": 0.5, "other": 0.25})) == "R² 0.5000  other 0.2500"
