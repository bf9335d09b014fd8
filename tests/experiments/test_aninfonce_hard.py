"""Figure 10 of paper B: where the loss with hard negatives is smallest, and models that go on from a trained one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats
from torch.nn import functional

from identica.distributions import Conditional, FisherBingham, SphereUniform
from identica.experiments import Receipt, find, read
from identica.experiments.aninfonce.budgets import RECIPES
from identica.experiments.aninfonce.hard import FIGURE10, HARD, HardExperiment, scanned, tuned
from identica.experiments.aninfonce.hard_plan import ScanPlan, TunedPlan
from identica.experiments.aninfonce.hard_scan import scan
from identica.experiments.budgets import BUDGETS
from identica.experiments.receipts.verdicts import claim_results, results
from identica.experiments.running.reproduce import reproduce
from identica.experiments.running.runner import train_model
from identica.experiments.running.starts import digest, find_start, keep
from identica.objectives import InfoNCE
from identica.processes import PairProcess
from identica.report.results import gather
from identica.report.results_losses import panels, table_rows
from identica.similarities import Anisotropic
from identica.training import Callback, TrainState
from identica.training.checkpoint import FILE_NAME
from identica.training.together import Together
from tests.experiments.test_loss_plan import TINY_RECIPE
from tests.experiments.tiny import TINY, everywhere

SMALL = replace(FIGURE10, rows=(scanned(30.0, 10.0, 4), tuned(4.0, 30.0, 4), tuned(12.0, 30.0, 4)))
MODELS = ("infonce", "continued", "larger", "hard")


@pytest.fixture(autouse=True)
def budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUDGETS, "tiny", TINY)
    monkeypatch.setitem(RECIPES.by_budget, "tiny", everywhere(TINY_RECIPE))
    monkeypatch.setenv("IDENTICA_COMMIT", "0123abc")


def hard_pairs(positive: float, negative: float, dim: int = 5, count: int = 3) -> PairProcess:
    near, far = (Conditional(FisherBingham, precision=value) for value in (positive, negative))
    return PairProcess(SphereUniform(dim), near, negative_conditional=far, negatives_per_anchor=count)


def run(experiment: HardExperiment, out: Path, **settings: Any) -> Any:
    return reproduce(
        experiment, **{"budget": "tiny", "device": "cpu", "out": out, "quiet": True, "seeds": 2} | settings
    )


# The scan


@pytest.mark.statistical(false_alarm=1e-6, what="the λ̂ at which the loss with hard negatives is smallest, λ⁺ − λ⁻")
@pytest.mark.parametrize(("positive", "negative", "count"), [(150.0, 100.0, 8), (40.0, 5.0, 1)])
def test_the_loss_is_smallest_at_the_difference_for_any_number_of_negatives(
    positive: float, negative: float, count: int
) -> None:
    found = scan(hard_pairs(positive, negative, count=count), [positive], 2**14, seed=3)
    off = abs(found.minimum - (positive - negative)) / found.standard_error
    assert off < stats.norm.isf(0.5e-6) and found.target == positive - negative
    assert found.standard_error < 0.05 * found.target


def test_the_scan_is_the_loss_of_the_library() -> None:
    process, values = hard_pairs(60.0, 20.0), (10.0, 40.0, 90.0)
    found = scan(process, values, 500, seed=5)
    pairs = process.to(dtype=torch.float64).sample(500, 5)
    losses = [InfoNCE(Anisotropic(5, v, trainable=False)).double()(pairs.z, pairs.z_pos, pairs.z_neg) for v in values]
    assert [found.least_loss + above for above in found.above] == pytest.approx([float(loss) for loss in losses])
    assert min(found.above) >= 0


@pytest.mark.statistical(false_alarm=1e-6, what="the standard error of a scan's minimum against its spread over seeds")
def test_the_standard_error_is_what_minima_scatter_by() -> None:
    found = [scan(hard_pairs(60.0, 20.0), [40.0], 400, seed=seed) for seed in range(120)]
    variance = torch.tensor([one.minimum for one in found]).var().item()
    expected = torch.tensor([one.standard_error for one in found]).square().mean().item()
    low, high = (stats.chi2.ppf(p, 119) / 119 for p in (0.5e-6, 1 - 0.5e-6))
    assert low < variance / expected < high


def test_negatives_that_are_too_close_or_missing_get_a_sentence() -> None:
    with pytest.warns(UserWarning, match="Λ⁻ is not below Λ⁺"):
        close = hard_pairs(20.0, 30.0)
    with pytest.raises(ValueError, match="Hard negatives must be farther from their anchors than positives"):
        scan(close, [1.0], 100)
    for row in (scanned(100.0, 150.0), tuned(200.0)):
        with pytest.raises(ValueError, match="Λ⁻ is not below Λ⁺.*Lower the precision of the negatives"):
            FIGURE10.plan(row, "smoke", "cpu")
    with pytest.raises(ValueError, match="needs some: give the process a negative_conditional"):
        scan(PairProcess(SphereUniform(3), Conditional(FisherBingham, precision=4.0)), [1.0], 100)
    uneven = Conditional(FisherBingham, precision=(1.0, 2.0, 3.0))
    process = PairProcess(
        SphereUniform(3), Conditional(FisherBingham, precision=9.0), None, uneven, negatives_per_anchor=1
    )
    with pytest.raises(ValueError, match="with equal entries"):
        scan(process, [1.0], 100)


# Plans


def plan(experiment: HardExperiment, number: str, budget: str = "fast") -> TunedPlan:
    one = experiment.plan(experiment.row(number), budget, "cuda")
    assert isinstance(one, TunedPlan)
    return replace(one, recipe=replace(one.recipe, candidates=20))


def test_the_figure_as_data() -> None:
    assert find("aninfonce/figure10") == FIGURE10 and len(HARD) == 4
    row = FIGURE10.row("scan")
    assert row.precisions == ((150.0,) * 20,) and row.optima == ((50.0,) * 20,)  # type: ignore[attr-defined]
    assert row.label == "S¹⁹, Λ⁺ = 150 ×20, Λ⁻ = 100 ×20 → AnInfoNCE at the true latents"
    assert isinstance(FIGURE10.plan(row, "fast", "cpu"), ScanPlan)
    for number in ("hard-0", "hard-15", "hard-45", "hard-100"):
        assert FIGURE10.row(number).models == MODELS


def test_what_goes_on_has_its_own_length_and_as_many_observations_as_hard_negatives_take() -> None:
    one = plan(FIGURE10, "hard-45")
    configs = {model: one.train_config(model) for model in one.trained}
    assert one.trained == MODELS and {one.starts_from(model) for model in MODELS[1:]} == {"infonce"}
    assert configs["continued"].steps == configs["hard"].steps == configs["larger"].steps < configs["infonce"].steps
    assert configs["hard"].batch_size == configs["continued"].batch_size == configs["infonce"].batch_size
    assert configs["larger"].batch_size * 2 == configs["hard"].batch_size * 5
    pairs = one.training_process("hard", 0).sample(6, 0)
    assert pairs.x_neg is not None and pairs.x_neg.shape == (6, 3, 20)
    assert one.process("hard", 0).sample(6, 0).x_neg is None is one.training_process("larger", 0).sample(6, 0).x_neg
    objective = one.objective("hard")
    assert isinstance(objective, InfoNCE) and isinstance(objective.similarity, Anisotropic) and objective.in_batch
    assert objective.similarity.trainable and objective.similarity.precision.detach().allclose(torch.tensor(105.0))


def test_hashes_follow_from_what_a_model_starts_from() -> None:
    one, other = plan(FIGURE10, "hard-45"), plan(FIGURE10, "hard-15")
    assert {m: one.model_hashes[m] == other.model_hashes[m] for m in MODELS} == {m: m != "hard" for m in MODELS}
    assert one.config["continued"]["starts_from"] == one.model_hashes["infonce"]
    longer = replace(one, recipe=replace(one.recipe, steps=one.recipe.steps + 2, evaluations=7))
    assert all(longer.model_hashes[model] != one.model_hashes[model] for model in MODELS)
    assert len({one.model_hashes[model] for model in MODELS}) == len(MODELS)


def test_seeds_with_hard_negatives_can_be_trained_as_one() -> None:
    """As on CUDA, where they are: the same step, seed by seed and all at once."""
    one = plan(SMALL, "hard-4", "tiny")
    processes = [one.training_process("hard", seed) for seed in (0, 1)]

    def states() -> list[TrainState]:
        made = []
        for seed, process in zip((0, 1), processes, strict=True):
            encoder = one.encoder("hard", seed)
            encoder.prepare(process.sample(256, 0).x)
            made.append(TrainState.create(encoder, one.objective("hard"), one.train_config("hard"), seed=seed))
        return made

    single, mapped = states(), states()
    for these, together in ((single, False), (mapped, True)):
        steps = Together(processes, these, one.train_config("hard"), mapped=together)
        steps.advance()
        steps.advance()
    for a, b in zip(single, mapped, strict=True):
        for x, y in zip(a.objective.parameters(), b.objective.parameters(), strict=True):
            assert torch.allclose(x, y, rtol=1e-4)


# From a trained model on


def test_weights_are_kept_and_found_by_seed(tmp_path: Path) -> None:
    encoder = torch.nn.Linear(3, 2)
    keep(tmp_path / "run", 4, encoder, {"model": "infonce", "hash": "ab", "steps": 7})
    start = find_start(tmp_path / "run", 4)
    assert start is not None and find_start(tmp_path / "run", 5) is None
    assert start.described == {"model": "infonce", "hash": "ab", "steps": 7, "weights": digest(encoder.state_dict())}
    assert torch.equal(start.weights["weight"], encoder.weight)
    encoder.bias.data[0] += 1e-6
    assert digest(encoder.state_dict()) != start.described["weights"]
    (tmp_path / "run" / "weights-4.safetensors").write_bytes(b"torn")
    with pytest.warns(UserWarning, match="cannot be read .* is trained again"):
        assert find_start(tmp_path / "run", 4) is None


def test_all_continuations_start_where_the_first_model_ended_and_rows_share_it(tmp_path: Path) -> None:
    run(SMALL, tmp_path)
    receipts = {(one.row, one.seed): one for one in read(tmp_path / "aninfonce-figure10.jsonl")}
    assert len(receipts) == 6 and not (tmp_path / ".runs").exists()
    for seed in (0, 1):
        first, second = receipts["hard-4", seed], receipts["hard-12", seed]
        starts = [first.models[model]["started_from"] for model in MODELS[1:]]
        assert starts[0] == starts[1] == starts[2] == second.models["hard"]["started_from"]
        assert starts[0]["hash"] == first.models["infonce"]["hash"] and starts[0]["steps"] == 6
        assert second.models["infonce"]["shared_with"] == second.models["larger"]["shared_with"]
        assert "shared_with" not in second.models["hard"] and "learned_precision" in first.scores["hard"]
        assert "precision_error" not in first.scores["hard"]
        # The minimum belongs to learning curves of the same batches without hard negatives.
        assert [model for model in MODELS if "minimal_loss" in first.models[model]] == ["infonce", "continued"]
        for model in MODELS[1:]:
            curve = first.models[model]["curve"]
            assert curve["step"] == [0, 1, 2, 3] and curve["r2"][0] == pytest.approx(
                first.scores["infonce"]["r2"], abs=0.2
            )
    assert receipts["hard-4", 0].models["hard"]["started_from"] != receipts["hard-4", 1].models["hard"]["started_from"]
    before = (tmp_path / "aninfonce-figure10.jsonl").read_bytes()
    run(SMALL, tmp_path)
    assert (tmp_path / "aninfonce-figure10.jsonl").read_bytes() == before


class _PowerFails(Callback):
    """After a step of the continuation with hard negatives."""

    def on_step(self, state: TrainState) -> None:
        if isinstance(state.objective, InfoNCE) and state.objective.in_batch and state.step == 2:
            raise OSError("no power")


def test_a_killed_run_goes_on_from_the_kept_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"rows": ["hard-4"], "seeds": 1}
    run(SMALL, tmp_path / "straight", **settings)
    from identica.experiments.running import tasks as module

    trained: list[str] = []
    original = module.train_model

    def watched(plan: Any, model: Any, seeds: Any, **rest: Any) -> Any:
        trained.append(model)
        if len(trained) == 4:
            rest["callbacks"] = [_PowerFails()]
        return original(plan, model, seeds, **rest)

    monkeypatch.setattr(module, "train_model", watched)
    with pytest.raises(OSError, match="no power"):
        run(SMALL, tmp_path / "killed", **settings)
    assert trained == [*MODELS] and len(list((tmp_path / "killed" / ".runs").glob("*/weights-0.safetensors"))) == 1
    assert len(list((tmp_path / "killed" / ".runs").glob("*/seeds-0-from-*"))) == 3
    run(SMALL, tmp_path / "killed", **settings)
    (killed,), (straight,) = (read(tmp_path / name / "aninfonce-figure10.jsonl") for name in ("killed", "straight"))
    assert killed.scores == straight.scores
    assert killed.models["hard"]["started_from"] == straight.models["hard"]["started_from"]
    assert not (tmp_path / "killed" / ".runs").exists()


def test_a_start_that_is_known_but_whose_weights_are_gone_is_trained_again(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"seeds": 1}
    run(SMALL, tmp_path, rows=["hard-4"], **settings)
    run(SMALL, tmp_path, rows=["hard-12"], **settings)  # everything but "hard" is in the ledger
    first, second = read(tmp_path / "aninfonce-figure10.jsonl")
    assert "shared_with" in second.models["continued"] and "shared_with" not in second.models["infonce"]
    assert second.models["hard"]["started_from"] == first.models["hard"]["started_from"]  # to the bit, on the CPU


def test_a_torn_checkpoint_does_not_take_the_weights_of_other_seeds_with_it(tmp_path: Path) -> None:
    one = plan(SMALL, "hard-4", "tiny")
    settings: dict[str, Any] = {"device": torch.device("cpu"), "folder": tmp_path}
    train_model(one, "infonce", [0], **settings)
    before = find_start(tmp_path, 0)
    (tmp_path / "seeds-1").mkdir()
    (tmp_path / "seeds-1" / FILE_NAME).write_bytes(b"half a check")
    with pytest.warns(UserWarning, match="starts afresh"):
        train_model(one, "infonce", [1], **settings)
    after = find_start(tmp_path, 0)
    assert before is not None and after is not None and before.described == after.described
    assert find_start(tmp_path, 1) is not None


# The report


def made_up(number: str, seed: int) -> Receipt:
    row = FIGURE10.row(number)
    scores: dict[str, dict[str, float]] = {}
    models: dict[str, dict[str, Any]] = {}
    for model in row.models or ():
        if model == "scan":
            scores[model] = {"minimum": 50.2 + seed, "minimum_error": 0.9, "least_loss": 1.6}
            models[model] = {"hash": "a", "scan": {"precision": [10.0, 90.0], "above": [0.3, 0.2], "target": 50.0}}
            continue
        reached = 0.8 if model != "hard" else 0.85 if number == "hard-0" else 0.9
        scores[model] = {"r2": reached, "mcc": 0.5}
        models[model] = {"hash": model, "curve": {"step": [0, 100], "r2": [0.5, 0.9], "loss": [None, 0.1]}}
        if model != "infonce":
            models[model]["started_from"] = {"model": "infonce", "steps": 100}
    data: dict[str, Any] = {"experiment": FIGURE10.id, "row": number, "x": dict(row.x), "seed": seed, "scores": scores}
    data |= {"models": models, "config": {}, "config_hash": "c", "budget": "fast", "device": "H200", "seconds": 1.0}
    return Receipt(**data, steps=0 if number == "scan" else 100, batch=64)


def test_claims_and_panels_from_receipts() -> None:
    receipts = [made_up(row.number, seed) for row in FIGURE10.rows for seed in (0, 1)]
    found = claim_results(FIGURE10, results(FIGURE10, receipts, "fast"))
    assert [round(one.found.value, 4) for one in found if one.found] == [
        0.014,
        round(0.7 / (0.9 / 2**0.5), 4),
        0.0,
        0.1,
        0.1,
        0.05,
    ]
    assert all(one.verdict and one.verdict.good for one in found)
    block = next(one.main for one in gather(receipts).sections if one.experiment.id == FIGURE10.id)
    drawn = dict(panels(block))
    scan_picture = drawn["The loss at the true latents, S¹⁹, Λ⁺ = 150 ×20, Λ⁻ = 100 ×20"]
    assert scan_picture.count("<polyline") == 3 and "seed 1, smallest at 51.20 ± 0.90 from 0.3 to 0.2" in scan_picture
    assert drawn["Trained on from the same encoder, Λ⁺ = 150"].count("<polyline") == 4
    time = next(chart for title, chart in drawn.items() if title.startswith("R² over time"))
    first, *others = [part.split('"')[0].split()[0] for part in time.split('points="')[1:]]
    assert len(set(others)) == 1 and float(others[0].split(",")[0]) > float(
        first.split(",")[0]
    )  # they begin where it ends
    rows = list(table_rows(block))
    assert rows[0][0] == "scan" and rows[0][3] == "no score" and rows[4][2] == "then AnInfoNCE, 3 hard negatives"
    assert (
        "Training",
        "none (row scan); 100 steps of 64 pairs (rows hard-0, hard-15, hard-45, hard-100)",
    ) in block.facts


def test_hard_negatives_of_an_encoder_count_beside_the_others() -> None:
    """The joined loss by hand: log(1 + Σ over the other anchors and over one's own hard negatives)."""
    one = plan(SMALL, "hard-4", "tiny")
    objective, process = one.objective("hard"), one.training_process("hard", 0)
    pairs = process.sample(5, 1)
    h, h_pos, h_neg = (functional.normalize(x, dim=-1) for x in (pairs.x, pairs.x_pos, pairs.x_neg))  # type: ignore[arg-type]
    total = 0.0
    for i in range(5):
        candidates = torch.stack([h_pos[i], *(h[j] for j in range(5) if j != i), *h_neg[i]])
        logits = -0.5 * 26.0 * (candidates - h[i]).square().sum(dim=-1)
        total += float(torch.logsumexp(logits, dim=0) - logits[0]) / 5
    assert objective(h, h_pos, h_neg).item() == pytest.approx(total, rel=1e-5)
