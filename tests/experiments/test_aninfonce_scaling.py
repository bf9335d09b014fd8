"""Figures 4 and 9 of paper B: points on a grid, each with its own batch."""

from __future__ import annotations

import pytest

from identica.experiments.aninfonce.plan import LossPlan
from identica.experiments.aninfonce.rows import LossExperiment, LossRow
from identica.experiments.aninfonce.scaling import FIGURE4, FIGURE9, point
from identica.objectives import InfoNCE
from identica.similarities import DotProduct


@pytest.mark.parametrize("experiment", [FIGURE4, FIGURE9], ids=lambda experiment: experiment.id)
def test_coordinates_are_those_of_the_pairs_and_of_the_recipe(experiment: LossExperiment) -> None:
    for row in experiment.rows:
        assert isinstance(row, LossRow) and row.dim == row.x["dimension"]
        precision, widened = (
            row.x.get("precision", 75.0),
            row.x.get("widened", 4.0 if "long" in row.x else 1.0),
        )
        steps = {40: 20_000, 80: 40_000}[row.dim] if "long" in row.x else row.x.get("steps", 5000)
        assert row.recipes["fast"]["steps"] == steps
        assert (
            ("Muon" in row.note)
            == (row.recipes["fast"].get("optimizer") == "muon")
            == (row.dim == 80 and "long" in row.x)
        )
        assert set(row.conditional.precision or ()) == {precision}
        assert row.losses["infonce"].temperature == pytest.approx(widened / precision)
        assert row.recipes["fast"]["batch_size"] == row.recipes["paper"]["batch_size"] == row.x["batch"]


def test_the_grids() -> None:
    assert len(FIGURE9.rows) == 9 * 5 and {row.x["precision"] for row in FIGURE9.rows} == {75.0}
    assert len(FIGURE4.rows) == 4 * 4 + 3 + 3 * 4 + 1 + 3 * 4 + 2
    assert max(row.x["batch"] for row in FIGURE4.rows) == 262_144
    shown = [sum(plot.shows(row.x) for row in FIGURE4.rows) for plot in FIGURE4.plots]
    assert shown == [19, 17, 12, 9, 11]


def test_batch_and_steps_follow_the_budget_and_smoke_has_one_for_all() -> None:
    row = point(10, 75.0, 16_384)
    plans = {budget: FIGURE4.plan(row, budget, "cuda") for budget in ("smoke", "fast", "paper")}
    configs = {budget: plan.train_config("infonce") for budget, plan in plans.items()}
    assert (configs["fast"].batch_size, configs["fast"].steps) == (16_384, 5000)
    assert (configs["paper"].batch_size, configs["paper"].steps) == (16_384, 500_000)
    assert configs["smoke"].batch_size < 1000
    other = point(10, 75.0, 256)
    assert FIGURE4.plan(other, "smoke", "cuda").model_hashes == plans["smoke"].model_hashes
    assert FIGURE4.plan(other, "fast", "cuda").model_hashes != plans["fast"].model_hashes


def test_points_of_both_figures_are_shared_and_the_temperature_matches_the_pairs() -> None:
    one, other = (figure.plan(figure.row("d20-p75-b1024"), "fast", "cuda") for figure in (FIGURE4, FIGURE9))
    assert one.model_hashes == other.model_hashes and isinstance(one, LossPlan)
    objective = one.objective("infonce")
    assert isinstance(objective, InfoNCE) and isinstance(objective.similarity, DotProduct)
    assert objective.similarity.temperature == pytest.approx(1 / 75)
