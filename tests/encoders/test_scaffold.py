"""Further codes: there while an encoder is trained, faded at the end, gone in evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import identica as idt
from identica.encoders import ResNetEncoder, Scaffold, encoder_from_dict
from identica.encoders.scaffold import fading
from identica.gradual import Gradual
from identica.training import load


def images(n: int) -> torch.Tensor:
    return torch.rand(n, 3, 16, 16, generator=torch.Generator().manual_seed(0))


class Images:
    """Pairs of images that do not matter."""

    device, dtype = torch.device("cpu"), torch.float32

    def sample(self, n: int, generator: Any) -> idt.Pairs:
        z = torch.rand(n, 2)
        return idt.Pairs(z, z, images(n), images(n).flip(-1))

    def to(self, device: Any = None, dtype: Any = None) -> Images:
        return self


def test_codes_are_further_in_training_alone() -> None:
    encoder = ResNetEncoder(idt.Box(2, low=-1.0), stem="small", scaffold=3, seed=0)
    assert encoder.train()(images(4)).shape == (4, 5)
    assert encoder.eval()(images(4)).shape == (4, 2)
    encoder.scaffold = None
    assert encoder.train()(images(4)).shape == (4, 2)
    assert "scaffold" not in encoder.to_dict()


def test_the_weight_scales_squared_distances() -> None:
    scaffold = Scaffold(5, 4, seed=0)
    features = torch.randn(6, 5, generator=torch.Generator().manual_seed(1))
    full = scaffold(features)
    assert float(full.detach().abs().max()) < 1.0
    scaffold.fade.value.fill_(0.25)
    torch.testing.assert_close(torch.cdist(scaffold(features), scaffold(features)).square(),
                               0.25 * torch.cdist(full, full).square())  # fmt: skip


def test_it_fades_with_the_steps_and_is_saved_with_the_model(tmp_path: Path) -> None:
    encoder = ResNetEncoder(idt.Box(2, low=-1.0), stem="small", scaffold=3, seed=0)
    seen: list[float] = []

    class Watch(idt.Callback):
        def on_step(self, state: Any) -> None:
            seen.append(float(state.encoder.scaffold.fade.value))

    config = idt.TrainConfig(steps=10, batch_size=8, lr=1e-3, eval_every=10, eval_samples=16)
    loss = idt.InfoNCE(idt.LpSimilarity(2))
    run = idt.train(Images(), encoder, loss, config, callbacks=[Watch()], out=tmp_path, quiet=True)
    assert seen == pytest.approx([Gradual(1.0, 1e-3, until=0.6, after=0.2).value_at(k / 10) for k in range(10)])
    assert seen[2] == pytest.approx(1.0) and seen[6] == pytest.approx(1e-3) == pytest.approx(seen[9])
    again = load(tmp_path)
    torch.testing.assert_close(again(images(3)), run(images(3)))


def test_it_is_described_and_rebuilt() -> None:
    encoder = ResNetEncoder(idt.Box(2), stem="small", scaffold=3)
    again = encoder_from_dict(encoder.to_dict())
    assert isinstance(again, ResNetEncoder) and again.scaffold is not None and again.scaffold.count == 3
    assert again.scaffold.fade.until == 0.6 and "scaffold_until" not in again.to_dict()
    later = encoder_from_dict(ResNetEncoder(idt.Box(2), stem="small", scaffold=3, scaffold_until=0.9).to_dict())
    assert isinstance(later, ResNetEncoder) and later.scaffold is not None
    assert (later.scaffold.fade.after, later.scaffold.fade.until) == (0.2, 0.9)
    assert fading(0.1).after == 0.05  # a short one begins at once
    for until in (0.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match="scaffold_until is a part of the steps"):
            ResNetEncoder(idt.Box(2), stem="small", scaffold=3, scaffold_until=until)


def test_what_it_does_not_take() -> None:
    with pytest.raises(ValueError, match="on a sphere leave it at 0"):
        ResNetEncoder(idt.Sphere(3), stem="small", scaffold=2)
    with pytest.raises(ValueError, match="count of a Scaffold"):
        Scaffold(5, 0)
    with pytest.raises(ValueError, match="after is a part of all steps before until"):
        Gradual(1.0, 0.1, until=0.5, after=0.5)


def test_gradual_numbers_wait() -> None:
    number = Gradual(1.0, 1e-2, until=0.6, after=0.2)
    assert [number.value_at(f) for f in (0.0, 0.2, 0.4, 0.6, 1.0)] == pytest.approx([1, 1, 0.1, 0.01, 0.01])
    assert number.to_dict()["after"] == 0.2 and "after" not in Gradual(1.0, 0.1).to_dict()
