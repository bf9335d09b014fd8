from __future__ import annotations

import pytest
import torch

from identica.metrics.regression import centred, orthonormal_basis, unit_columns


def test_centring_a_constant_column_leaves_exact_zeros() -> None:
    x = torch.full((1001, 1), 0.1, dtype=torch.float64)
    assert bool((x - x.mean(dim=0)).any())  # the plain way leaves rounding, which scaling would blow up
    assert not bool(centred(x).any())
    assert not bool(unit_columns(x).any())


@pytest.mark.parametrize("size", [1e-300, 1.0, 1e300])
def test_unit_columns_at_any_size(size: float, generator: torch.Generator) -> None:
    x = torch.rand(50, 3, generator=generator, dtype=torch.float64)
    unit = unit_columns(size * x)
    torch.testing.assert_close(unit, unit_columns(x), atol=1e-12, rtol=0)
    torch.testing.assert_close(unit.square().sum(dim=0), torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize(("rows", "columns", "rank"), [(40, 5, 5), (40, 5, 3), (5, 40, 5), (40, 5, 0)])
def test_basis_spans_the_columns_and_nothing_else(
    rows: int, columns: int, rank: int, generator: torch.Generator
) -> None:
    x = torch.randn(rows, rank, generator=generator, dtype=torch.float64) @ torch.randn(
        rank, columns, generator=generator, dtype=torch.float64
    )
    basis, whitening = orthonormal_basis(x)
    assert basis.shape == (rows, rank)
    torch.testing.assert_close(basis.T @ basis, torch.eye(rank, dtype=torch.float64))
    torch.testing.assert_close(x @ whitening, basis)
    torch.testing.assert_close(basis @ (basis.T @ x), x)
