"""From a row and a budget to what is trained."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch
from scipy import integrate

from identica.distributions import GeneralizedNormal, ProjectedNormal, TruncatedLaplace, VonMisesFisher
from identica.encoders import MLPEncoder, ResidualEncoder
from identica.experiments import Experiment, catalogue, find
from identica.experiments.aninfonce import budgets as of_losses
from identica.experiments.aninfonce.rows import LossRow
from identica.experiments.budgets import BUDGETS, Recipes, find_budget
from identica.experiments.catalogue import Row
from identica.experiments.clica.budgets import RECIPES, SyntheticRecipe
from identica.experiments.clica.plan import Plan
from identica.experiments.clica.tables import FIGURE2, TABLE1, TABLE2
from identica.experiments.clica.workshop import SYNTHETIC_AU
from identica.experiments.laws import UNIFORM, Law, generalized_normal, laplace, normal, vmf
from identica.experiments.mnist import budgets as of_digits
from identica.experiments.mnist.rows import MnistExperiment
from identica.experiments.parts import make_conditional, make_marginal, make_similarity, matched_temperature
from identica.experiments.three_d_ident import budgets as of_images
from identica.experiments.three_d_ident.tables import ImageExperiment
from identica.objectives import AlignUniform, InfoNCE
from identica.similarities import DotProduct, LpSimilarity
from identica.spaces import Box
from tests.experiments.tiny import RECIPE, everywhere


def plan(experiment: Experiment, number: str, budget: str = "fast", device: str = "cpu", **changes: object) -> Plan:
    recipe = RECIPES.of(experiment.row(number), budget, device)  # type: ignore[arg-type]
    return Plan(experiment, experiment.row(number), budget, replace(recipe, candidates=20, **changes))  # type: ignore[arg-type]


# The parts


@pytest.mark.parametrize("law", [normal(0.05), laplace(0.05), generalized_normal(3, 0.05), normal(1.0)])
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_the_temperature_gives_true_pairs_the_value_of_matched_ones(law: Law, p: float) -> None:
    width, power = law.width_and_power

    def moment(order: float) -> float:
        return integrate.quad(lambda d: d**order * math.exp(-((d / width) ** power)), 0, 50 * width, limit=200)[0]

    assert moment(p) / moment(0.0) / matched_temperature(law, p) == pytest.approx(1.0 / p, rel=1e-6)


@pytest.mark.parametrize("experiment", [TABLE1, TABLE2], ids=lambda e: e.id)
def test_where_the_model_matches_the_pairs_so_does_the_similarity(experiment: Experiment) -> None:
    matched = 0
    for row in experiment.rows:
        if (row.conditional.family, row.conditional.power) != (row.model.family, row.model.power):
            continue
        if row.space == "sphere" and row.conditional != row.model:
            continue
        expected = make_conditional(row.conditional, row.space).similarity().to_dict()
        assert make_similarity(row, matched=True).to_dict() == pytest.approx(expected)
        matched += 1
    assert matched >= 5


def test_the_papers_temperature_is_one() -> None:
    for row in TABLE1.rows:
        assert make_similarity(row, matched=False).temperature == 1.0  # type: ignore[attr-defined]
    similarity = make_similarity(TABLE1.row("7"), matched=False)
    assert isinstance(similarity, LpSimilarity) and similarity.p == 3.0
    assert isinstance(make_similarity(TABLE1.row("2"), matched=True), DotProduct)


def test_laws_become_the_distributions_that_are_meant() -> None:
    assert make_conditional(vmf(10), "sphere").to_dict()["parameters"] == {"concentration": 10.0}
    assert make_conditional(laplace(0.05), "box").family is TruncatedLaplace
    wide = make_marginal(normal(1.0), "unbounded", 3)
    assert isinstance(wide, GeneralizedNormal) and torch.allclose(wide.variance, torch.ones(3))
    around = make_marginal(normal(1.0), "sphere", 3)
    assert isinstance(around, ProjectedNormal) and around.loc.tolist() == [1.0, 0.0, 0.0]
    assert make_marginal(normal(0.1), "box", 2).loc.tolist() == [0.5, 0.5]  # type: ignore[attr-defined]
    assert isinstance(make_marginal(vmf(4), "sphere", 3), VonMisesFisher)


@pytest.mark.parametrize(("law", "space"), [(vmf(1), "box"), (vmf(1), "unbounded")])
def test_what_does_not_fit_is_a_sentence(law: Law, space: str) -> None:
    with pytest.raises(ValueError, match="vMF κ=1"):
        make_conditional(law, space)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no uniform law on the unbounded"):
        make_marginal(UNIFORM, "unbounded", 3)


# Budgets


@pytest.mark.parametrize("budget", ["smoke", "fast", "paper"])
def test_every_row_of_every_experiment_can_be_planned(budget: str) -> None:
    seen = set()
    for experiment in catalogue():
        if isinstance(experiment, ImageExperiment):  # has to be rendered: see test_three_d_ident.py
            continue
        if isinstance(experiment, MnistExperiment):  # needs data: see test_mnist_plan.py
            continue
        for row in experiment.rows:
            if isinstance(row, LossRow):  # many points differ by a number only, and the paper's encoders are large
                kind = experiment.id, row.dim, row.models
                if kind in seen or (budget == "paper" and row.dim > 20):
                    continue
                seen.add(kind)
            one = experiment.plan(row, budget, "cpu")
            one = replace(one, recipe=replace(one.recipe, candidates=20))
            for model in one.trained:
                pairs = one.process(model, 0).sample(4, 0)
                assert one.objective(model).compute(one.encoder(model, 0), pairs).loss.isfinite()
            assert json.loads(json.dumps(one.config)) == one.config


def test_the_hashes_in_the_ledgers_stay_what_they_are() -> None:
    """Were they to change, every result there is would count as one of other settings and be trained again."""
    first = TABLE1.plan(TABLE1.row("1"), "fast", "cuda")
    assert first.config_hash == "c729f4e3848b3200"
    assert first.model_hashes == {
        "identity": "b62d445f2ca4a0bd",
        "supervised": "970d6bcb113e995d",
        "contrastive": "9d63059a1ad47b8c",
    }
    assert TABLE2.plan(TABLE2.row("8"), "paper", "cpu").config_hash == "c1c1060d39613afb"


def test_rows_of_another_kind_are_not_planned() -> None:
    with pytest.raises(TypeError, match="clica/table1 does not say how LossRow 3 is trained"):
        TABLE1.plan(find("aninfonce/figure2").row("3"), "fast", "cpu")
    with pytest.raises(TypeError, match="rows with losses, not a Row"):
        find("aninfonce/figure2").plan(TABLE1.row("1"), "fast", "cpu")


def test_the_papers_protocol_to_the_letter() -> None:
    for number, model in (("1", "contrastive"), ("5", "supervised")):
        one = plan(TABLE1, number, "paper")
        config, encoder = one.train_config(model), one.encoder(model, 0)  # type: ignore[arg-type]
        assert (config.batch_size, config.lr, config.schedule, config.optimizer) == (6144, 1e-4, "constant", "adam")
        assert config.steps == (300_000 if model == "contrastive" else 100_000) and config.precision == "fp32"
        assert isinstance(encoder, MLPEncoder) and encoder.whiten is None
        assert encoder.hidden == (100, 500, 500, 500, 500, 100) and encoder.negative_slope == 0.01
    objective = plan(TABLE1, "5", "paper").objective("contrastive")
    assert isinstance(objective, InfoNCE) and objective.self_negatives and objective.negatives == "anchors"
    assert RECIPES.by_budget["paper"]["cuda"].candidates == 25_000


def test_the_fast_recipe_uses_the_matched_temperature_and_says_its_cpu_batch() -> None:
    one = plan(TABLE2, "1")
    assert isinstance(one.encoder("contrastive", 0), ResidualEncoder)
    assert one.config["contrastive"]["objective"]["similarity"]["of"]["temperature"] == pytest.approx(0.05)
    assert one.config["contrastive"]["train"]["batch_size"] < 6144
    assert plan(TABLE2, "1", device="cuda").config["contrastive"]["train"]["batch_size"] == 6144


def test_a_recipe_may_anneal_and_fix_the_box() -> None:
    one = plan(TABLE2, "1", anneal_from=100.0, anneal_to=2.0, anneal_until=0.5, learn_bound=False)
    similarity = one.config["contrastive"]["objective"]["similarity"]
    assert (similarity["similarity"], similarity["until"]) == ("annealed", 0.5)
    assert (similarity["start"], similarity["end"]) == (100.0, 2.0)
    assert similarity["of"]["temperature"] == pytest.approx(0.05)
    assert not one.encoder("contrastive", 0).learn_bound and one.encoder("supervised", 0).learn_bound


def test_a_budget_may_adapt_its_recipe_to_the_row() -> None:
    def adapted(recipe: SyntheticRecipe, row: Row) -> SyntheticRecipe:
        return replace(recipe, steps=99) if row.model_space == "box" else recipe

    recipes = Recipes({"ours": everywhere(RECIPE), "theirs": everywhere(RECIPE)}, adapted={"ours": adapted})
    assert recipes.of(TABLE2.row("1"), "ours", "cuda").steps == 99
    assert recipes.of(TABLE2.row("6"), "ours", "cuda") == RECIPE == recipes.of(TABLE2.row("1"), "theirs", "cuda")
    changed = replace(TABLE2.row("1"), recipes={"ours": {"lr": 0.5}})
    assert recipes.of(changed, "ours", "cpu") == replace(RECIPE, steps=99, lr=0.5)
    assert recipes.of(changed, "theirs", "cpu") == RECIPE


def test_a_row_that_changes_what_its_recipe_does_not_have_is_refused() -> None:
    """Of another paper's settings, too: none is taken and ignored."""
    table2, figure2, figure3 = TABLE2, find("aninfonce/figure2"), find("aninfonce/figure3")
    for experiment, number, setting in (
        (table2, "1", "similarity_lr"),
        *((figure2, "3", name) for name in ("self_negatives", "positives_per_anchor", "temperature", "supervised_lr")),
        (figure2, "3", "btach_size"),
        (figure3, "C", "candidates"),
        (find("clica/table4"), "1b", "steps"),
    ):
        row = replace(experiment.row(number), recipes={"fast": {setting: 1}})
        for budget in BUDGETS:  # whichever is asked for
            with pytest.raises(
                ValueError, match=f"Row {number} changes '{setting}' with the budget fast, which a .*Recipe"
            ):
                experiment.plan(row, budget, "cpu")
    with pytest.raises(ValueError, match="Row 3 changes a recipe. No such budget 'fats'. Did you mean 'fast'?"):
        figure2.plan(replace(figure2.row("3"), recipes={"fats": {"steps": 5}}), "smoke", "cpu")


def test_every_kind_of_row_has_a_recipe_for_every_budget() -> None:
    for recipes in (
        RECIPES,
        of_losses.RECIPES,
        of_digits.DECODED_RECIPES,
        of_digits.SHARP_RECIPES,
        of_digits.VIEWS_RECIPES,
        of_images.RECIPES,
    ):
        assert list(recipes.by_budget) == list(BUDGETS)
        assert all(set(devices) == {"cpu", "cuda"} for devices in recipes.by_budget.values())


def test_our_recipe_takes_self_pairs_only_where_nothing_else_reaches_the_score() -> None:
    with_self_pairs = [
        f"{table.id} {row.number}"
        for table in (TABLE1, TABLE2)
        for row in table.rows
        if RECIPES.of(row, "fast", "cuda").self_negatives
    ]
    first, second = ("8", "11b", "12b"), ("2", "7", "10")
    assert with_self_pairs == [*(f"clica/table1 {row}" for row in first), *(f"clica/table2 {row}" for row in second)]
    box = RECIPES.of(TABLE2.row("3"), "fast", "cuda")
    assert (box.learn_bound, box.anneal_from, box.anneal_to) == (False, 10.0, 2.0)
    assert RECIPES.of(TABLE1.row("1"), "fast", "cuda").anneal_from == 1.0


def test_a_mistyped_budget_gets_the_nearest() -> None:
    with pytest.raises(ValueError, match="No such budget 'smok'. Did you mean 'smoke'?"):
        find_budget("smok")


def test_the_workshop_loss_lives_in_a_fixed_box_of_the_right_size() -> None:
    for number, side in (("1", 20.0), ("2", 200.0**0.5), ("3", 10.0)):
        one = plan(SYNTHETIC_AU, number)
        encoder, objective = one.encoder("contrastive", 0), one.objective("contrastive")
        assert isinstance(encoder.space, Box) and encoder.space.low == 0.0 and not encoder.learn_bound
        assert encoder.space.high == pytest.approx(side)
        assert isinstance(objective, AlignUniform) and objective.alpha == 0.5
    assert isinstance(plan(TABLE2, "1").encoder("contrastive", 0), ResidualEncoder)
    unbounded = replace(SYNTHETIC_AU.row("1"), model_space="unbounded")
    with pytest.raises(ValueError, match="no floor"):
        Plan(SYNTHETIC_AU, unbounded, "fast", RECIPE).encoder("contrastive", 0)


# Seeds and hashes


def test_every_seed_has_its_own_mixing_weights_and_data() -> None:
    one = plan(TABLE1, "1")
    first, second = one.process("contrastive", 0), one.process("contrastive", 1)
    assert first.mixing is not None and second.mixing is not None
    assert not torch.equal(first.mixing.weights, second.mixing.weights)  # type: ignore[arg-type]
    weights = [one.encoder("contrastive", seed).state_dict()["skip.weight"] for seed in (0, 1, 0)]
    assert torch.equal(weights[0], weights[2]) and not torch.equal(weights[0], weights[1])
    seeds = {one.seed(model, seed) for model in ("contrastive", "supervised") for seed in range(3)}  # type: ignore[arg-type]
    assert len(seeds) == 6


def test_rows_share_what_does_not_depend_on_their_pairs() -> None:
    hashes = {row.number: plan(TABLE1, row.number).model_hashes for row in TABLE1.rows}
    groups = [("1", "2", "3", "4"), ("5", "6", "7", "8"), ("9", "10"), ("11", "11b"), ("12", "12b")]
    for model in ("supervised", "identity"):
        assert [len({hashes[number][model] for number in group}) for group in groups] == [1] * 5  # type: ignore[index]
        assert len({one[model] for one in hashes.values()}) == 5  # type: ignore[index]
    assert len({one["contrastive"] for one in hashes.values()}) == len(TABLE1.rows)
    # The model's space matters to supervised, not to identity; equal rows of two tables are equal.
    box, unbounded = plan(TABLE2, "1").model_hashes, plan(TABLE2, "8").model_hashes
    assert box["identity"] == unbounded["identity"] and box["supervised"] != unbounded["supervised"]
    assert unbounded == plan(TABLE1, "5").model_hashes


@pytest.mark.parametrize(
    "change",
    [{"steps": 7}, {"lr": 0.5}, {"width": 9}, {"batch_size": 33}, {"temperature": "one"}, {"precision": "bf16"}],
)
def test_the_hash_follows_every_setting_that_matters(change: dict[str, object]) -> None:
    assert plan(TABLE2, "1", **change).config_hash != plan(TABLE2, "1").config_hash


def test_the_hash_does_not_follow_how_often_one_looks() -> None:
    assert plan(TABLE2, "1", evaluations=3).config_hash == plan(TABLE2, "1").config_hash
    assert (
        plan(TABLE2, "1", supervised_lr=0.5).model_hashes["contrastive"]
        == plan(TABLE2, "1").model_hashes["contrastive"]
    )


def test_points_of_a_figure_differ_by_their_marginal() -> None:
    assert len({plan(FIGURE2, row.number).config_hash for row in FIGURE2.rows}) == len(FIGURE2.rows)
