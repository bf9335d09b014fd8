"""On a GPU: the training step is one captured graph, and learns what the uncaptured step learns."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import pytest
import torch

import identica as idt
from identica.training import TrainConfig, TrainState, make_step, train
from identica.training import step as step_module

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

CONFIG = TrainConfig(steps=60, batch_size=512, lr=1e-3, schedule="cosine", eval_every=20, eval_samples=512)
PROBLEMS = {
    "sphere": (idt.SphereUniform(5), idt.Conditional(idt.VonMisesFisher, concentration=5.0), idt.Sphere(5)),
    "anisotropic": (
        idt.SphereUniform(5),
        idt.Conditional(idt.FisherBingham, precision=(5.0, 5.0, 5.0, 25.0, 25.0)),
        idt.Sphere(5),
    ),
    "laplace": (idt.BoxUniform(5), idt.Conditional(idt.TruncatedLaplace, scale=0.05), idt.Box(5)),
    "gennorm": (
        idt.BoxUniform(5),
        idt.Conditional(idt.TruncatedGeneralizedNormal, scale=0.05, power=3.0),
        idt.Euclidean(5),
    ),
}


def make(problem: str) -> tuple[idt.PairProcess, idt.ResidualEncoder, idt.InfoNCE]:
    marginal, conditional, space = PROBLEMS[problem]
    process = idt.PairProcess(marginal, conditional, mixing=idt.InvertibleMLP(5, seed=0, candidates=500))
    similarity = idt.Anisotropic(5) if problem == "anisotropic" else conditional.similarity()
    return process, idt.ResidualEncoder(5, space, seed=1), idt.InfoNCE(similarity)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_captured_step_equals_the_plain_one(problem: str, monkeypatch: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a step that cannot be captured warns
        captured = train(*make(problem), CONFIG, device="cuda", quiet=True)
    monkeypatch.setattr(step_module, "CapturedCall", lambda function, generator: function)
    plain = train(*make(problem), CONFIG, device="cuda", quiet=True)
    for a, b in zip(captured.history, plain.history, strict=True):
        assert a["r2"] == pytest.approx(b["r2"], abs=2e-3)
        if a.terms:
            assert a["loss"] == pytest.approx(b["loss"], rel=2e-3)


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_what_the_objective_learns_can_wait(schedule: Any, optimizer: Any) -> None:
    seen: list[list[float]] = []

    class Watch(idt.Callback):
        def on_step(self, state: TrainState) -> None:
            assert isinstance(state.objective, idt.InfoNCE) and isinstance(state.objective.similarity, idt.Anisotropic)
            seen.append(state.objective.similarity.precision.tolist())

    config = dataclasses.replace(CONFIG, similarity_after=0.5, schedule=schedule, optimizer=optimizer)
    train(*make("anisotropic"), config, device="cuda", callbacks=[Watch()], quiet=True)
    moved = [precision != seen[0] for precision in seen]
    assert moved == [False] * 30 + [True] * 30 and seen[0] == pytest.approx([1.0] * 5)


def test_replays_never_wait_for_the_device() -> None:
    process, encoder, objective = make("laplace")
    process = process.to("cuda")
    state = TrainState.create(encoder, objective, CONFIG, device="cuda")
    encoder.prepare(process.sample(1024, torch.Generator("cuda").manual_seed(0)).x)
    step = make_step(process, state, CONFIG)
    for _ in range(5):
        step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(20):
            step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert state.step == int(state.device_step) == 25


def test_a_nan_is_noticed_in_a_replay() -> None:
    process, encoder, objective = make("laplace")
    with pytest.raises(idt.training.TrainingDiverged, match="NaN or infinite at step"):
        train(process, encoder, objective, dataclasses.replace(CONFIG, lr=1e30), device="cuda", quiet=True)


def test_what_cannot_be_captured_runs_with_one_warning() -> None:
    class Waits(idt.InfoNCE):
        def compute(self, encoder: Any, pairs: Any) -> Any:
            terms = super().compute(encoder, pairs)
            float(terms.loss)
            return terms

    process, encoder, _ = make("laplace")
    with pytest.warns(UserWarning, match="could not be captured") as caught:
        run = train(process, encoder, Waits(idt.LpSimilarity(1, 0.05)), CONFIG, device="cuda", quiet=True)
    assert len([w for w in caught if "captured" in str(w.message)]) == 1
    assert run.history[-1]["loss"] < run.history[1]["loss"]


def test_a_killed_run_resumes_on_the_gpu(tmp_path: Any) -> None:
    config = dataclasses.replace(CONFIG, checkpoint_every=10)
    whole = train(*make("laplace"), config, device="cuda", quiet=True)

    class Stop(idt.Callback):
        def on_step(self, state: TrainState) -> None:
            if state.step == 35:
                raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        train(*make("laplace"), config, device="cuda", out=tmp_path, callbacks=[Stop()], quiet=True)
    resumed = train(*make("laplace"), config, device="cuda", out=tmp_path, resume=True, quiet=True)
    assert resumed.history[-1]["r2"] == pytest.approx(whole.history[-1]["r2"], abs=2e-3)
    with pytest.raises(ValueError, match="the device was cuda and is now cpu"):
        train(*make("laplace"), config, device="cpu", out=tmp_path, resume=True, quiet=True)
