from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy import linalg

from identica.metrics import orthogonality, permutation_distance


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def isometry(rows: int, columns: int, seed: int) -> torch.Tensor:
    return torch.linalg.qr(normal(rows, columns, seed=seed))[0]


# Orthogonality


@pytest.mark.parametrize("codes", [4, 7])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_rotation_and_a_scale_are_orthogonal(codes: int, scale: float, dtype: torch.dtype) -> None:
    z = normal(100, 4) + 5
    h = (scale * (z @ isometry(codes, 4, seed=1).T - 3)).to(dtype)
    score = orthogonality(z, h)
    assert score.score < (1e-6 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("codes", [4, 6])
def test_it_is_the_distance_to_the_polar_factor(codes: int) -> None:
    z, slopes = normal(100, 4), normal(codes, 4, seed=1)
    nearest = linalg.polar(slopes.numpy())[0]
    scale = np.sum(nearest * slopes.numpy()) / 4
    misfit = slopes.numpy() - scale * nearest
    size = np.linalg.norm(slopes)
    score = orthogonality(z, z @ slopes.T + 1)
    assert score.score == pytest.approx(np.linalg.norm(misfit) / size)
    assert score.per_dimension == pytest.approx(np.linalg.norm(misfit, axis=0) * 2 / size)
    assert score.score == pytest.approx(np.sqrt(np.mean(np.square(score.per_dimension))))


def test_no_scaled_rotation_is_nearer() -> None:
    z, slopes = normal(100, 3), normal(3, 3, seed=1)
    score = orthogonality(z, z @ slopes.T).score
    for seed in range(300):
        q = isometry(3, 3, seed=seed)
        scale = ((q * slopes).sum() / 3).clamp_min(0)
        assert score <= torch.linalg.norm(slopes - scale * q) / torch.linalg.norm(slopes) + 1e-12


def test_stretched_axes_are_not_orthogonal_and_more_stretch_is_worse() -> None:
    z = normal(100, 2)
    scores = [orthogonality(z, z * torch.tensor([1.0, stretch])).score for stretch in (1, 1.5, 3, 1e9)]
    # Singular values (1, s): distance |s − 1| / √(2 (1 + s²)).
    assert scores == pytest.approx([0.0, 0.5 / 6.5**0.5, 2 / 20**0.5, 0.5**0.5], abs=1e-6)


def test_rotating_or_scaling_z_or_h_changes_nothing() -> None:
    z = normal(200, 3)
    h = z @ normal(3, 3, seed=1) + normal(200, 3, seed=2)
    expected = orthogonality(z, h).score
    turn = isometry(3, 3, seed=3)
    assert expected > 0.1
    assert orthogonality(z, 4 * h @ turn + 1).score == pytest.approx(expected)
    assert orthogonality(0.1 * z @ turn - 1, h).score == pytest.approx(expected)


@pytest.mark.statistical(false_alarm=1e-10, what="orthogonality of a noisy rotation, 0.0035·χ₉, below 0.03")
def test_noise_in_the_codes_does_not_bias_the_map() -> None:
    # To first order the score is the traceless symmetric part of the error (9 numbers), divided by ‖A‖ = 2.
    z = normal(20_000, 4)
    h = z @ isometry(4, 4, seed=1) + normal(20_000, 4, seed=2)
    assert orthogonality(z, h).score < 0.03


def test_missing_codes_count_as_constant_ones() -> None:
    z = normal(100, 4)
    h = z @ normal(4, 2, seed=1)
    padded = torch.cat([h, torch.full((100, 2), 0.1, dtype=torch.float64)], dim=1)
    score = orthogonality(z, h)
    assert score.score == pytest.approx(orthogonality(z, padded).score)
    # Two of four axes kept as they are: singular values (1, 1, 0, 0).
    assert orthogonality(z, z[:, :2]).score == pytest.approx(0.5**0.5)
    assert orthogonality(z, z[:, :1]).score == pytest.approx((1 - 1 / 4) ** 0.5)


def test_constant_codes_alone_have_no_direction() -> None:
    with pytest.raises(ValueError, match="No code depends on any factor"):
        orthogonality(normal(100, 2), torch.full((100, 2), 0.1))


# Permutation distance


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_a_generalized_permutation_has_distance_zero_whatever_its_order(order: tuple[int, ...]) -> None:
    z = normal(100, 4) * torch.tensor([0.01, 1.0, 30.0, 4.0]) + 2
    # The scale belongs to the factor, not to the place it ends up in.
    h = (torch.tensor([-5.0, 0.2, 1.0, -700.0]) * z + 3)[:, list(order)]
    score = permutation_distance(z, h)
    assert score.score < 1e-10
    assert score.assignment == tuple(np.argsort(order))
    # Rescaling code i by the scale of factor i, as if nothing had moved, does not undo the map.
    unmoved = h / torch.tensor([-5.0, 0.2, 1.0, -700.0])
    moved = order != (0, 1, 2, 3)
    assert bool(torch.allclose(unmoved.std(dim=0), z.std(dim=0))) is not moved


@pytest.mark.parametrize("codes", [3, 4, 5])
def test_it_is_the_least_distance_over_all_matchings(codes: int) -> None:
    z = normal(60, 4)
    h = z @ normal(4, codes, seed=1) + 0.3 * normal(60, codes, seed=2)
    x, y = ((m - m.mean(dim=0)) / m.std(dim=0) for m in (z, h))
    slopes = np.linalg.lstsq(x.numpy(), y.numpy(), rcond=None)[0].T
    slopes = slopes / np.linalg.norm(slopes, axis=0)
    distances = []
    for pick in itertools.permutations([*range(codes), *([None] * max(0, 4 - codes))], 4):
        generalized = np.zeros_like(slopes)
        for factor, code in enumerate(pick):
            if code is not None:
                generalized[code, factor] = slopes[code, factor]
        distances.append(np.linalg.norm(slopes - generalized) / np.linalg.norm(slopes))
    score = permutation_distance(z, h)
    assert score.score == pytest.approx(min(distances))
    assert score.score == pytest.approx(np.sqrt(np.mean(np.square(score.per_dimension))))


def test_scale_sign_order_and_shift_of_the_codes_do_not_matter() -> None:
    z = normal(200, 3)
    h = z @ normal(3, 5, seed=1) + normal(200, 5, seed=2)
    scales = torch.tensor([1e-6, -3.0, 1e4, 1.0, -1.0])
    order = [3, 0, 4, 1, 2]
    plain, moved = permutation_distance(z, h), permutation_distance(1e3 * z - 1, (scales * h + 7)[:, order])
    assert plain.score > 0.1
    assert moved.per_dimension == pytest.approx(plain.per_dimension)
    assert tuple(order[code] for code in moved.assignment if code is not None) == plain.assignment


def test_correlated_factors_do_not_blur_it() -> None:
    z = normal(500, 3) + 2 * normal(500, 1, seed=1)
    assert torch.corrcoef(z.T)[0, 1] > 0.7
    score = permutation_distance(z, -3 * z[:, [1, 2, 0]])
    assert score.score < 1e-10
    assert score.assignment == (2, 0, 1)


def test_a_rotation_is_far_from_a_permutation() -> None:
    z = normal(1000, 2)
    quarter = 0.5**0.5 * torch.tensor([[1.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
    # Each factor spreads evenly over both codes: half of its energy lies outside the matched one.
    assert permutation_distance(z, z @ quarter).score == pytest.approx(0.5**0.5, abs=0.05)


def test_a_factor_in_two_codes_is_not_alone() -> None:
    z = normal(1000, 2)
    score = permutation_distance(z, torch.stack([z[:, 0], z[:, 0], z[:, 1]], dim=1))
    assert score.per_dimension == pytest.approx((0.5**0.5, 0.0), abs=1e-10)


@pytest.mark.statistical(false_alarm=1e-10, what="permutation distance with noise codes, 0.0058·χ₁₂, below 0.05")
def test_superfluous_noise_and_constant_codes_hardly_matter() -> None:
    # Each of 4 codes of noise has a slope of about 0.01 on each of the 3 factors.
    z = normal(10_000, 3)
    extra = [normal(10_000, 4, seed=1), torch.full((10_000, 1), 0.1, dtype=torch.float64)]
    score = permutation_distance(z, torch.cat([*extra, 2 * z], dim=1))
    assert score.score < 0.05
    assert score.assignment == (5, 6, 7)


def test_factors_without_a_code_count_as_one() -> None:
    z = normal(100, 3)
    score = permutation_distance(z, -z[:, [2]])
    assert score.assignment == (None, None, 0)
    assert score.per_dimension == pytest.approx((1.0, 1.0, 0.0), abs=1e-10)
    constant = permutation_distance(z, torch.full((100, 3), 0.1))
    assert constant.per_dimension == (1.0, 1.0, 1.0)


# Both


@pytest.mark.parametrize("score", [orthogonality, permutation_distance])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_linearly_dependent_factors_get_a_sentence(score, dtype: torch.dtype) -> None:  # type: ignore[no-untyped-def]
    z = torch.softmax(normal(100, 3).to(dtype), dim=1)  # rows sum to one
    with pytest.raises(ValueError, match=r"The 3 columns of z are linearly dependent \(rank 2 on 100 rows\)"):
        score(z, normal(100, 3, seed=1))


@pytest.mark.parametrize("score", [orthogonality, permutation_distance])
def test_few_rows_get_a_warning(score) -> None:  # type: ignore[no-untyped-def]
    with pytest.warns(UserWarning, match="fits 3 factors on 14 rows.*at least 15 rows") as caught:
        score(normal(14, 3), normal(14, 3, seed=1))
    assert caught[0].filename == __file__
