from __future__ import annotations

import numpy as np
import pytest
import torch

from identica.encoders import Whiten


def correlated(n: int, dim: int, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Rows with a mean far from zero and standard deviations from 0.01 to 10."""
    stretch = torch.logspace(-2, 1, dim, dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64)).Q
    rows = torch.randn(n, dim, generator=generator, dtype=torch.float64) * stretch
    return (rows @ turn + 5.0).to(dtype)


@pytest.mark.parametrize("method", ["zca", "pca"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_covariance_becomes_the_identity(method: str, dtype: torch.dtype, generator: torch.Generator) -> None:
    x = correlated(2_000, 6, generator, dtype)
    white = Whiten(6, method=method).to(dtype).fit(x)(x)  # type: ignore[arg-type]
    assert white.dtype == dtype
    covariance = np.cov(white.double().numpy().T)
    # float32 inputs carry rounding of 5 · 6e-8, seen through a direction of deviation 0.01
    assert np.allclose(covariance, np.eye(6), atol=1e-3 if dtype == torch.float32 else 1e-9)
    assert white.double().mean(dim=0).abs().max() < (1e-3 if dtype == torch.float32 else 1e-9)


def test_zca_is_symmetric_and_pca_sorts_by_variance(generator: torch.Generator) -> None:
    x = correlated(2_000, 4, generator, torch.float64)
    zca, pca = (Whiten(4, method=method).double().fit(x) for method in ("zca", "pca"))  # type: ignore[arg-type]
    assert torch.allclose(zca.matrix, zca.matrix.T, atol=1e-9)
    # Row i of the PCA matrix is the i-th principal direction over its deviation, the widest first.
    deviations = 1 / torch.linalg.vector_norm(pca.matrix, dim=1)
    expected = np.sqrt(np.linalg.eigvalsh(np.cov(x.numpy().T))[::-1])
    assert np.allclose(deviations.numpy(), expected, rtol=1e-9)


@pytest.mark.parametrize("method", ["zca", "pca"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_directions_without_variation_become_zero(method: str, dtype: torch.dtype, generator: torch.Generator) -> None:
    low = torch.randn(1_000, 2, generator=generator, dtype=torch.float64)
    x = (low @ torch.randn(2, 5, generator=generator, dtype=torch.float64) + 3.0).to(dtype)
    white = Whiten(5, method=method).to(dtype).fit(x)(x).double()  # type: ignore[arg-type]
    values = np.linalg.eigvalsh(np.cov(white.numpy().T))
    assert np.allclose(values, [0, 0, 0, 1, 1], atol=1e-3)


def test_a_constant_column_is_no_problem(generator: torch.Generator) -> None:
    x = torch.randn(100, 3, generator=generator)
    x[:, 1] = 7.0
    white = Whiten(3).fit(x)(x)
    assert bool(white.isfinite().all()) and white[:, 1].abs().max() < 1e-5


def test_identity_until_fitted_and_saved_with_the_weights(generator: torch.Generator) -> None:
    x = correlated(200, 3, generator)
    whiten = Whiten(3)
    assert torch.equal(whiten(x), x) and not whiten.is_fitted
    whiten.fit(x)
    copy = Whiten(3)
    copy.load_state_dict(whiten.state_dict())
    assert copy.is_fitted and torch.equal(copy(x), whiten(x))
    assert list(whiten.parameters()) == []


def test_full_precision_under_autocast(generator: torch.Generator) -> None:
    x = correlated(500, 4, generator)
    whiten = Whiten(4).fit(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(whiten(x), whiten(x.clone())) and whiten(x).dtype == torch.float32
        low = whiten(x)
    assert torch.equal(low, whiten(x))


@pytest.mark.parametrize("method", ["zca", "pca"])
def test_partly_whitened(method: str, generator: torch.Generator) -> None:
    """Deviations become their own power 1 − power, on a scale on which the mean variance is 1."""
    x = correlated(2_000, 4, generator).double()
    before = np.linalg.eigvalsh(np.cov(x.numpy().T))
    white = Whiten(4, method=method, power=0.5).double().fit(x)(x)  # type: ignore[arg-type]
    after = np.linalg.eigvalsh(np.cov(white.numpy().T))
    assert np.allclose(after, np.sqrt(before) / np.sqrt(before).mean())
    fully = Whiten(4, method=method, power=1.0).double().fit(x)(x)  # type: ignore[arg-type]
    assert torch.equal(fully, Whiten(4, method=method).double().fit(x)(x))  # type: ignore[arg-type]


def test_a_constant_input_is_no_problem_partly_whitened() -> None:
    x = torch.full((10, 3), 7.0)
    assert torch.equal(Whiten(3, power=0.5).fit(x)(x), torch.zeros(10, 3))


def test_errors_are_sentences(generator: torch.Generator) -> None:
    for power in (0.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match="above 0 and at most 1"):
            Whiten(3, power=power)
    with pytest.raises(ValueError, match=r"rows of shape \(n, 3\)"):
        Whiten(3).fit(torch.zeros(10, 4))
    with pytest.raises(ValueError, match="3 rows cannot fill 3 dimensions"):
        Whiten(3).fit(torch.randn(3, 3, generator=generator))
    with pytest.raises(ValueError, match="NaN"):
        Whiten(2).fit(torch.full((10, 2), torch.nan))
    with pytest.raises(ValueError, match="whole number"):
        Whiten(0)
    with pytest.raises(ValueError, match="method"):
        Whiten(2, method="lda")  # type: ignore[arg-type]
