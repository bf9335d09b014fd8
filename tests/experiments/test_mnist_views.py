"""Paper B's views of real digits and the latents of views, with a small data set in place of MNIST."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from identica.data import AugmentedViews, load_mnist
from identica.experiments import find, read
from identica.experiments.budgets import BUDGETS
from identica.experiments.mnist.budgets import VIEWS_RECIPES
from identica.experiments.mnist.figures import FIGURE7, MNIST_VIEWS
from identica.experiments.mnist.latents import ComputedPlan, conditional_measures, one_of_each
from identica.experiments.mnist.normality import NULL_SAMPLES
from identica.experiments.mnist.rows import VaeSettings
from identica.experiments.mnist.views import ViewsPlan
from identica.experiments.running.reproduce import reproduce
from identica.experiments.running.supplies import Supplies, augment, views_of
from identica.objectives import InfoNCE
from identica.training import TrainingRun, TrainState
from identica.training.together import Together
from tests.experiments.digits import write_digits
from tests.experiments.test_mnist_plan import TINY_RECIPE
from tests.experiments.tiny import TINY, everywhere

REAL = os.environ.get("IDENTICA_DATA")
VAE = VaeSettings(hidden=(32,), epochs=12, batch_size=16, lr=5e-3)
RECIPE = replace(TINY_RECIPE, views_each=40, digits_each=1, domain_steps=30, vae=VAE)


@pytest.fixture(autouse=True)
def budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUDGETS, "tiny", TINY)
    monkeypatch.setitem(VIEWS_RECIPES.by_budget, "tiny", everywhere(RECIPE))
    monkeypatch.setenv("IDENTICA_COMMIT", "0123abc")
    monkeypatch.delenv("IDENTICA_DATA", raising=False)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return write_digits(tmp_path / "data", monkeypatch)


def plan(experiment: Any, number: str, data: Path | None = None, out: Path | None = None, **changes: Any) -> Any:
    one = experiment.plan(experiment.row(number), "tiny", "cpu")
    one = replace(one, recipe=replace(one.recipe, **changes))
    return one if data is None or out is None else one.supplied(Supplies(data, out, torch.device("cpu")))


# As data


def test_the_papers_table() -> None:
    assert find("aninfonce/mnist-views") is MNIST_VIEWS and find("aninfonce/figure7") is FIGURE7
    for row in MNIST_VIEWS.rows:
        assert row.table["infonce"] == {
            "class_accuracy": 0.97,
            "r2": 0.34,
            "crop_accuracy": 0.53,
            "blur_accuracy": 0.58,
        }  # type: ignore[attr-defined]
        assert list(row.table["aninfonce"].values()) == [0.94, 0.44, 0.59, 0.63]  # type: ignore[attr-defined]
        assert (row.published["infonce"].mean, row.published["aninfonce"].mean) == (34.0, 44.0)
    assert FIGURE7.row("domain").published["classifier"].mean == 99.1
    assert FIGURE7.row("neighbours").published["infonce"].mean == 96.7
    temperatures = [(row.losses["infonce"].temperature, row.losses["infonce"].learned) for row in MNIST_VIEWS.rows]  # type: ignore[attr-defined]
    assert temperatures == [(1.0, False), (0.2, False), (1.0, True)]


def test_rows_share_aninfonce_and_differ_in_infonce() -> None:
    hashes = [plan(MNIST_VIEWS, row.number).model_hashes for row in MNIST_VIEWS.rows]
    assert len({one["aninfonce"] for one in hashes}) == 1 and len({one["infonce"] for one in hashes}) == 3
    flips = plan(FIGURE7, "neighbours").model_hashes["infonce"]
    assert flips not in {one["infonce"] for one in hashes}  # other views
    longer = replace(RECIPE.vae, epochs=7)
    for number in ("latents", "domain"):
        assert plan(FIGURE7, number).config_hash != plan(FIGURE7, number, vae=longer, domain_steps=7).config_hash


def test_labels_say_what_is_looked_at() -> None:
    assert MNIST_VIEWS.row("1").label == "MNIST, views by crops and blurs → AnInfoNCE; InfoNCE, τ = 1"
    assert FIGURE7.row("domain").label == "MNIST, views by crops and blurs → views told from plain digits"
    assert FIGURE7.models_of(FIGURE7.row("latents")) == ("vae",)


# Parts


def test_pairs_are_two_views_of_one_digit_and_codes_are_scored_on_generated_ones(data: Path, tmp_path: Path) -> None:
    one = plan(MNIST_VIEWS, "1", data, tmp_path / "out")
    assert isinstance(one, ViewsPlan)
    process = one.training_process("infonce", 0)
    assert (
        isinstance(process, AugmentedViews) and process.augmentation.to_dict() == views_of("crops and blurs").to_dict()
    )
    views = process.sample(64, 0)
    assert views.x.shape == (64, 784) and views.parameters["crop"].applied.all() and views.z is None
    assert 10 < int(views.parameters["blur"].applied.sum()) < 54 and not views.parameters["flip"].applied.any()
    objective = one.objective("aninfonce")
    assert isinstance(objective, InfoNCE) and objective.compute(one.encoder("aninfonce", 0), views).loss.isfinite()
    assert one.process("infonce", 0).sample(8, 0).z.shape == (8, 10)
    flips = plan(FIGURE7, "neighbours", data, tmp_path / "out").training_process("infonce", 0).sample(64, 0)
    assert flips.parameters["flip"].applied.any() and not flips.parameters["blur"].applied.any()


def test_seeds_can_be_trained_as_one_on_views(data: Path, tmp_path: Path) -> None:
    """As on CUDA, where they are."""
    one = plan(MNIST_VIEWS, "1", data, tmp_path / "out")
    for model in one.trained:
        config = one.train_config(model)
        states = [TrainState.create(one.encoder(model, k), one.objective(model), config, seed=k) for k in (0, 1)]
        together = Together([one.training_process(model, k) for k in (0, 1)], states, config, mapped=True)
        together.advance()
        together.advance()
        assert all(value.isfinite().all() for state in states for value in state.encoder.parameters())


class _Average(torch.nn.Module):
    """A code that knows where a digit is bright, and nothing else: the image in 7×7 cells."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.avg_pool2d(x.unflatten(-1, (1, 28, 28)), 4).flatten(start_dim=1)


def test_readouts_find_what_the_codes_hold(data: Path, tmp_path: Path) -> None:
    one = plan(MNIST_VIEWS, "1", data, tmp_path / "out")
    config = one.train_config("infonce")
    run = TrainingRun(_Average(), one.objective("infonce"), config, (), 0.0, 1, 0)
    assert one.neighbours(run) > 0.95  # the place of the square is the class
    scores = one._augmentations(run, seed=0)
    assert scores["crop_accuracy"] > 0.7 and set(scores) == {"crop_accuracy", "blur_accuracy"}


def test_a_vae_sees_the_views_it_is_named_after(generator: torch.Generator) -> None:
    images = torch.rand(64, 1, 28, 28, generator=generator)
    assert augment(VaeSettings()) is None
    changed = augment(VaeSettings(views="crops and flips"))
    assert changed is not None
    source = torch.Generator().manual_seed(1)
    expected = views_of("crops and flips")(images, torch.Generator().manual_seed(1)).images
    assert torch.equal(changed(images, source), expected) and not torch.equal(expected, images)


# What is measured of latents


def test_normal_latents_pass_and_two_modes_are_found() -> None:
    draws = np.random.default_rng(0)
    views = draws.normal(size=(3, 300, 2))
    views[1, :, 1] += 6.0 * (np.arange(300) % 2)  # the second latent of the second digit
    marginal = torch.from_numpy(draws.normal(size=(500, 2)))
    found = conditional_measures(torch.from_numpy(views), marginal, [4, 7, 9], [2, 5])
    assert found.scores["share"] == found.scores["bimodal"] == pytest.approx(1 / 6)
    assert found.scores["kolmogorov"] > found.scores["marginal_kolmogorov"]
    first = found.info["histograms"][0]
    assert (first["digit"], first["latent"], len(first["density"])) == (7, 5, 24) and first["dip"] > 0.1
    assert sum(first["density"]) * (first["high"] - first["low"]) / 24 == pytest.approx(1.0, rel=1e-2)
    assert first["density"][12] < 0.3 * max(first["density"])  # a gap in the middle
    dips = found.per_dimension["largest_dip"]
    assert len(dips) == 2 and dips[1] == found.scores["largest_dip"] and NULL_SAMPLES >= 500


def test_a_vae_that_says_nothing_is_a_sentence(data: Path, tmp_path: Path) -> None:
    blind = plan(FIGURE7, "latents", data, tmp_path / "out", vae=TINY_RECIPE.vae)
    with pytest.raises(ValueError, match="uses none of its latents"):
        blind.computed("vae", 0, torch.device("cpu"))


def test_one_of_each_class() -> None:
    labels = torch.tensor([3, 1, 3, 1, 0, 3])
    assert one_of_each(labels, 2).tolist() == [4, 1, 3, 0, 2]


# From end to end


def test_the_views_run(data: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"budget": "tiny", "device": "cpu", "out": tmp_path / "out", "quiet": True, "seeds": 1}
    reproduce(MNIST_VIEWS, rows=["1", "tau-learned"], data=data, **settings)
    first, second = read(tmp_path / "out" / "aninfonce-mnist-views.jsonl")
    for model in ("aninfonce", "infonce"):
        scores = first.scores[model]
        assert {"r2", "class_accuracy", "crop_accuracy", "blur_accuracy", "knn_accuracy", "image_r2"} <= set(scores)
        assert all(0.0 <= scores[name] <= 1.0 for name in scores if name.endswith("accuracy"))
        curve = first.models[model]["curve"]
        assert curve["step"] == [0, 2, 4] and None not in curve["r2"]
    assert len(first.per_dimension["aninfonce"]["precision"]) == 10 and first.failed is None
    assert len(first.models["aninfonce"]["curve"]["precision"]) == 3
    assert second.models["aninfonce"]["shared_with"] == "aninfonce/mnist-views, row 1"
    assert second.per_dimension["infonce"]["temperature"] != [1.0]


def test_figure_7_runs(data: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"budget": "tiny", "device": "cpu", "out": tmp_path / "out", "quiet": True, "seeds": 1}
    results = reproduce(FIGURE7, data=data, **settings)
    latents, domain, neighbours = read(tmp_path / "out" / "aninfonce-figure7.jsonl")
    assert isinstance(plan(FIGURE7, "latents"), ComputedPlan)
    assert {"share", "bimodal", "largest_dip", "kolmogorov", "marginal_kolmogorov"} == set(latents.scores["vae"])
    info = latents.models["vae"]
    assert info["images"] == 10 and info["views"] == 40 and len(info["histograms"]) == 4 and latents.seconds > 0
    assert 0.0 <= domain.scores["classifier"]["share"] <= 1.0 and domain.models["classifier"]["images"] == 300
    assert neighbours.scores["infonce"]["share"] == neighbours.scores["infonce"]["knn_accuracy"]
    assert "flip_accuracy" in neighbours.scores["infonce"] and "blur_accuracy" not in neighbours.scores["infonce"]
    assert [result.cells[0].ours is not None for result in results] == [True] * 3
    before = (tmp_path / "out" / "aninfonce-figure7.jsonl").read_bytes()
    reproduce(FIGURE7, **settings)  # all there: nothing is needed for it
    assert (tmp_path / "out" / "aninfonce-figure7.jsonl").read_bytes() == before


@pytest.mark.skipif(REAL is None, reason="IDENTICA_DATA does not name a folder with MNIST's official files")
def test_real_views_are_not_normal_and_can_be_told_from_plain_digits(tmp_path: Path) -> None:
    folder = Path(REAL or "")
    assert len(load_mnist(folder, "test")) == 10_000
    short = {"vae": VaeSettings(epochs=3, images=10_000), "views_each": 300, "readout_images": 4000}
    given = Supplies(folder, tmp_path, torch.device("cpu"))
    one = plan(FIGURE7, "latents", **short, test_images=2000).supplied(given)
    scores = one.computed("vae", 0, torch.device("cpu")).scores
    assert scores["share"] > 0.5 and scores["kolmogorov"] > scores["marginal_kolmogorov"]
    other = plan(FIGURE7, "domain", **short, domain_steps=150).supplied(given)
    assert other.computed("classifier", 0, torch.device("cpu")).scores["share"] > 0.9
