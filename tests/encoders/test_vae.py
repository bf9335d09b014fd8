"""The evidence lower bound against quadrature, closed forms and torch.distributions; saving and loading."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.distributions import Bernoulli, Normal, kl_divergence

from identica.encoders import VAE
from identica.encoders.vae import FORMAT
from tests.stat_checks import assert_mean


@pytest.fixture
def images(generator: torch.Generator) -> Tensor:
    return torch.rand(5, 1, 4, 3, generator=generator, dtype=torch.float64)


def small(dim: int = 2, **settings: float) -> VAE:
    return VAE((1, 4, 3), dim, (16, 8), seed=3, **settings).double()  # type: ignore[arg-type]


def test_shapes_and_layers(images: Tensor) -> None:
    vae = small()
    mean, log_variance = vae.encode(images)
    assert mean.shape == log_variance.shape == (5, 2) and torch.equal(vae(images), mean)
    assert torch.equal(vae(images.flatten(1)), mean), "flat images will do"
    decoded = vae.decode(mean)
    assert decoded.shape == images.shape and bool(((decoded > 0) & (decoded < 1)).all())
    for network in (VAE().network, VAE().decoder.network):
        linear = [layer for layer in network if isinstance(layer, torch.nn.Linear)]
        assert len(linear) == 3, "three fully connected layers each way"
    assert vae.space.dim == 2


def test_terms_are_those_of_torch_distributions(images: Tensor) -> None:
    vae = small(beta=3.0)
    binary = images.round()
    found = vae.terms(binary, 5)
    mean, log_variance = vae.encode(binary)
    posterior = Normal(mean, (0.5 * log_variance).exp())
    noise = torch.randn(5, 2, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    z = posterior.mean + posterior.stddev * noise
    likelihood = Bernoulli(probs=vae.decode(z)).log_prob(binary).flatten(1).sum(1)
    divergence = kl_divergence(posterior, Normal(0.0, 1.0)).sum(1)
    assert torch.allclose(found.per_item, -likelihood + 3 * divergence)
    assert torch.allclose(found.loss, found.reconstruction + 3 * found.divergence)
    per_latent = kl_divergence(posterior, Normal(0.0, 1.0)).mean(0)
    assert torch.allclose(vae.divergence_per_latent(binary), per_latent)
    assert torch.allclose(found.divergence, divergence.mean()) and torch.allclose(found.loss, found.per_item.mean())


@pytest.mark.statistical(false_alarm=1e-6, what="mean of the loss over the noise against quadrature over one latent")
def test_the_loss_is_the_bound_and_stays_above_the_evidence(images: Tensor) -> None:
    vae = small(dim=1)
    image = images[:1].round()
    draws = vae.terms(image.expand(4000, -1, -1, -1), 0).per_item.detach()
    grid = torch.linspace(-12, 12, 20_001, dtype=torch.float64)
    with torch.no_grad():
        mean, log_variance = vae.encode(image)
        posterior = Normal(mean[0, 0], (0.5 * log_variance[0, 0]).exp())
        likelihood = Bernoulli(probs=vae.decode(grid[:, None])).log_prob(image).flatten(1).sum(1)
        prior, width = Normal(0.0, 1.0).log_prob(grid), float(grid[1] - grid[0])
        density = posterior.log_prob(grid)
        bound = (density.exp() * (likelihood + prior - density)).sum() * width
        evidence = torch.logsumexp(likelihood + prior, dim=0) + torch.tensor(width).log()
    assert_mean(draws[:, None], -bound[None])
    assert bound < evidence


def test_gradients_reach_every_weight_and_noise_comes_from_the_generator(images: Tensor) -> None:
    vae = small()
    vae.terms(images, 0).loss.backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in vae.parameters())
    assert torch.equal(vae.terms(images, 1).loss, vae.terms(images, torch.Generator().manual_seed(1)).loss)
    assert not torch.equal(vae.terms(images, 1).loss, vae.terms(images, 2).loss)


def test_equal_seeds_give_equal_weights() -> None:
    one, same, other = VAE((1, 4, 3), seed=1), VAE((1, 4, 3), seed=1), VAE((1, 4, 3), seed=2)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(next(one.parameters()), next(other.parameters()))


def test_a_saved_vae_comes_back(images: Tensor, tmp_path: Path) -> None:
    vae = small(beta=2.0, negative_slope=0.1)
    path = tmp_path / "new folder" / "vae.safetensors"
    vae.save(path)
    vae.save(path)
    again = VAE.load(path)
    assert again.to_dict() == vae.to_dict() and not again.training
    assert torch.equal(again(images), vae(images)) and torch.equal(again.decode(again(images)), vae.decode(vae(images)))
    assert [file.name for file in path.parent.iterdir()] == ["vae.safetensors"]


def test_files_that_are_no_vae_get_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "vae.safetensors"
    with pytest.raises(ValueError, match="There is no VAE"):
        VAE.load(path)
    small().save(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="not a complete safetensors file"):
        VAE.load(path)
    save_file({"weights": torch.zeros(2)}, path)
    with pytest.raises(ValueError, match="not a VAE of this library"):
        VAE.load(path)
    header = {"format_version": 99, "vae": small().to_dict()}
    save_file({"weights": torch.zeros(2)}, path, {FORMAT: json.dumps(header)})
    with pytest.raises(ValueError, match="newer version"):
        VAE.load(path)
    save_file({"weights": torch.zeros(2)}, path, {FORMAT: json.dumps({**header, "format_version": 1})})
    with pytest.raises(ValueError, match="is damaged"):
        VAE.load(path)


def test_wrong_arguments_get_a_sentence(images: Tensor) -> None:
    with pytest.raises(ValueError, match=r"\(n, 1, 4, 3\) or \(n, 12\)"):
        small()(images[..., :2])
    with pytest.raises(ValueError, match="torch.uint8"):
        small()((images * 255).to(torch.uint8))
    with pytest.raises(ValueError, match="latents of length 2"):
        small().decode(torch.zeros(4, 3, dtype=torch.float64))
    with pytest.raises(ValueError, match="beta"):
        small(beta=-1.0)
