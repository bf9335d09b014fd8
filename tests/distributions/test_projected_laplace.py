from __future__ import annotations

import math

import pytest
import torch

from identica.distributions.projected_generalized_normal import ProjectedGeneralizedNormal
from identica.distributions.projected_laplace import ProjectedLaplace
from identica.distributions.sphere_uniform import SphereUniform


@pytest.mark.parametrize("scale", (0.05, 0.5, 4.0))
def test_closed_forms_on_the_axes(scale):
    """Around e_1 in the plane, along e_2 the integrand is r exp(-(1 + r)/s)/4s², along -e_1 the same."""
    family = ProjectedLaplace(torch.tensor([1.0, 0.0], dtype=torch.float64), scale)
    points = torch.tensor([[0.0, 1.0], [0.0, -1.0], [-1.0, 0.0]], dtype=torch.float64)
    expected = torch.full((3,), -1 / scale - math.log(4.0), dtype=torch.float64)
    torch.testing.assert_close(family.log_prob(points), expected, rtol=1e-11, atol=1e-11)
    # Along e_1 itself: ∫ r exp(-|r - 1|/s) dr = 2s + s² exp(-1/s).
    at_loc = math.log((2 * scale + scale**2 * math.exp(-1 / scale)) / (4 * scale**2))
    assert family.log_prob(family.loc).item() == pytest.approx(at_loc, abs=1e-10)


def test_is_the_generalised_normal_of_power_one():
    loc, scale = torch.tensor([0.6, 0.0, 0.8]), torch.tensor([0.1, 0.2, 0.3])
    laplace, general = ProjectedLaplace(loc, scale), ProjectedGeneralizedNormal(loc, scale, 1.0)
    draws = laplace.sample(20, generator=torch.Generator().manual_seed(0))
    assert torch.equal(draws, general.sample(20, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(laplace.log_prob(draws), general.log_prob(draws))
    assert repr(laplace) == "ProjectedLaplace(loc=tensor(3,), scale=tensor(3,))"


def test_large_batches_in_many_dimensions(generator):
    """Linear between its kinks, the density costs d² a row: 512 dimensions are no trouble."""
    loc = SphereUniform(512).sample(20, generator=generator)
    family = ProjectedLaplace(loc, 0.05)
    assert torch.isfinite(family.log_prob(family.sample(generator=generator))).all()
