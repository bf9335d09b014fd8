"""Muon: steps without singular values, for all matrices but the last; Adam for the rest; saved and resumed like it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import identica as idt
from identica.encoders import ResNetEncoder
from identica.training import Callback
from identica.training.muon import Muon, orthogonal
from identica.training.state import make_optimizer, trainable
from identica.training.together import Together
from tests.training.test_together import SEEDS, make_parts

CONFIG = idt.TrainConfig(steps=20, batch_size=64, optimizer="muon", lr=1e-2, eval_every=20, checkpoint_every=7)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("shape", [(6, 6), (4, 30), (30, 4), (3, 5, 8)])
def test_singular_vectors_stay_and_values_go(shape: tuple[int, ...]) -> None:
    matrices = normal(*shape)
    left, values, right = torch.linalg.svd(matrices, full_matrices=False)
    rotated = left.mT @ orthogonal(matrices) @ right.mT
    kept = rotated.diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(rotated, torch.diag_embed(kept), atol=1e-6, rtol=0)
    strong = values > 0.05 * values.amax(dim=-1, keepdim=True)
    assert float(kept[strong].min()) > 0.6 and float(kept.max()) < 1.3


def test_weak_directions_move_as_far_as_strong_ones() -> None:
    """The first step of a matrix with singular values 1 and 0.01: 0.2 · lr · √(larger side) along both."""
    weight = torch.nn.Parameter(torch.zeros(2, 50, dtype=torch.float64))
    optimizer = Muon([{"params": [weight], "lr": 0.1, "matrices": True}], fused=False)
    weight.grad = torch.zeros_like(weight)
    weight.grad[0, 0], weight.grad[1, 1] = 1.0, -0.01
    optimizer.step()
    expected = 0.2 * 0.1 * 50**0.5
    moved = weight.detach()[[0, 1], [0, 1]] / torch.tensor([-expected, expected])
    assert bool(((moved > 0.6) & (moved < 1.3)).all()), moved
    assert weight.grad is None  # Adam must not see it


def test_filters_are_rows_and_all_but_the_last_matrix_are_muons() -> None:
    encoder = ResNetEncoder(idt.Box(3), 18, seed=0)
    optimizer = make_optimizer(trainable(encoder), [], CONFIG)
    assert isinstance(optimizer, Muon)
    matrices, others = (group["params"] for group in optimizer.param_groups)
    assert all(p.ndim >= 2 for p in matrices) and any(p.ndim == 4 for p in matrices)
    assert [tuple(p.shape) for p in others if p.ndim >= 2] == [(3, 30)]  # the layer that makes codes
    assert len(matrices) + len(others) == len(trainable(encoder))
    encoder(torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))).square().sum().backward()
    before = [p.detach().clone() for p in matrices]
    optimizer.step()
    for old, new in zip(before, matrices, strict=True):
        step = (new.detach() - old).flatten(1)
        largest = float(torch.linalg.matrix_norm(step, 2)) / (0.2 * 1e-2 * max(step.shape) ** 0.5)
        assert 0.6 < largest < 1.3, tuple(step.shape)


def test_adam_has_the_rest() -> None:
    """A bias takes Adam's first step, the learning rate, and what the objective learns its own."""
    encoder = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Linear(8, 2))
    learned = torch.nn.Parameter(torch.ones(()))
    optimizer = make_optimizer(trainable(encoder), [learned], CONFIG)
    before = encoder[0].bias.detach().clone()
    (encoder(torch.ones(3, 2)).sum() + learned).backward()
    optimizer.step()
    torch.testing.assert_close((encoder[0].bias - before).abs(), torch.full((8,), 1e-2), atol=1e-5, rtol=1e-4)
    assert learned.item() == pytest.approx(1 - CONFIG.objective_lr, rel=1e-4)


def test_models_that_are_trained_together_take_the_steps_of_single_ones() -> None:
    """On CUDA the parameters of the seeds are stacked; here on the CPU, where that is possible, too."""
    single = [idt.TrainState.create(*make_parts(seed)[1:], CONFIG, seed=seed) for seed in SEEDS]
    stacked = [idt.TrainState.create(*make_parts(seed)[1:], CONFIG, seed=seed) for seed in SEEDS]
    processes = [make_parts(seed)[0] for seed in SEEDS]
    runs = [Together(processes, states, CONFIG, mapped=mapped) for states, mapped in ((single, False), (stacked, True))]
    for _ in range(5):
        for run in runs:
            run.advance()
    for one, other in zip(single, stacked, strict=True):
        expected = one.encoder.state_dict()
        for name, value in other.encoder.state_dict().items():
            torch.testing.assert_close(value, expected[name], atol=1e-8, rtol=1e-6)


def test_a_run_that_was_interrupted_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    class Stop(Callback):
        def on_step(self, state: Any) -> None:
            if state.step == 11:
                raise KeyboardInterrupt

    whole = idt.train(*make_parts(3), CONFIG, out=tmp_path / "whole", quiet=True)
    with pytest.raises(KeyboardInterrupt):
        idt.train(*make_parts(3), CONFIG, out=tmp_path / "parts", callbacks=[Stop()], quiet=True)
    resumed = idt.train(*make_parts(3), CONFIG, out=tmp_path / "parts", resume=True, quiet=True)
    expected = whole.encoder.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in resumed.encoder.state_dict().items())


def test_it_finds_the_factors() -> None:
    config = dataclasses.replace(CONFIG, steps=400, lr=1e-2, schedule="cosine", eval_every=400, eval_samples=2000)
    run = idt.train(*make_parts(3), config, quiet=True)
    assert run.history[-1]["mcc"] > 0.98


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("shape", [(64, 576), (3, 512, 128)])
def test_half_precision_on_cuda_turns_as_the_cpu_does(shape: tuple[int, ...]) -> None:
    matrices = normal(*shape).float()
    found, expected = orthogonal(matrices.cuda()).cpu(), orthogonal(matrices)
    size = expected.square().mean().sqrt()
    assert float((found - expected).square().mean().sqrt() / size) < 0.05
