"""The fused samplers on the sphere against float64 truths: quadrature and scipy's laws, never the torch path."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from identica.distributions import FisherBingham, SphereUniform, VonMisesFisher
from identica.spaces import Sphere
from tests.distributions.sphere_truth import AngleLaw, angle_between, coordinate_cdf, random_directions
from tests.distributions.triton_draws import EPS, draw, few_and_many, no_numpy_warnings, norms, on_gpu
from tests.stat_checks import assert_law, assert_mean

pytest.importorskip("triton")

pytestmark = no_numpy_warnings


@pytest.mark.statistical(false_alarm=1e-6, what="fused uniform draws on the sphere: a coordinate's law, second moments")
@few_and_many
@pytest.mark.parametrize("dim", [2, 3, 5, 10, 17])
def test_sphere_uniform(dim: int, rows: int) -> None:
    x = draw(SphereUniform(dim, radius=2.0), rows)
    assert x.shape == (rows, dim)
    assert (norms(x) / 2.0 - 1.0).abs().max() < 3 * EPS
    for j in {0, 1, dim // 2, dim - 1}:
        assert_law(0.5 * x[:, j], coordinate_cdf(dim), false_alarm=0.5e-6 / 4)
    some = x[:, :5]
    products = (some[:, :, None] * some[:, None, :]).flatten(1)
    assert_mean(products, 4.0 / dim * torch.eye(some.shape[1]), false_alarm=0.5e-6)


@pytest.mark.parametrize("dim", [127, 512, 2048, 3000])
def test_sphere_uniform_in_many_dimensions(dim: int) -> None:
    x = draw(SphereUniform(dim), 50)
    assert (norms(x) - 1.0).abs().max() < 3 * EPS
    assert x.abs().max() < 7 / dim**0.5


def test_each_row_may_have_its_own_radius() -> None:
    radius = torch.tensor([[1e-3], [1.0], [1e6]])
    x = draw(SphereUniform(4, radius), (100,))
    assert x.shape == (100, 3, 4)
    assert (norms(x) / radius[:, 0] - 1.0).abs().max() < 3 * EPS


# ------------------------------------------------------------------------------------------------ von Mises-Fisher


@pytest.mark.statistical(false_alarm=1e-6, what="fused vMF draws: angle to their own loc against its quadrature CDF")
@few_and_many
@pytest.mark.parametrize("concentration", [0.0, 1e-3, 1.0, 10.0, 1e3, 1e4])
@pytest.mark.parametrize("dim", [2, 3, 4, 10])
def test_von_mises_fisher_angle(dim: int, concentration: float, rows: int) -> None:
    loc = random_directions(rows, dim, torch.float32)
    x = draw(VonMisesFisher(loc, concentration))
    assert x.shape == loc.shape and x.dtype == torch.float32
    assert (norms(x) / norms(loc) - 1.0).abs().max() < 3 * EPS
    assert_law(angle_between(x, loc), AngleLaw(dim, concentration).cdf)


@pytest.mark.statistical(false_alarm=1e-6, what="fused vMF draws in 512 dimensions: angle against its quadrature CDF")
@pytest.mark.parametrize("rows", [500, pytest.param(2**14, marks=on_gpu)])
@pytest.mark.parametrize("concentration", [1.0, 1e3])
def test_von_mises_fisher_in_many_dimensions(concentration: float, rows: int) -> None:
    loc = random_directions(rows, 512, torch.float32)
    x = draw(VonMisesFisher(loc, concentration))
    assert (norms(x) / norms(loc) - 1.0).abs().max() < 4 * EPS
    assert_law(angle_between(x, loc), AngleLaw(512, concentration).cdf)


@pytest.mark.statistical(false_alarm=1e-6, what="tangent direction of fused vMF draws against the uniform sphere")
@few_and_many
@pytest.mark.parametrize("dim", [3, 10])
@pytest.mark.parametrize("place", ["+e1", "-e1", "random"])
def test_von_mises_fisher_tangent_direction(dim: int, place: str, rows: int) -> None:
    first = torch.eye(dim, dtype=torch.float64)[0]
    loc = {"+e1": first, "-e1": -first, "random": random_directions(1, dim, torch.float64)[0]}[place]
    basis = torch.linalg.qr(torch.cat([loc[:, None], torch.eye(dim).double()], dim=1)).Q[:, 1:dim]
    x = draw(VonMisesFisher(loc.float(), 3.0), rows)
    direction = Sphere(dim - 1).project(x.double() @ basis)
    for j in range(dim - 1):
        assert_law(direction[:, j], coordinate_cdf(dim - 1), false_alarm=0.5e-6 / (dim - 1))
    some = direction[:, :5]
    products = (some[:, :, None] * some[:, None, :]).flatten(1)
    assert_mean(products, torch.eye(some.shape[1]) / (dim - 1), false_alarm=0.5e-6)


@pytest.mark.statistical(false_alarm=1e-6, what="fused vMF draws with a concentration of its own for each row")
@few_and_many
def test_von_mises_fisher_concentration_by_row(rows: int) -> None:
    concentrations = (0.5, 30.0, 2e3)
    loc = 2.0 * random_directions(3, 4, torch.float32)
    x = draw(VonMisesFisher(loc, torch.tensor(concentrations)[:, None]), rows)
    assert x.shape == (rows, 3, 4)
    for row, concentration in enumerate(concentrations):
        assert_law(angle_between(x[:, row], loc[row]), AngleLaw(4, concentration).cdf, false_alarm=1e-6 / 3)


@pytest.mark.statistical(false_alarm=1e-6, what="which side of loc fused vMF draws fall on in the plane: a fair coin")
@few_and_many
def test_von_mises_fisher_in_the_plane_falls_on_both_sides(rows: int) -> None:
    loc = random_directions(rows, 2, torch.float32)
    for concentration in (1.0, 1e4):
        x = draw(VonMisesFisher(loc, concentration))
        left = int((loc[:, 0] * x[:, 1] > loc[:, 1] * x[:, 0]).sum())
        assert stats.binomtest(left, rows).pvalue > 0.5e-6


@pytest.mark.parametrize("radius", [1e-30, 1e-3, 1.0, 1e3, 1e30])
def test_von_mises_fisher_keeps_the_radius(radius: float) -> None:
    loc = radius * random_directions(1000, 5, torch.float32)
    for concentration in (0.0, 7.0, 1e8):
        x = draw(VonMisesFisher(loc, concentration))
        assert (norms(x) / norms(loc) - 1.0).abs().max() < 3 * EPS


@few_and_many
@pytest.mark.parametrize("dim", [2, 3, 10])
def test_von_mises_fisher_stays_finite_at_the_corners(dim: int, rows: int) -> None:
    loc = -torch.eye(dim)[-1]
    for concentration in (0.0, 1e-3, 1e4, 1e8, 1e30):
        x = draw(VonMisesFisher(loc, concentration), rows)
        assert (norms(x) - 1.0).abs().max() < 3 * EPS


def test_equal_precisions_are_drawn_as_von_mises_fisher() -> None:
    loc = 2.0 * random_directions(100, 3, torch.float32)
    torch.testing.assert_close(draw(FisherBingham(loc, 5.0)), draw(VonMisesFisher(loc, 20.0)))
