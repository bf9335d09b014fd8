"""The points of paper B: their data, their plans, and what is measured of a trained model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch

from identica.distributions import Conditional, FisherBingham, SphereUniform
from identica.encoders import MLPEncoder, ResidualEncoder
from identica.experiments import find, read
from identica.experiments.aninfonce.budgets import RECIPES, SyntheticLossRecipe
from identica.experiments.aninfonce.figures import FIGURE2, FIGURE11, FIGURE12
from identica.experiments.aninfonce.measures import learned, measures
from identica.experiments.aninfonce.plan import LossPlan
from identica.experiments.aninfonce.shared_loss import SharedInfoNCE
from identica.experiments.budgets import BUDGETS
from identica.experiments.running.reproduce import reproduce
from identica.experiments.running.runner import learning_curve, train_model
from identica.experiments.running.scored import ModelResult
from identica.objectives import EnsembleInfoNCE, InfoNCE, Objective, TriCL
from identica.processes import EnsembleProcess, PairProcess
from identica.similarities import Anisotropic, DotProduct
from identica.spaces import Sphere
from identica.training import Callback, Record, TrainConfig, TrainingRun, TrainState, evaluate
from identica.training.evaluation import first_pairs
from identica.training.together import Together
from tests.experiments.tiny import TINY, everywhere

TWO = (5.0,) * 5 + (25.0,) * 5
TINY_RECIPE = SyntheticLossRecipe(
    encoder="residual",
    width=8,
    blocks=1,
    steps=6,
    batch_size=32,
    lr=1e-3,
    candidates=20,
    evaluations=2,
    evaluation_samples=256,
    floor_batches=2,
    error_batches=3,
    error_pairs=24,
)


@pytest.fixture(autouse=True)
def budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUDGETS, "tiny", TINY)
    monkeypatch.setitem(RECIPES.by_budget, "tiny", everywhere(TINY_RECIPE))
    monkeypatch.setenv("IDENTICA_COMMIT", "0123abc")


def plan(experiment: Any, number: str, budget: str = "fast", device: Any = "cpu", **changes: Any) -> LossPlan:
    one = experiment.plan(experiment.row(number), budget, device)
    assert isinstance(one, LossPlan)
    return replace(one, recipe=replace(one.recipe, candidates=20, **changes))


# The figure as data


def test_figure_2_has_the_precisions_of_the_paper_and_a_sweep() -> None:
    blocks = [row for row in FIGURE2.rows if "precision" in row.x]
    assert [row.x["precision"] for row in blocks] == [5, 10, 25, 50, 100, 200]
    for row in blocks:
        assert row.precisions == ((5.0,) * 5 + (row.x["precision"],) * 5,)
        assert row.models == ("aninfonce", "infonce") and row.losses["infonce"].temperature == 1.0
    (linear,) = FIGURE2.row("linear").precisions
    assert len(linear) == 10 and (linear[0], linear[-1]) == (5.0, 25.0)
    assert torch.tensor(linear).diff().allclose(torch.tensor(20 / 9))
    sweep = [row for row in FIGURE2.rows if row.number.startswith("tau")]
    assert [(row.losses["infonce"].temperature, row.losses["infonce"].learned) for row in sweep] == [
        (1.0, False),
        (0.2, False),
        (0.05, False),
        (1.0, True),
    ]
    assert {row.precisions for row in sweep} == {FIGURE2.row("3").precisions}
    published = {row.number: row.published["aninfonce"].mean for row in FIGURE2.rows if row.published}
    assert published == {"3": 99.7, "linear": 99.76}


# Plans


def test_the_fast_recipe() -> None:
    one = plan(FIGURE2, "3", device="cuda")
    config, objective, encoder = one.train_config("aninfonce"), one.objective("aninfonce"), one.encoder("aninfonce", 0)
    assert (config.steps, config.batch_size, config.lr, config.similarity_lr) == (20_000, 4096, 1e-3, 1e-2)
    assert (config.schedule, config.precision) == ("cosine", "tf32")
    assert isinstance(encoder, ResidualEncoder) and encoder.space.dim == 10
    assert isinstance(objective, InfoNCE) and isinstance(objective.similarity, Anisotropic)
    assert objective.negatives == "anchors" and not objective.symmetric and objective.similarity.trainable
    assert plan(FIGURE2, "3").train_config("aninfonce").batch_size == 1024


def test_the_papers_protocol_but_for_exact_pairs() -> None:
    one = plan(FIGURE2, "3", "paper")
    config, objective = one.train_config("aninfonce"), one.objective("aninfonce")
    assert (config.steps, config.batch_size, config.lr, config.similarity_lr) == (300_000, 1000, 1e-4, 1e-3)
    assert config.schedule == "constant" and isinstance(one.encoder("aninfonce", 0), MLPEncoder)
    assert isinstance(objective, InfoNCE) and objective.symmetric and objective.negatives == "both"
    assert isinstance(objective.similarity, Anisotropic) and objective.similarity.link == "softplus"
    assert objective.similarity.precision.detach().allclose(torch.tensor(0.7))
    process = one.process("aninfonce", 0)
    assert isinstance(process, PairProcess) and isinstance(process.conditional, Conditional)
    assert process.conditional.family is FisherBingham and process.conditional.parameters["precision"] == TWO


def test_the_baseline_has_its_temperature() -> None:
    for number, value, trainable in (("3", 1.0, False), ("tau-0.05", 0.05, False), ("tau-learned", 1.0, True)):
        objective = plan(FIGURE2, number).objective("infonce")
        assert isinstance(objective, InfoNCE) and isinstance(objective.similarity, DotProduct)
        temperature = torch.as_tensor(objective.similarity.temperature).item()
        assert temperature == pytest.approx(value) and objective.similarity.trainable is trainable


def test_hashes_tell_points_and_losses_apart_and_equal_ones_are_shared() -> None:
    hashes = {row.number: plan(FIGURE2, row.number).model_hashes for row in FIGURE2.rows}
    assert hashes["tau-1"]["infonce"] == hashes["3"]["infonce"]
    every = [value for number, models in hashes.items() if number != "tau-1" for value in models.values()]
    assert len(set(every)) == len(every) == 17
    assert plan(FIGURE2, "3", similarity_lr=0.5).config_hash != plan(FIGURE2, "3").config_hash
    assert plan(FIGURE2, "3", evaluations=3, error_batches=5).config_hash == plan(FIGURE2, "3").config_hash


def test_turning_concerns_a_loss_with_one_learned_precision_alone() -> None:
    plain, turned = (plan(FIGURE2, "3", turned=yes) for yes in (False, True))
    assert turned.model_hashes["infonce"] == plain.model_hashes["infonce"]
    assert turned.model_hashes["aninfonce"] != plain.model_hashes["aninfonce"]
    assert turned.config["aninfonce"]["turned"] == {"n": 512, "batches": 40, "rounded": True}
    assert "turned" not in turned.config["infonce"]
    plain, turned = (plan(FIGURE11, "1", turned=yes) for yes in (False, True))
    assert turned.model_hashes == plain.model_hashes


def test_where_lambda_waits_other_losses_do_not() -> None:
    made = plan(FIGURE12, "uniform")
    assert [made.train_config(model).similarity_after for model in ("aninfonce", "tricl")] == [0.6, 0.0]
    objective = made.objective("aninfonce")
    assert isinstance(objective, InfoNCE) and isinstance(objective.similarity, Anisotropic)
    assert objective.similarity.precision.tolist() == pytest.approx([25.0] * 20)
    described = made.config["aninfonce"]["objective"]["similarity"]
    assert described["precision"] == [25.0] * 20  # to the last digit, on every machine: it is part of the hash


def test_an_ensemble_has_a_precision_for_each_kind_of_pairs_and_single_losses_share_theirs() -> None:
    one = plan(FIGURE11, "1")
    process = one.process("ensemble", 0)
    assert isinstance(process, EnsembleProcess)
    first, second = FIGURE11.row("1").precisions
    assert first[:3] == second[:3] == (400.0,) * 3 and sorted(first[3:]) == [15.0] * 8 + [250.0] * 9
    assert all({a, b} == {15.0, 250.0} for a, b in zip(first[3:], second[3:], strict=True))
    ensemble, single = one.objective("ensemble"), one.objective("aninfonce")
    assert isinstance(ensemble, EnsembleInfoNCE) and len(set(ensemble.similarities)) == 2
    assert isinstance(single, SharedInfoNCE) and isinstance(one.objective("infonce"), SharedInfoNCE)
    encoder, pairs = one.encoder("ensemble", 0), process.sample(16, 0)
    assert single.compute(encoder, pairs).loss.item() == pytest.approx(ensemble.compute(encoder, pairs).loss.item())
    assert one.model_hashes["ensemble"] != one.model_hashes["aninfonce"]


@pytest.mark.parametrize(("experiment", "number"), [(FIGURE2, "tau-learned"), (FIGURE11, "1"), (FIGURE12, "halves")])
def test_seeds_of_every_loss_can_be_trained_as_one(experiment: Any, number: str) -> None:
    """As on CUDA, where they are."""
    one = plan(experiment, number, "tiny")
    for model in one.trained:
        processes = [one.process(model, seed) for seed in (0, 1)]
        states = [
            TrainState.create(one.encoder(model, seed), one.objective(model), one.train_config(model), seed=seed)
            for seed in (0, 1)
        ]
        for state, process in zip(states, processes, strict=True):
            state.encoder.prepare(first_pairs(process.sample(256, 0)).x)  # type: ignore[operator]
        together = Together(processes, states, one.train_config(model), mapped=True)
        together.advance()
        together.advance()
        assert all(value.isfinite().all() for state in states for value in state.objective.parameters())


def test_tricl_ends_where_the_latents_have_unit_variance() -> None:
    one = plan(FIGURE12, "halves")
    assert isinstance(one.objective("tricl"), TriCL)
    z = one.process("tricl", 0).sample(4000, 0).z
    space = one.encoder("tricl", 0).space
    assert isinstance(space, Sphere) and (space.radius * z).var(dim=0).mean() == pytest.approx(1.0, abs=0.01)
    assert one.encoder("aninfonce", 0).space == Sphere(20)


def test_a_mistyped_budget_gets_the_nearest() -> None:
    with pytest.raises(ValueError, match="No such budget 'fats'. Did you mean 'fast'?"):
        FIGURE2.plan(FIGURE2.row("3"), "fats", "cpu")


# What is measured


def run_at_truth(objective: Objective, batch_size: int = TINY_RECIPE.batch_size) -> TrainingRun:
    return TrainingRun(torch.nn.Identity(), objective, TrainConfig(steps=1, batch_size=batch_size), (), 0.0, 1, 0)


def test_at_the_truth_everything_is_perfect() -> None:
    process = PairProcess(SphereUniform(10), Conditional(FisherBingham, precision=TWO))
    run = run_at_truth(InfoNCE(Anisotropic(10, torch.tensor(TWO))))
    found = measures(process, run, evaluate(process, run, 512), (TWO,), TINY_RECIPE, seed=3)
    assert found.scores["content_r2"] == pytest.approx(1.0) == found.scores["style_r2"] == found.scores["within_r2"]
    assert found.scores["excess_loss"] == pytest.approx(0.0, abs=1e-4)
    assert found.scores["precision_error"] == pytest.approx(0.0, abs=1e-6)
    assert found.per_dimension["precision"] == pytest.approx(TWO)
    errors = found.per_dimension["precision_standard_error"]
    assert len(errors) == 10 and all(error is not None and error > 0 for error in errors)
    assert found.info["minimal_loss"] > 0 and "Factors 5 to 9; factors 0 to 4" in found.info["promise"]


def test_the_minimum_is_that_of_the_loss_that_was_trained_or_not_there() -> None:
    process = PairProcess(SphereUniform(10), Conditional(FisherBingham, precision=TWO))
    run = run_at_truth(InfoNCE(Anisotropic(10, torch.tensor(TWO))))
    for changes in ({"floor_pairs": 16}, {"negatives": "both"}, {"symmetric": True}):
        recipe = replace(TINY_RECIPE, **changes)  # type: ignore[arg-type]
        found = measures(process, run, evaluate(process, run, 512), (TWO,), recipe, seed=3)
        assert "minimal_loss" not in found.info and found.scores["excess_loss"] == pytest.approx(0.0, abs=1e-4)
    other = run_at_truth(run.objective, batch_size=2 * TINY_RECIPE.batch_size)
    found = measures(process, other, evaluate(process, other, 512), (TWO,), TINY_RECIPE, seed=3)
    assert "minimal_loss" not in found.info and found.scores["excess_loss"] == pytest.approx(0.0, abs=1e-4)


def test_a_wrong_precision_and_a_wrong_loss_are_seen() -> None:
    process = PairProcess(SphereUniform(10), Conditional(FisherBingham, precision=TWO))
    wrong = torch.tensor(TWO).flip(0) * torch.tensor([1.1] + [1.0] * 9)  # the order does not count, the size does
    found = measures(
        *(process, run_at_truth(InfoNCE(Anisotropic(10, wrong))), evaluate(process, lambda x: x, 512)),
        *((TWO,), TINY_RECIPE, 3),
    )
    assert found.scores["precision_error"] == pytest.approx(0.1, abs=1e-5)
    assert found.scores["excess_loss"] > 0.1
    dot = measures(
        *(process, run_at_truth(InfoNCE(DotProduct())), evaluate(process, lambda x: x, 512)), *((TWO,), TINY_RECIPE, 3)
    )
    assert "precision_error" not in dot.scores and dot.scores["excess_loss"] > 0.1 and not dot.per_dimension


def test_what_a_loss_has_learned() -> None:
    assert learned(InfoNCE(DotProduct(0.5))) == {}
    assert learned(InfoNCE(DotProduct(0.5, trainable=True)))["temperature"] == pytest.approx([0.5])
    assert learned(TriCL(2, 0.25)) == {"importance": [0.25, 0.25]}
    assert list(learned(SharedInfoNCE(InfoNCE(Anisotropic(2))))) == ["precision"]
    assert list(learned(EnsembleInfoNCE([Anisotropic(2), Anisotropic(2)]))) == ["precision", "precision 2"]


def test_a_learning_curve_holds_vectors_too() -> None:
    history = [
        Record(0, 0.0, {"r2": 0.1, "style_r2": 0.2}, {"precision/0": 1.0, "precision/1": 2.0}),
        Record(5, 1.0, {"r2": 0.3, "style_r2": 0.4}, {"loss": 2.5, "precision/0": 3.0, "precision/1": 4.0}),
    ]
    curve = learning_curve(history)
    assert curve["style_r2"] == [0.2, 0.4] and curve["loss"] == [None, 2.5]
    assert curve["precision"] == [[1.0, 2.0], [3.0, 4.0]]


# From end to end


def test_receipts_hold_blocks_precisions_and_curves(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"budget": "tiny", "device": "cpu", "out": tmp_path, "quiet": True}
    results = reproduce(FIGURE2, rows=["3", "tau-1", "tau-learned"], **settings)
    first, second, shared, _, learned_one, _ = read(tmp_path / "aninfonce-figure2.jsonl")
    assert (first.row, second.row, shared.row, learned_one.row) == ("3", "3", "tau-1", "tau-learned")
    scores = first.scores["aninfonce"]
    assert {"r2", "mcc", "content_r2", "style_r2", "within_r2", "overlap", "excess_loss"} < set(scores)
    assert scores["r2"] == pytest.approx((scores["content_r2"] + scores["style_r2"]) / 2)
    assert "precision_error" in scores and 0.0 <= scores["overlap"] <= 1.0
    assert len(first.models["aninfonce"]["similarities"]["negatives"]) == 50
    assert len(first.per_dimension["aninfonce"]["precision_standard_error"]) == 10
    curve = first.models["aninfonce"]["curve"]
    assert curve["step"] == [0, 3, 6] and len(curve["precision"]) == 3 and curve["precision"][0] == [1.0] * 10
    assert curve["precision"][-1] == first.per_dimension["aninfonce"]["precision"]
    assert len(curve["content_r2"]) == 3 and curve["precision"][-1] != curve["precision"][0]
    assert shared.models["infonce"]["shared_with"] == "aninfonce/figure2, row 3" and shared.seconds == 0.0
    assert shared.scores["infonce"] == first.scores["infonce"]
    assert len(learned_one.models["infonce"]["curve"]["temperature"]) == 3
    assert [cell.model for cell in results[1].cells] == ["infonce"]
    before = (tmp_path / "aninfonce-figure2.jsonl").read_bytes()
    reproduce(FIGURE2, rows=["3", "tau-1"], **settings)
    assert (tmp_path / "aninfonce-figure2.jsonl").read_bytes() == before


class _Stop(Callback):
    """The power fails after step 5."""

    def on_step(self, state: TrainState) -> None:
        if state.step == 5:
            raise OSError("no power")


def test_a_resumed_run_has_the_whole_curve(tmp_path: Path) -> None:
    one = plan(FIGURE2, "3", "tiny")
    settings: dict[str, Any] = {"device": torch.device("cpu"), "folder": tmp_path / "run"}
    with pytest.raises(OSError, match="no power"):
        train_model(one, "aninfonce", [0], callbacks=[_Stop()], **settings)
    resumed = train_model(one, "aninfonce", [0], **settings)[0]
    settings["folder"] = tmp_path / "other"
    straight = train_model(one, "aninfonce", [0], **settings)[0]
    assert resumed.info["curve"] == straight.info["curve"] and len(resumed.info["curve"]["precision"]) == 3
    assert resumed.scores == straight.scores


@pytest.mark.filterwarnings("ignore:To be round")  # after so few steps they are not
def test_what_is_scored_is_the_turned_run(tmp_path: Path) -> None:
    plain, turned = (
        train_model(
            plan(FIGURE2, "linear", "tiny", turned=yes, steps=200, lr=5e-3, batch_size=256, error_pairs=256),
            "aninfonce",
            [0],
            device=torch.device("cpu"),
            folder=tmp_path / str(yes),
        )[0]
        for yes in (False, True)
    )
    assert turned.info["curve"] == plain.info["curve"]  # of the training
    # As linear maps do not change R², but bringing codes back onto the sphere does: with R² near 1 hardly.
    assert turned.scores["r2"] == pytest.approx(plain.scores["r2"], abs=0.01)
    assert turned.scores["mcc"] != pytest.approx(plain.scores["mcc"], abs=1e-3)
    assert turned.per_dimension["precision"] != plain.per_dimension["precision"]
    assert turned.scores["excess_loss"] < plain.scores["excess_loss"]


def trained_to(encoder: Any, one: LossPlan, model: Any, monkeypatch: pytest.MonkeyPatch) -> ModelResult:
    """What is recorded of a run that ended with this encoder."""

    def train(*given: Any, seeds: Any, **settings: Any) -> Any:
        config = one.train_config(model)
        return [TrainingRun(encoder, one.objective(model), config, (), 1.0, config.steps, seed) for seed in seeds]

    monkeypatch.setattr("identica.experiments.running.runner.train_seeds", train)
    with TemporaryDirectory() as folder:
        return train_model(one, model, [0], device=torch.device("cpu"), folder=Path(folder))[0]


class Ending(torch.nn.Module):
    """Codes on the sphere whose first entry is multiplied by ``first`` before they get there."""

    def __init__(self, first: float) -> None:
        super().__init__()
        self.first = first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.normalize(x * torch.tensor([self.first] + [1.0] * (x.shape[1] - 1)), dim=1)

    def turn(self, rotation: torch.Tensor) -> None:
        pass

    def stretch(self, matrix: torch.Tensor) -> None:
        pass


def test_codes_that_cannot_be_made_round_are_named_in_place_of_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    one = plan(FIGURE2, "linear", "tiny", turned=True)
    result = trained_to(Ending(1e-5), one, "aninfonce", monkeypatch)
    assert "These codes cannot be made round" in result.info["failed"] and result.scores == {}
    assert result.info["steps"] == 6 and result.seconds > 0.5  # of the run it says all there is


@pytest.mark.parametrize("model", ["aninfonce", "infonce"])
@pytest.mark.parametrize("number", ["3", "linear"])
def test_infinite_codes_are_named_in_place_of_scores(number: str, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    result = trained_to(Ending(torch.nan), plan(FIGURE2, number, "tiny", turned=True), model, monkeypatch)
    assert "NaN or infinite codes" in result.info["failed"] and result.scores == {}


def test_scores_that_are_not_finite_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    zeros = torch.nn.Linear(10, 10)
    for parameter in zeros.parameters():
        torch.nn.init.zeros_(parameter)
    result = trained_to(zeros, plan(FIGURE2, "3", "tiny"), "infonce", monkeypatch)
    assert result.info["failed"] == "Scores of these codes are not finite: mean_code." and result.scores == {}


@pytest.mark.filterwarnings("ignore:To be round")  # the codes are a mixing's observations
@pytest.mark.parametrize("part", ["turn_to_axes", "measures"])
def test_a_mistake_of_ours_is_not_a_result(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would stand in the ledger as one, and the row would never be computed again."""

    def mistaken(*given: Any, **settings: Any) -> Any:
        raise ValueError("precisions must be equally long.")

    monkeypatch.setattr(f"identica.experiments.aninfonce.plan.{part}", mistaken)
    with pytest.raises(ValueError, match="equally long"):
        trained_to(Ending(1.0), plan(FIGURE2, "linear", "tiny", turned=True), "aninfonce", monkeypatch)


def test_an_ensemble_and_its_rival_run_too(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"budget": "tiny", "device": "cpu", "out": tmp_path, "quiet": True, "seeds": 1}
    reproduce(FIGURE11, **settings)
    (one,) = read(tmp_path / "aninfonce-figure11.jsonl")
    assert set(one.scores) == {"ensemble", "aninfonce", "infonce"} and one.failed is None
    assert set(one.scores["ensemble"]) - set(one.scores["aninfonce"]) == {"precision_error", "precision_correlation"}
    assert {"precision", "precision 2", "precision_standard_error 2"} <= set(one.per_dimension["ensemble"])
    assert "precision 2" not in one.per_dimension["aninfonce"]
    reproduce(FIGURE12, rows=["halves"], **settings)
    (one,) = read(tmp_path / "aninfonce-figure12.jsonl")
    assert len(one.per_dimension["tricl"]["importance"]) == 20 and "excess_loss" not in one.scores["tricl"]


def test_the_catalogue_has_it() -> None:
    assert find("aninfonce/figure2") is FIGURE2
    assert FIGURE2.row("3").label == "S⁹, Λ = 5 ×5, 25 ×5 → AnInfoNCE; InfoNCE, τ = 1"
