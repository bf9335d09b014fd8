"""Tables 4 and 5: what they say, what their plans are made of, and that they are trained in stages, once for both."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from identica.cli.app import run
from identica.data import AugmentedProcess
from identica.encoders import ResNetEncoder
from identica.experiments import Receipt, catalogue, find
from identica.experiments.claims import AtLeast
from identica.experiments.receipts.ledger import read
from identica.experiments.running import stages
from identica.experiments.running.reproduce import reproduce
from identica.experiments.running.stages import joined, train_stages
from identica.experiments.running.starts import digest
from identica.experiments.three_d_ident import plan as plans
from identica.experiments.three_d_ident.budgets import RECIPES, Resolution
from identica.experiments.three_d_ident.plan import ImagePlan
from identica.experiments.three_d_ident.tables import TABLE4, TABLE5, ImageRow
from identica.objectives import InfoNCE, Supervised
from identica.processes import AnchorProcess, EvaluatedOn, PairPool, PairProcess, SnappedProcess
from identica.report.markdown import markdown
from identica.report.results import gather
from identica.report.results_page import results_page
from identica.similarities import Annealed, DotProduct, LpSimilarity
from identica.spaces import Box, Euclidean, Sphere
from identica.training import Callback, Record, TrainConfig, TrainingRun, TrainState
from identica.training.checkpoint import FILE_NAME
from tests.experiments.tiny import everywhere
from tests.processes.painting import Painting

# Typed from the tables a second time: R² on test and on training images.
TEST = {"1": 96.73, "2": 96.43, "3": 96.87, "4": 65.74, "5": 45.51}
TRAIN = {"1": 97.83, "2": 97.72, "3": 97.95, "4": 66.73, "5": 45.94}


def plan(number: str, budget: str = "fast", device: str = "cuda", table: str = "4") -> ImagePlan:
    experiment = {"4": TABLE4, "5": TABLE5}[table]
    made = experiment.plan(experiment.row(number), budget, device)  # type: ignore[arg-type]
    assert isinstance(made, ImagePlan)
    return made


@pytest.fixture(autouse=True)
def _painted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scene that takes no time."""
    plans.rendered_set.cache_clear()
    monkeypatch.setattr(plans, "scene_of", lambda size: Painting(size))


# What the tables say


def test_the_figures_are_those_of_the_tables() -> None:
    for table, figures in ((TABLE4, TEST), (TABLE5, TRAIN)):
        published = {row.number: row.published.get("contrastive") for row in table.rows}
        assert {number: figure.mean for number, figure in published.items() if figure} == figures
        assert published["1b"] is published["1c"] is None  # of three protocols one is the paper's
        assert table in catalogue() and find(table.id) is table
    assert {row.published["supervised"].mean for row in TABLE4.rows} == {98.67}
    assert {row.published["supervised"].mean for row in TABLE5.rows} == {99.98}
    assert str(TABLE4.row("1").published["identity"]) == "5.25 ± 1.20"


def test_exact_pairs_have_a_target_of_our_own() -> None:
    target = [claim for claim in TABLE4.claims if claim.rows == ("1b",)]
    assert [(claim.says, claim.quantity.score, claim.bound) for claim in target if isinstance(claim, AtLeast)] == [
        ("Row 1b reaches our target: R² of 96.7 %", "r2", pytest.approx(0.967)),
        ("Row 1b reaches our target: MCC of 98.3 %", "mcc", pytest.approx(0.983)),
    ]
    assert not any("1b" in claim.rows or "1c" in claim.rows for claim in TABLE5.claims)


def test_row_1_is_there_under_three_labelled_protocols() -> None:
    rows = [TABLE4.row(number) for number in ("1", "1b", "1c")]
    assert [row.label for row in rows] == [
        "3DIdent, Normal 0.1, snapped → Box, Normal",
        "3DIdent, Normal 0.26, exact → Box, Normal",
        "3DIdent, Normal 0.1, exact → Box, Normal",
    ]
    assert all(row.note and isinstance(row, ImageRow) and row.match for row in rows)
    assert [row.spread for row in rows if isinstance(row, ImageRow)] == [0.26, 0.26, 0.1]
    for table in (TABLE4, TABLE5):
        assert all("exact pairs of σ = 0.26" in table.row(number).note for number in ("1b", "2", "3", "4"))
    laplace = TABLE4.row("3")
    assert isinstance(laplace, ImageRow) and laplace.spread == pytest.approx(0.26, rel=1e-3)
    assert TABLE4.row("5").label == "3DIdent, augmented views → Sphere, vMF κ=1"


# What the plans are made of


def test_the_papers_protocol_to_the_letter() -> None:
    paper = plan("1", "paper")
    (stage,) = paper.stages("contrastive")
    assert stage.config == TrainConfig(
        steps=200_000,
        batch_size=512,
        lr=1e-4,
        eval_every=3333,
        eval_samples=4096,
        checkpoint_every=20_000,
        precision="tf32",
    )
    encoder, objective = paper.encoder("contrastive", 0), paper.objective("contrastive")
    assert isinstance(encoder, ResNetEncoder) and encoder.space == Box(10) and encoder.learn_bound
    assert isinstance(objective, InfoNCE) and objective.self_negatives is True
    assert objective.similarity.to_dict() == LpSimilarity(2, 1.0).to_dict()
    assert paper.recipe.test_images == 25_000 and paper.recipe.rendered == 250_000 and paper.recipe.last_size == 224


@pytest.mark.parametrize(
    ("number", "kind", "space"),
    [("1", SnappedProcess, Box), ("1b", PairProcess, Box), ("2", PairProcess, Euclidean), ("4", PairProcess, Sphere)],
)
def test_pairs_come_from_where_the_row_says(number: str, kind: type, space: type) -> None:
    made = plan(number, "smoke")
    process = made.pairs("contrastive", Resolution(8, 1, 1e-3, pool=12, refresh=3))
    assert isinstance(process, EvaluatedOn) and isinstance(process.process, PairPool)
    assert isinstance(process.process.process, kind)
    pairs = process.sample(5, torch.Generator().manual_seed(0))
    assert pairs.x.shape == (5, 3, 8, 8) and pairs.x.dtype == torch.uint8
    assert -1 <= pairs.z.min() < -0.5 and not torch.equal(pairs.z, pairs.z_pos)
    assert isinstance(made.encoder("contrastive", 0).space, space)
    assert not isinstance(made.pairs("contrastive", Resolution(8, 1, 1e-3)).process, PairPool)  # type: ignore[attr-defined]


def test_views_and_regression_look_at_single_images() -> None:
    resolution = Resolution(16, 1, 1e-3, pool=12, refresh=3)
    views = plan("5", "smoke").pairs("contrastive", resolution).process  # type: ignore[attr-defined]
    assert isinstance(views, AugmentedProcess) and isinstance(views.anchors, PairPool)
    pairs = views.sample(4, 0)
    assert torch.equal(pairs.z, pairs.z_pos) and not torch.equal(pairs.x, pairs.x_pos)
    supervised = plan("1", "smoke").pairs("supervised", resolution).process  # type: ignore[attr-defined]
    assert isinstance(supervised.process, AnchorProcess)
    assert len(supervised.sample(4, torch.Generator().manual_seed(0)).x) == 4 and len(supervised._kept) == 2
    assert plan("1").encoder("supervised", 0).space == Euclidean(10)
    assert isinstance(plan("1").objective("supervised"), Supervised)


@pytest.mark.parametrize("number", ["1", "3", "5"])
def test_parts_fit_together_and_settings_are_plain_data(number: str) -> None:
    made = plan(number, "smoke", "cpu")
    for model in made.trained:
        process = made.pairs(model, Resolution(8, 1, 1e-3))
        pairs = process.sample(4, torch.Generator().manual_seed(0))
        assert made.objective(model).compute(made.encoder(model, 0), pairs).loss.isfinite()
    assert json.loads(json.dumps(made.config)) == made.config


def factors(made: plans.ImagePlan) -> list[tuple[float, float]]:
    """By which the temperature is multiplied at the beginning and at the end of each stage."""
    objectives = [stage.objective() for stage in made.stages("contrastive")]
    similarities = [objective.similarity for objective in objectives if isinstance(objective, InfoNCE)]
    return [(s.factor.start, s.factor.end) for s in similarities if isinstance(s, Annealed)]


def test_temperatures_match_the_pairs_and_fall_once_when_the_scaffold_is_gone() -> None:
    fast = plan("1b")
    objective = fast.objective("contrastive")
    assert isinstance(objective, InfoNCE) and isinstance(objective.similarity, Annealed)
    assert objective.similarity.similarity.to_dict() == LpSimilarity(2, 2 * 0.26**2).to_dict()
    scaffold = fast.encoder("contrastive", 0).scaffold
    assert scaffold is not None and (scaffold.count, scaffold.fade.until) == (6, 0.6)
    assert factors(fast) == [(1.0, 1.0), (6.0, 1.0), (1.0, 1.0)]
    plain = dataclasses.replace(fast, recipe=dataclasses.replace(fast.recipe, scaffold=0))
    assert factors(plain) == [(6.0, 1.0), (1.0, 1.0), (1.0, 1.0)]
    alone = dataclasses.replace(fast.recipe, resolutions=fast.recipe.resolutions[:1])
    assert factors(dataclasses.replace(fast, recipe=alone)) == [(6.0, 1.0)]


def test_narrow_pairs_have_a_wider_similarity_and_self_pairs() -> None:
    assert factors(plan("1c")) == [(7.0, 7.0), (42.0, 7.0), (7.0, 7.0)]
    with_self_pairs = [number for number in ("1", "1b", "1c", "2", "3") if plan(number).recipe.self_negatives]
    assert with_self_pairs == ["1c"]


def test_other_spaces_have_temperatures_that_do_not_fall() -> None:
    for number, similarity in (("2", LpSimilarity(2, 1.0)), ("4", DotProduct(1.0)), ("5", DotProduct(1.0))):
        made = plan(number)
        objective = made.objective("contrastive")
        assert isinstance(objective, InfoNCE) and objective.similarity.to_dict() == similarity.to_dict()
        assert bool(made.recipe.scaffold) is (number == "2")  # a sphere cannot have one


def test_small_images_come_first() -> None:
    names = [stage.name for stage in plan("1b").stages("contrastive")]
    assert names == ["1-64-pixels", "2-64-pixels", "3-128-pixels"]
    assert plan("1b").train_config("contrastive").steps == sum(
        r.steps for r in RECIPES.by_budget["fast"]["cuda"].resolutions
    )


def test_both_tables_share_every_model_and_rows_share_the_baselines() -> None:
    numbers = ("1", "1b", "2", "5")
    hashes = [plan(number).model_hashes for number in numbers]
    assert [plan(number, table="5").model_hashes for number in numbers[::2]] == hashes[::2]
    assert len({each["contrastive"] for each in hashes}) == len(numbers)
    assert len({each["supervised"] for each in hashes}) == len({each["identity"] for each in hashes}) == 1


def test_sets_begin_alike_and_are_rendered_once() -> None:
    assert torch.equal(plans.latents_of("train", 20), plans.latents_of("train", 50)[:20])
    assert not torch.equal(plans.latents_of("train", 20), plans.latents_of("test", 20))
    images = plans.RenderedSet("test", 30, 8)
    first, again = images.sample(30, 0), images.to("cpu").sample(30, 1)
    assert plans.rendered_set.cache_info().misses == 1
    assert torch.equal(first.z.sort(dim=0).values, again.z.sort(dim=0).values)
    small = plans.RenderedSet("test", 30, 8, pixels=2).sample(30, 0)
    expected = first.x.float().unflatten(2, (2, 4)).unflatten(4, (2, 4)).mean(dim=(3, 5)) / 255
    assert torch.allclose(small.x, expected.flatten(1), atol=1e-5)
    few = plans.RenderedSet("test", 30, 8).sample(3, 5)  # a look at a few does without the others
    assert torch.equal(few.x, Painting(8).render(few.z)) and plans.rendered_set.cache_info().misses == 1


def test_an_unknown_budget_gets_a_sentence() -> None:
    row = TABLE4.row("1")
    assert isinstance(row, ImageRow)
    with pytest.raises(ValueError, match="No such budget 'fats'. Did you mean 'fast'?"):
        RECIPES.of(row, "fats", "cpu")


# Trained in stages


def test_stages_are_one_run_in_the_end() -> None:
    def run(steps: int, seconds: float, score: float) -> TrainingRun:
        history = (Record(0, 0.5, {"r2": 0.0}), Record(steps, seconds, {"r2": score}))
        config = TrainConfig(steps=steps)
        return TrainingRun(torch.nn.Identity(), Supervised(), config, history, seconds, steps, seed=0)

    whole = joined([run(3, 2.0, 0.1), run(5, 7.0, 0.9)])
    assert (whole.step, whole.seconds, whole.config.steps) == (8, 9.0, 5)
    assert [(record.step, record.seconds) for record in whole.history] == [(0, 0.5), (3, 2.0), (3, 2.5), (8, 9.0)]


TINY = dataclasses.replace(
    RECIPES.by_budget["smoke"]["cpu"],
    resolutions=(Resolution(8, 1, 1e-3, pool=8), Resolution(16, 2, 1e-3)),
    batch_size=4,
    test_images=128,
    rendered=20,
)


def test_a_row_is_trained_scored_and_shared_and_continues_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RECIPES.by_budget, "smoke", everywhere(TINY))
    table4, table5 = (dataclasses.replace(table, models=("identity", "contrastive")) for table in (TABLE4, TABLE5))

    class Stopped(Exception):
        pass

    with monkeypatch.context() as patched:  # stopped at the first evaluation of the second stage
        sizes: list[int] = []

        def sample(self: plans.RenderedSet, n: int, generator: object) -> object:
            sizes.append(self.size)
            if self.size == 16:
                raise Stopped
            return original(self, n, generator)  # type: ignore[arg-type]

        original = plans.RenderedSet.sample
        patched.setattr(plans.RenderedSet, "sample", sample)
        with pytest.raises(Stopped):
            reproduce(table4, rows=["1"], budget="smoke", device="cpu", out=tmp_path, quiet=True)
        assert sizes[-1] == 16 and len(list(tmp_path.rglob("1-8-pixels/checkpoint.safetensors"))) == 1

    (result,) = reproduce(table4, rows=["1"], budget="smoke", device="cpu", out=tmp_path, quiet=True)
    (receipt,) = result.receipts
    info, curve = receipt.models["contrastive"], receipt.models["contrastive"]["curve"]
    assert curve["step"] == [0, 1, 1, 3] and info["steps"] == 3
    assert len(info["curve_seconds"]) == 4 and info["factors"][7] == "object hue"
    shown = plans.latents_of("shown", 128)
    assert (1e-3 * torch.tensor(info["recovered"]["true"]) - shown).abs().max() < 6e-4
    assert len(info["recovered"]["recovered"]) == 128 and len(json.dumps(info["recovered"])) < 15_000
    assert (
        {"r2", "mcc", "r2_train", "mcc_train"} == set(receipt.scores["contrastive"]) == set(receipt.scores["identity"])
    )
    assert all(len(values) == 10 for values in receipt.per_dimension["contrastive"].values())
    assert json.loads(receipt.to_json())["config"]["contrastive"]["pairs"]["rendered"] == 20

    (train,) = reproduce(table5, rows=["1"], budget="smoke", device="cpu", out=tmp_path, quiet=True)
    assert train.receipts[0].models["contrastive"]["shared_with"] == "clica/table4, row 1"
    ours = train["contrastive"].ours
    assert ours is not None and ours.mean == pytest.approx(100 * receipt.scores["contrastive"]["r2_train"])


def test_a_seed_is_whole_before_the_next_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Interrupted in the second seed, the first has its receipt, and the second keeps what it has."""
    monkeypatch.setitem(RECIPES.by_budget, "smoke", everywhere(TINY))
    begun: list[str] = []
    stops = ["supervised 1"]

    def one_seed(plan: ImagePlan, model: str, seed: int, device: torch.device, folder: Path, callbacks: Any) -> Any:
        begun.append(f"{model} {seed}")
        if begun[-1] in stops:
            stops.clear()
            raise KeyboardInterrupt
        return original(plan, model, seed, device, folder, callbacks)

    original = stages._one_seed
    monkeypatch.setattr(stages, "_one_seed", one_seed)
    command = ["reproduce", "clica/table4", "--rows", "1", "--seeds", "2", "--budget", "smoke", "--device", "cpu"]
    command += ["--out", str(tmp_path)]
    assert run(command) == 130
    assert begun == ["contrastive 0", "supervised 0", "contrastive 1", "supervised 1"]
    ledger = tmp_path / "clica-table4.jsonl"
    assert [receipt.seed for receipt in read(ledger)] == [0]
    assert "what was being trained is kept" in capsys.readouterr().err
    assert len(list(tmp_path.rglob("seed-1/*/checkpoint.safetensors"))) == 2
    begun.clear()
    assert run(command) == 0
    assert begun == ["contrastive 1", "supervised 1"] and [receipt.seed for receipt in read(ledger)] == [0, 1]
    assert not (tmp_path / ".runs").exists()


class _Codes(Callback):
    """How many codes the encoder has in training, the batch, and what else the loss adds, stage by stage."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, float]] = []

    def on_start(self, state: TrainState, config: TrainConfig) -> None:
        codes = state.encoder.train()(torch.zeros(2, 3, 8, 8, dtype=torch.uint8)).shape[1]
        assert isinstance(state.objective, InfoNCE) and config.optimizer == "muon"
        self.seen.append((codes, config.batch_size, state.objective.decorrelation))


def test_a_scaffold_stands_at_the_first_resolution_alone(tmp_path: Path) -> None:
    resolutions = (TINY.resolutions[0], dataclasses.replace(TINY.resolutions[1], batch_size=3))
    hard = dataclasses.replace(TINY, resolutions=resolutions, scaffold=4, decorrelation=0.1, optimizer="muon")
    made = dataclasses.replace(plan("1b", "smoke", "cpu"), recipe=hard)
    codes = _Codes()
    (run,) = train_stages(made, "contrastive", [0], device=torch.device("cpu"), folder=tmp_path, callbacks=[codes])
    assert isinstance(run, TrainingRun) and run.step == 3
    assert codes.seen == [(14, 4, 0.0), (10, 3, 0.1)]
    assert run.encoder.scaffold is None
    assert made.encoder("supervised", 0).scaffold is None


class _Starts(Callback):
    """At which step each run starts."""

    def __init__(self, steps: list[int]) -> None:
        self.steps = steps

    def on_start(self, state: TrainState, config: TrainConfig) -> None:
        self.steps.append(state.step)


def test_a_stage_whose_checkpoint_is_torn_starts_afresh_and_the_one_before_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = dataclasses.replace(TINY, resolutions=(Resolution(8, 1, 1e-3), Resolution(16, 2, 1e-3)))
    monkeypatch.setitem(RECIPES.by_budget, "smoke", everywhere(fresh))
    made = plan("1b", "smoke", "cpu")
    starts: list[int] = []
    settings: dict[str, Any] = {"device": torch.device("cpu"), "folder": tmp_path, "callbacks": [_Starts(starts)]}
    (whole,) = train_stages(made, "contrastive", [0], **settings)
    second = tmp_path / "seed-0" / made.stages("contrastive")[1].name / FILE_NAME
    starts.clear()
    second.write_bytes(second.read_bytes()[:-100])
    with pytest.warns(UserWarning, match="2-16-pixels.*starts afresh"):
        (again,) = train_stages(made, "contrastive", [0], **settings)
    assert starts == [1, 0]  # the first stage was finished, the second had to begin again
    assert isinstance(whole, TrainingRun) and isinstance(again, TrainingRun)
    assert [record.step for record in again.history] == [0, 1, 1, 3]
    weights = [digest(run.encoder.state_dict()) for run in (whole, again)]
    assert weights[0] == weights[1]


# The report


def test_the_report_has_the_verdict_of_every_row_and_the_claims_below() -> None:
    receipts = [
        Receipt(
            experiment=table.id,
            row=row.number,
            x={},
            seed=0,
            budget="fast",
            scores={"contrastive": {"r2": 0.95, "mcc": 0.9, "r2_train": 0.98, "mcc_train": 0.9}},
            per_dimension={},
            models={"contrastive": {"hash": "a", "curve": {"step": [0, 9], "r2": [0.0, 0.95], "mcc": [0.2, 0.9]}}},
            steps=9,
            batch=4,
            seconds=1.0,
            config={},
            config_hash="c",
            device="H200",
        )
        for table in (TABLE4, TABLE5)
        for row in table.rows
    ]
    text, page = markdown(gather(receipts)), results_page(gather(receipts))
    table4, table5 = (text.split(f"## {table.id}\n")[1].split("\n## ")[0] for table in (TABLE4, TABLE5))
    assert "short by 1.73" in table4 and "reproduced" in table5 and "Content" not in table4 + table5
    assert "3DIdent, augmented views → Sphere, vMF κ=1" in table4
    assert table4.index("short by 1.73") < table4.index("Row 1 reaches the paper's MCC of 98.31 % to 0.1")
    assert "The authors report 112 GPU-hours for a run (GeForce RTX 2080 Ti)." in text
    parts = [page.split(f'id="clica-table{k}"')[1].split("</section>")[0] for k in (4, 5)]
    assert all("pairs Normal 0.1, snapped" in part and "What the table must show besides" in part for part in parts)
    assert ["Learning curves" in part for part in parts] == [True, False]  # training images are not followed


@pytest.mark.slow
def test_the_smoke_budget_runs_with_the_real_scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    results = reproduce(TABLE4, budget="smoke", device="cpu", out=tmp_path, quiet=True)
    assert len(results) == 7 and all(result.receipts and not result.failures for result in results)
