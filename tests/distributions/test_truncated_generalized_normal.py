from __future__ import annotations

import math

import pytest
import torch

from identica.distributions.truncated_generalized_normal import TruncatedGeneralizedNormal
from identica.distributions.truncated_laplace import TruncatedLaplace
from identica.distributions.truncated_normal import TruncatedNormal
from identica.similarities import LpSimilarity
from tests.distributions.power_truth import gennorm, seeded, truncated_cdf
from tests.stat_checks import assert_law

LOCS = [0.0, 1e-4, 0.3, 0.5, 1.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-3, 0.05, 0.5, 20.0, 1e6])
@pytest.mark.parametrize("power", [0.5, 1.0, 1.5, 2.0, 3.0, 10.0])
@pytest.mark.statistical(
    false_alarm=1e-6, what="truncated generalised normal draws against scipy's gennorm cut to the box"
)
def test_draws_follow_the_truncated_law(power, scale, dtype):
    loc = torch.tensor(LOCS, dtype=dtype)
    draws = TruncatedGeneralizedNormal(loc, scale, power).sample(12_000, seeded(31))
    for column, center in zip(draws.T, loc.tolist(), strict=True):
        assert_law(column, truncated_cdf(gennorm(center, scale, power)), false_alarm=1e-6 / len(LOCS))


@pytest.mark.parametrize("power", [0.1, 0.7, 30.0, 100.0])
@pytest.mark.statistical(false_alarm=1e-6, what="extreme powers against scipy's gennorm cut to the box")
def test_extreme_powers(power):
    draws = TruncatedGeneralizedNormal(torch.tensor([0.0, 0.4]), 0.2, power).sample(20_000, seeded(32))
    for column, center in zip(draws.T, (0.0, 0.4), strict=True):
        assert_law(column, truncated_cdf(gennorm(center, 0.2, power)), false_alarm=5e-7)


@pytest.mark.parametrize("nudge", [0.0, 1e-12])
def test_powers_one_and_two_are_laplace_and_normal(nudge):
    """With and without the tables: a power a hair off 1 or 2 is tabulated."""
    loc, x = torch.rand(2, 6, 4, generator=seeded(0), dtype=torch.float64)
    for power, other in ((1.0, TruncatedLaplace(loc, 0.3)), (2.0, TruncatedNormal(loc, 0.3 / math.sqrt(2.0)))):
        law = TruncatedGeneralizedNormal(loc, 0.3, power + nudge)
        torch.testing.assert_close(law.log_prob(x), other.log_prob(x), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(law.cdf(x), other.cdf(x), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(law.sample(5, seeded(1)), other.sample(5, seeded(1)), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(law.mean, other.mean, rtol=1e-10, atol=0)
        torch.testing.assert_close(law.entropy(), other.entropy(), rtol=1e-10, atol=1e-10)


def test_single_draws_are_the_rounded_double_draws():
    """The same uniform numbers give the same draws in both precisions, up to a few roundings of the CDF."""
    loc = torch.rand(50, 4, generator=seeded(0))
    share = torch.rand(50, 4, generator=seeded(1))
    for power in (0.5, 1.5, 3.0, 10.0):
        for scale in (0.01, 0.2, 1e6):
            single = TruncatedGeneralizedNormal(loc, scale, power)._quantile(share)
            double = TruncatedGeneralizedNormal(loc.double(), scale, power)
            assert (double.cdf(single.double()) - share).abs().max() < 2e-5 * max(1.0, 0.01 / scale)


def test_matching_similarity_is_the_log_density_up_to_a_constant():
    u = TruncatedGeneralizedNormal.matching_similarity(scale=0.05, power=3.0)
    assert isinstance(u, LpSimilarity) and u.p == 3.0 and u.temperature == pytest.approx(0.05**3)
    loc, x, y = torch.rand(3, 6, 4, generator=seeded(0), dtype=torch.float64)
    law = TruncatedGeneralizedNormal(loc, 0.05, 3.0)
    torch.testing.assert_close(law.log_prob(x) - law.log_prob(y), u(loc, x) - u(loc, y))
    with pytest.raises(ValueError, match="no similarity that matches"):
        TruncatedGeneralizedNormal.matching_similarity(scale=torch.tensor([0.1, 0.2]), power=3.0)


@pytest.mark.parametrize("power", [-1.0, 0.0, 0.05, 1e3, math.nan, math.inf])
def test_a_power_out_of_range_gets_a_sentence(power):
    with pytest.raises(ValueError, match="power of TruncatedGeneralizedNormal must lie between"):
        TruncatedGeneralizedNormal(torch.tensor([0.5]), 0.1, power)


def test_power_is_one_fixed_number():
    loc = torch.tensor([0.5, 0.5])
    law = TruncatedGeneralizedNormal(loc, 0.1, torch.tensor(3.0))
    assert law.power == 3.0
    assert "power=3" in repr(law)
    for power in (torch.tensor([3.0, 2.0]), torch.tensor(3.0, requires_grad=True)):
        with pytest.raises(ValueError, match="one fixed number"):
            TruncatedGeneralizedNormal(loc, 0.1, power)


def test_ready_tables_are_used_if_they_fit_and_only_then():
    loc = torch.rand(5, 2, generator=seeded(0))
    tables = TruncatedGeneralizedNormal.prepare_tables("cpu", torch.float32, scale=0.1, power=3.0)
    assert TruncatedGeneralizedNormal(loc, 0.1, 3.0, tables=tables)._integral is tables
    law = TruncatedGeneralizedNormal(loc.double(), 0.1, 3.0, tables=tables)
    torch.testing.assert_close(
        law.cdf(loc.double()), TruncatedGeneralizedNormal(loc.double(), 0.1, 3.0).cdf(loc.double())
    )
