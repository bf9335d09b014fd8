"""A decoder as a mixing: the decoder's own function of scaled latents, frozen and described."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

import identica as idt
from identica.encoders import VAE
from identica.mixing import DecoderMixing, mixing_from_dict, same_mixing


@pytest.fixture
def vae() -> VAE:
    return VAE(shape=(1, 6, 5), dim=4, hidden=(16, 8), seed=1)


def test_it_is_the_decoder_of_latents_on_the_large_sphere(vae: VAE, generator: torch.Generator) -> None:
    z = idt.SphereUniform(4).sample(7, generator=generator)
    mixing = DecoderMixing(vae.decoder)
    assert mixing.scale == 2.0 and mixing.dim == 4
    assert torch.equal(mixing(z), vae.decode(2 * z).flatten(1))
    assert DecoderMixing(vae.decoder, flatten=False)(z).shape == (7, 1, 6, 5)
    assert torch.equal(DecoderMixing(vae.decoder, math.sqrt(10))(z), vae.decode(math.sqrt(10) * z).flatten(1))
    assert mixing(z.double()).dtype == torch.float64
    with pytest.raises(NotImplementedError, match="no inverse"):
        mixing.inverse(mixing(z))


def test_images_do_not_depend_on_the_precision_of_a_model(vae: VAE, generator: torch.Generator) -> None:
    z, mixing = idt.SphereUniform(4).sample(7, generator=generator), DecoderMixing(vae.decoder)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(mixing(z), mixing(z.clone())) and mixing(z).dtype == torch.float32
        low = mixing(z)
    assert torch.equal(low, mixing(z))


def test_the_copy_is_frozen_and_the_decoder_goes_on_being_trained(vae: VAE) -> None:
    decoder = nn.Sequential(nn.Linear(4, 9), nn.Dropout(0.5))
    mixing = DecoderMixing(decoder, dim=4).train()
    z = torch.eye(4)
    assert torch.equal(mixing(z), mixing(z)), "no dropout"
    assert not any(parameter.requires_grad for parameter in mixing.parameters())
    assert decoder.training and all(parameter.requires_grad for parameter in decoder.parameters())
    before = mixing(z)
    with torch.no_grad():
        decoder[0].weight.add_(1)
    assert torch.equal(mixing(z), before)


def test_the_description_tells_decoders_apart_by_their_weights(vae: VAE) -> None:
    mixing = DecoderMixing(vae.decoder)
    description = mixing.to_dict()
    assert description["mixing"] == "decoder" and description["scale"] == 2.0 and len(description["weights"]) == 64
    assert copy.deepcopy(mixing).double().to_dict() == description, "the same numbers in another precision"
    assert same_mixing(mixing, DecoderMixing(vae.decoder))
    with torch.no_grad():
        vae.decoder.network[0].bias[0] += 1e-6
    other = DecoderMixing(vae.decoder)
    assert other.to_dict() != description and not same_mixing(mixing, other)
    with pytest.raises(ValueError, match="decoder, whose weights are not part of its description"):
        mixing_from_dict(description)


def test_a_process_draws_pairs_of_images(vae: VAE) -> None:
    conditional = idt.Conditional(idt.FisherBingham, precision=[5.0, 5.0, 20.0, 20.0])
    mixing = DecoderMixing(vae.decoder)
    process = idt.PairProcess(idt.SphereUniform(4), conditional, mixing)
    pairs = process.sample(6, 0)
    assert pairs.x.shape == (6, 30) and not pairs.x.requires_grad
    assert torch.allclose(pairs.x, mixing(pairs.z), atol=1e-6)
    assert torch.allclose(pairs.x_pos, mixing(pairs.z_pos), atol=1e-6)
    assert process.to_dict()["mixing"] == mixing.to_dict()
    encoder = idt.MLPEncoder(30, idt.Sphere(4), hidden=(32,))
    config = idt.TrainConfig(steps=3, batch_size=16, eval_samples=64)
    run = idt.train(process, encoder, idt.AnInfoNCE(4), config, quiet=True)
    assert set(run.scores) == {"r2", "mcc"}


def test_a_whole_autoencoder_is_no_decoder(vae: VAE) -> None:
    with pytest.raises(TypeError, match=r"pass vae\.decoder"):
        DecoderMixing(vae)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda decoder: DecoderMixing(torch.sigmoid), "takes a torch module"),
        (lambda decoder: DecoderMixing(nn.Linear(4, 9)), "pass dim="),
        (lambda decoder: DecoderMixing(decoder, 0.0), "positive number"),
        (lambda decoder: DecoderMixing(decoder)(torch.zeros(3, 5)), r"\(n, 4\), not \(3, 5\)"),
    ],
)
def test_what_does_not_fit_gets_a_sentence(vae: VAE, make: object, sentence: str) -> None:
    with pytest.raises((ValueError, TypeError), match=sentence):
        make(vae.decoder)  # type: ignore[operator]
