"""SphereUniform: uniform, on the sphere of the radius asked for."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from identica.distributions.sphere_uniform import SphereUniform
from identica.distributions.supports import OnSphere
from identica.spaces import Sphere
from tests.distributions.sphere_truth import coordinate_cdf, random_directions
from tests.stat_checks import assert_law, assert_mean, assert_same_law

DTYPES = (torch.float32, torch.float64)


def family(dim: int, radius: float = 1.0, dtype: torch.dtype = torch.float64) -> SphereUniform:
    return SphereUniform(dim, radius=torch.tensor(radius, dtype=dtype))


@pytest.mark.statistical(false_alarm=1e-6, what="coordinates of uniform points of the sphere against their CDF")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [2, 3, 10, 512])
def test_law_of_projections(dim: int, dtype: torch.dtype, generator: torch.Generator) -> None:
    """The uniform law is the one whose projection on every axis follows the beta law; try four random axes."""
    x = family(dim, 2.0, dtype).sample(10_000, generator=generator)
    assert x.dtype == dtype
    axes = random_directions(4, dim, torch.float64)
    for projection in (x.double() @ axes.T / 2.0).T:
        assert_law(projection, coordinate_cdf(dim), false_alarm=1e-6 / 4)


@pytest.mark.statistical(false_alarm=1e-6, what="angle of uniform points of the circle against the uniform law")
def test_angle_in_the_plane(generator: torch.Generator) -> None:
    x = family(2).sample(20_000, generator=generator)
    assert_law(torch.atan2(x[:, 1], x[:, 0]), stats.uniform(-math.pi, 2 * math.pi).cdf)


@pytest.mark.statistical(false_alarm=1e-6, what="uniform points of the sphere before and after a rotation")
def test_isotropy(generator: torch.Generator) -> None:
    rotation = torch.linalg.qr(torch.randn(5, 5, generator=generator, dtype=torch.float64)).Q
    a, b = (family(5).sample(10_000, generator=generator) for _ in range(2))
    assert_same_law(a, b @ rotation)


@pytest.mark.statistical(false_alarm=1e-6, what="first two moments of uniform points of the sphere")
def test_moments(generator: torch.Generator) -> None:
    uniform = family(6, 3.0)
    x = uniform.sample(20_000, generator=generator)
    assert_mean(x, uniform.mean, false_alarm=0.5e-6)
    assert_mean(x**2, uniform.variance, false_alarm=0.5e-6)
    assert torch.equal(uniform.mean, torch.zeros(6).double())
    torch.testing.assert_close(uniform.variance, torch.full((6,), 9.0 / 6).double())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("radius", [1e-3, 0.5, 40.0])
def test_radius_is_honoured(radius: float, dtype: torch.dtype, generator: torch.Generator) -> None:
    """The reference code normalises and forgets the radius; such points must not pass."""
    uniform = family(4, radius, dtype)
    x = uniform.sample(1_000, generator=generator)
    assert bool(Sphere(4, radius).contains(x).all()) and bool(uniform.support.check(x).all())
    forgotten = x / x.norm(dim=-1, keepdim=True)
    assert not bool(Sphere(4, radius).contains(forgotten).any())
    with pytest.raises(ValueError, match="not on it"):
        uniform.log_prob(forgotten)


def test_one_radius_per_row(generator: torch.Generator) -> None:
    radius = torch.tensor([[1.0], [2.0], [3.0]])
    uniform = SphereUniform(4, radius=radius)
    assert uniform.batch_shape == (3,) and uniform.event_shape == (4,)
    x = uniform.sample(5, generator=generator)
    assert x.shape == (5, 3, 4)
    torch.testing.assert_close(x.norm(dim=-1), radius[:, 0].expand(5, 3))
    expected = torch.tensor([-Sphere(4, r).log_volume() for r in (1.0, 2.0, 3.0)])
    torch.testing.assert_close(uniform.log_prob(x), expected.expand(5, 3))
    assert uniform.mean.shape == uniform.variance.shape == (3, 4) and uniform.entropy().shape == (3,)


@pytest.mark.parametrize(
    "dim, radius, area",
    [(2, 1.0, 2 * math.pi), (3, 1.0, 4 * math.pi), (3, 2.0, 16 * math.pi), (4, 1.0, 2 * math.pi**2)],
)
def test_density_against_closed_forms(dim: int, radius: float, area: float) -> None:
    uniform = family(dim, radius)
    point = radius * random_directions(1, dim, torch.float64)[0]
    assert uniform.log_prob(point).item() == pytest.approx(-math.log(area), rel=1e-14)
    assert uniform.entropy().item() == pytest.approx(math.log(area), rel=1e-14)


def test_equal_generators_give_equal_draws() -> None:
    uniform = SphereUniform(3)
    a, b = (uniform.sample((2, 5), generator=torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(a, b) and a.shape == (2, 5, 3)
    generator = torch.Generator().manual_seed(1)
    assert torch.equal(a, uniform.sample((2, 5), generator=generator))
    assert not torch.equal(a, uniform.sample((2, 5), generator=generator))


def test_rebuilding() -> None:
    uniform = SphereUniform(3, radius=2.0)
    assert uniform.sample().dtype == torch.float32
    assert uniform.to(dtype=torch.float64).sample().dtype == torch.float64
    assert SphereUniform(3, radius=torch.full((1, 1), 2.0)).expand((5,)).sample().shape == (5, 3)


@pytest.mark.parametrize(
    "dim, radius, sentence",
    [
        (1, 1.0, "whole number of at least 2"),
        (2.5, 1.0, "whole number of at least 2"),
        (3, 0.0, "must be positive and finite, not 0"),
        (3, -1.0, "must be positive and finite, not -1"),
        (3, float("nan"), "must be positive and finite"),
        (3, torch.ones(4), "one number per row"),
    ],
)
def test_bad_parameters(dim: int, radius: float, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        SphereUniform(dim, radius=radius)


def test_bad_values() -> None:
    uniform = SphereUniform(3)
    with pytest.raises(ValueError, match="not on it"):
        uniform.log_prob(torch.ones(3))
    with pytest.raises(ValueError, match="vectors of length 3"):
        uniform.log_prob(torch.ones(4))
    with pytest.raises(TypeError, match="needs a tensor"):
        uniform.log_prob([1.0, 0.0, 0.0])  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="no reparameterised sampler"):
        uniform.rsample()
    assert isinstance(uniform.support, OnSphere)


def test_a_radius_of_whole_numbers_is_a_radius() -> None:
    draws = SphereUniform(3, torch.tensor([[1], [2]])).sample(4, torch.Generator().manual_seed(0))
    torch.testing.assert_close(draws.norm(dim=-1), torch.tensor([1.0, 2.0]).expand(4, 2))
