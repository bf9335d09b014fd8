"""Many seeds at once: each ends as it would alone, and none disturbs the others."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

import identica as idt
from identica.training import CheckpointError, TrainingDiverged
from identica.training.checkpoint import read_checkpoint
from identica.training.state import unshare
from identica.training.together import Together

SEEDS = [3, 5, 8]
LAPLACE = idt.Conditional(idt.TruncatedLaplace, scale=0.1)


def make_parts(seed: int, kind: str = "residual") -> tuple[Any, Any, Any]:
    """Another mixing, other weights and other data for every seed."""
    marginal = idt.BoxUniform(2).to(torch.float64)
    process = idt.PairProcess(marginal, LAPLACE, mixing=idt.InvertibleMLP(2, seed=seed, candidates=50))
    if kind == "residual":
        encoder: torch.nn.Module = idt.ResidualEncoder(2, idt.Box(2), width=16, blocks=2, seed=seed)
        objective = idt.InfoNCE(idt.LpSimilarity(1, 0.1, trainable=True))
    else:
        encoder = idt.MLPEncoder(2, idt.Euclidean(2), hidden=[16, 16], seed=seed)
        objective = idt.InfoNCE(idt.Annealed(idt.LpSimilarity(2, 0.1), start=4.0))
    return process, encoder.double(), objective.double()


def train_together(kind: str, config: idt.TrainConfig, **more: Any) -> tuple[idt.TrainingRun, ...]:
    parts = [make_parts(seed, kind) for seed in SEEDS]
    processes, encoders, objectives = (list(column) for column in zip(*parts, strict=True))
    return idt.train_many(processes, encoders, objectives, config, seeds=SEEDS, quiet=True, **more)


def train_alone(seed: int, kind: str, config: idt.TrainConfig) -> idt.TrainingRun:
    return idt.train(*make_parts(seed, kind), config, seed=seed, quiet=True)


CONFIG = idt.TrainConfig(steps=30, batch_size=64, lr=1e-2, schedule="cosine", eval_every=15, eval_samples=200)


@pytest.mark.parametrize("kind", ["residual", "perceptron"])
def test_each_seed_ends_bit_by_bit_as_it_would_alone(kind: str) -> None:
    for seed, run in zip(SEEDS, train_together(kind, CONFIG), strict=True):
        alone = train_alone(seed, kind, CONFIG)
        assert run.seed == seed and run.step == 30
        for part in ("encoder", "objective"):
            expected = getattr(alone, part).state_dict()
            assert all(torch.equal(v, expected[k]) for k, v in getattr(run, part).state_dict().items())
        assert [(r.step, r.scores, r.terms) for r in run.history] == [
            (r.step, r.scores, r.terms) for r in alone.history
        ]


def make_states(kind: str, config: idt.TrainConfig) -> tuple[list[Any], list[idt.TrainState]]:
    processes, states = [], []
    for seed in SEEDS:
        process, encoder, objective = make_parts(seed, kind)
        process = process.to(dtype=torch.float64)
        encoder.prepare(process.sample(500, seed).x)
        processes.append(process)
        states.append(idt.TrainState.create(encoder, objective, config, seed=seed, process=process))
    return processes, states


@pytest.mark.parametrize(
    ("kind", "config"),
    [("residual", CONFIG), ("perceptron", CONFIG), ("residual", dataclasses.replace(CONFIG, similarity_after=0.2))],
)
def test_the_mapped_step_is_the_step_of_each_seed_up_to_rounding(kind: str, config: idt.TrainConfig) -> None:
    processes, alone = make_states(kind, config)
    _, mapped = make_states(kind, config)
    one, other = Together(processes, alone, config, mapped=False), Together(processes, mapped, config, mapped=True)
    for _ in range(10):
        one.advance()
        other.advance()
    for a, b in zip(alone, mapped, strict=True):
        assert (a.step, a.summed_steps) == (b.step, b.summed_steps) == (10, 10)
        assert torch.equal(a.generator.get_state(), b.generator.get_state())
        torch.testing.assert_close(b.sums, a.sums, rtol=1e-9, atol=1e-9)
        for (name, p), q in zip(a.encoder.state_dict().items(), b.encoder.state_dict().values(), strict=True):
            torch.testing.assert_close(q, p, rtol=1e-7, atol=1e-9, msg=lambda m, name=name: f"{name}: {m}")
        for p, q in zip(a.objective.state_dict().values(), b.objective.state_dict().values(), strict=True):
            torch.testing.assert_close(q, p, rtol=1e-7, atol=1e-9)


def test_the_mapped_step_goes_on_from_what_the_optimisers_remember() -> None:
    processes, states = make_states("residual", CONFIG)
    whole = Together(processes, states, CONFIG, mapped=True)
    for _ in range(4):
        whole.advance()
    whole.spread()
    copies = copy.deepcopy(
        [(s.encoder.state_dict(), s.objective.state_dict(), s.optimizer.state_dict()) for s in states]
    )
    _, resumed = make_states("residual", CONFIG)
    for state, old, (encoder, objective, optimizer) in zip(resumed, states, copies, strict=True):
        state.encoder.load_state_dict(encoder)
        state.objective.load_state_dict(objective)
        state.optimizer.load_state_dict(optimizer)
        state.generator.set_state(old.generator.get_state())
        state.step = old.step
        state.device_step.fill_(old.step)
    again = Together(processes, resumed, CONFIG, mapped=True)
    for _ in range(4):
        whole.advance()
        again.advance()
    for a, b in zip(states, resumed, strict=True):
        for p, q in zip(a.encoder.parameters(), b.encoder.parameters(), strict=True):
            torch.testing.assert_close(q, p, rtol=1e-9, atol=1e-12)


class Spoiled:
    """A process whose training pairs turn into NaN after a few steps."""

    def __init__(self, process: idt.PairProcess, good: int = 3) -> None:
        self.process, self.good = process.to(dtype=torch.float64), good

    def sample(self, n: int, generator: torch.Generator) -> idt.Pairs:
        pairs = self.process.sample(n, generator)
        self.good -= n == CONFIG.batch_size
        return pairs if self.good >= 0 or n != CONFIG.batch_size else dataclasses.replace(pairs, x=pairs.x * torch.nan)


def train_spoiled(spoiled: list[int]) -> tuple[idt.TrainingRun, ...]:
    parts = [make_parts(seed) for seed in SEEDS]
    processes, encoders, objectives = (list(column) for column in zip(*parts, strict=True))
    for k in spoiled:
        processes[k] = Spoiled(processes[k])
    return idt.train_many(processes, encoders, objectives, CONFIG, seeds=SEEDS, quiet=True)


def test_a_seed_that_diverges_does_not_spoil_the_others() -> None:
    runs = train_spoiled([1])
    assert runs[1].diverged == "The loss was NaN or infinite at step 4."
    for k in (0, 2):
        alone = train_alone(SEEDS[k], "residual", CONFIG)
        assert runs[k].diverged is None and runs[k].scores == alone.scores


def test_if_all_diverge_it_is_an_error() -> None:
    with pytest.raises(TrainingDiverged, match=r"at step 4\. Try a smaller learning rate"):
        train_spoiled([0, 1, 2])


@pytest.mark.parametrize("mapped", [False, True])
def test_a_loss_that_is_not_finite_is_noted_for_its_seed_alone(mapped: bool) -> None:
    processes, states = make_states("residual", CONFIG)
    with torch.no_grad():
        next(states[2].encoder.parameters()).fill_(torch.inf)
    together = Together(processes, states, CONFIG, mapped=mapped)
    for _ in range(3):
        together.advance()
    assert [int(state.first_bad_step) for state in states] == [-1, -1, 0]
    assert all(bool(p.isfinite().all()) for state in states[:2] for p in state.encoder.parameters())


class Stop(idt.Callback):
    def __init__(self, at: int) -> None:
        self.at = at

    def on_step(self, state: idt.TrainState) -> None:
        if state.step == self.at:
            raise RuntimeError("killed")


def test_an_interrupted_run_of_several_seeds_is_resumed_bit_by_bit(tmp_path: Path) -> None:
    config = idt.TrainConfig(steps=30, batch_size=64, lr=1e-2, eval_every=10, eval_samples=200, checkpoint_every=7)
    with pytest.raises(RuntimeError, match="killed"):
        train_together("residual", config, out=tmp_path, callbacks=[Stop(17)])
    resumed = train_together("residual", config, out=tmp_path, resume=True)
    for seed, run in zip(SEEDS, resumed, strict=True):
        alone = train_alone(seed, "residual", config)
        expected = alone.encoder.state_dict()
        assert all(torch.equal(v, expected[k]) for k, v in run.encoder.state_dict().items())
        assert [(r.step, r.scores) for r in run.history] == [(r.step, r.scores) for r in alone.history]
        loaded = idt.load(tmp_path, seed=seed)
        assert loaded.seed == seed
        assert all(torch.allclose(v.double(), expected[k].double()) for k, v in loaded.encoder.state_dict().items())
    with pytest.raises(CheckpointError, match=r"holds the seeds 3, 5, 8, trained together: pass seed="):
        idt.load(tmp_path)
    with pytest.raises(CheckpointError, match="does not hold the seed 4"):
        read_checkpoint(tmp_path / "checkpoint.safetensors", 4)
    with pytest.raises(CheckpointError, match="holds 3 runs that were trained together, not 1"):
        idt.train(*make_parts(3), config, seed=3, out=tmp_path, resume=True, quiet=True)


def test_every_seed_needs_parts_of_its_own() -> None:
    process, encoder, objective = make_parts(0)
    with pytest.raises(ValueError, match="not 2 processes, 1 encoders, 1 objectives, 2 seeds"):
        idt.train_many([process, process], [encoder], [objective], CONFIG, seeds=[0, 1])
    with pytest.raises(ValueError, match="encoders holds one twice"):
        idt.train_many([process] * 2, [encoder] * 2, [objective, copy.deepcopy(objective)], CONFIG, seeds=[0, 1])


def test_progress_shows_the_mean_over_the_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    parts = [make_parts(seed) for seed in SEEDS]
    processes, encoders, objectives = (list(column) for column in zip(*parts, strict=True))
    runs = idt.train_many(processes, encoders, objectives, CONFIG, seeds=SEEDS, description="three")
    last = [line for line in capsys.readouterr().err.splitlines() if "step 30/30" in line][-1]
    mean = sum(run.scores["r2"] for run in runs) / 3
    assert last.startswith("three  step 30/30") and f"R² {mean:.4f}" in last


def test_tensors_that_were_stacked_are_given_back() -> None:
    processes, states = make_states("residual", CONFIG)
    together = Together(processes, states, CONFIG, mapped=True)
    together.advance()
    encoder = states[1].encoder
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    whole = next(encoder.parameters()).untyped_storage().nbytes()
    unshare(encoder)
    assert next(encoder.parameters()).untyped_storage().nbytes() * len(SEEDS) == whole
    together.advance()  # it no longer reaches this encoder
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())


class Tied(torch.nn.Module):
    """Two layers that share their weight, and one layer that is used twice."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.first = torch.nn.Linear(2, 2, dtype=torch.float64)
        self.second = torch.nn.Linear(2, 2, dtype=torch.float64)
        self.again = self.first
        with torch.no_grad():
            self.first.weight.copy_(torch.randn(2, 2, generator=generator))
            self.first.bias.zero_()
            self.second.bias.zero_()
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.again(torch.tanh(self.second(torch.tanh(self.first(x)))))


def test_tied_parameters_stay_tied() -> None:
    def states() -> list[idt.TrainState]:
        return [
            idt.TrainState.create(
                Tied(seed), idt.InfoNCE(idt.LpSimilarity(1, 0.1)).double(), CONFIG, seed=seed, process=None
            )
            for seed in SEEDS
        ]

    processes = [make_parts(seed)[0].to(dtype=torch.float64) for seed in SEEDS]
    alone, mapped = states(), states()
    one, other = Together(processes, alone, CONFIG, mapped=False), Together(processes, mapped, CONFIG, mapped=True)
    for _ in range(5):
        one.advance()
        other.advance()
    for a, b in zip(alone, mapped, strict=True):
        assert b.encoder.first.weight is b.encoder.second.weight
        torch.testing.assert_close(b.encoder.first.weight, a.encoder.first.weight, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(b.encoder.second.bias, a.encoder.second.bias, rtol=1e-8, atol=1e-10)
