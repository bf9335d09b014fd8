"""On a GPU: every kind of model of paper B is trained for two seeds in one captured step, and measured."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from identica.experiments import find, read
from identica.experiments.aninfonce import budgets as of_losses
from identica.experiments.budgets import BUDGETS
from identica.experiments.mnist import budgets as of_digits
from identica.experiments.mnist.rows import VaeSettings
from identica.experiments.running.reproduce import reproduce
from tests.experiments.digits import write_digits
from tests.experiments.tiny import TINY, everywhere

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

DEVICE = "cuda"
CHANGES: dict[str, Any] = {"steps": 20, "evaluation_samples": 1024, "precision": "tf32"}
ROWS = {
    "figure2": ("1", "6", "linear", "tau-learned"),
    "figure4": ("d40-p75-b256", "d80-p75-b256"),
    "figure6": ("k0", "k4"),
    "figure8": ("p75",),
    "figure9": ("d5-p75-b128",),
    "figure10": ("scan", "hard-45"),
    "figure11": ("1",),
    "figure12": ("uniform", "halves"),
    "figure3": ("1", "D"),
    "mnist-views": ("1", "tau-learned"),
    "figure7": ("latents", "domain", "neighbours"),
}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    recipe = replace(of_losses.RECIPES.by_budget["smoke"]["cuda"], **CHANGES, candidates=20)
    vae = VaeSettings(hidden=(32, 16), epochs=3, batch_size=32)
    digits = replace(of_digits.DECODED_RECIPES.by_budget["smoke"]["cuda"], **CHANGES, vae=vae, views_each=50)
    monkeypatch.setitem(BUDGETS, "tiny", TINY)
    monkeypatch.setitem(of_losses.RECIPES.by_budget, "tiny", everywhere(recipe))
    for recipes in (of_digits.DECODED_RECIPES, of_digits.SHARP_RECIPES, of_digits.VIEWS_RECIPES):
        monkeypatch.setitem(recipes.by_budget, "tiny", everywhere(digits))
    monkeypatch.setenv("IDENTICA_COMMIT", "0123abc")
    return write_digits(tmp_path / "data", monkeypatch)


@pytest.mark.parametrize("name", ROWS)
def test_every_kind_of_model(name: str, data: Path, tmp_path: Path) -> None:
    experiment = find(f"aninfonce/{name}")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*(captured|take turns).*")  # it must be captured, and mapped
        reproduce(
            experiment,
            rows=ROWS[name],
            seeds=2,
            budget="tiny",
            device=DEVICE,
            out=tmp_path / "out",
            data=data,
            quiet=True,
        )
    receipts = read(tmp_path / "out" / f"aninfonce-{name}.jsonl")
    assert {(receipt.row, receipt.seed) for receipt in receipts} == {
        (row, seed) for row in ROWS[name] for seed in (0, 1)
    }
    for receipt in receipts:
        assert receipt.failed is None
        assert set(receipt.scores) == set(experiment.models_of(experiment.row(receipt.row)))
