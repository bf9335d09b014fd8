"""On a GPU: seeds trained together in one captured step end like seeds trained alone."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import identica as idt
from identica.training.together import Together

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

LAPLACE = idt.Conditional(idt.TruncatedLaplace, scale=0.1)
CONFIG = idt.TrainConfig(
    steps=600, batch_size=1024, lr=5e-3, schedule="cosine", eval_every=300, eval_samples=4096, precision="tf32"
)
SEEDS = [1, 2, 3]


def make_parts(seed: int) -> tuple[Any, Any, Any]:
    process = idt.PairProcess(idt.BoxUniform(3), LAPLACE, mixing=idt.InvertibleMLP(3, seed=seed, candidates=100))
    encoder = idt.ResidualEncoder(3, idt.Box(3), width=64, learn_bound=False, seed=seed)
    return process, encoder, idt.InfoNCE(idt.Annealed(LAPLACE.similarity(), start=5.0))


def test_each_seed_learns_what_it_learns_alone() -> None:
    parts = [make_parts(seed) for seed in SEEDS]
    processes, encoders, objectives = (list(column) for column in zip(*parts, strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it must be captured, and mapped
        runs = idt.train_many(processes, encoders, objectives, CONFIG, seeds=SEEDS, device="cuda", quiet=True)
    for seed, run in zip(SEEDS, runs, strict=True):
        alone = idt.train(*make_parts(seed), CONFIG, seed=seed, device="cuda", quiet=True)
        assert run.history[0].scores == pytest.approx(alone.history[0].scores, abs=1e-4), "the same start"
        assert run.scores["mcc"] > 0.98 and alone.scores["mcc"] > 0.98
        # The same pairs in the same order: only rounding differs, and what it grows to.
        assert run.history[-1]["loss"] == pytest.approx(alone.history[-1]["loss"], rel=0.05)


def test_the_mapped_step_takes_the_steps_of_each_seed() -> None:
    config = idt.TrainConfig(steps=20, batch_size=512, lr=1e-4, precision="tf32")

    def states() -> tuple[list[Any], list[idt.TrainState]]:
        processes, made = [], []
        for seed in SEEDS:
            process, encoder, objective = make_parts(seed)
            process = process.to("cuda")
            encoder.to("cuda").prepare(process.sample(500, seed).x)
            processes.append(process)
            made.append(idt.TrainState.create(encoder, objective, config, seed=seed, device="cuda"))
        return processes, made

    (processes, alone), (_, mapped) = states(), states()
    one, other = Together(processes, alone, config, mapped=False), Together(processes, mapped, config, mapped=True)
    for _ in range(10):
        one.advance()
        other.advance()
    for a, b in zip(alone, mapped, strict=True):
        assert int(a.device_step) == int(b.device_step) == 10
        torch.testing.assert_close(b.sums, a.sums, rtol=2e-2, atol=2e-2)
        assert float(b.objective.similarity.factor.value) == pytest.approx(
            float(a.objective.similarity.factor.value), rel=1e-5
        )
