from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from identica.distributions.generalized_normal import GeneralizedNormal
from identica.similarities import Anisotropic, LpSimilarity
from tests.distributions.power_truth import gennorm, no_waiting, seeded
from tests.stat_checks import assert_law, assert_mean

POWERS = [0.5, 1.0, 1.5, 2.0, 3.0, 10.0]
DTYPES = [torch.float32, torch.float64]
every_power = pytest.mark.parametrize("power", POWERS)


@every_power
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.statistical(false_alarm=1e-6, what="generalised normal draws against scipy's gennorm")
def test_draws_follow_the_law(power, dtype):
    draws = GeneralizedNormal(torch.tensor([-3.0, 0.0], dtype=dtype), 0.7, power).sample(30_000, seeded(41))
    assert draws.dtype == dtype
    for column, center in zip(draws.T, (-3.0, 0.0), strict=True):
        assert_law(column, gennorm(center, 0.7, power).cdf, false_alarm=5e-7)


@every_power
@pytest.mark.statistical(false_alarm=1e-6, what="second moment of generalised normal draws against its variance")
def test_draws_have_the_stated_variance(power):
    law = GeneralizedNormal(torch.zeros(2, dtype=torch.float64), 1.3, power)
    assert_mean(law.sample(50_000, seeded(42)) ** 2, law.variance)


@every_power
def test_agrees_with_scipy(power):
    loc, scale = torch.tensor([0.0, -1.0, 2.0], dtype=torch.float64), 0.4
    law, truths = GeneralizedNormal(loc, scale, power), [gennorm(m, scale, power) for m in loc.tolist()]
    x = torch.tensor([[0.1, -1.0, 1.2], [-2.0, 0.5, 2.01]], dtype=torch.float64)
    columns = list(zip(truths, x.numpy().T, strict=True))
    np.testing.assert_allclose(law.log_prob(x).numpy(), sum(t.logpdf(c) for t, c in columns), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(law.cdf(x).numpy().T, [t.cdf(c) for t, c in columns], rtol=1e-9, atol=1e-14)
    q = torch.tensor([[0.001, 0.3, 0.5], [0.7, 0.99, 0.9999]], dtype=torch.float64)
    want = [t.ppf(c) for t, c in zip(truths, q.numpy().T, strict=True)]
    np.testing.assert_allclose(law.icdf(q).numpy().T, want, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(law.variance.numpy(), [t.var() for t in truths], rtol=1e-9)
    assert law.entropy().item() == pytest.approx(sum(t.entropy() for t in truths), rel=1e-9)
    assert torch.equal(law.mean, loc) and torch.equal(law.mode, loc)


def test_powers_one_and_two_are_laplace_and_normal():
    loc, x = torch.randn(2, 6, 4, generator=seeded(0), dtype=torch.float64)
    laplace = torch.distributions.Laplace(loc, 0.3)
    normal = torch.distributions.Normal(loc, 0.3 / math.sqrt(2.0))
    for power, other in ((1.0, laplace), (2.0, normal)):
        law = GeneralizedNormal(loc, 0.3, power)
        torch.testing.assert_close(law.log_prob(x), other.log_prob(x).sum(-1))
        torch.testing.assert_close(law.cdf(x), other.cdf(x))
        torch.testing.assert_close(law.variance, other.variance)
        torch.testing.assert_close(law.entropy(), other.entropy().sum(-1))


def test_quantiles_of_zero_and_one_are_infinite_but_draws_never_are():
    for power in POWERS:
        law = GeneralizedNormal(torch.zeros(1), 1.0, power)
        assert law.icdf(torch.tensor([[0.0], [1.0]])).flatten().tolist() == [-math.inf, math.inf]
        assert law._quantile(torch.tensor([[0.0], [1.0]])).isfinite().all()


@every_power
def test_gradients_of_draws_and_densities(power):
    loc = torch.tensor([0.01, -0.3], dtype=torch.float64, requires_grad=True)
    scale = torch.tensor([[0.2], [2.0]], dtype=torch.float64, requires_grad=True)
    x = torch.tensor([0.2, 0.5], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda m, s: GeneralizedNormal(m, s, power, validate_args=False).rsample(3, seeded(5)), (loc, scale)
    )
    assert torch.autograd.gradcheck(
        lambda x, m, s: GeneralizedNormal(m, s, power, validate_args=False).log_prob(x), (x, loc, scale)
    )


@every_power
@pytest.mark.parametrize("dtype", DTYPES)
def test_shapes_generators_and_no_waiting(power, dtype):
    loc = torch.randn(7, 3, generator=seeded(0), dtype=dtype)
    tables = GeneralizedNormal.prepare_tables(loc.device, dtype, power=power)
    with no_waiting():
        law = GeneralizedNormal(loc, 0.1, power, validate_args=False, tables=tables)
        draws = law.sample((2, 5), seeded(1))
        assert law.log_prob(draws).shape == (2, 5, 7)
    assert draws.shape == (2, 5, 7, 3) and draws.isfinite().all()
    assert torch.equal(draws, law.sample((2, 5), seeded(1)))
    assert not torch.equal(draws, law.sample((2, 5), seeded(2)))
    assert law.expand((4, 7)).sample().shape == (4, 7, 3)


def test_matching_similarity_is_the_log_density_up_to_a_constant():
    loc, x, y = torch.randn(3, 6, 4, generator=seeded(0), dtype=torch.float64)
    for power in POWERS:
        u = GeneralizedNormal.matching_similarity(scale=0.7, power=power)
        assert isinstance(u, LpSimilarity) and u.temperature == pytest.approx(0.7**power)
        law = GeneralizedNormal(loc, 0.7, power)
        torch.testing.assert_close(law.log_prob(x) - law.log_prob(y), u(loc, x) - u(loc, y))
    assert isinstance(GeneralizedNormal.matching_similarity(scale=torch.ones(4), power=2.0), Anisotropic)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"scale": -0.1}, "scale of GeneralizedNormal must be positive"),
        ({"scale": torch.ones(3)}, "does not broadcast"),
        ({"loc": torch.tensor(0.5)}, "loc must have shape"),
        ({"loc": torch.tensor([0.5, torch.inf])}, "loc of GeneralizedNormal must be finite"),
        ({"loc": torch.tensor([0.5]), "scale": torch.ones(3)}, "vectors of length"),
        ({"power": 0.0}, "power of GeneralizedNormal must lie between"),
        ({"power": torch.ones(2)}, "one fixed number"),
    ],
)
def test_wrong_parameters_get_a_sentence(change, sentence):
    arguments = {"loc": torch.tensor([0.5, 0.5]), "scale": 0.1, "power": 3.0} | change
    with pytest.raises(ValueError, match=sentence):
        GeneralizedNormal(**arguments)
