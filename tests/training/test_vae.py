"""Training a VAE: it learns, repeats itself, and says what is wrong."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from identica.encoders import VAE
from identica.training import TrainingDiverged, train_vae


def bars(n: int) -> Tensor:
    """Upright bars at a random place: one factor."""
    place = 1 + 6 * torch.rand(n, 1, generator=torch.Generator().manual_seed(0))
    return torch.exp(-(torch.arange(8)[None] - place).square())[:, None, None, :].expand(n, 1, 8, 8).contiguous()


def small() -> VAE:
    return VAE((1, 8, 8), 2, (32, 16), seed=0)


def test_it_learns_what_varies() -> None:
    images = bars(512)
    vae, history = train_vae(images, small(), epochs=15, batch_size=32, lr=3e-3, quiet=True)
    assert [record.epoch for record in history] == list(range(1, 16)) and not vae.training
    assert history[-1].loss < history[0].loss - 3
    assert history[-1].loss == pytest.approx(history[-1].reconstruction + history[-1].divergence)
    with torch.no_grad():
        error = (vae.decode(vae(images)) - images).square().mean()
    assert error < 0.3 * images.var(dim=0).mean(), "better than the mean image"


def test_equal_seeds_give_equal_weights_and_bytes_are_as_good_as_floats() -> None:
    packed = (bars(100) * 255).round().to(torch.uint8)
    first, _ = train_vae(packed, epochs=2, seed=4, quiet=True)
    again, _ = train_vae(packed.float() / 255, epochs=2, seed=4, quiet=True)
    other, _ = train_vae(packed, epochs=2, seed=5, quiet=True)
    assert first.dim == 10 and first.shape == (1, 8, 8)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.network[0].weight, other.network[0].weight)


def test_augmented_images_are_what_it_sees(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Tensor] = []

    def darker(x: Tensor, generator: torch.Generator) -> Tensor:
        factor = torch.rand(len(x), 1, 1, 1, generator=generator)
        seen.append(factor)
        return x * factor

    _, history = train_vae(bars(70), small(), epochs=2, batch_size=32, augment=darker)
    assert [len(factor) for factor in seen] == [32] * 4 and not torch.equal(seen[0], seen[1])
    assert "epoch 2/2" in capsys.readouterr().err and len(history) == 2


def test_every_image_is_seen_in_every_epoch() -> None:
    images = torch.arange(64.0).reshape(64, 1, 1, 1).expand(64, 1, 2, 2) / 64
    seen: list[Tensor] = []

    def watched(x: Tensor, generator: torch.Generator) -> Tensor:
        seen.append(x[:, 0, 0, 0] * 64)
        return x

    train_vae(images, VAE((1, 2, 2), 1, (4,)), epochs=2, batch_size=16, augment=watched, quiet=True)
    first, second = torch.cat(seen[:4]), torch.cat(seen[4:])
    assert torch.equal(first.sort().values, torch.arange(64.0)) and torch.equal(
        second.sort().values, torch.arange(64.0)
    )
    assert not torch.equal(first, second)


def test_what_cannot_be_trained_gets_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"\(N, channels, height, width\)"):
        train_vae(bars(4)[:, 0], quiet=True)
    with pytest.raises(ValueError, match="Divide bytes by 255"):
        train_vae(255 * bars(4), quiet=True)
    with pytest.raises(TrainingDiverged, match="epoch 1: try a smaller learning rate"):
        train_vae(bars(64), small(), epochs=1, batch_size=8, lr=1e9, quiet=True)
