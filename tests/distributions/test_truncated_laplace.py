from __future__ import annotations

import pytest
import torch
from scipy import stats

from identica.distributions.truncated_laplace import TruncatedLaplace
from identica.similarities import LpSimilarity
from tests.distributions.power_truth import seeded, truncated_cdf
from tests.stat_checks import assert_law

LOCS = [0.0, 1e-4, 0.3, 0.5, 1.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-3, 0.05, 0.5, 20.0, 1e6])
@pytest.mark.statistical(false_alarm=1e-6, what="truncated Laplace draws against scipy's Laplace cut to the box")
def test_draws_follow_the_truncated_law(scale, dtype):
    loc = torch.tensor(LOCS, dtype=dtype)
    draws = TruncatedLaplace(loc, scale).sample(20_000, seeded(11))
    for column, center in zip(draws.T, loc.tolist(), strict=True):
        assert_law(column, truncated_cdf(stats.laplace(center, scale)), false_alarm=1e-6 / len(LOCS))


@pytest.mark.statistical(
    false_alarm=1e-6, what="truncated Laplace draws against scipy's Laplace cut to a box of its own"
)
def test_draws_follow_the_law_in_another_box():
    draws = TruncatedLaplace(torch.tensor([-0.5]), 0.7, low=-1.0, high=3.0).sample(20_000, seeded(12))
    assert_law(draws[:, 0], truncated_cdf(stats.laplace(-0.5, 0.7), -1.0, 3.0))


def test_matching_similarity_is_the_log_density_up_to_a_constant():
    u = TruncatedLaplace.matching_similarity(scale=0.05)
    assert isinstance(u, LpSimilarity) and u.p == 1.0 and u.temperature == 0.05
    loc, x, y = torch.rand(3, 6, 4, generator=seeded(0), dtype=torch.float64)
    law = TruncatedLaplace(loc, 0.05)
    torch.testing.assert_close(law.log_prob(x) - law.log_prob(y), u(loc, x) - u(loc, y))


def test_a_scale_per_coordinate_has_no_matching_similarity():
    with pytest.raises(ValueError, match="no similarity that matches"):
        TruncatedLaplace.matching_similarity(scale=torch.tensor([0.1, 0.2]))
