"""Figure 6D of paper B: anchors that move from one pole to the other between training and testing."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats

from identica.distributions import VonMisesFisher
from identica.experiments import Receipt, find, read
from identica.experiments.aninfonce.budgets import RECIPES
from identica.experiments.aninfonce.shift import CONCENTRATIONS, FIGURE6, point
from identica.experiments.aninfonce.shift_plan import ShiftPlan, best_accuracy
from identica.experiments.budgets import BUDGETS
from identica.experiments.receipts.verdicts import claim_results, results
from identica.experiments.running.reproduce import reproduce
from identica.processes import PairProcess
from identica.report.results import gather
from identica.report.results_losses import panels
from tests.experiments.test_loss_plan import TINY_RECIPE
from tests.experiments.tiny import TINY, everywhere


@pytest.fixture(autouse=True)
def budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUDGETS, "tiny", TINY)
    monkeypatch.setitem(RECIPES.by_budget, "tiny", everywhere(TINY_RECIPE))
    monkeypatch.setenv("IDENTICA_COMMIT", "0123abc")


def test_the_figure_as_data() -> None:
    assert find("aninfonce/figure6") == FIGURE6 and FIGURE6.seeds == 3
    assert len(CONCENTRATIONS) >= 6 and [row.x["concentration"] for row in FIGURE6.rows] == [*CONCENTRATIONS]
    assert FIGURE6.row("k4").label == "S⁹, vMF κ=4 north and south, Λ = 10 ×10 → InfoNCE, τ = 0.1"
    hashes = {FIGURE6.plan(row, "fast", "cpu").model_hashes["infonce"] for row in FIGURE6.rows}
    assert len(hashes) == len(FIGURE6.rows)


def test_both_poles_share_pairs_and_mixing() -> None:
    plan = FIGURE6.plan(point(4.0, 3), "tiny", "cpu")
    assert isinstance(plan, ShiftPlan)
    north, south = plan.at_pole(1.0, 0), plan.at_pole(-1.0, 0)
    trained = plan.process("infonce", 0)
    assert isinstance(trained, PairProcess) and trained.to_dict() == north.to_dict()
    assert north.mixing is south.mixing and north.conditional == south.conditional
    assert north.sample(500, 0).z.mean(dim=0)[0] > 0.5 > -0.5 > south.sample(500, 0).z.mean(dim=0)[0]


@pytest.mark.statistical(false_alarm=1e-6, what="share of von Mises-Fisher draws in the hemisphere of their pole")
@pytest.mark.parametrize(("concentration", "dim"), [(2.0, 3), (4.0, 10), (8.0, 2)])
def test_the_best_accuracy_is_that_of_the_hemisphere(concentration: float, dim: int) -> None:
    loc = torch.zeros(dim, dtype=torch.float64)
    loc[0] = 1.0
    right = (VonMisesFisher(loc, concentration).sample(20_000, generator=1)[:, 0] > 0).sum().item()
    assert stats.binomtest(right, 20_000, best_accuracy(concentration, dim)).pvalue > 1e-6
    assert best_accuracy(3.0, 3) == pytest.approx(1.0 / (1.0 + math.exp(-3.0)))
    assert best_accuracy(0.0, dim) == 0.5


def test_receipts_hold_the_scores_of_both_poles(tmp_path: Path) -> None:
    small = replace(FIGURE6, rows=(point(0.0, 4), point(30.0, 4)))
    reproduce(small, budget="tiny", device="cpu", out=tmp_path, quiet=True)
    receipts = read(tmp_path / "aninfonce-figure6.jsonl")
    assert [(one.row, one.seed) for one in receipts] == [("k0", 0), ("k0", 1), ("k30", 0), ("k30", 1)]
    for one in receipts:
        scores = one.scores["infonce"]
        assert {"r2", "shifted_r2", "south_r2", "domain_accuracy", "best_accuracy"} <= set(scores)
        told_apart = one.row == "k30"
        assert (scores["best_accuracy"] > 0.999) == told_apart
        assert (scores["domain_accuracy"] > 0.8) == told_apart  # after six steps, and by observations alone
        assert not told_apart or scores["shifted_r2"] < scores["south_r2"]


def made_up(row: Any, seed: int) -> Receipt:
    x = row.x["concentration"]
    accuracy = 1.0 - 0.5 * math.exp(-0.3 * x)
    scores = {"r2": 0.999, "mcc": 0.6, "shifted_r2": 0.999 - 0.2 * x, "south_r2": 0.9, "domain_accuracy": accuracy}
    scores["best_accuracy"] = accuracy
    data: dict[str, Any] = {"experiment": FIGURE6.id, "row": row.number, "x": dict(row.x), "seed": seed, "config": {}}
    return Receipt(**data, budget="fast", config_hash="c", scores={"infonce": scores}, steps=10, batch=4, device="H200")


def test_claims_and_panels_from_receipts() -> None:
    receipts = [made_up(row, seed) for row in FIGURE6.rows for seed in (0, 1)]
    found = claim_results(FIGURE6, results(FIGURE6, receipts, "fast"))
    assert all(one.verdict and one.verdict.good for one in found)
    assert found[0].found is not None and found[0].found.value == pytest.approx(-1.0)
    block = next(one.main for one in gather(receipts).sections if one.experiment.id == FIGURE6.id)
    drawn = dict(panels(block))
    against = drawn["R² in the south against what a classifier sees (below −1: drawn at −1)"]
    assert against.count("<polyline") == 2 and "from 0.999 to -1;" in against
    by = drawn["By concentration (below −1: drawn at −1)"]
    assert by.count("<polyline") == 4 and "the best possible classifier from 0.5" in by
    flat = [replace(one, scores={"infonce": {**one.scores["infonce"], "shifted_r2": 0.5}}) for one in receipts]
    first = claim_results(FIGURE6, results(FIGURE6, flat, "fast"))[0]
    assert first.found is not None and not first.found.holds and first.found.value == 0.0
