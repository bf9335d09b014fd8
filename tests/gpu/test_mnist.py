"""On a GPU: digits and views are made inside the captured step, for several seeds at once."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from identica.distributions import SphereUniform
from identica.encoders import VAE, Whiten
from identica.experiments import find
from identica.experiments.mnist.budgets import DECODED_RECIPES
from identica.experiments.mnist.rows import VaeSettings
from identica.experiments.running.runner import train_model
from identica.experiments.running.supplies import Supplies
from identica.mixing import DecoderMixing
from tests.experiments.digits import write_digits

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

RECIPE = replace(
    DECODED_RECIPES.by_budget["smoke"]["cuda"],
    steps=40,
    precision="tf32",
    vae=VaeSettings(hidden=(32, 16), epochs=3, batch_size=32),
    views_each=50,
)


@pytest.fixture
def supplies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Supplies:
    return Supplies(write_digits(tmp_path / "data", monkeypatch), tmp_path / "out", torch.device("cuda"))


@pytest.mark.parametrize(("name", "row"), [("aninfonce/figure3", "C"), ("aninfonce/mnist-views", "1")])
def test_two_seeds_are_trained_in_one_captured_step(name: str, row: str, supplies: Supplies, tmp_path: Path) -> None:
    experiment = find(name)
    plan: Any = replace(experiment.plan(experiment.row(row), "smoke", "cuda"), recipe=RECIPE, supplies=supplies)
    for model in plan.trained:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*(captured|take turns).*")  # it must be captured, and mapped
            results = train_model(plan, model, [0, 1], device=torch.device("cuda"), folder=tmp_path / model)
        assert all(result.failed is None for result in results.values())
        assert results[0].scores["r2"] != results[1].scores["r2"]


def test_digits_and_whitened_inputs_are_the_same_in_tf32() -> None:
    mixing = DecoderMixing(VAE(seed=1).decoder).cuda()
    z = SphereUniform(10).to("cuda").sample(512, generator=0)
    whiten = Whiten(28 * 28, power=0.5).cuda().fit(mixing(SphereUniform(10).to("cuda").sample(2000, generator=1)))
    torch.set_float32_matmul_precision("highest")
    exact = mixing(z)
    seen = whiten(exact)
    try:
        torch.set_float32_matmul_precision("high")
        assert torch.equal(mixing(z), exact) and torch.equal(whiten(exact), seen)
    finally:
        torch.set_float32_matmul_precision("highest")
