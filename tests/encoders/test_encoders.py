from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from identica.encoders import Encoder, MLPEncoder, ResidualEncoder, encoder_from_dict
from identica.encoders.base import turn_layers
from identica.encoders.residual import scaled_log_odds
from identica.spaces import Box, Euclidean, Product, Space, Sphere

SPACES: list[Space] = [Sphere(3), Box(3), Euclidean(3), Product(Sphere(2), Euclidean(1))]


def small(kind: str, space: Space, dim_in: int = 5, seed: int = 0) -> Encoder:
    if kind == "mlp":
        return MLPEncoder(dim_in, space, hidden=[16, 8], seed=seed)
    return ResidualEncoder(dim_in, space, width=16, seed=seed)


@pytest.mark.parametrize("kind", ["mlp", "residual"])
@pytest.mark.parametrize("space", SPACES, ids=str)
def test_codes_lie_in_the_space_and_gradients_reach_every_weight(
    kind: str, space: Space, generator: torch.Generator
) -> None:
    encoder = small(kind, space)
    x = torch.randn(64, 5, generator=generator)
    encoder.prepare(x)
    h = encoder(x)
    assert h.shape == (64, 3) and bool(space.contains(h).all())
    # Zero-initialised layers pass no gradient back before their first step.
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    target = torch.randn(64, 3, generator=generator)
    for _ in range(3):
        optimizer.zero_grad()
        (encoder(x) - target).square().mean().backward()
        optimizer.step()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in encoder.parameters())


@pytest.mark.parametrize("kind", ["mlp", "residual"])
def test_leading_shapes_are_kept(kind: str, generator: torch.Generator) -> None:
    encoder = small(kind, Sphere(3))
    x = torch.randn(4, 2, 5, generator=generator)
    assert torch.allclose(encoder(x)[3, 1], encoder(x[3, 1]), atol=1e-6)


@pytest.mark.parametrize("latents", [2, 10])
def test_the_papers_widths_and_number_of_parameters(latents: int) -> None:
    encoder = MLPEncoder(latents, Euclidean(latents))
    n = latents
    assert encoder.hidden == (10 * n, 50 * n, 50 * n, 50 * n, 50 * n, 10 * n)
    # Weights and biases counted by hand: N·10N, 10N·50N, three times 50N·50N, 50N·10N, 10N·N.
    weights = 10 * n**2 + 500 * n**2 + 3 * 2500 * n**2 + 500 * n**2 + 10 * n**2
    biases = 10 * n + 4 * 50 * n + 10 * n + n
    assert sum(p.numel() for p in encoder.parameters()) == weights + biases
    slopes = [m.negative_slope for m in encoder.modules() if isinstance(m, torch.nn.LeakyReLU)]
    assert slopes == [0.01] * 6  # one after every hidden layer, none before the head


def test_the_box_head_adds_one_bound_per_dimension() -> None:
    free, fixed = (MLPEncoder(4, Box(4), hidden=[8], learn_bound=learn) for learn in (True, False))
    count = [sum(p.numel() for p in encoder.parameters()) for encoder in (free, fixed)]
    assert count[0] - count[1] == 4


def test_mlp_is_a_perceptron(generator: torch.Generator) -> None:
    encoder = MLPEncoder(3, Euclidean(2), hidden=[4], negative_slope=0.3).double()
    x = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    first, _, last = encoder.network
    hidden = x @ first.weight.T + first.bias  # type: ignore[operator, union-attr]
    hidden = torch.maximum(hidden, 0.3 * hidden)
    expected = hidden @ last.weight.T + last.bias  # type: ignore[operator, union-attr]
    assert torch.allclose(encoder(x), expected, atol=1e-12)


def test_residual_encoder_starts_linear_in_the_whitened_input(generator: torch.Generator) -> None:
    x = 3 + torch.randn(100, 5, generator=generator) @ torch.randn(5, 5, generator=generator)
    encoder = ResidualEncoder(5, Euclidean(4))
    encoder.prepare(x)
    assert encoder.whiten is not None
    assert torch.allclose(encoder(x), encoder.skip(encoder.whiten(x)), atol=1e-6)
    assert torch.linalg.matrix_rank(encoder(x).detach() - encoder(x).detach().mean(dim=0)) == 4


@pytest.mark.parametrize("activation", ["gelu", "leaky_relu", "silu", "tanh"])
def test_residual_encoder_fits_a_bent_function(activation: str, generator: torch.Generator) -> None:
    x = torch.randn(256, 2, generator=generator)
    target = torch.stack([x[:, 0].abs(), x[:, 0] * x[:, 1]], dim=1)
    encoder = ResidualEncoder(2, Euclidean(2), width=32, activation=activation)
    encoder.prepare(x)
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-2)
    for _ in range(150):
        optimizer.zero_grad()
        loss = (encoder(x) - target).square().mean()
        loss.backward()
        optimizer.step()
    # The best linear map leaves nearly all of the variance.
    assert loss.item() < 0.1 * target.var(dim=0).mean().item()


@pytest.mark.parametrize("kind", ["mlp", "residual"])
def test_equal_seeds_equal_weights_and_no_global_randomness(kind: str) -> None:
    before = torch.get_rng_state()
    one, same, other = (small(kind, Box(3), seed=seed) for seed in (4, 4, 5))
    assert torch.equal(torch.get_rng_state(), before)
    for name, value in one.state_dict().items():
        assert torch.equal(value, same.state_dict()[name])
    differs = [not torch.equal(v, other.state_dict()[k]) for k, v in one.state_dict().items()]
    assert any(differs)


def test_a_generator_serves_as_seed() -> None:
    by_number = MLPEncoder(3, Box(3), hidden=[4], seed=9)
    by_generator = MLPEncoder(3, Box(3), hidden=[4], seed=torch.Generator().manual_seed(9))
    assert torch.equal(by_number.network[0].weight, by_generator.network[0].weight)  # type: ignore[arg-type]


def test_initial_weights_follow_torchs_law() -> None:
    weight = MLPEncoder(100, Euclidean(3), hidden=[400]).network[0].weight
    assert isinstance(weight, torch.Tensor)
    assert weight.abs().max() <= 0.1 and weight.abs().max() > 0.0999  # uniform on ±1/√100
    assert weight.std().item() == pytest.approx(0.1 / 3**0.5, rel=0.02)


def test_prepare_fits_once(generator: torch.Generator) -> None:
    encoder = ResidualEncoder(3, Box(3))
    x = torch.randn(100, 3, generator=generator)
    encoder.prepare(x)
    assert encoder.whiten is not None
    matrix = encoder.whiten.matrix.clone()
    encoder.prepare(5 * x)
    assert torch.equal(encoder.whiten.matrix, matrix)
    plain = MLPEncoder(3, Box(3), hidden=[4])
    plain.prepare(x)
    assert plain.whiten is None


@pytest.mark.parametrize(
    "encoder",
    [
        MLPEncoder(4, Sphere(3, radius=2.0), hidden=[6], negative_slope=0.2, learn_radius=True),
        MLPEncoder(4, Box(2, low=-1.0, high=(1.0, 2.0)), whiten=True, learn_bound=False),
        ResidualEncoder(4, Product(Sphere(2), Box(2)), width=8, blocks=3, activation="silu"),
        ResidualEncoder(4, Euclidean(2), whiten=False),
        ResidualEncoder(4, Euclidean(2), whiten=False, log_odds=1e-3),
        ResidualEncoder(4, Euclidean(2), whiten=0.5, log_odds=1e-3),
    ],
    ids=["mlp", "mlp-white", "residual", "residual-plain", "residual-log-odds", "residual-partly-white"],
)
def test_dict_round_trip(encoder: Encoder, generator: torch.Generator) -> None:
    x = torch.randn(50, 4, generator=generator)
    encoder.prepare(x)
    data = json.loads(json.dumps(encoder.to_dict()))
    again = encoder_from_dict(data, seed=123)
    assert again.to_dict() == encoder.to_dict()
    again.load_state_dict(encoder.state_dict())
    assert torch.equal(again(x), encoder(x))


def test_numpy_settings_become_plain_ones() -> None:
    yes, three = np.bool_(True), np.int64(3)
    for encoder in (
        MLPEncoder(three, Box(2), hidden=np.array([4, 5]), whiten=yes, learn_bound=yes, seed=three),  # type: ignore[arg-type]
        ResidualEncoder(three, Sphere(2), width=three, blocks=three, learn_radius=yes),  # type: ignore[arg-type]
    ):
        again = encoder_from_dict(json.loads(json.dumps(encoder.to_dict())))
        assert again.to_dict() == encoder.to_dict()


class Plain(Encoder):
    def body(self, x: Tensor) -> Tensor:
        return x


class Deeper(ResidualEncoder):
    pass


@pytest.mark.parametrize("encoder", [Plain(2, Euclidean(2), whiten=False), Deeper(2, Box(2), width=4)])
def test_encoders_of_ones_own_class_say_that_they_cannot_be_rebuilt(encoder: Encoder) -> None:
    name = type(encoder).__name__
    assert encoder.to_dict() == {"class": name}
    with pytest.raises(ValueError, match=f"The encoder '{name}' is not one of identica's"):
        encoder_from_dict(encoder.to_dict())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["mlp", "residual"])
@pytest.mark.parametrize("space", SPACES, ids=str)
def test_half_precision_is_finite(dtype: torch.dtype, kind: str, space: Space, generator: torch.Generator) -> None:
    encoder = small(kind, space)
    x = torch.randn(64, 5, generator=generator)
    encoder.prepare(x)
    encoder.to(dtype)
    h = encoder(x.to(dtype))
    h.square().mean().backward()
    assert bool(h.isfinite().all())
    assert all(bool(p.grad.isfinite().all()) for p in encoder.parameters() if p.grad is not None)


def test_autocast_gives_float32_codes(generator: torch.Generator) -> None:
    encoder = small("residual", Sphere(3))
    x = torch.randn(64, 5, generator=generator)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h = encoder(x)
    assert h.dtype == torch.float32 and torch.allclose(h.norm(dim=1), torch.ones(64))


def test_log_odds_of_intensities() -> None:
    """What a sigmoid made is seen as it was before; at 0 and 1 it ends."""
    encoder = ResidualEncoder(3, Euclidean(2), width=8, whiten=False, log_odds=1e-3, seed=1)
    plain = ResidualEncoder(3, Euclidean(2), width=8, whiten=False, seed=1)
    z = torch.linspace(-6, 6, 30).view(10, 3)
    largest = math.log(999)
    torch.testing.assert_close(encoder(z.sigmoid()), plain(z / largest))
    torch.testing.assert_close(encoder(torch.eye(3)), plain(2 * torch.eye(3) - 1))


def test_it_is_log_odds_that_are_whitened(generator: torch.Generator) -> None:
    encoder = ResidualEncoder(3, Euclidean(2), width=8, whiten=0.5, log_odds=1e-6, seed=1)
    plain = ResidualEncoder(3, Euclidean(2), width=8, whiten=0.5, seed=1)
    z = 3 * torch.randn(500, 3, generator=generator)
    encoder.prepare(z.sigmoid())
    plain.prepare(z)
    torch.testing.assert_close(encoder(z.sigmoid()), plain(z), rtol=1e-4, atol=1e-4)


def test_log_odds_are_finite_however_small_their_floor() -> None:
    """In float32 there is no number between 1 − 6e-8 and 1."""
    odds = scaled_log_odds(torch.tensor([0.0, 1e-13, 1e-9, 0.5, 1.0 - 6e-8, 1.0]), 1e-12)
    assert bool(odds.isfinite().all()) and bool((odds.diff() >= 0).all())
    assert odds[0] == odds[1] == -1.0 and odds[1] < odds[2] and odds[-1] < 0.6
    torch.testing.assert_close(scaled_log_odds(torch.tensor([0, 1]), 1e-3), torch.tensor([-1.0, 1.0]))


@pytest.mark.parametrize("kind", ["mlp", "residual"])
@pytest.mark.parametrize("space", [Sphere(3), Euclidean(3)], ids=repr)
def test_turned_codes(kind: str, space: Space, generator: torch.Generator) -> None:
    encoder, x = small(kind, space).double(), torch.randn(20, 5, generator=generator, dtype=torch.float64)
    encoder.prepare(x)
    with torch.no_grad():
        for weights in encoder.parameters():
            weights.normal_(generator=generator)
        before = encoder(x)
        turn = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64))[0]
        encoder.turn(turn)
        torch.testing.assert_close(encoder(x), before @ turn.T)


@pytest.mark.parametrize("kind", ["mlp", "residual"])
def test_stretched_codes(kind: str, generator: torch.Generator) -> None:
    """And their lengths stay, whatever that is."""
    encoder, x = small(kind, Sphere(3, 2.0)).double(), torch.randn(20, 5, generator=generator, dtype=torch.float64)
    encoder.prepare(x)
    with torch.no_grad():
        for weights in encoder.parameters():
            weights.normal_(generator=generator)
        matrix = torch.randn(3, 3, generator=generator, dtype=torch.float64)
        before = encoder(x)
        mapped = before @ matrix.T
        encoder.stretch(matrix)
        lengths = before.norm(dim=1, keepdim=True) / mapped.norm(dim=1, keepdim=True)
        torch.testing.assert_close(encoder(x), lengths * mapped)


def test_what_cannot_be_stretched() -> None:
    with pytest.raises(ValueError, match="nothing brings them back"):
        small("mlp", Euclidean(3)).stretch(torch.eye(3))
    for wrong in (torch.eye(2), torch.ones(3, 3), torch.full((3, 3), float("nan"))):
        with pytest.raises(ValueError, match=r"invertible matrix of shape \(3, 3\)"):
            small("mlp", Sphere(3)).stretch(wrong)


def test_what_cannot_be_turned() -> None:
    with pytest.raises(ValueError, match="would leave it"):
        small("mlp", Box(3)).turn(torch.eye(3))
    for wrong in (torch.eye(2), 2 * torch.eye(3), torch.ones(3, 3)):
        with pytest.raises(ValueError, match=r"orthogonal matrix of shape \(3, 3\)"):
            small("mlp", Sphere(3)).turn(wrong)
    layer = nn.Linear(2, 3, bias=False)
    turn_layers([layer], torch.eye(3), Sphere(3))  # nothing is missed
    with pytest.raises(NotImplementedError, match="last_layers"):
        Plain(3, Sphere(3), whiten=False).turn(torch.eye(3))


def test_errors_are_sentences() -> None:
    encoder = small("mlp", Box(3))
    with pytest.raises(ValueError, match="kept from 0 and 1, between 0 and 0.5; got 0.5"):
        ResidualEncoder(3, Box(3), log_odds=0.5)
    with pytest.raises(ValueError, match="got '1e-3'"):
        ResidualEncoder(3, Box(3), log_odds="1e-3")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="power of Whiten is above 0"):
        ResidualEncoder(3, Box(3), whiten=-0.5)
    with pytest.raises(ValueError, match=r"length 5, but the input has shape \(4, 3\)"):
        encoder(torch.zeros(4, 3))
    with pytest.raises(ValueError, match="length of the observations"):
        MLPEncoder(0, Box(3))
    with pytest.raises(ValueError, match="widths of the hidden layers"):
        MLPEncoder(3, Box(3), hidden=[4, 0])
    with pytest.raises(ValueError, match="blocks of ResidualEncoder"):
        ResidualEncoder(3, Box(3), blocks=0)
    with pytest.raises(ValueError, match="activation must be one of"):
        ResidualEncoder(3, Box(3), activation="sine")
    with pytest.raises(ValueError, match="Unknown encoder 'conv'"):
        encoder_from_dict({"encoder": "conv"})
    with pytest.raises(TypeError, match="whole number"):
        MLPEncoder(3, Box(3), hidden=[4], seed="zero")  # type: ignore[arg-type]
