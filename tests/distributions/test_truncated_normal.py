from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from identica.distributions.truncated_normal import TruncatedNormal
from identica.similarities import Anisotropic, LpSimilarity
from tests.distributions.power_truth import seeded
from tests.stat_checks import assert_law

LOCS = [0.0, 1e-4, 0.3, 0.5, 1.0]


def truth(loc, scale, low=0.0, high=1.0):
    return stats.truncnorm((low - loc) / scale, (high - loc) / scale, loc=loc, scale=scale)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-3, 0.05, 0.5, 20.0, 1e6])
@pytest.mark.statistical(false_alarm=1e-6, what="truncated normal draws against scipy's truncnorm")
def test_draws_follow_the_truncated_law(scale, dtype):
    loc = torch.tensor(LOCS, dtype=dtype)
    draws = TruncatedNormal(loc, scale).sample(20_000, seeded(21))
    for column, center in zip(draws.T, loc.tolist(), strict=True):
        assert_law(column, truth(center, scale).cdf, false_alarm=1e-6 / len(LOCS))


@pytest.mark.parametrize("scale", [0.05, 0.5, 20.0])
def test_agrees_with_truncnorm(scale):
    x = torch.tensor([0.01, 0.02, 0.35, 0.55, 0.98], dtype=torch.float64)
    law, laws = TruncatedNormal(torch.tensor(LOCS, dtype=torch.float64), scale), [truth(m, scale) for m in LOCS]
    assert law.log_prob(x).item() == pytest.approx(sum(t.logpdf(v) for t, v in zip(laws, x.numpy(), strict=True)))
    np.testing.assert_allclose(law.cdf(x).numpy(), [t.cdf(v) for t, v in zip(laws, x.numpy(), strict=True)], rtol=1e-9)
    np.testing.assert_allclose(law.icdf(x).numpy(), [t.ppf(v) for t, v in zip(laws, x.numpy(), strict=True)], rtol=1e-9)
    np.testing.assert_allclose(law.mean.numpy(), [t.mean() for t in laws], rtol=1e-6)
    assert law.entropy().item() == pytest.approx(sum(t.entropy() for t in laws), rel=1e-5)


def test_matching_similarity_is_the_log_density_up_to_a_constant():
    u = TruncatedNormal.matching_similarity(scale=0.05)
    assert isinstance(u, LpSimilarity) and u.p == 2.0 and u.temperature == pytest.approx(2 * 0.05**2)
    loc, x, y = torch.rand(3, 6, 4, generator=seeded(0), dtype=torch.float64)
    law = TruncatedNormal(loc, 0.05)
    torch.testing.assert_close(law.log_prob(x) - law.log_prob(y), u(loc, x) - u(loc, y))


def test_a_scale_per_coordinate_matches_the_anisotropic_similarity():
    scale = torch.tensor([0.1, 0.2, 0.5], dtype=torch.float64)
    u = TruncatedNormal.matching_similarity(scale=scale)
    assert isinstance(u, Anisotropic)
    torch.testing.assert_close(u.precision, 1 / scale**2)
    loc, x, y = torch.rand(3, 6, 3, generator=seeded(0), dtype=torch.float64)
    law = TruncatedNormal(loc, scale)
    torch.testing.assert_close(law.log_prob(x) - law.log_prob(y), u(loc, x) - u(loc, y))
