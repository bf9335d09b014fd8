from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from identica.distributions.projected_normal import ProjectedNormal
from identica.distributions.sphere_uniform import SphereUniform


@pytest.mark.parametrize("scale", (0.2, 1.0, 5.0))
def test_closed_form_on_the_circle(scale):
    """p(θ) = φ(κ)/√(2π) · (1 + c Φ(c)/φ(c)) with κ = 1/scale and c = κ cos θ."""
    angle = torch.linspace(-3.1, 3.1, 41, dtype=torch.float64)
    kappa, c = 1.0 / scale, torch.cos(angle).numpy() / scale
    expected = stats.norm.pdf(kappa) / math.sqrt(2 * math.pi) * (1 + c * stats.norm.cdf(c) / stats.norm.pdf(c))
    family = ProjectedNormal(torch.tensor([1.0, 0.0], dtype=torch.float64), scale)
    points = torch.stack([angle.cos(), angle.sin()], dim=-1)
    torch.testing.assert_close(family.log_prob(points).exp(), torch.tensor(expected), rtol=1e-9, atol=1e-12)


def test_float32_keeps_the_density_of_narrow_noise(generator):
    """Sums of squares near (1/scale)² = 1e6 cancel; float32 alone would be wrong in the second digit."""
    loc = SphereUniform(8).sample(generator=generator)
    draws = ProjectedNormal(loc, 1e-3).sample(100, generator=generator)
    exact = ProjectedNormal(loc.double(), 1e-3, validate_args=False).log_prob(draws.double())
    torch.testing.assert_close(ProjectedNormal(loc, 1e-3).log_prob(draws), exact.float(), rtol=1e-4, atol=1e-3)


def test_mode_is_loc_for_one_scale(generator):
    loc = 2 * SphereUniform(5, radius=torch.tensor(1.0, dtype=torch.float64)).sample(3, generator=generator)
    family = ProjectedNormal(loc, torch.tensor([[0.1], [1.0], [50.0]], dtype=torch.float64))
    assert torch.equal(family.mode, loc)
    elsewhere = SphereUniform(5, radius=torch.tensor(2.0, dtype=torch.float64)).sample((500, 3), generator=generator)
    assert (family.log_prob(elsewhere) < family.log_prob(family.mode)).all()


def test_mode_is_not_loc_for_different_scales():
    """A wide second axis pulls the mode away from loc, so none is promised."""
    loc = torch.tensor([0.8, 0.6], dtype=torch.float64)
    family = ProjectedNormal(loc, torch.tensor([0.2, 1.0], dtype=torch.float64))
    with pytest.raises(NotImplementedError, match="one scale per coordinate"):
        _ = family.mode
    angle = torch.linspace(0, 2 * math.pi, 721, dtype=torch.float64)
    circle = torch.stack([angle.cos(), angle.sin()], dim=-1)
    assert family.log_prob(circle).max() > family.log_prob(loc) + 0.05
