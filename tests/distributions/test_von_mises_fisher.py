"""VonMisesFisher: shapes, density, moments and mistakes, against quadrature and closed forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from identica.distributions.sphere_uniform import SphereUniform
from identica.distributions.supports import OnSphere
from identica.distributions.von_mises_fisher import VonMisesFisher
from identica.similarities import DotProduct
from identica.spaces import Sphere
from tests.distributions.sphere_truth import AngleLaw, angle_between, random_directions
from tests.stat_checks import assert_mean

CONCENTRATIONS = (1e-3, 1.0, 10.0, 1e3, 1e4)


def test_shapes() -> None:
    family = VonMisesFisher(torch.ones(2, 1, 3), torch.ones(5, 1))
    assert family.batch_shape == (2, 5) and family.event_shape == (3,)
    assert family.sample().shape == (2, 5, 3)
    assert family.sample((7, 1)).shape == (7, 1, 2, 5, 3)
    assert family.sample(0).shape == (0, 2, 5, 3)
    assert family.log_prob(family.sample(4)).shape == (4, 2, 5)
    for value in (family.mean, family.mode, family.variance):
        assert value.shape == (2, 5, 3)
    assert family.entropy().shape == family.log_normalizer().shape == (2, 5)
    single = VonMisesFisher(torch.ones(3), 1.0)
    assert single.sample().shape == (3,) and single.log_prob(torch.ones(3)).shape == ()
    assert single.expand((4, 2)).sample().shape == (4, 2, 3)
    assert single.to(dtype=torch.float64).sample().dtype == torch.float64


# ---------------------------------------------------------------------------------------------- the density


@pytest.mark.parametrize("radius", [1.0, 2.5])
@pytest.mark.parametrize("concentration", [0.0, *CONCENTRATIONS])
@pytest.mark.parametrize("dim", [2, 3, 4, 7, 64, 512])
def test_log_prob_against_quadrature(dim: int, concentration: float, radius: float) -> None:
    law = AngleLaw(dim, concentration)
    loc = radius * random_directions(20, dim, torch.float64, seed=1)
    other = radius * random_directions(20, dim, torch.float64, seed=2)
    x = Sphere(dim, radius).project(loc + other * torch.logspace(-3, 1, 20).double()[:, None])
    family = VonMisesFisher(loc, concentration)
    gap = -2 * torch.sin(angle_between(x, loc) / 2) ** 2  # cos θ − 1
    expected = concentration * gap - law.log_normalizer_at_mode - (dim - 1) * math.log(radius)
    torch.testing.assert_close(family.log_prob(x), expected, rtol=1e-12, atol=1e-10)
    normalizer = law.log_normalizer_at_mode + concentration + (dim - 1) * math.log(radius)
    torch.testing.assert_close(
        family.log_normalizer(), torch.full((20,), normalizer, dtype=torch.float64), rtol=1e-12, atol=1e-10
    )


@pytest.mark.parametrize("dim", [2, 3, 10, 512])
@pytest.mark.parametrize("concentration", CONCENTRATIONS)
def test_float32_log_prob(dim: int, concentration: float) -> None:
    """Also next to the mode at a high concentration, where 1 − cos has no digits in float32."""
    loc = random_directions(100, dim, torch.float32)
    x = VonMisesFisher(loc, concentration).sample(generator=torch.Generator().manual_seed(3))
    expected = VonMisesFisher(loc.double(), concentration, validate_args=False).log_prob(x.double())
    value = VonMisesFisher(loc, concentration).log_prob(x)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), expected, rtol=2e-6, atol=2e-5)


def test_closed_forms() -> None:
    """κ / (4π sinh κ) exp(κ cos θ) in three dimensions; scipy's von Mises law in two."""
    concentration = torch.logspace(-3, 2, 30).double()[:, None]
    loc, x = random_directions(30, 3, torch.float64, 1), random_directions(30, 3, torch.float64, 2)
    cosine = (loc * x).sum(dim=-1)
    k = concentration[:, 0]
    expected = torch.log(k / (4 * torch.pi * torch.sinh(k))) + k * cosine
    torch.testing.assert_close(VonMisesFisher(loc, concentration).log_prob(x), expected, rtol=1e-12, atol=1e-12)
    angle = np.linspace(-3, 3, 30)
    x = torch.tensor(np.stack([np.cos(angle), np.sin(angle)], axis=1))
    value = VonMisesFisher(torch.tensor([1.0, 0.0]).double(), 3.0).log_prob(x)
    np.testing.assert_allclose(value.numpy(), stats.vonmises(3.0).logpdf(angle), rtol=1e-12)


@pytest.mark.statistical(false_alarm=1e-6, what="the vMF density's integral by Monte Carlo: one")
def test_density_integrates_to_one() -> None:
    sphere = Sphere(4, radius=1.5)
    x = SphereUniform(4, radius=1.5).sample(20_000, generator=torch.Generator().manual_seed(10)).double()
    family = VonMisesFisher(sphere.project(torch.ones(4).double()), 2.0, validate_args=False)
    assert_mean((family.log_prob(x) + sphere.log_volume()).exp(), torch.tensor(1.0))


@pytest.mark.parametrize("dim", [2, 3, 10, 512])
@pytest.mark.parametrize("concentration", CONCENTRATIONS)
def test_mean_variance_mode_entropy(dim: int, concentration: float) -> None:
    law = AngleLaw(dim, concentration)
    loc = 2.0 * random_directions(1, dim, torch.float64)[0]
    family = VonMisesFisher(loc, concentration)
    gap = law.expect(lambda theta: 2 * np.sin(theta / 2) ** 2)  # E[1 − cos θ]
    torch.testing.assert_close(family.mean, (1 - gap) * loc, rtol=1e-8, atol=1e-12)
    assert torch.equal(family.mode, loc)
    entropy = law.log_normalizer_at_mode + (dim - 1) * math.log(2.0) + concentration * gap
    assert family.entropy().item() == pytest.approx(entropy, rel=1e-10, abs=1e-9)
    # Var cos θ along loc, E[sin²θ] / (d − 1) in every direction across it.
    along = law.expect(lambda theta: (2 * np.sin(theta / 2) ** 2 - gap) ** 2)
    across = law.expect(lambda theta: np.sin(theta) ** 2) / (dim - 1)
    expected = 4.0 * (across + (along - across) * (loc / 2.0) ** 2)
    torch.testing.assert_close(family.variance, expected, rtol=1e-6, atol=1e-12)


def test_gradients() -> None:
    loc = random_directions(4, 3, torch.float64, 1)
    x = random_directions(4, 3, torch.float64, 2)
    k = torch.tensor([[0.0], [0.7], [20.0], [1e3]], dtype=torch.float64)
    inputs = [v.clone().requires_grad_() for v in (x, loc, k)]
    assert torch.autograd.gradcheck(
        lambda x, loc, k: VonMisesFisher(loc, k, validate_args=False).log_prob(x), inputs, rtol=1e-4
    )
    value = VonMisesFisher(inputs[1], inputs[2]).log_prob(inputs[0])
    by_x, _, by_k = torch.autograd.grad(value.sum(), inputs)
    cosine = (x * loc).sum(dim=-1, keepdim=True)
    torch.testing.assert_close(by_x, k * (loc - cosine * x))  # the tangential part of κ loc
    ratio = torch.where(k > 0, 1 / torch.tanh(k) - 1 / k, 0.0)  # A_3(κ)
    torch.testing.assert_close(by_k, cosine - ratio, rtol=1e-10, atol=1e-10)


def test_matching_similarity() -> None:
    """The density is proportional to exp(u), on the unit sphere."""
    loc, x = random_directions(2, 4, torch.float64, 1)[:, None], random_directions(9, 4, torch.float64, 2)
    similarity = VonMisesFisher.matching_similarity(concentration=5.0)
    assert isinstance(similarity, DotProduct)
    difference = VonMisesFisher(loc, 5.0).log_prob(x) - similarity(loc, x)
    torch.testing.assert_close(difference, difference[:1, :1].expand(2, 9), rtol=0.0, atol=1e-6)
    for bad in (0.0, torch.ones(3, 1)):
        with pytest.raises(ValueError, match="one positive number"):
            VonMisesFisher.matching_similarity(concentration=bad)


# ------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    "loc, concentration, sentence",
    [
        (torch.tensor(1.0), 1.0, "multivariate"),
        (torch.ones(4, 1), 1.0, "at least two dimensions"),
        (torch.zeros(3), 1.0, "must not be zero"),
        (torch.tensor([1.0, float("nan")]), 1.0, "loc of VonMisesFisher must be finite"),
        (torch.ones(3), -1.0, "must be finite and not negative, not -1"),
        (torch.ones(3), float("inf"), "must be finite and not negative"),
        (torch.ones(4, 3), torch.ones(4), "one number per row.*concentration\\[:, None\\]"),
        (torch.ones(4, 3), torch.ones(5, 1), "does not broadcast"),
    ],
)
def test_bad_parameters(loc: torch.Tensor, concentration: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        VonMisesFisher(loc, concentration)


def test_bad_values() -> None:
    family = VonMisesFisher(torch.tensor([0.0, 2.0]), 1.0)
    with pytest.raises(ValueError, match="not on it"):
        family.log_prob(torch.tensor([0.0, 1.0]))
    with pytest.raises(ValueError, match="vectors of length 2"):
        family.log_prob(torch.ones(3))
    with pytest.raises(NotImplementedError, match="no reparameterised sampler"):
        family.rsample()
    assert isinstance(family.support, OnSphere) and bool(family.support.check(family.sample()))
