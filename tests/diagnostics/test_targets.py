from __future__ import annotations

import math

import pytest

from identica.diagnostics import iterations_to_target
from identica.training.state import Record


def history(*scores: float) -> list[Record]:
    return [Record(10 * (k + 1), 0.1, {"r2": score}, {"loss": 2.0}) for k, score in enumerate(scores)]


def test_the_first_time_counts() -> None:
    found = iterations_to_target(history(0.1, 0.75, math.nan, 0.7, 0.9), "r2", (0.0, 0.7, 0.8, 0.95))
    assert found == {0.0: 10, 0.7: 20, 0.8: 50, 0.95: None}


def test_one_target_needs_no_list() -> None:
    assert iterations_to_target(history(0.1, 0.75), "r2", 0.7) == {0.7: 20}


def test_a_nan_reaches_nothing() -> None:
    assert iterations_to_target(history(math.nan), "r2", [-1.0]) == {-1.0: None}
    assert iterations_to_target([], "r2", [0.5]) == {0.5: None}


def test_the_order_of_the_evaluations_does_not_matter() -> None:
    assert iterations_to_target(history(0.1, 0.9)[::-1], "r2", [0.05]) == {0.05: 10}


def test_sentences() -> None:
    with pytest.raises(ValueError, match="no 'mcc'; they have loss, r2"):
        iterations_to_target(history(0.1), "mcc", [0.5])
    with pytest.raises(ValueError, match="finite number"):
        iterations_to_target(history(0.1), "r2", [math.inf])
