"""What all scores accept, and the sentences they answer the rest with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from identica.metrics import Score, block_r2, correlations, linear_r2, mcc, orthogonality, permutation_distance

SCORES: dict[str, Callable[..., Score]] = {
    "linear_r2": linear_r2,
    "block_r2": partial(block_r2, blocks=[[0, 1], [2]]),
    "mcc": mcc,
    "mcc spearman": partial(mcc, correlation="spearman"),
    "orthogonality": orthogonality,
    "permutation_distance": permutation_distance,
}
every_score = pytest.mark.parametrize("score", SCORES.values(), ids=SCORES.keys())


@pytest.fixture
def z(generator: torch.Generator) -> torch.Tensor:
    return torch.randn(60, 3, generator=generator, dtype=torch.float64)


@pytest.fixture
def h(z: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    mixed = z @ torch.randn(3, 4, generator=generator, dtype=torch.float64)
    return mixed + 0.3 * torch.randn(60, 4, generator=generator, dtype=torch.float64)


@every_score
def test_numpy_lists_and_tensors_give_the_same_score(
    score: Callable[..., Score], z: torch.Tensor, h: torch.Tensor
) -> None:
    expected = score(z, h)
    reversed_twice = h.numpy()[::-1].copy()[::-1]  # negative strides
    read_only = z.numpy().copy()
    read_only.flags.writeable = False
    assert score(z.numpy(), h.numpy()) == expected
    assert score(read_only, reversed_twice) == expected
    assert score(z.tolist(), h.tolist()) == expected
    assert score(z.clone().requires_grad_(), h.numpy()) == expected
    assert score(z.T.contiguous().T, h) == expected


@every_score
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_low_precision_costs_only_its_rounding(
    score: Callable[..., Score], dtype: torch.dtype, z: torch.Tensor, h: torch.Tensor
) -> None:
    rounded = score(z.to(dtype).double(), h.to(dtype).double())
    assert score(z.to(dtype), h.to(dtype)) == rounded
    assert rounded.score == pytest.approx(score(z, h).score, abs=3 * torch.finfo(dtype).eps)


@every_score
def test_whole_numbers_and_booleans_are_numbers(score: Callable[..., Score], z: torch.Tensor, h: torch.Tensor) -> None:
    whole, signs = (10 * z).long(), h > 0
    assert score(whole, signs) == score(whole.double(), signs.double())
    assert score(whole.numpy(), signs.numpy()) == score(whole, signs)


@every_score
def test_results_are_plain_numbers(score: Callable[..., Score], z: torch.Tensor, h: torch.Tensor) -> None:
    result = score(z, h)
    assert type(result.score) is float
    assert isinstance(result.per_dimension, tuple)
    assert [type(v) for v in result.per_dimension] == [float] * 3
    assert (result.n, result.null) == (60, None)


@every_score
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda z, h: (z[:50], h), "z has 50 rows and h has 60"),
        (lambda z, h: (z, h[:, 0]), r"h is one-dimensional.*pass h\[:, None\]"),
        (lambda z, h: (z[:, 0], h), r"z is one-dimensional.*pass z\[:, None\]"),
        (lambda z, h: (z, h[:, None]), r"h has shape \(60, 1, 4\).*h\.reshape\(len\(h\), -1\)"),
        (lambda z, h: (z, h[:, :0]), r"h has shape \(60, 0\).*at least one dimension"),
        (lambda z, h: (z[:2], h[:2]), "2 rows, too few to score"),
        (lambda z, h: (z[:0], h[:0]), "0 rows, too few to score"),
        (lambda z, h: (z * torch.tensor([1.0, 0.0, 1.0]), h), r"z\[:, 1\] is constant"),
    ],
    ids=["rows", "h 1-d", "z 1-d", "3-d", "no columns", "few rows", "no rows", "constant factor"],
)
def test_wrong_shapes_get_a_sentence(
    score: Callable[..., Score], change: Callable[..., Any], sentence: str, z: torch.Tensor, h: torch.Tensor
) -> None:
    with pytest.raises(ValueError, match=sentence):
        score(*change(z, h))


@every_score
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_non_finite_entries_are_counted_and_located(
    score: Callable[..., Score], value: float, z: torch.Tensor, h: torch.Tensor
) -> None:
    h[7, 2], h[9, 0] = value, value
    with pytest.raises(ValueError, match="h holds 2 non-finite entries.*row 7, column 2"):
        score(z, h)
    z[0, 1] = value
    with pytest.raises(ValueError, match="z holds 1 non-finite entries.*row 0, column 1"):
        score(z.numpy(), torch.ones(60, 4))


@every_score
@pytest.mark.parametrize(
    "bad", [torch.ones(60, 3, dtype=torch.complex64), [["a"] * 3] * 60, [[1.0, 2.0], [3.0]], None, "codes"]
)
def test_what_is_not_a_matrix_of_real_numbers_is_refused(
    score: Callable[..., Score], bad: Any, z: torch.Tensor
) -> None:
    with pytest.raises(TypeError, match="^h (is complex|must be a torch tensor, a numpy array)"):
        score(z, bad)


@pytest.mark.parametrize("score", [linear_r2, mcc])
@pytest.mark.parametrize("null", [-1, 1.5, True, "many"])
def test_null_is_a_number_of_permutations(
    score: Callable[..., Score], null: Any, z: torch.Tensor, h: torch.Tensor
) -> None:
    with pytest.raises(ValueError, match="null is the number of permutations"):
        score(z, h, null=null)


@pytest.mark.parametrize("score", [linear_r2, mcc])
def test_seed_is_a_whole_number(score: Callable[..., Score], z: torch.Tensor, h: torch.Tensor) -> None:
    assert score(z, h, seed=np.int64(3), null=5) == score(z, h, seed=3, null=5)
    for bad in (0.5, None):
        with pytest.raises(TypeError, match=f"seed must be a whole number, not {bad}"):
            score(z, h, seed=bad)
    with pytest.raises(ValueError, match=r"A seed lies between -2\*\*63 and 2\*\*64 - 1"):
        score(z, h, seed=2**70)


@every_score
def test_the_largest_numbers_do_not_overflow(score: Callable[..., Score], z: torch.Tensor, h: torch.Tensor) -> None:
    expected = score(z, h)
    largest = [x * (1.7e308 / x.abs().max()) for x in (z, h)]
    assert score(*largest).per_dimension == pytest.approx(expected.per_dimension, rel=1e-9)
    if score is not orthogonality:  # which looks at the units of the columns
        uneven = z * torch.tensor([1.0, 1.7e308 / z[:, 1].abs().max(), 1.0])
        assert score(uneven, h).per_dimension == pytest.approx(expected.per_dimension, rel=1e-9)


@pytest.mark.gpu
@every_score
def test_scores_on_the_gpu_equal_those_on_the_cpu(
    score: Callable[..., Score], z: torch.Tensor, h: torch.Tensor
) -> None:
    expected = score(z, h)
    for arguments in ((z.cuda(), h.cuda()), (z, h.cuda()), (z.cuda(), h.numpy())):
        assert score(*arguments).per_dimension == pytest.approx(expected.per_dimension, abs=1e-12)


@pytest.mark.gpu
def test_nulls_on_the_gpu_equal_those_on_the_cpu(z: torch.Tensor, h: torch.Tensor) -> None:
    for score in (linear_r2, mcc):
        here, there = score(z, h, null=50).null, score(z.cuda(), h.cuda(), null=50).null
        assert here is not None and there is not None
        assert (there.mean, there.q95, there.p_value) == pytest.approx((here.mean, here.q95, here.p_value))
    assert correlations(z.cuda(), h.cuda()).device.type == "cuda"
