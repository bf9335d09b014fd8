"""A code that repeats others is seen, and independent ones are not called so."""

from __future__ import annotations

import pytest
import torch

from identica.diagnostics import redundancy
from identica.diagnostics.redundancy import FALSE_ALARM


def latents(n: int, dim: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(n, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1


def test_shares_are_those_of_regressions() -> None:
    z = latents(300, 4)
    codes = torch.cat([z, z[:, :1] + 0.5 * latents(300, 1, seed=1)], dim=1)
    found = redundancy(codes)
    for k in range(codes.shape[1]):
        others = torch.cat([codes[:, :k], codes[:, k + 1 :], torch.ones(300, 1, dtype=codes.dtype)], dim=1)
        left = codes[:, k : k + 1] - others @ torch.linalg.lstsq(others, codes[:, k : k + 1]).solution
        assert found.shares[k] == pytest.approx(1 - float(left.var() / codes[:, k].var()), abs=1e-9)


def test_a_repetition_is_named_and_independent_codes_are_not() -> None:
    z = latents(4000, 9)
    found = redundancy(torch.cat([z, z @ latents(9, 1, seed=2)], dim=1))
    assert found.redundant and found.largest == pytest.approx(1.0, abs=1e-6)
    assert "decorrelation" in found.sentence
    alone = redundancy(z)
    assert not alone.redundant and alone.largest < alone.by_chance < 0.05
    assert alone.sentence.startswith("No code repeats")


def test_scale_and_place_do_not_matter() -> None:
    z = latents(500, 3)
    moved = redundancy(z * torch.tensor([1e-4, 1.0, 1e3]).double() + 5.0)
    assert moved.shares == pytest.approx(redundancy(z).shares, abs=1e-8)


def test_a_code_that_does_not_vary_counts_as_known() -> None:
    z = latents(100, 3)
    z[:, 1] = 0.3
    found = redundancy(z)
    assert found.shares[1] == 1.0 and found.redundant
    assert max(found.shares[0], found.shares[2]) < 0.2


@pytest.mark.statistical(false_alarm=1e-4, what="redundancy of independent normal codes stays below its bound")
def test_chance_is_rarely_exceeded() -> None:
    generator = torch.Generator().manual_seed(3)
    draws = [torch.randn(60, 5, generator=generator, dtype=torch.float64) for _ in range(100)]
    found = [redundancy(codes) for codes in draws]
    assert 100 * FALSE_ALARM <= 1e-4
    assert not any(one.largest > one.by_chance for one in found)
    # and the bound is no wider than it must be: a tenth of the draws get a third of the way
    assert sum(one.largest > one.by_chance / 3 for one in found) >= 10


@pytest.mark.parametrize(
    "codes", [torch.zeros(3), torch.zeros(10, 1), torch.zeros(4, 3), torch.full((9, 2), torch.nan)]
)
def test_what_it_does_not_take(codes: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="redundancy needs"):
        redundancy(codes)
