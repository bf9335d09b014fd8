from __future__ import annotations

import math

import pytest
import torch

from identica.distributions.projected_generalized_normal import ProjectedGeneralizedNormal
from identica.distributions.projected_laplace import ProjectedLaplace
from identica.distributions.projected_normal import ProjectedNormal
from identica.distributions.sphere_uniform import SphereUniform
from tests.stat_checks import assert_same_law


def test_power_two_is_the_normal(generator):
    """Once by the formula of the normal, once by the quadrature a hair away from power 2."""
    loc = SphereUniform(6, radius=torch.tensor(2.0, dtype=torch.float64)).sample(5, generator=generator)
    scale = torch.tensor([0.2, 0.4, 0.6, 0.8, 1.0, 1.2], dtype=torch.float64)
    normal = ProjectedNormal(loc, scale)
    x = normal.sample(30, generator=generator)
    for power in (2.0, 2.0 + 1e-12):
        general = ProjectedGeneralizedNormal(loc, scale * math.sqrt(2.0), power)
        torch.testing.assert_close(general.log_prob(x), normal.log_prob(x), rtol=1e-9, atol=1e-9)


@pytest.mark.statistical(false_alarm=1e-6, what="power 2 against the projected normal, power 1.001 against Laplace")
@pytest.mark.parametrize(("power", "scale"), ((2.0, 0.5 * math.sqrt(2.0)), (1.001, 0.5)))
def test_draws_of_the_named_powers(power, scale, generator):
    loc = torch.tensor([0.0, 1.0, -1.0])
    general = ProjectedGeneralizedNormal(loc, scale, power)
    named = ProjectedNormal(loc, 0.5) if power == 2.0 else ProjectedLaplace(loc, 0.5)
    assert_same_law(general.sample(20_000, generator=generator), named.sample(20_000, generator=generator))


@pytest.mark.parametrize("power", (0.5, 0.9, 1.3, 4.0, 10.0))
@pytest.mark.parametrize("scale", (1e-3, 1.0, 1e3))
def test_no_nan_for_any_power(power, scale, generator):
    for d, rows in ((2, 20), (20, 5), (512, 1)):
        loc = SphereUniform(d).sample(rows, generator=generator)
        family = ProjectedGeneralizedNormal(loc, scale, power)
        draws = family.sample(generator=generator)
        assert family.support.check(draws).all()
        assert torch.isfinite(family.log_prob(draws)).all()
        if d < 512:
            assert torch.isfinite(family.log_prob(-loc)).all()


def test_a_value_as_unlikely_as_it_gets():
    """Opposite to loc the density is exp(-Σ(|loc|/scale)^power) and a little: -1e30, and no NaN."""
    loc = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    log_prob = ProjectedGeneralizedNormal(loc, 1e-3, 10.0).log_prob(-loc).item()
    assert log_prob == pytest.approx(-1e30, rel=1e-12)


def test_sentences_about_the_power():
    loc = torch.tensor([1.0, 0.0])
    for power in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="power of ProjectedGeneralizedNormal must lie between"):
            ProjectedGeneralizedNormal(loc, 1.0, power)
    with pytest.raises(ValueError, match="one fixed number"):
        ProjectedGeneralizedNormal(loc, 1.0, torch.ones(2))
