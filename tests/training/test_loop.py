from __future__ import annotations

import contextlib
import dataclasses
import signal
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import identica as idt
from identica.training import Callback, StopTraining, TrainConfig, TrainingDiverged, TrainState, make_step, train
from tests.training.conftest import SMALL


def weights(module: nn.Module) -> torch.Tensor:
    return torch.cat([v.detach().double().flatten() for v in module.state_dict().values()])


def test_equal_seeds_give_equal_runs_and_other_seeds_others(parts: Any) -> None:
    runs = [train(*parts(), SMALL, seed=seed, quiet=True) for seed in (0, 0, 1)]
    assert torch.equal(weights(runs[0].encoder), weights(runs[1].encoder))
    assert not torch.equal(weights(runs[0].encoder), weights(runs[2].encoder))
    assert [r.scores for r in runs[0].history] == [r.scores for r in runs[1].history]


def test_how_often_one_looks_does_not_change_training(parts: Any) -> None:
    often = train(*parts(), dataclasses.replace(SMALL, eval_every=3, eval_samples=300), quiet=True)
    rarely = train(*parts(), dataclasses.replace(SMALL, eval_every=40), quiet=True)
    assert torch.equal(weights(often.encoder), weights(rarely.encoder))


def test_a_loop_of_ones_own_ends_where_train_ends(parts: Any) -> None:
    process, encoder, objective = parts()
    state = TrainState.create(encoder, objective, SMALL, seed=0)
    step = make_step(process, state, SMALL)
    for _ in range(SMALL.steps):
        step()
    reference = train(*parts(), SMALL, seed=0, quiet=True)
    assert torch.equal(weights(encoder), weights(reference.encoder))


def test_records_hold_the_terms_averaged_since_the_last_one(parts: Any) -> None:
    process, encoder, objective = parts()
    state = TrainState.create(encoder, objective, SMALL, seed=0)
    step = make_step(process, state, SMALL)
    losses = [step().loss.item() for _ in range(10)]
    run = train(*parts(), SMALL, seed=0, quiet=True)
    assert [r.step for r in run.history] == [0, 10, 20, 30, 40]
    assert run.history[0].terms == {}
    assert run.history[1]["loss"] == pytest.approx(sum(losses) / 10, rel=1e-6)
    assert run.history[1]["log_partition"] - run.history[1]["alignment"] == pytest.approx(
        run.history[1]["loss"], rel=1e-5
    )


class StopAt(Callback):
    """Asks to stop after one step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, state: TrainState) -> None:
        if state.step == self.step:
            raise StopTraining("enough")


def test_a_callback_may_stop_a_run_that_then_continues_to_the_same_end(parts: Any, tmp_path: Path) -> None:
    straight = train(*parts(), SMALL, quiet=True)
    seen: list[int] = []

    class Counts(Callback):
        def on_step(self, state: TrainState) -> None:
            seen.append(state.step)

    with pytest.raises(StopTraining, match="enough"):
        train(*parts(), SMALL, out=tmp_path, callbacks=[StopAt(13), Counts()], quiet=True)
    assert seen[-1] == 13, "the others hear of the step in which one stops"
    # After the last step there is nothing to stop.
    run = train(*parts(), SMALL, out=tmp_path, resume=True, callbacks=[Counts(), StopAt(SMALL.steps)], quiet=True)
    assert seen == [*range(1, SMALL.steps + 1)]
    assert torch.equal(weights(run.encoder), weights(straight.encoder))


def test_training_learns(parts: Any) -> None:
    config = dataclasses.replace(SMALL, steps=400, batch_size=256, lr=3e-3, eval_every=400)
    run = train(*parts(), config, quiet=True)
    assert run.history[-1]["r2"] > run.history[0]["r2"]
    assert run.scores["r2"] > 0.9


def test_the_objectives_own_parameters_have_their_own_learning_rate(parts: Any) -> None:
    process, encoder, objective = parts()
    config = dataclasses.replace(SMALL, lr=0.0, similarity_lr=1e-2)
    before_encoder, before_objective = weights(encoder), weights(objective)
    train(process, encoder, objective, config, quiet=True)
    assert torch.equal(before_encoder, weights(encoder))
    assert not torch.equal(before_objective, weights(objective))


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_the_objectives_own_parameters_can_wait(parts: Any, schedule: Any, optimizer: Any) -> None:
    process, encoder, objective = parts()
    seen: list[torch.Tensor] = []

    class Watch(idt.Callback):
        def on_step(self, state: Any) -> None:
            seen.append(weights(state.objective))

    config = dataclasses.replace(SMALL, steps=10, similarity_after=0.45, schedule=schedule, optimizer=optimizer)
    before = weights(objective)
    train(process, encoder, objective, config, callbacks=[Watch()], quiet=True)
    assert [torch.equal(before, now) for now in seen] == [True] * 5 + [False] * 5


def test_a_setting_that_came_later_is_written_down_where_it_matters() -> None:
    assert "similarity_after" not in SMALL.to_dict()
    assert dataclasses.replace(SMALL, similarity_after=0.5).to_dict()["similarity_after"] == 0.5
    assert SMALL.differences(SMALL.to_dict()) == []


def test_supervised_needs_no_special_loop(parts: Any) -> None:
    process, encoder, _ = parts()
    config = dataclasses.replace(SMALL, steps=300, batch_size=256, lr=3e-3, eval_every=300)
    run = train(process, encoder, idt.Supervised(), config, quiet=True)
    assert run.scores["mcc"] > 0.95


def test_bf16_trains_and_keeps_float32_weights(parts: Any) -> None:
    run = train(*parts(), dataclasses.replace(SMALL, precision="bf16"), quiet=True)
    assert all(p.dtype == torch.float32 for p in run.encoder.parameters())
    assert run.history[-1]["loss"] < run.history[1]["loss"]


class Poison(nn.Module):
    """An encoder whose output turns NaN at a certain call."""

    def __init__(self, inner: nn.Module, at: int) -> None:
        super().__init__()
        self.inner, self.at, self.calls = inner, at, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.calls += 1
        h: torch.Tensor = self.inner(x)
        return h * float("nan") if self.training and self.calls == self.at else h


def test_a_nan_names_its_step_and_keeps_the_last_good_checkpoint(parts: Any, tmp_path: Any) -> None:
    process, encoder, objective = parts()
    with pytest.raises(TrainingDiverged, match=r"NaN or infinite at step 23\. The last good checkpoint is kept"):
        train(process, Poison(encoder, 23), objective, SMALL, out=tmp_path, quiet=True)
    kept = idt.load(tmp_path, encoder=Poison(parts()[1], 0))
    assert kept.step == 21
    assert bool(weights(kept.encoder).isfinite().all())


class Watcher(Callback):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_start(self, state: TrainState, config: TrainConfig) -> None:
        self.calls.append("start")

    def on_step(self, state: TrainState) -> None:
        self.calls.append("step")

    def on_evaluation(self, state: TrainState, record: Any) -> None:
        self.calls.append("evaluation")

    def on_end(self, run: Any) -> None:
        self.calls.append("end")

    def close(self) -> None:
        self.calls.append("close")


def test_callbacks_see_everything_in_order(parts: Any) -> None:
    watcher = Watcher()
    train(*parts(), dataclasses.replace(SMALL, steps=2, eval_every=2), callbacks=[watcher], quiet=True)
    assert watcher.calls == ["start", "evaluation", "step", "step", "evaluation", "close", "end"]


def test_ctrl_c_finishes_the_step_and_saves(parts: Any, tmp_path: Any) -> None:
    class Press(Callback):
        def on_step(self, state: TrainState) -> None:
            if state.step == 11:
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match="Interrupted at step 11; saved to"):
        train(*parts(), SMALL, out=tmp_path, callbacks=[Press()], quiet=True)
    resumed = train(*parts(), SMALL, out=tmp_path, resume=True, quiet=True)
    assert torch.equal(weights(resumed.encoder), weights(train(*parts(), SMALL, quiet=True).encoder))


def test_ctrl_c_in_the_last_step_is_heard_and_loses_nothing(parts: Any, tmp_path: Any) -> None:
    class Press(Callback):
        def on_step(self, state: TrainState) -> None:
            if state.step == SMALL.steps:
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match=f"Interrupted at step {SMALL.steps}; saved to"):
        train(*parts(), SMALL, out=tmp_path, callbacks=[Press()], quiet=True)
    finished = train(*parts(), SMALL, out=tmp_path, resume=True, quiet=True)
    assert torch.equal(weights(finished.encoder), weights(train(*parts(), SMALL, quiet=True).encoder))


def test_an_unusable_device_is_a_sentence(parts: Any) -> None:
    with pytest.raises(ValueError, match="choose 'cpu'"):
        train(*parts(), SMALL, device="cuda:99", quiet=True)


@pytest.mark.parametrize("device", ["cuda:99", "gpu"])
def test_a_process_on_an_unusable_device_is_a_sentence(device: str) -> None:
    mixing = idt.InvertibleMLP(2, candidates=10, seed=0)
    process = idt.PairProcess(idt.SphereUniform(2), idt.Conditional(idt.VonMisesFisher, concentration=1.0), mixing)
    for one in (process, idt.EnsembleProcess(process, process)):
        with pytest.raises(ValueError, match=rf"The device '{device}' cannot be used here \(.{{1,80}}\): choose 'cpu'"):
            one.to(device)


def test_nothing_to_train_is_a_sentence(parts: Any) -> None:
    process, _, _ = parts()
    with pytest.raises(ValueError, match="nothing to train"):
        train(process, nn.Identity(), idt.InfoNCE(idt.LpSimilarity(1)), SMALL, quiet=True)


def test_progress_lines_when_not_a_terminal(parts: Any, capsys: Any) -> None:
    train(*parts(), SMALL, description="small")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("small  step 0/40") and "R²" in lines[0]
    assert lines[-1].startswith("small  step 40/40") and "steps/s" in lines[-1] and "loss" in lines[-1]
    train(*parts(), SMALL, quiet=True)
    assert capsys.readouterr().err == ""


def test_modes_are_training_while_training_and_evaluation_after(parts: Any) -> None:
    process, _, objective = parts()
    frozen = nn.BatchNorm1d(8)
    encoder = nn.Sequential(nn.Linear(2, 8), frozen, nn.Dropout(0.5), nn.Linear(8, 2)).eval()
    seen: set[bool] = set()

    class Freeze(Callback):
        def on_start(self, state: TrainState, config: TrainConfig) -> None:
            frozen.eval()

        def on_step(self, state: TrainState) -> None:
            seen.add(encoder.training and not frozen.training)

    run = train(process, encoder, objective, SMALL, callbacks=[Freeze()], quiet=True)
    assert seen == {True}, "evaluations must leave every submodule as they found it"
    assert not any(module.training for module in encoder.modules())
    x = torch.randn(16, 2)
    assert torch.equal(run(x), run(x))


def test_nan_parameters_are_noticed_before_they_are_saved(parts: Any, tmp_path: Any) -> None:
    """The loss of the step that ruins the parameters is still finite."""
    process, encoder, objective = parts()

    class Ruin(Callback):
        def on_step(self, state: TrainState) -> None:
            if state.step == 14:  # a checkpoint is due
                with torch.no_grad():
                    next(encoder.parameters()).fill_(float("nan"))

    with pytest.raises(TrainingDiverged, match=r"A parameter became NaN or infinite by step 14.*is kept"):
        train(process, encoder, objective, SMALL, out=tmp_path, callbacks=[Ruin()], quiet=True)
    assert idt.load(tmp_path).step == 7


@pytest.mark.parametrize("seed", ["a", 1.5, torch.Generator()])
def test_a_seed_is_a_whole_number(parts: Any, seed: Any) -> None:
    with pytest.raises(TypeError, match="whole number"):
        train(*parts(), SMALL, seed=seed, quiet=True)


def test_arguments_in_the_wrong_place_are_named(parts: Any) -> None:
    process, encoder, objective = parts()
    with pytest.raises(TypeError, match="encoder of train must be a torch module"):
        train(process, lambda x: x, objective, SMALL)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="objective of train must be an objective, .* not MLPEncoder"):
        train(process, objective, encoder, SMALL)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="config of train must be a TrainConfig, not dict"):
        train(process, encoder, objective, {"steps": 3})  # type: ignore[arg-type]


def test_precision_is_honoured_in_a_loop_of_ones_own(parts: Any) -> None:
    process, encoder, objective = parts()
    seen: list[tuple[str, bool]] = []

    class Spy(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append((torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32))
            h: torch.Tensor = encoder(x)
            return h

    before = torch.backends.cudnn.allow_tf32
    for precision in ("tf32", "fp32"):
        config = dataclasses.replace(SMALL, precision=precision)
        state = TrainState.create(nn.ModuleList([Spy(), encoder])[0], objective, config)
        make_step(process, state, config)()
    assert seen == [("high", True), ("highest", False)]
    assert torch.get_float32_matmul_precision() == "highest" and torch.backends.cudnn.allow_tf32 == before


@pytest.mark.slow  # torch.compile itself takes most of the time
def test_a_compiled_encoder_learns_the_same(compiler: None) -> None:
    runs = []
    for compiled in (False, True):
        laplace = idt.Conditional(idt.TruncatedLaplace, scale=0.1)
        process = idt.PairProcess(idt.BoxUniform(2), laplace, mixing=idt.InvertibleMLP(2, seed=0, candidates=50))
        encoder = idt.ResidualEncoder(2, idt.Box(2), width=32, seed=0)
        config = idt.TrainConfig(steps=20, batch_size=128, lr=1e-3, eval_every=20, eval_samples=200, compile=compiled)
        runs.append(idt.train(process, encoder, idt.InfoNCE(laplace.similarity()), config, quiet=True))
    assert runs[1].history[-1]["loss"] == pytest.approx(runs[0].history[-1]["loss"], rel=1e-4)
    for a, b in zip(runs[0].encoder.parameters(), runs[1].encoder.parameters(), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-2, atol=1e-4)


class Point(nn.Module):
    """All codes in one point, or nearly."""

    def __init__(self, size: float) -> None:
        super().__init__()
        self.size, self.bias = size, nn.Parameter(torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.bias + self.size * x


@pytest.mark.parametrize(("size", "count"), [(1e-6, 1), (1.0, 0)])
def test_codes_in_one_point_are_noticed_once(parts: Any, size: float, count: int) -> None:
    process, _, objective = parts()
    with pytest.warns() if count else contextlib.nullcontext() as caught:
        train(process, Point(size), objective, SMALL, quiet=True)
    assert len(caught or []) == count
    if caught:
        assert "From step 0 to 20 the codes of seed 0" in str(caught[0].message) and "one point" in str(
            caught[0].message
        )


def test_losses_without_information_are_not_called_blind(parts: Any) -> None:
    process, encoder, _ = parts()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(process, encoder, idt.Supervised(), SMALL, quiet=True)
