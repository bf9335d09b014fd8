from __future__ import annotations

import numpy as np
import pytest
import torch

from identica.mixing import InvertibleMLP, mixing_from_dict, same_mixing
from identica.mixing.invertible_mlp import best_conditioned


@pytest.fixture(scope="module")
def mixing() -> InvertibleMLP:
    return InvertibleMLP(10, seed=0, candidates=2_000)


def by_hand(mixing: InvertibleMLP, z: np.ndarray) -> np.ndarray:
    """The definition, one row and one layer at a time."""
    rows = []
    for x in z:
        for i, weight in enumerate(mixing.weights.double().numpy()):
            if i:
                x = np.where(x < 0, mixing.negative_slope * x, x)
            x = weight @ x
        rows.append(x)
    return np.stack(rows)


@pytest.mark.parametrize(("dim", "layers", "slope"), [(1, 1, 0.2), (2, 1, 0.2), (5, 4, 0.05), (10, 3, 0.2)])
def test_forward_is_the_definition(dim: int, layers: int, slope: float, generator: torch.Generator) -> None:
    mixing = InvertibleMLP(dim, layers, slope, seed=3, candidates=20).double()
    z = torch.randn(17, dim, generator=generator, dtype=torch.float64)
    assert np.allclose(mixing(z).numpy(), by_hand(mixing, z.numpy()), atol=1e-13)


@pytest.mark.parametrize("dim", [2, 5, 10, 40])
def test_inverse_undoes_forward_in_float64(dim: int, generator: torch.Generator) -> None:
    mixing = InvertibleMLP(dim, seed=1, candidates=50).double()
    z = 3 * torch.randn(500, dim, generator=generator, dtype=torch.float64)
    assert (mixing.inverse(mixing(z)) - z).abs().max() < 1e-10
    assert (mixing(mixing.inverse(z)) - z).abs().max() < 1e-10


def test_inverse_is_exact_up_to_rounding_times_condition(mixing: InvertibleMLP, generator: torch.Generator) -> None:
    z = torch.randn(500, 10, generator=generator)
    # Undoing the leaky ReLU divides by its slope, which the weights' condition does not know about.
    worst = np.prod(mixing.condition_numbers) / mixing.negative_slope ** (mixing.layers - 1)
    error = torch.linalg.vector_norm(mixing.inverse(mixing(z)) - z, dim=1)
    assert (error / torch.linalg.vector_norm(z, dim=1)).max() < 10 * torch.finfo(torch.float32).eps * worst


def test_inverse_keeps_leading_shapes(mixing: InvertibleMLP, generator: torch.Generator) -> None:
    z = torch.randn(4, 3, 10, generator=generator)
    x = mixing(z)
    assert x.shape == z.shape
    assert torch.allclose(mixing.inverse(x)[2, 1], mixing.inverse(x[2, 1]), atol=1e-5)
    assert mixing(z.double()).dtype == torch.float64


def test_columns_have_unit_length(mixing: InvertibleMLP) -> None:
    columns = np.linalg.norm(mixing.weights.double().numpy(), axis=1)
    assert np.allclose(columns, 1.0, atol=1e-6)


def test_condition_numbers_are_numpys(mixing: InvertibleMLP) -> None:
    expected = [np.linalg.cond(weight) for weight in mixing.weights.double().numpy()]
    assert np.allclose(mixing.condition_numbers, expected, rtol=1e-9)


def test_each_layer_is_among_the_best_conditioned_of_random_draws(mixing: InvertibleMLP) -> None:
    # An independent sample of the same law: the best of 2,000 lies below its 1 % quantile with
    # probability 1 − 0.99^2000 > 1 − 1e-8 per layer.
    rng = np.random.default_rng(0)
    draws = rng.uniform(-1, 1, (5_000, 10, 10))
    draws /= np.linalg.norm(draws, axis=1, keepdims=True)
    quantile = np.quantile(np.linalg.cond(draws), 0.01)
    assert max(mixing.condition_numbers) < quantile


def test_best_conditioned_is_the_smallest_of_all_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    from identica.mixing import invertible_mlp

    whole = best_conditioned(4, 103, torch.Generator().manual_seed(5))
    monkeypatch.setattr(invertible_mlp, "_ENTRIES_AT_ONCE", 160)  # ten matrices at a time, the last three alone
    chunked = best_conditioned(4, 103, torch.Generator().manual_seed(5))
    assert torch.equal(whole, chunked)
    draws = torch.rand(103, 4, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64).numpy() * 2 - 1
    draws /= np.linalg.norm(draws, axis=1, keepdims=True)
    assert np.linalg.cond(whole.numpy()) == pytest.approx(np.linalg.cond(draws).min(), rel=1e-9)


def test_layers_have_their_own_candidates(mixing: InvertibleMLP) -> None:
    a, b, c = mixing.weights
    assert not torch.equal(a, b) and not torch.equal(b, c)


def test_equal_seeds_equal_weights_and_no_global_randomness() -> None:
    before = torch.get_rng_state()
    one, same, other = (InvertibleMLP(4, seed=seed, candidates=30) for seed in (7, 7, 8))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.weights, same.weights) and not torch.equal(one.weights, other.weights)


def test_weights_are_saved_and_not_trained(mixing: InvertibleMLP) -> None:
    assert list(mixing.parameters()) == []
    assert set(mixing.state_dict()) == {"weights"}
    z = torch.ones(2, 10, requires_grad=True)
    mixing(z).sum().backward()
    assert z.grad is not None and bool(z.grad.isfinite().all())


def test_dict_round_trip() -> None:
    mixing = InvertibleMLP(3, layers=2, negative_slope=0.3, seed=11, candidates=40)
    again = mixing_from_dict(mixing.to_dict())
    assert same_mixing(mixing, again)
    assert again.to_dict() == mixing.to_dict()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dim": 0}, "dim of InvertibleMLP"),
        ({"dim": 3, "layers": 0}, "layers of InvertibleMLP"),
        ({"dim": 3, "candidates": 0}, "candidates of InvertibleMLP"),
        ({"dim": 3, "negative_slope": 0.0}, "negative_slope must be positive"),
    ],
)
def test_wrong_settings_are_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        InvertibleMLP(**arguments, seed=0)  # type: ignore[arg-type]


def test_a_seed_is_a_whole_number() -> None:
    with pytest.raises(TypeError, match="whole number"):
        InvertibleMLP(3, seed=0.5, candidates=2)  # type: ignore[arg-type]


def test_wrong_shapes_are_refused(mixing: InvertibleMLP) -> None:
    with pytest.raises(ValueError, match="dimension 10, but the latents have shape"):
        mixing(torch.zeros(4, 9))
    with pytest.raises(ValueError, match="observations have shape"):
        mixing.inverse(torch.zeros(4, 9))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dim", [10, 40, 80])
def test_observations_are_not_rounded_to_tf32(dim: int, generator: torch.Generator) -> None:
    mixing = InvertibleMLP(dim, seed=0, candidates=50)
    z = torch.randn(1000, dim, generator=generator)
    torch.set_float32_matmul_precision("high")
    try:
        x = mixing.cuda()(z.cuda())
    finally:
        torch.set_float32_matmul_precision("highest")
    torch.testing.assert_close(x.cpu().double(), mixing.cpu().double()(z.double()), rtol=0, atol=2e-5)
