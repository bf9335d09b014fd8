"""ResNets: sizes and names as published, a forward pass by hand, and an encoder that trains like the others."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from identica.distributions import BoxUniform, Conditional, TruncatedNormal
from identica.encoders import ResNet, ResNetEncoder, encoder_from_dict
from identica.encoders import resnet as module
from identica.objectives import InfoNCE
from identica.processes import PairProcess
from identica.spaces import Box, Euclidean, Sphere
from identica.training import TrainConfig, TrainState, load, make_step, train
from identica.training.together import Together

# Of the published networks with 1000 classes.
PARAMETERS = {18: 11_689_512, 34: 21_797_672, 50: 25_557_032}


@pytest.mark.parametrize("depth", [18, 34, 50])
def test_as_many_parameters_as_published(depth: int) -> None:
    assert sum(parameter.numel() for parameter in ResNet(depth).parameters()) == PARAMETERS[depth]


def test_names_and_shapes_are_torchvisions() -> None:
    """A few of each kind, typed from a state dict saved from there."""
    small, large = ResNet(18).state_dict(), ResNet(50).state_dict()
    assert len(small) == 122 and len(large) == 320
    assert small["conv1.weight"].shape == (64, 3, 7, 7)
    assert small["layer2.0.downsample.0.weight"].shape == (128, 64, 1, 1)
    assert small["layer4.1.bn2.running_var"].shape == (512,)
    assert "layer1.0.downsample.0.weight" not in small and "layer1.1.bn1.num_batches_tracked" in small
    assert large["layer1.0.downsample.1.weight"].shape == (256,)
    assert large["layer3.5.conv3.weight"].shape == (1024, 256, 1, 1)
    assert large["fc.weight"].shape == (1000, 2048)


def plain_forward(weights: dict[str, Tensor], x: Tensor, counts: tuple[int, ...], convolutions: int) -> Tensor:
    """The network written down once more from its weights alone, in evaluation mode."""

    def normed(y: Tensor, name: str) -> Tensor:
        mean, variance, gain, shift = (
            weights[f"{name}.{k}"] for k in ("running_mean", "running_var", "weight", "bias")
        )
        return (y - mean[:, None, None]) / (variance + 1e-5).sqrt()[:, None, None] * gain[:, None, None] + shift[
            :, None, None
        ]

    y = functional.conv2d(x, weights["conv1.weight"], stride=2, padding=3)
    y = functional.max_pool2d(normed(y, "bn1").clamp(min=0), 3, 2, 1)
    for layer, count in enumerate(counts, start=1):
        for block in range(count):
            name, stride, before = f"layer{layer}.{block}", 2 if layer > 1 and block == 0 else 1, y
            if f"{name}.downsample.0.weight" in weights:
                before = functional.conv2d(before, weights[f"{name}.downsample.0.weight"], stride=stride)
                before = normed(before, f"{name}.downsample.1")
            for k in range(1, convolutions + 1):
                kernel = weights[f"{name}.conv{k}.weight"]
                strided = stride if k == convolutions - 1 else 1  # the last but one: the first of two, the 3×3 of three
                y = functional.conv2d(y, kernel, stride=strided, padding=kernel.shape[-1] // 2)
                y = normed(y, f"{name}.bn{k}")
                y = (y if k < convolutions else y + before).clamp(min=0)
    return y.mean(dim=(2, 3)) @ weights["fc.weight"].T + weights["fc.bias"]


@pytest.mark.parametrize(("depth", "counts", "convolutions"), [(18, (2, 2, 2, 2), 2), (50, (3, 4, 6, 3), 3)])
def test_the_forward_pass_from_the_weights_alone(depth: int, counts: tuple[int, ...], convolutions: int) -> None:
    generator = torch.Generator().manual_seed(0)
    network = ResNet(depth, 5, seed=1).double().eval()
    for name, value in network.state_dict().items():
        if ("running" in name or "bn" in name or "downsample.1" in name) and value.is_floating_point():
            value.copy_(0.5 + torch.rand(value.shape, generator=generator, dtype=torch.float64))
    x = torch.randn(2, 3, 48, 40, generator=generator, dtype=torch.float64)
    expected = plain_forward(network.state_dict(), x, counts, convolutions)
    assert torch.allclose(network(x), expected, rtol=1e-9, atol=1e-9)


def test_a_forward_pass_by_hand() -> None:
    """With one tap in the first kernel and in each shortcut, and zeros elsewhere, four pixels are compared.

    The first convolution picks every second pixel, the pooling the largest around the first of those, (0, 0), (0, 2),
    (2, 0) and (2, 2); three shortcuts with stride 2 leave nothing else of an image of 32 pixels.
    """
    network = ResNet(18, 2).double().eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim == 4:
                parameter.zero_()
        network.conv1.weight[0, 1, 3, 3] = 1.0  # green
        for layer in ("layer2", "layer3", "layer4"):
            network.get_submodule(f"{layer}.0.downsample.0").weight[0, 0, 0, 0] = 1.0
        network.fc.weight.zero_()
        network.fc.weight[0, 0], network.fc.bias[:] = 3.0, torch.tensor([0.5, -1.0])
    x = torch.zeros(1, 3, 32, 32, dtype=torch.float64)
    x[0, 1, 0, 0], x[0, 1, 0, 2], x[0, 1, 2, 2], x[0, 1, 2, 0] = 0.25, 0.75, -4.0, 0.5
    x[0, 1, 1, 1], x[0, 0, 0, 0], x[0, 1, 4, 4] = 100.0, 100.0, 100.0  # none of these may be seen
    norms = (1 + 1e-5) ** -2  # four batch norms with variance 1 and ε = 1e-5, each dividing by √(1 + ε)
    expected = torch.tensor([[3 * 0.75 * norms + 0.5, -1.0]], dtype=torch.float64)
    assert torch.allclose(network(x), expected, atol=1e-12)


def test_the_small_stem_keeps_small_images_large() -> None:
    seen: list[torch.Size] = []
    network = ResNet(18, 4, stem="small").eval()
    network.get_submodule("layer4").register_forward_hook(lambda _, __, output: seen.append(output.shape))
    network(torch.zeros(1, 3, 32, 32))
    assert seen == [(1, 512, 4, 4)]


def test_weights_load_or_say_what_is_wrong() -> None:
    source, network = ResNet(18, 4, seed=1), ResNet(18, 4, seed=2)
    weights = source.state_dict()
    without_counter = {name: value for name, value in weights.items() if not name.endswith("num_batches_tracked")}
    network.load_weights(without_counter)
    assert all(torch.equal(value, weights[name]) for name, value in network.state_dict().items())

    other = {**weights, "layer9.weight": torch.zeros(1)}
    del other["layer1.0.conv1.weight"]
    with pytest.raises(ValueError, match=r"missing: layer1\.0\.conv1\.weight; unknown: layer9\.weight"):
        network.load_weights(other)
    classes = ResNet(18, 7, seed=3).state_dict()
    with pytest.raises(ValueError, match=r"fc\.weight of shape \(7, 512\) in place of \(4, 512\).*last_layer=False"):
        network.load_weights(classes)
    before = network.fc.weight.clone()
    network.load_weights(classes, last_layer=False)
    assert torch.equal(network.fc.weight, before) and torch.equal(network.conv1.weight, classes["conv1.weight"])


def test_seeds_decide_the_weights_and_nothing_else_is_touched() -> None:
    state = torch.get_rng_state()
    a, b, c = ResNet(18, 4, seed=5), ResNet(18, 4, seed=5), ResNet(18, 4, seed=6)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(a.conv1.weight, b.conv1.weight) and not torch.equal(a.conv1.weight, c.conv1.weight)
    assert a.get_parameter("layer4.1.conv2.weight").std().item() == pytest.approx((2 / (512 * 9)) ** 0.5, rel=0.01)


# The encoder


def test_bytes_and_floats_are_normalised_alike(generator: torch.Generator) -> None:
    encoder = ResNetEncoder(Sphere(3), stem="small").double().eval()
    images = torch.randint(0, 256, (6, 3, 8, 8), generator=generator, dtype=torch.uint8)
    encoder.prepare(images)
    expected = images.double() / 255
    assert torch.allclose(encoder.mean, expected.mean(dim=(0, 2, 3)), atol=1e-7)
    assert torch.allclose(encoder.deviation, expected.std(dim=(0, 2, 3), correction=0), atol=1e-7)
    normalised = encoder._normalised(images)
    assert torch.allclose(normalised.mean(dim=(0, 2, 3)), torch.zeros(3, dtype=torch.float64), atol=1e-6)
    assert torch.allclose(encoder(images), encoder(expected))
    before = encoder.mean.clone()
    encoder.prepare(images // 2)
    assert torch.equal(encoder.mean, before)


def test_a_black_sample_is_only_centred() -> None:
    encoder = ResNetEncoder(Euclidean(2), stem="small")
    encoder.prepare(torch.zeros(2, 3, 4, 4))
    assert encoder.deviation.tolist() == [1.0, 1.0, 1.0]


def test_many_images_are_encoded_in_parts(generator: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = ResNetEncoder(Box(2), stem="small").eval()
    images = torch.rand(7, 3, 8, 8, generator=generator)
    at_once = encoder(images)
    monkeypatch.setattr(module, "CHUNK", 3)
    with torch.no_grad():
        assert torch.allclose(encoder(images), at_once, atol=1e-6)


def test_half_precision_ends_in_full_precision(generator: torch.Generator) -> None:
    encoder = ResNetEncoder(Box(2, low=-1.0), stem="small").eval()
    images = torch.randint(0, 256, (4, 3, 16, 16), generator=generator, dtype=torch.uint8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = encoder(images)
    assert half.dtype == torch.float32
    assert torch.allclose(half, encoder(images), atol=0.05)


def test_plain_data_rebuilds_the_architecture() -> None:
    encoder = ResNetEncoder(Box(3, low=-1.0), 34, stem="small", learn_bound=False)
    again = encoder_from_dict(encoder.to_dict())
    assert again.to_dict() == encoder.to_dict()
    again.load_state_dict(encoder.state_dict())


@pytest.mark.parametrize("images", [torch.zeros(2, 1, 8, 8), torch.zeros(3, 8, 8), torch.zeros(2, 3, 8, 8).long()])
def test_other_tensors_get_a_sentence(images: Tensor) -> None:
    with pytest.raises(ValueError, match="A ResNet takes images"):
        ResNetEncoder(Box(2), stem="small")(images)


def test_wrong_settings_get_a_sentence() -> None:
    with pytest.raises(ValueError, match="18, 34, 50, not 19"):
        ResNet(19)
    with pytest.raises(ValueError, match='"large" or "small"'):
        ResNet(18, stem="tiny")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="three positive deviations"):
        ResNetEncoder(Box(2), stem="small").normalise_with([0.0] * 3, [1.0, 1.0, 0.0])


# In training


def drawn(z: Tensor) -> Tensor:
    """Latents (n, 2) as a spot of light and its colour in an image of 8 pixels."""
    axis = torch.linspace(0, 1, 8, dtype=z.dtype)
    spot = torch.exp(-8 * (axis - z[:, :1]).square())[:, None, :, None].expand(-1, 3, -1, 8)
    return spot * torch.stack([z[:, 1], 1 - z[:, 1], torch.ones_like(z[:, 1])], dim=1)[:, :, None, None]


def process() -> PairProcess:
    return PairProcess(BoxUniform(2), Conditional(TruncatedNormal, scale=0.1), drawn)


def test_running_statistics_are_updated_in_place() -> None:
    """What a captured step relies on: the same buffers, other numbers."""
    encoder = ResNetEncoder(Box(2), stem="small")
    objective = InfoNCE(Conditional(TruncatedNormal, scale=0.1).similarity())
    config = TrainConfig(steps=4, batch_size=8, eval_every=4, eval_samples=16, checkpoint_every=2)
    state = TrainState.create(encoder, objective, config)
    buffer = encoder.backbone.bn1.running_mean
    assert buffer is not None
    address, before = buffer.data_ptr(), buffer.clone()
    step = make_step(process(), state, config)
    encoder.train()
    step()
    now = encoder.backbone.bn1.running_mean
    assert now is buffer and buffer.data_ptr() == address and not torch.equal(buffer, before)


def test_a_saved_model_comes_back_with_its_statistics(tmp_path: Path) -> None:
    encoder = ResNetEncoder(Box(2), stem="small", seed=1)
    similarity = Conditional(TruncatedNormal, scale=0.1).similarity()
    config = TrainConfig(steps=1, batch_size=4, eval_samples=24)
    train(process(), encoder, InfoNCE(similarity), config, out=tmp_path, quiet=True)
    images = drawn(torch.tensor([[0.2, 0.3], [0.8, 0.5]]))
    with torch.no_grad():
        assert torch.equal(load(tmp_path).encoder(images), encoder(images))
    assert bool(encoder.fitted) and not encoder.training


def test_several_seeds_as_one_step_update_their_own_statistics() -> None:
    """Mapped over seeds, each has its own running statistics, equal to those it would have alone."""
    config = TrainConfig(steps=2, batch_size=4, eval_every=4, eval_samples=16)
    similarity = Conditional(TruncatedNormal, scale=0.1).similarity()

    def states() -> list[TrainState]:
        return [
            TrainState.create(
                ResNetEncoder(Box(2), stem="small", seed=seed).train(), InfoNCE(similarity), config, seed=seed
            )
            for seed in (0, 1)
        ]

    together, alone = states(), states()
    Together([process(), process()], together, config, mapped=True).advance()
    Together([process(), process()], alone, config, mapped=False).advance()
    for a, b in zip(together, alone, strict=True):
        mapped, single = a.encoder.state_dict(), b.encoder.state_dict()
        assert torch.allclose(mapped["backbone.bn1.running_mean"], single["backbone.bn1.running_mean"], atol=1e-6)
        assert torch.allclose(mapped["backbone.bn1.running_var"], single["backbone.bn1.running_var"], atol=1e-6)
        assert int(mapped["backbone.bn1.num_batches_tracked"]) == 1


def test_codes_of_images_can_be_turned() -> None:
    encoder = ResNetEncoder(Sphere(2), stem="small").eval()
    images = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        before = encoder(images)
        turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
        encoder.turn(turn)
        torch.testing.assert_close(encoder(images), before @ turn.T)
        mapped = encoder(images) * torch.tensor([2.0, 1.0])
        encoder.stretch(torch.diag(torch.tensor([2.0, 1.0])))
        torch.testing.assert_close(encoder(images), mapped / mapped.norm(dim=1, keepdim=True))
