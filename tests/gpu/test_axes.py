"""On a GPU: axes are those found on the CPU, wherever the loss is."""

from __future__ import annotations

import pytest
import torch

import identica as idt
from identica.diagnostics import best_axes

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_turned_latents_are_turned_back(place: str) -> None:
    pairs = idt.Conditional(idt.FisherBingham, precision=(4.0, 8.0, 16.0))
    process = idt.PairProcess(idt.SphereUniform(3), pairs).to("cuda")
    source = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(3, 3, generator=source))[0]
    objective = idt.AnInfoNCE(3, init=8.0).to(place)
    axes = best_axes(process, lambda x: x @ turn.T.to(x), objective, n=512, batches=32)
    assert axes.turn(turn.T).abs().max(dim=1).values.min() > 0.99
    assert sorted(axes.precision) == pytest.approx([4.0, 8.0, 16.0], rel=0.1)
    assert axes.turn(torch.eye(3, device="cuda")).device.type == "cuda"


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_stretched_latents_are_made_round(place: str) -> None:
    pairs = idt.Conditional(idt.FisherBingham, precision=(4.0, 8.0, 16.0))
    process = idt.PairProcess(idt.SphereUniform(3), pairs).to("cuda")
    stretch = torch.tensor([1.2, 1.0, 0.8])
    objective = idt.AnInfoNCE(3, init=8.0).to(place)

    def encode(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.normalize(x * stretch.to(x))

    axes = best_axes(process, encode, objective, n=512, batches=32, rounded=True)
    assert sorted(axes.precision) == pytest.approx([4.0, 8.0, 16.0], rel=0.1)
    assert axes.rounding is not None
    assert (axes.rounding.diagonal().cpu() * stretch).std() < 0.02
    assert axes.turn(torch.eye(3, device="cuda")).device.type == "cuda"
