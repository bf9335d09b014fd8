"""Paper B's Figure 3: digits that a VAE makes of known latents, with a small data set in place of MNIST."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from identica.cli.app import run
from identica.data import DataFileError
from identica.encoders import ResidualEncoder
from identica.experiments import find, read
from identica.experiments.budgets import BUDGETS
from identica.experiments.clica.tables import TABLE1
from identica.experiments.mnist.budgets import DECODED_RECIPES, SHARP_RECIPES, MnistRecipe
from identica.experiments.mnist.figures import EXPERIMENTS, FIGURE3, MNIST_VIEWS
from identica.experiments.mnist.plan import DecoderPlan
from identica.experiments.mnist.rows import VaeSettings
from identica.experiments.planning import Measured
from identica.experiments.running import supplies
from identica.experiments.running.reproduce import reproduce
from identica.experiments.running.runner import train_model
from identica.experiments.running.supplies import Supplies, data_folder
from identica.training import TrainState
from identica.training.together import Together
from tests.experiments.digits import TEST, TRAIN, write_digits
from tests.experiments.tiny import TINY, everywhere

REAL = os.environ.get("IDENTICA_DATA")
TINY_RECIPE = MnistRecipe(
    encoder="residual",
    width=8,
    blocks=1,
    steps=4,
    batch_size=32,
    lr=1e-3,
    evaluations=2,
    evaluation_samples=128,
    floor_batches=2,
    error_batches=3,
    error_pairs=24,
    vae=VaeSettings(hidden=(16, 12), epochs=2, batch_size=32),
)


@pytest.fixture(autouse=True)
def budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUDGETS, "tiny", TINY)
    for recipes in (DECODED_RECIPES, SHARP_RECIPES):
        monkeypatch.setitem(recipes.by_budget, "tiny", everywhere(TINY_RECIPE))
    monkeypatch.setenv("IDENTICA_COMMIT", "0123abc")
    monkeypatch.delenv("IDENTICA_DATA", raising=False)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return write_digits(tmp_path / "data", monkeypatch)


@pytest.fixture
def vaes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The epochs of every VAE that was trained."""
    trained: list[int] = []
    real = supplies.train_vae

    def counted(*args: Any, **settings: Any) -> Any:
        trained.append(settings["epochs"])
        return real(*args, **settings)

    monkeypatch.setattr(supplies, "train_vae", counted)
    return trained


def plan(number: str, budget: str = "tiny", device: Any = "cpu", **changes: Any) -> DecoderPlan:
    one = FIGURE3.plan(FIGURE3.row(number), budget, device)
    assert isinstance(one, DecoderPlan)
    return replace(one, recipe=replace(one.recipe, **changes))


def supplied(number: str, data: Path, out: Path, **changes: Any) -> DecoderPlan:
    return plan(number, **changes).supplied(Supplies(data, out, torch.device("cpu")))


# The figure as data


def test_figure_3_has_the_precisions_and_the_numbers_of_the_paper() -> None:
    assert find("aninfonce/figure3") is FIGURE3 and FIGURE3.seeds == 3
    for number, second in (("1", 25.0), ("2", 50.0), ("3", 100.0)):
        assert FIGURE3.row(number).precisions == ((5.0,) * 5 + (second,) * 5,)  # type: ignore[attr-defined]
    for number, last, ours, theirs in (("C", 50.0, 99.7, 77.4), ("D", 200.0, 99.6, 76.3)):
        row = FIGURE3.row(number)
        (linear,) = row.precisions  # type: ignore[attr-defined]
        assert len(linear) == 10 and (linear[0], linear[-1]) == (5.0, last)
        assert torch.tensor(linear).diff().allclose(torch.tensor((last - 5.0) / 9))
        assert (row.published["aninfonce"].mean, row.published["infonce"].mean) == (ours, theirs)
        assert row.losses["infonce"].temperature == 1.0  # type: ignore[attr-defined]


def test_the_vae_is_that_of_the_paper() -> None:
    settings = plan("C", "fast", "cuda").recipe.vae
    assert (settings.dim, settings.epochs, len(settings.hidden) + 1, settings.views) == (10, 50, 3, "plain")
    assert settings.images is None and settings.beta == 1.0
    assert plan("C", "paper").recipe.vae == settings


def test_a_recipe_says_what_is_seen_of_pixels() -> None:
    for number in ("1", "2", "3"):
        encoder = plan(number, "fast", "cuda").encoder("aninfonce", 0)
        assert isinstance(encoder, ResidualEncoder) and encoder.whiten is None and encoder.log_odds == 1e-4
    for number in ("C", "D"):
        sharp = plan(number, "fast", "cuda").encoder("aninfonce", 0)
        assert isinstance(sharp, ResidualEncoder) and sharp.whiten is not None
        assert (sharp.whiten.power, sharp.log_odds) == (0.5, 1e-12)
        assert plan(number, "fast", "cpu").encoder("aninfonce", 0).to_dict() == sharp.to_dict()
    trainings = [plan(number, "fast", "cuda").train_config("aninfonce") for number in ("C", "D")]
    assert [(one.steps, one.batch_size) for one in trainings] == [(4000, 16_384), (6000, 16_384)], "Λ to 50, to 200"
    others = [plan(number, "fast", "cuda").train_config("infonce") for number in ("C", "D")]
    assert {(one.steps, one.batch_size) for one in others} == {(4000, 4096)}
    views = MNIST_VIEWS.plan(MNIST_VIEWS.rows[0], "fast", "cuda").encoder("aninfonce", 0)
    assert isinstance(views, ResidualEncoder) and views.whiten is None and views.log_odds == 0.0


def test_codes_are_turned_where_no_two_precisions_are_equal() -> None:
    for row in FIGURE3.rows:
        (precision,) = row.precisions  # type: ignore[attr-defined]
        assert plan(row.number, "fast", "cuda").recipe.turned == (len(set(precision)) == len(precision))


def test_losses_without_a_precision_may_have_steps_and_batches_of_their_own() -> None:
    both = plan("C", steps=30, batch_size=64, plain_steps=90, plain_batch=16, evaluations=3)
    learned, plain = (both.train_config(model) for model in ("aninfonce", "infonce"))
    assert (learned.steps, learned.batch_size, learned.eval_every) == (30, 64, 10)
    assert (plain.steps, plain.batch_size, plain.eval_every) == (90, 16, 30)
    same = plan("C", steps=30, batch_size=64)
    assert same.model_hashes["infonce"] != both.model_hashes["infonce"]
    assert same.train_config("infonce").batch_size == 64
    assert both.loss_label("infonce").endswith("16") and both.loss_label("aninfonce").endswith("64")


def test_settings_and_hashes_need_no_data() -> None:
    hashes = {row.number: plan(row.number).model_hashes for row in FIGURE3.rows}
    every = [value for models in hashes.values() for value in models.values()]
    assert len(set(every)) == len(every) == 10
    shorter = replace(TINY_RECIPE.vae, epochs=1)
    assert plan("C", vae=shorter).config_hash != plan("C").config_hash
    assert plan("C").config["mixing"]["decoder"]["epochs"] == 2
    with pytest.raises(ValueError, match="needs MNIST"):
        plan("C").process("aninfonce", 0)
    with pytest.raises(TypeError, match="rows with losses, not a Row"):
        FIGURE3.plan(TABLE1.row("1"), "fast", "cpu")
    with pytest.raises(ValueError, match="No such budget 'fats'. Did you mean 'fast'?"):
        FIGURE3.plan(FIGURE3.row("C"), "fats", "cpu")


@pytest.mark.parametrize("budget", ["smoke", "fast", "paper"])
def test_every_row_on_mnist_can_be_planned_as_plain_data(budget: str) -> None:
    for experiment in EXPERIMENTS:
        for row in experiment.rows:
            for device in ("cpu", "cuda"):
                one = experiment.plan(row, budget, device)
                assert json.loads(json.dumps(one.config)) == one.config and set(one.model_hashes) == set(one.models)


def test_the_settings_hash_follows_the_data(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = plan("C").config_hash
    monkeypatch.setitem(supplies.CHECKSUMS, "train-images-idx3-ubyte", "0" * 64)
    assert plan("C").config_hash != before


# Parts


def test_precisions_start_apart_where_the_recipe_says_so() -> None:
    similarity = plan("C", "fast").objective("aninfonce").similarity  # type: ignore[union-attr]
    start = similarity.precision.detach()  # type: ignore[union-attr]
    assert start[0] == pytest.approx(1.0) and start[-1] == pytest.approx(100.0)
    assert (start[1:] / start[:-1]).allclose(torch.tensor(100 ** (1 / 9)), rtol=1e-4)
    for budget in ("smoke", "paper"):
        alike = plan("C", budget).objective("aninfonce").similarity.precision  # type: ignore[union-attr]
        assert alike.detach().allclose(torch.tensor(0.7 if budget == "paper" else 1.0))  # type: ignore[union-attr]


def test_images_are_what_the_decoder_makes_of_latents_times_the_root_of_ten(data: Path, tmp_path: Path) -> None:
    one = supplied("C", data, tmp_path / "out")
    pairs = one.process("aninfonce", 0).sample(16, 0)
    decoded = one.vae(0).decode(10**0.5 * pairs.z_pos).flatten(start_dim=1)
    assert pairs.x_pos.shape == (16, 784) and torch.allclose(pairs.x_pos, decoded, atol=1e-6)
    assert torch.allclose(pairs.z.norm(dim=1), torch.ones(16), atol=1e-5)
    other = one.process("infonce", 1).sample(16, 0)
    assert torch.equal(other.z, pairs.z) and not torch.equal(other.x, pairs.x)  # another seed, another VAE


#: Nothing of a pixel is cut off, and codes are turned when training is over.
SHARP: dict[str, Any] = {"log_odds": 1e-12, "whiten": 0.5, "optimizer": "muon", "turned": True}


@pytest.mark.parametrize("changes", [{}, SHARP], ids=["plain", "sharp"])
def test_seeds_can_be_trained_as_one(changes: dict[str, Any], data: Path, tmp_path: Path) -> None:
    """As on CUDA, where they are."""
    one = supplied("C", data, tmp_path / "out", **changes)
    for model in one.trained:
        config = one.train_config(model)
        states = [TrainState.create(one.encoder(model, k), one.objective(model), config, seed=k) for k in (0, 1)]
        together = Together([one.process(model, k) for k in (0, 1)], states, config, mapped=True)
        together.advance()
        together.advance()
        assert all(value.isfinite().all() for state in states for value in state.encoder.parameters())


@pytest.mark.filterwarnings("ignore:To be round")  # after so few steps they are not
def test_whitened_pixels_and_turned_codes_are_scored(data: Path, tmp_path: Path) -> None:
    one = supplied("C", data, tmp_path / "out", **SHARP, batch_size=256, error_pairs=256)
    settings: dict[str, Any] = {"device": torch.device("cpu"), "folder": tmp_path / "run"}
    found = train_model(one, "aninfonce", [0], **settings)[0]
    assert found.failed is None and len(found.per_dimension["precision"]) == 10
    assert found.per_dimension["precision"] != found.info["curve"]["precision"][-1]  # the latter is from before
    assert "moderate_precision_error" in found.scores and "knn_accuracy" in found.scores


def test_errors_of_high_precisions_do_not_count_as_moderate() -> None:
    truth = [5.0 + 195.0 * k / 9 for k in range(10)]  # 91.7 is the last below 100
    learned: list[float | None] = [value * (1.01 if value < 100 else 0.95) for value in reversed(truth)]
    assert plan("D")._moderate_error(Measured(per_dimension={"precision": learned})) == pytest.approx(0.01)
    assert plan("D")._moderate_error(Measured()) is None


# From end to end


def test_rows_share_the_vae_of_their_seed_and_receipts_say_which(data: Path, tmp_path: Path, vaes: list[int]) -> None:
    settings: dict[str, Any] = {"budget": "tiny", "device": "cpu", "out": tmp_path / "out", "quiet": True}
    reproduce(FIGURE3, rows=["1", "C"], seeds=2, data=data, **settings)
    receipts = read(tmp_path / "out" / "aninfonce-figure3.jsonl")
    assert [(one.row, one.seed, one.failed) for one in receipts] == [
        ("1", 0, None),
        ("1", 1, None),
        ("C", 0, None),
        ("C", 1, None),
    ]
    assert vaes == [2, 2]  # one for each seed
    weights = [one.models["infonce"]["vae"]["weights"] for one in receipts]
    assert weights[0] == weights[2] != weights[1] == weights[3]
    for one in receipts:
        for model in ("aninfonce", "infonce"):
            scores, vae = one.scores[model], one.models[model]["vae"]
            assert {"r2", "content_r2", "style_r2", "excess_loss", "knn_accuracy"} <= set(scores)
            assert 0.0 <= scores["knn_accuracy"] <= 1.0 and vae["loss"] > 0 and len(vae["divergence_per_latent"]) == 10
        assert ("moderate_precision_error" in one.scores["aninfonce"]) and "precision" in one.per_dimension["aninfonce"]
        assert "moderate_precision_error" not in one.scores["infonce"]
        assert one.models["aninfonce"]["curve"]["step"] == [0, 2, 4]
    assert receipts[0].config["mixing"]["mnist"] == supplies.mnist_identity()
    reproduce(FIGURE3, rows=["1", "D"], seeds=1, data=data, **settings)  # a later call finds them, too
    assert vaes == [2, 2]
    again = read(tmp_path / "out" / "aninfonce-figure3.jsonl")
    assert again[-1].models["infonce"]["vae"]["weights"] == weights[0] and len(again) == 5


def test_a_vae_whose_training_was_stopped_is_trained_again(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = supplies.train_vae

    def stopped(*args: Any, **settings: Any) -> Any:
        real(*args, **settings)
        raise KeyboardInterrupt

    settings: dict[str, Any] = {"seeds": 1, "budget": "tiny", "device": "cpu", "quiet": True, "data": data}
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(supplies, "train_vae", stopped)
        reproduce(FIGURE3, rows=["C"], out=tmp_path / "a", **settings)
    reproduce(FIGURE3, rows=["C"], out=tmp_path / "a", **settings)
    reproduce(FIGURE3, rows=["C"], out=tmp_path / "b", **settings)
    first, second = (read(tmp_path / name / "aninfonce-figure3.jsonl")[0] for name in "ab")
    assert first.scores == second.scores  # same seed, same numbers
    (kept,) = (tmp_path / "a").glob(".runs/vae-*/vae.safetensors")
    kept.write_bytes(kept.read_bytes()[:-100])
    with pytest.warns(UserWarning, match=r"vae\.safetensors is not a complete safetensors file .* It is trained again"):
        reproduce(FIGURE3, rows=["D"], out=tmp_path / "a", **settings)
    third = read(tmp_path / "a" / "aninfonce-figure3.jsonl")[-1]
    assert third.models["infonce"]["vae"] == first.models["infonce"]["vae"]


# Where the data are


def test_without_data_there_is_one_sentence_before_anything_is_trained(
    tmp_path: Path, vaes: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--budget", "tiny", "--out", str(tmp_path / "out"), "--device", "cpu"]
    assert run(["reproduce", "aninfonce/figure3", *options]) == 2
    said = capsys.readouterr().err
    assert "needs MNIST" in said and "--data DIR" in said and "IDENTICA_DATA" in said
    assert run(["reproduce", "aninfonce/figure3", *options, "--data", str(tmp_path)]) == 2
    assert "holds neither train-images-idx3-ubyte.gz" in capsys.readouterr().err
    assert vaes == [] and not (tmp_path / "out").exists()


def test_a_damaged_file_is_found_before_anything_is_trained(data: Path, tmp_path: Path, vaes: list[int]) -> None:
    path = data / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(DataFileError, match=r"t10k-labels-idx1-ubyte\.gz ends early"):
        reproduce(FIGURE3, budget="tiny", device="cpu", out=tmp_path / "out", data=data, quiet=True)
    assert vaes == [] and not (tmp_path / "out").exists()


def test_results_that_are_there_need_no_data(data: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"rows": ["C"], "seeds": 1, "budget": "tiny", "device": "cpu", "out": tmp_path / "out"}
    reproduce(FIGURE3, data=data, quiet=True, **settings)
    (result,) = reproduce(FIGURE3, quiet=True, **settings)
    assert len(result.receipts) == 1


def test_the_environment_names_the_folder_and_mnist_may_be_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert data_folder(None) is None
    monkeypatch.setenv("IDENTICA_DATA", str(tmp_path / "sets"))
    assert data_folder(None) == tmp_path / "sets" and data_folder(tmp_path) == tmp_path
    write_digits(tmp_path / "sets" / "mnist", monkeypatch)
    digits = Supplies(data_folder(None), tmp_path, torch.device("cpu")).digits
    assert (len(digits.train), len(digits.test)) == (TRAIN, TEST)
    assert digits.train.images.dtype == torch.uint8 and digits.train.labels[:11].tolist() == [*range(10), 0]


@pytest.mark.skipif(REAL is None, reason="IDENTICA_DATA does not name a folder with MNIST's official files")
def test_on_real_digits_a_short_vae_uses_its_latents_and_its_images_can_be_inverted(tmp_path: Path) -> None:
    vae = VaeSettings(epochs=3, images=10_000)
    given = Supplies(Path(REAL or ""), tmp_path, torch.device("cpu"))
    one = plan("C", "smoke", vae=vae, steps=150, batch_size=256, width=64, readout_images=4000).supplied(given)
    settings: dict[str, Any] = {"device": torch.device("cpu"), "folder": tmp_path / "run"}
    result = train_model(one, "aninfonce", [0], **settings)[0]
    assert result.info["vae"]["loss"] < 160  # nats; an image costs about 550 before training
    assert sum(value > 0.1 for value in result.info["vae"]["divergence_per_latent"]) >= 8
    assert result.scores["r2"] > 0.5 and result.scores["knn_accuracy"] > 0.65
