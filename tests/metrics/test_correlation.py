from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from identica.metrics import correlations, mcc
from identica.metrics.correlation import average_ranks, matched_entries
from tests.stat_checks import assert_law


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rotation(dim: int, seed: int) -> torch.Tensor:
    q, r = torch.linalg.qr(normal(dim, dim, seed=seed))
    return q * r.diagonal().sign()


# What the score is


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), extra=st.integers(0, 3), size=st.sampled_from([1e-6, 1.0, 1e6]))
def test_a_reordered_rescaled_flipped_shifted_copy_scores_one(seed: int, extra: int, size: float) -> None:
    z = normal(50, 6, seed=seed)
    rng = np.random.default_rng(seed)
    scales = torch.from_numpy(rng.choice([-1, 1], 6) * rng.uniform(0.1, 10, 6)) * size
    codes = torch.cat([scales * z + torch.from_numpy(rng.normal(size=6)), normal(50, extra, seed=seed + 1)], 1)
    order = rng.permutation(6 + extra)
    for correlation in ("pearson", "spearman"):
        score = mcc(z, codes[:, order], correlation=correlation)  # type: ignore[arg-type]
        assert score.score == pytest.approx(1.0, abs=1e-9)
        assert max(score.per_dimension) <= 1.0
        assert score.assignment == tuple(np.argsort(order)[:6])


@pytest.mark.parametrize("ties", [False, True])
def test_correlations_are_those_of_scipy(ties: bool) -> None:
    z = normal(80, 3)
    h = z @ normal(3, 4, seed=1) + normal(80, 4, seed=2)
    if ties:
        z, h = z.round(), h.round()
    for name, function in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr)):
        expected = [[function(z[:, i], h[:, j]).statistic for j in range(4)] for i in range(3)]
        np.testing.assert_allclose(correlations(z, h, name), expected, atol=1e-12)  # type: ignore[arg-type]


@pytest.mark.parametrize("codes", [3, 4, 5, 6])
def test_the_matching_is_the_best_of_all(codes: int) -> None:
    z, h = normal(30, 4), normal(30, codes, seed=1)
    table = np.abs(np.corrcoef(z.T, h.T)[:4, 4:])
    if codes >= 4:
        best = max(sum(table[range(4), pick]) for pick in itertools.permutations(range(codes), 4))
    else:
        best = max(sum(table[pick, range(codes)]) for pick in itertools.permutations(range(4), codes))
    score = mcc(z, h)
    assert score.score == pytest.approx(best / 4)
    for i, (code, value) in enumerate(zip(score.assignment, score.per_dimension, strict=True)):
        assert value == pytest.approx(0.0 if code is None else table[i, code])


def test_with_too_few_codes_the_factors_left_over_count_as_zero() -> None:
    z = normal(50, 3)
    score = mcc(z, z[:, [2, 0]], null=20)
    assert score.assignment == (1, None, 0)
    assert score.per_dimension == pytest.approx((1.0, 0.0, 1.0))
    assert score.score == pytest.approx(2 / 3)
    assert score.null is not None and score.null.mean < 2 / 3


def test_constant_codes_have_correlation_zero() -> None:
    z = normal(1001, 2)
    h = torch.stack([torch.full((1001,), 0.1, dtype=torch.float64), z[:, 0]], dim=1)
    for correlation in ("pearson", "spearman"):
        score = mcc(z, h, correlation=correlation)  # type: ignore[arg-type]
        assert score.per_dimension == pytest.approx((1.0, 0.0))
        assert score.per_dimension[1] == 0.0


def test_spearman_sees_through_monotone_functions() -> None:
    z = normal(100, 2)
    h = torch.stack([-z[:, 1].exp(), z[:, 0] ** 3], dim=1)
    assert mcc(z, h, correlation="spearman").score == pytest.approx(1.0)
    assert mcc(z, h, correlation="pearson").score < 0.95


def test_a_large_common_offset_costs_nothing() -> None:
    z = normal(100, 2)
    assert mcc(z + 1e8, z).score == pytest.approx(1.0, abs=1e-9)


def test_unknown_correlations_get_a_sentence() -> None:
    with pytest.raises(ValueError, match='must be "pearson" or "spearman", not \'kendall\''):
        mcc(normal(10, 2), normal(10, 2, seed=1), correlation="kendall")  # type: ignore[arg-type]


def test_equal_numbers_share_their_average_rank() -> None:
    x = torch.tensor([[3.0, 1.0], [1.0, 1.0], [3.0, 1.0], [-2.0, 7.0], [3.0, -0.0], [1.0, 0.0]])
    expected = np.stack([stats.rankdata(column) for column in x.T], axis=1)
    np.testing.assert_array_equal(average_ranks(x), expected)


# What it is worth


@pytest.mark.statistical(
    false_alarm=1e-6, what="MCC after a random rotation against the matching of the rotation itself"
)
def test_a_rotation_in_ten_dimensions_scores_about_three_fifths() -> None:
    z = normal(20_000, 10)
    scores = []
    for seed in range(20):
        q = rotation(10, seed + 1)
        # For independent factors of equal variance the correlations are the entries of Q themselves.
        expected = matched_entries(q.abs())[0].mean()
        scores.append(mcc(z, z @ q).score)
        assert scores[-1] == pytest.approx(expected, abs=0.02)
    # Over random rotations the matching scores 0.594 ± 0.034.
    assert np.mean(scores) == pytest.approx(0.594, abs=5 * 0.034 / 20**0.5)


@pytest.mark.statistical(false_alarm=0.05, what="MCC of noise, about 0.2, and its p-value, above 0.05")
def test_noise_scores_a_fifth_and_the_null_says_so() -> None:
    score = mcc(normal(64, 10), normal(64, 10, seed=1), null=200)
    assert 0.12 < score.score < 0.31
    assert score.null is not None
    assert score.null.mean == pytest.approx(0.21, abs=0.02)
    assert score.null.mean < score.null.q95 < 0.27
    assert score.null.p_value > 0.05


def test_a_real_relation_stands_out_of_the_null() -> None:
    z = normal(64, 10)
    null = mcc(z, z + normal(64, 10, seed=1), null=200).null
    assert null is not None and null.p_value == 1 / 201


def test_equal_seeds_give_equal_nulls() -> None:
    z, h = normal(64, 3), normal(64, 3, seed=1)
    assert mcc(z, h, null=20) == mcc(z, h, null=20)
    assert mcc(z, h, null=20).null != mcc(z, h, null=20, seed=1).null


@pytest.mark.statistical(false_alarm=1e-6, what="p-values of mcc on noise against the uniform law")
@pytest.mark.parametrize("correlation", ["pearson", "spearman"])
def test_p_values_of_noise_are_uniform(correlation: str) -> None:
    p_values = []
    for repeat in range(150):
        z, h = normal(30, 3, seed=3 * repeat), normal(30, 3, seed=3 * repeat + 1)
        null = mcc(z, h, correlation=correlation, seed=repeat, null=49).null  # type: ignore[arg-type]
        assert null is not None
        p_values.append(null.p_value)
    # Exactly uniform on 1/50, ..., 50/50; a uniform jitter below makes the law continuous.
    jitter = torch.rand(150, generator=torch.Generator().manual_seed(5)) / 50
    assert_law(torch.tensor(p_values) - jitter, stats.uniform.cdf)
