from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score

from identica.metrics import block_r2, linear_r2
from tests.stat_checks import assert_law


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def noisy_codes(z: torch.Tensor, codes: int, noise: float = 0.5, seed: int = 1) -> torch.Tensor:
    mixed = z @ normal(z.shape[1], codes, seed=seed)
    return mixed + noise * normal(len(z), codes, seed=seed + 1)


# What the score is


@pytest.mark.parametrize("codes", [5, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("cross_fit", [True, False])
def test_an_affine_image_scores_one(codes: int, dtype: torch.dtype, cross_fit: bool) -> None:
    z = normal(300, 5)
    h = (z @ normal(5, codes, seed=1) + 3).to(dtype)
    score = linear_r2(z, h, cross_fit=cross_fit)
    assert score.score == pytest.approx(1.0, abs=1e-10)
    assert score.per_dimension == pytest.approx([1.0] * 5, abs=1e-10)


def test_in_sample_it_is_the_r2_of_scikit_learn() -> None:
    z, h = normal(150, 4), noisy_codes(normal(150, 4), 7)
    predicted = LinearRegression().fit(h.numpy(), z.numpy()).predict(h.numpy())
    score = linear_r2(z, h, cross_fit=False)
    assert score.per_dimension == pytest.approx(r2_score(z, predicted, multioutput="raw_values"), abs=1e-10)
    assert score.score == pytest.approx(r2_score(z, predicted), abs=1e-10)
    assert score.method == "linear R², in-sample"


@pytest.mark.parametrize("rows", [150, 151])
def test_cross_fitted_it_is_the_mean_of_two_held_out_r2_of_scikit_learn(rows: int) -> None:
    z, h = normal(rows, 4), noisy_codes(normal(rows, 4), 7)
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(3)).numpy()
    first, second = order[: rows // 2], order[rows // 2 :]
    held_out = []
    for fitted, judged in ((first, second), (second, first)):
        predicted = LinearRegression().fit(h[fitted].numpy(), z[fitted].numpy()).predict(h[judged].numpy())
        # r2_score compares with the mean of the rows judged, as documented.
        held_out.append(r2_score(z[judged], predicted, multioutput="raw_values"))
    score = linear_r2(z, h, seed=3)
    assert score.per_dimension == pytest.approx(np.mean(held_out, axis=0), abs=1e-10)
    assert score.score == pytest.approx(np.mean(held_out), abs=1e-10)
    assert score.method == "linear R², two folds, seed 3"


def test_equal_seeds_give_equal_scores_and_other_seeds_other_folds() -> None:
    z, h = normal(100, 3), noisy_codes(normal(100, 3), 3)
    assert linear_r2(z, h, seed=1, null=20) == linear_r2(z, h, seed=1, null=20)
    assert linear_r2(z, h, seed=1).score != linear_r2(z, h, seed=2).score


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    exponent=st.integers(-8, 8),
    offset=st.sampled_from([0.0, -3.0, 1e6]),
)
def test_scale_and_shift_of_codes_and_factors_do_not_matter(seed: int, exponent: int, offset: float) -> None:
    z = normal(60, 3, seed=seed)
    h = noisy_codes(z, 4, seed=seed + 1)
    scales = 10.0 ** torch.tensor([exponent, 0, -exponent, 1], dtype=torch.float64)
    moved = linear_r2(5 - 7 * z, scales * (h + offset))
    assert moved.per_dimension == pytest.approx(linear_r2(z, h).per_dimension, abs=1e-7)


def test_mixing_the_codes_does_not_matter() -> None:
    z = normal(80, 3)
    h = noisy_codes(z, 4)
    mixed = h @ normal(4, 4, seed=9) + 1
    assert linear_r2(z, mixed).score == pytest.approx(linear_r2(z, h).score, abs=1e-9)


# Degenerate codes


@pytest.mark.parametrize("cross_fit", [True, False])
def test_redundant_codes_change_nothing(cross_fit: bool) -> None:
    z = normal(200, 3)
    h = noisy_codes(z, 4)
    expected = linear_r2(z, h, cross_fit=cross_fit).score
    redundant = {
        "constant": torch.full((200, 2), 0.1, dtype=torch.float64),
        "duplicate": h[:, :2],
        "rescaled": 1e5 * h[:, :1] + 0.1,
        "combination": h @ normal(4, 3, seed=7),
    }
    for name, extra in redundant.items():
        score = linear_r2(z, torch.cat([h, extra], dim=1), cross_fit=cross_fit).score
        assert score == pytest.approx(expected, abs=1e-9), name


def test_duplicates_up_to_float32_rounding_do_no_harm() -> None:
    z = normal(400, 3).float()
    h = noisy_codes(z.double(), 3).float()
    score = linear_r2(z, torch.cat([h, h * 3.1 - h * 0.7], dim=1)).score
    assert score == pytest.approx(linear_r2(z, h).score, abs=0.05)


def test_codes_that_are_all_constant_predict_the_mean() -> None:
    z = normal(100, 2)
    assert linear_r2(z, torch.ones(100, 3), cross_fit=False).score == pytest.approx(0.0, abs=1e-12)
    score = linear_r2(z, torch.ones(100, 3), null=20)
    # The mean of the other half is a worse guess than a half's own.
    first, second = z[torch.randperm(100, generator=torch.Generator().manual_seed(0))].split(50)
    gap = (first.mean(dim=0) - second.mean(dim=0)).square()
    worse = (gap / first.var(dim=0, correction=0) + gap / second.var(dim=0, correction=0)) / 2
    assert score.per_dimension == pytest.approx((-worse).tolist())
    assert score.null is not None and score.null.p_value == 1.0


def test_a_code_that_varies_only_in_one_fold_is_harmless() -> None:
    z = normal(100, 2)
    h = noisy_codes(z, 2)
    spike = torch.zeros(100, 1, dtype=torch.float64)
    spike[0] = 1e9
    score = linear_r2(z, torch.cat([h, spike], dim=1)).score
    assert score == pytest.approx(linear_r2(z, h).score, abs=0.1)


def test_more_codes_than_rows_stay_finite() -> None:
    with pytest.warns(UserWarning, match="fits 100 codes on 20 rows"):
        score = linear_r2(normal(40, 2), normal(40, 100, seed=1), null=5)
    assert np.isfinite(score.per_dimension).all()


# Noise


@pytest.mark.statistical(false_alarm=1e-6, what="R² of noise at 20 rows per code, at most 0.02")
@pytest.mark.parametrize("codes", [10, 30, 100])
def test_noise_scores_at_most_a_fiftieth(codes: int) -> None:
    score = linear_r2(normal(20 * codes, 10), normal(20 * codes, codes, seed=1))
    assert score.score <= 0.02
    assert score.score > -0.4


@pytest.mark.statistical(false_alarm=1e-6, what="in-sample R² of noise against k / (n − 1)")
def test_in_sample_noise_scores_two_fifths_and_held_out_noise_nothing() -> None:
    z, h = normal(256, 10), normal(256, 100, seed=1)
    with pytest.warns(UserWarning, match="fewer than 5 rows"):
        in_sample = linear_r2(z, h, cross_fit=False, null=200)
    # R² of one column is Beta(k/2, (n−1−k)/2), with deviation 0.0431; ten columns are averaged.
    assert in_sample.score == pytest.approx(100 / 255, abs=5 * 0.0431 / 10**0.5)
    assert in_sample.null is not None and in_sample.null.mean == pytest.approx(100 / 255, abs=0.01)
    with pytest.warns(UserWarning, match="Pass at least 1000 rows"):
        held_out = linear_r2(z, h)
    assert held_out.score <= 0
    assert max(held_out.per_dimension) < 0


def test_the_score_is_not_clipped() -> None:
    z, h = normal(100, 1), normal(100, 9, seed=1)
    assert linear_r2(z, h).score < 0


# Warnings and sentences


def test_it_warns_below_five_rows_per_code_in_a_fold_and_points_at_the_caller() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        linear_r2(normal(40, 2), normal(40, 4, seed=1))
        linear_r2(normal(20, 2), normal(20, 4, seed=1), cross_fit=False)
    with pytest.warns(UserWarning, match="linear_r2 fits 4 codes on 19 rows.*at least 40 rows") as caught:
        linear_r2(normal(39, 2), normal(39, 4, seed=1))
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="block_r2 fits 4 codes on 19 rows.*at least 20 rows") as caught:
        block_r2(normal(19, 2), normal(19, 4, seed=1), [[0]], cross_fit=False)
    assert caught[0].filename == __file__


def test_a_factor_constant_in_a_fold_gets_a_sentence() -> None:
    z = normal(50, 2)
    z[:, 1] = 0
    z[7, 1] = 1
    with pytest.raises(ValueError, match=r"z\[:, 1\] is constant in one of the two folds"):
        linear_r2(z, normal(50, 2, seed=1))
    assert linear_r2(z, normal(50, 2, seed=1), cross_fit=False).score < 0.2


# The null


@pytest.mark.statistical(
    false_alarm=1e-5, what="95 % quantile of a null, −0.02 ± 0.016 over seeds (skewed downwards), below 0.05"
)
def test_a_real_relation_stands_out_of_the_null() -> None:
    z = normal(200, 3)
    null = linear_r2(z, noisy_codes(z, 3), null=200).null
    assert null is not None
    assert null.p_value == 1 / 201
    assert null.permutations == 200
    assert null.q95 < 0.05


@pytest.mark.statistical(false_alarm=1e-6, what="mean of the in-sample permutation null against k / (n − 1)")
def test_the_null_has_its_exact_mean() -> None:
    # Averaged over all permutations, a projection of rank k keeps k / (n − 1) of a centred column.
    z, h = normal(60, 4), noisy_codes(normal(60, 4), 6)
    null = linear_r2(z, h, cross_fit=False, null=4000).null
    assert null is not None
    # One column's R² has deviation at most 0.06, and there are 4000 shuffles.
    assert null.mean == pytest.approx(6 / 59, abs=5 * 0.06 / 4000**0.5)


@pytest.mark.statistical(false_alarm=1e-6, what="p-values of linear_r2 on noise against the uniform law")
@pytest.mark.parametrize("cross_fit", [True, False])
def test_p_values_of_noise_are_uniform(cross_fit: bool) -> None:
    p_values = []
    for repeat in range(150):
        z, h = normal(40, 2, seed=3 * repeat), normal(40, 3, seed=3 * repeat + 1)
        null = linear_r2(z, h, cross_fit=cross_fit, seed=repeat, null=49).null
        assert null is not None
        p_values.append(null.p_value)
    # Exactly uniform on 1/50, ..., 50/50; a uniform jitter below makes the law continuous.
    jitter = torch.rand(150, generator=torch.Generator().manual_seed(5)) / 50
    assert_law(torch.tensor(p_values) - jitter, stats.uniform.cdf)


# Blocks


@pytest.mark.statistical(
    false_alarm=1e-6, what="held-out R² of noise, −0.036 ± 0.021 over seeds (about a gamma law), above −0.3"
)
def test_blocks_average_the_dimensions_of_one_regression() -> None:
    z = normal(400, 5)
    h = torch.cat([z[:, :3] @ normal(3, 3, seed=1), normal(400, 2, seed=2)], dim=1)
    whole = linear_r2(z, h, seed=4)
    score = block_r2(z, h, {"content": [0, 1, 2], "style": [3, 4]}, seed=4)
    assert (score.score, score.per_dimension, score.method) == (whole.score, whole.per_dimension, whole.method)
    assert score.per_block["content"] == pytest.approx(np.mean(whole.per_dimension[:3]))
    assert score.per_block["style"] == pytest.approx(np.mean(whole.per_dimension[3:]))
    assert score.per_block["content"] == pytest.approx(1.0, abs=1e-10)
    assert abs(score.per_block["style"]) < 0.3
    assert score.null is None and score.null_per_block is None


@pytest.mark.statistical(false_alarm=0.01, what="one p-value of noise, above 0.01")
def test_each_block_has_its_own_null() -> None:
    z = normal(400, 4)
    h = torch.cat([z[:, :2], normal(400, 2, seed=2)], dim=1)
    score = block_r2(z, h, {"content": [0, 1], "style": [2, 3]}, null=99)
    assert score.null == linear_r2(z, h, null=99).null
    assert score.null_per_block is not None
    assert score.null_per_block["content"].p_value == 0.01
    assert score.null_per_block["style"].p_value > 0.01


def test_blocks_may_be_lists_masks_ranges_and_may_overlap() -> None:
    z, h = normal(100, 3), noisy_codes(normal(100, 3), 3)
    expected = block_r2(z, h, {"a": [0, 1], "b": [1, 2]}).per_block
    mask = torch.tensor([False, True, True])
    assert block_r2(z, h, [[0, 1], [1, 2]]).per_block == {0: expected["a"], 1: expected["b"]}
    assert block_r2(z, h, {"a": range(2), "b": mask}).per_block == expected
    assert block_r2(z, h, {"a": (1, 0), "b": mask.tolist()}).per_block == pytest.approx(expected)
    assert block_r2(z, h, {"a": np.array([0, 1]), "b": torch.tensor([1, 2])}).per_block == expected


@pytest.mark.parametrize(
    ("blocks", "sentence"),
    [
        ({}, "blocks is empty"),
        (None, "blocks names the columns of z in each group, which None does not"),
        ({"content": []}, "Block 'content' must list at least one column"),
        ({"content": 1}, "Block 'content' must list at least one column"),
        ([0, 1], "Block 0 must list at least one column"),
        ({"content": [0.5]}, "Block 'content' must list at least one column"),
        ({"content": [True, False]}, "a mask of 3 booleans"),
        ({"content": [False, False, False]}, "picks at least one"),
        ({"content": [0, 3]}, "but z has 3 columns, numbered 0 to 2"),
        ({"content": [-1]}, "but z has 3 columns"),
        ({"content": [1, 1]}, "names a column twice"),
    ],
)
def test_wrong_blocks_get_a_sentence(blocks: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        block_r2(normal(100, 3), normal(100, 3, seed=1), blocks)  # type: ignore[arg-type]
