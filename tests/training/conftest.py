from __future__ import annotations

from collections.abc import Callable

import pytest

import identica as idt
from identica.training import TrainConfig

SMALL = TrainConfig(
    steps=40, batch_size=64, lr=1e-3, schedule="cosine", eval_every=10, eval_samples=256, checkpoint_every=7
)


@pytest.fixture
def parts() -> Callable[[], tuple[idt.PairProcess, idt.MLPEncoder, idt.InfoNCE]]:
    """A small problem; every call makes it anew, always the same."""

    def make() -> tuple[idt.PairProcess, idt.MLPEncoder, idt.InfoNCE]:
        laplace = idt.Conditional(idt.TruncatedLaplace, scale=0.1)
        process = idt.PairProcess(idt.BoxUniform(2), laplace, mixing=idt.InvertibleMLP(2, seed=1, candidates=100))
        encoder = idt.MLPEncoder(2, idt.Box(2), hidden=(32, 32), seed=2)
        return process, encoder, idt.InfoNCE(idt.LpSimilarity(1, temperature=0.1, trainable=True))

    return make
