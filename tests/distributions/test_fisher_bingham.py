"""FisherBingham: its density, its moments, and how it is built and refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from identica.distributions import fisher_bingham_normalizer as normalizer
from identica.distributions.fisher_bingham import FisherBingham
from identica.distributions.von_mises_fisher import VonMisesFisher
from identica.similarities import Anisotropic, LpSimilarity
from identica.spaces import Sphere
from tests.distributions.fisher_bingham_truth import (
    BlockLaw,
    CircleLaw,
    general,
    log_normalizer_on_ordinary_sphere,
    unit,
)
from tests.stat_checks import FALSE_ALARM, assert_mean

CIRCLES = ((0.0, 0.0), (0.0, 1e-3), (5.0, 25.0), (0.0, 100.0), (0.1, 1000.0), (0.0, 1000.0), (1000.0, 999.0))
BLOCKS = (
    ((5, 5), (5.0, 25.0), 0.3),
    ((5, 5), (1.0, 1000.0), 0.3),
    ((1, 9), (0.0, 1000.0), 0.6),
    ((9, 1), (0.1, 1000.0), 0.2),
    ((5, 5), (1e-3, 0.5), 0.5),
    ((32, 32), (5.0, 200.0), 0.5),
    ((256, 256), (0.0, 1000.0), 0.5),
    ((1, 511), (3.0, 1000.0), 0.5),
)


def row(*values: float, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


@pytest.mark.parametrize("precision", CIRCLES)
def test_normalised_on_the_circle(precision: tuple[float, float]) -> None:
    for angle in (0.0, 0.3, 0.8, 1.3, math.pi / 2, 4.0):
        loc = row(math.cos(angle), math.sin(angle))
        found = general(FisherBingham(loc, row(*precision))).log_normalizer()
        assert found.item() == pytest.approx(CircleLaw(loc, row(*precision)).log_normalizer, abs=1e-10)


@pytest.mark.parametrize("largest", (1e7, 1e8, 1e9))
def test_normalised_where_the_mass_is_in_two_needles(largest: float) -> None:
    """At Λ = (1, 1e9) the mass lies within 1e-4 of the two ends of the loose axis, in normal laws of one dimension."""
    angle = 1.0
    loc = row(math.cos(angle), math.sin(angle))
    # Near the end ±e₁, by its angle t: Λ's tight entry sees sin t, whose square and products are taken exactly below.
    t = torch.linspace(0.0, 2.0 * math.pi, (1 << 22) + 1, dtype=torch.float64)[:-1]
    exponent = -0.5 * ((torch.cos(t) - loc[0]) ** 2 + largest * (torch.sin(t) - loc[1]) ** 2)
    expected = torch.logsumexp(exponent, 0).item() + math.log(2.0 * math.pi / len(t))
    found = general(FisherBingham(loc, row(1.0, largest))).log_normalizer().item()
    assert found == pytest.approx(expected, abs=1e-15 * largest + 1e-9)


@pytest.mark.parametrize("anywhere", (False, True), ids=("CPU", "other devices"))
@pytest.mark.parametrize("radius", (1.0, 3.0, 10.0))
@pytest.mark.parametrize("loose", (0.0, 6.0, 20.0))
def test_normalised_with_one_loose_coordinate(
    loose: float, radius: float, anywhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Precisions far apart, up to 1e5 on the unit sphere, and locations on and near the loose axis."""
    if anywhere:
        monkeypatch.setattr(normalizer, "_node_count", lambda base, bend: normalizer.DEFAULT_NODES)
    for angle in (0.0, 0.01, 0.1, 1.0):
        loc = radius * row(math.sin(angle), math.cos(angle))
        precision = row(1000.0, loose / radius**2)
        expected = CircleLaw(loc / radius, precision * radius**2).log_normalizer + math.log(radius)
        assert FisherBingham(loc, precision).log_normalizer().item() == pytest.approx(expected, abs=1e-10)
    for dim in (3, 20):
        law = BlockLaw((1, dim - 1), (loose, 1000.0 * radius**2), 1.0, nodes=80_001)
        distribution = FisherBingham(radius * law.loc, law.precision / radius**2)
        expected = law.log_normalizer + (dim - 1) * math.log(radius)
        assert distribution.log_normalizer().item() == pytest.approx(expected, abs=1e-10)
        assert distribution.mean[0].item() == pytest.approx(radius * law.mean[0], abs=1e-9 * radius)


@pytest.mark.parametrize("precision", ((5.0, 25.0, 1.0), (0.0, 1.0, 1000.0), (0.0, 0.0, 300.0)))
def test_normalised_on_the_ordinary_sphere(precision: tuple[float, float, float]) -> None:
    for loc in unit(2, 3):
        found = FisherBingham(loc, row(*precision)).log_normalizer().item()
        assert found == pytest.approx(log_normalizer_on_ordinary_sphere(loc, row(*precision)), abs=1e-9)


@pytest.mark.parametrize(("sizes", "precisions", "share"), BLOCKS)
def test_normaliser_and_mean_in_any_dimension(
    sizes: tuple[int, int], precisions: tuple[float, float], share: float
) -> None:
    law = BlockLaw(sizes, precisions, share)
    distribution = FisherBingham(law.loc, law.precision)
    assert distribution.log_normalizer().item() == pytest.approx(law.log_normalizer, abs=1e-10)
    expected = torch.zeros_like(law.loc)
    expected[0], expected[sizes[0]] = law.mean
    assert torch.allclose(distribution.mean, expected, atol=1e-10)
    # E |x₁|² = E sin² φ, shared evenly by the coordinates of the block except the first
    square = (distribution.variance + distribution.mean**2)[: sizes[0]].sum().item()
    assert square == pytest.approx(law.expect(np.sin(law.phi) ** 2), abs=1e-10)


@pytest.mark.parametrize("dim", (2, 3, 10, 64, 512))
@pytest.mark.parametrize("precision", (0.0, 1e-3, 3.0, 1000.0))
def test_equal_entries_are_von_mises_fisher(dim: int, precision: float) -> None:
    loc = 2.0 * unit(3, dim)
    values = 2.0 * unit(3, dim, seed=5)
    same = VonMisesFisher(loc, 4.0 * precision)
    routed = FisherBingham(loc, precision)
    long_way = general(FisherBingham(loc, torch.full((dim,), precision, dtype=torch.float64)))
    for found in (routed, long_way):
        assert torch.allclose(found.log_prob(values), same.log_prob(values), atol=1e-9, rtol=1e-12)
        assert torch.allclose(found.mean, same.mean, atol=1e-9)
        assert torch.allclose(found.variance, same.variance, atol=1e-9)
        assert torch.allclose(found.entropy(), same.entropy(), atol=1e-9)


def test_log_normaliser_depends_on_the_location() -> None:
    precision = row(*(5.0,) * 5, *(25.0,) * 5)
    loose, tight = torch.eye(10, dtype=torch.float64)[[0, 9]]
    gap = FisherBingham(loose, precision).log_normalizer() - FisherBingham(tight, precision).log_normalizer()
    assert abs(gap.item()) > 0.5


@pytest.mark.statistical(false_alarm=FALSE_ALARM, what="Monte Carlo integral of the FisherBingham density is 1")
def test_density_integrates_to_one() -> None:
    radius, generator = 1.5, torch.Generator().manual_seed(3)
    x = Sphere(5, radius).project(torch.randn(200_000, 5, generator=generator, dtype=torch.float64))
    for loc in radius * unit(3, 5, seed=8):
        density = FisherBingham(loc, row(0.0, 0.5, 1.0, 2.0, 4.0)).log_prob(x).exp()
        assert_mean(density * math.exp(Sphere(5, radius).log_volume()), torch.ones(1), FALSE_ALARM / 3)


def test_log_prob_is_minus_half_the_quadratic_form_up_to_a_constant() -> None:
    loc, precision = unit(1, 4)[0], row(1.0, 2.0, 0.0, 50.0)
    x = unit(6, 4, seed=3)
    quadratic = torch.einsum("ni,ij,nj->n", x - loc, torch.diag(precision), x - loc)
    difference = FisherBingham(loc, precision).log_prob(x) + 0.5 * quadratic
    assert torch.allclose(difference, difference[:1].expand(6), atol=1e-12)


def test_log_prob_differentiates_in_value_loc_and_precision() -> None:
    loc, x = ((1.3 * unit(2, 3, seed=seed)).requires_grad_() for seed in (1, 2))
    precision = torch.tensor([[0.3, 2.0, 9.0], [40.0, 0.1, 3.0]], dtype=torch.float64, requires_grad=True)

    def log_prob(x: torch.Tensor, loc: torch.Tensor, precision: torch.Tensor) -> torch.Tensor:
        return FisherBingham(loc, precision, validate_args=False).log_prob(x)

    def moments(loc: torch.Tensor, precision: torch.Tensor) -> torch.Tensor:
        distribution = FisherBingham(loc, precision, validate_args=False)
        return torch.stack([distribution.mean, distribution.variance])

    assert torch.autograd.gradcheck(log_prob, (x, loc, precision))
    assert torch.autograd.gradcheck(moments, (loc, precision))


def test_moments_are_derivatives_of_the_log_normaliser() -> None:
    """∂ log Z / ∂ loc = Λ (E x − loc) and ∂ log Z / ∂ λ = −½ E (x − loc)², at fixed radius."""
    loc = unit(4, 10).requires_grad_()
    precision = torch.logspace(-2, 3, 10, dtype=torch.float64).expand(4, 10).clone().requires_grad_()
    distribution = FisherBingham(loc, precision)
    slopes = torch.autograd.grad(distribution.log_normalizer().sum(), (loc, precision))
    mean, variance = distribution.mean.detach(), distribution.variance.detach()
    tangent = slopes[0] - precision * (mean - loc)
    # along the sphere the two agree; across it the radius changes too
    assert (tangent - (tangent * loc).sum(dim=-1, keepdim=True) * loc).abs().max().item() < 1e-9
    assert torch.allclose(slopes[1], -0.5 * (variance + (mean - loc) ** 2), atol=1e-10)


def test_many_rows_are_computed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    loc = unit(7, 4).requires_grad_()
    precision = row(0.0, 1.0, 10.0, 100.0)
    whole = FisherBingham(loc, precision).log_normalizer()
    (slope,) = torch.autograd.grad(whole.sum(), loc)
    monkeypatch.setattr(normalizer, "_CHUNK_ELEMENTS", 1000)
    pieces = FisherBingham(loc, precision).log_normalizer()
    (slope_of_pieces,) = torch.autograd.grad(pieces.sum(), loc)
    assert torch.allclose(whole, pieces, atol=1e-12) and torch.allclose(slope, slope_of_pieces, atol=1e-12)


def test_single_precision_density_is_that_of_double_precision() -> None:
    loc, x = unit(50, 10), unit(50, 10, seed=4)
    precision = row(*(5.0,) * 5, *(250.0,) * 5)
    wide = FisherBingham(loc, precision).log_prob(x)
    narrow = FisherBingham(loc.float(), precision.float()).log_prob(x.float())
    assert narrow.dtype == torch.float32
    assert torch.allclose(narrow.double(), wide, atol=1e-3, rtol=1e-6)


def test_entropy_is_the_mean_of_minus_log_prob() -> None:
    law = BlockLaw((5, 5), (5.0, 25.0), 0.3)
    distribution = FisherBingham(law.loc, law.precision)
    first, second = law.mean
    moment = law.expect(5.0 * np.sin(law.phi) ** 2 + 25.0 * np.cos(law.phi) ** 2)
    cross = 5.0 * first * law.share**0.5 + 25.0 * second * (1 - law.share) ** 0.5
    at_loc = 5.0 * law.share + 25.0 * (1 - law.share)
    expected = law.log_normalizer + 0.5 * (moment - 2.0 * cross + at_loc)
    assert distribution.entropy().item() == pytest.approx(expected, abs=1e-10)


def test_shapes() -> None:
    loc, per_row = unit(6, 4).reshape(2, 3, 4), torch.rand(3, 4, dtype=torch.float64)
    for precision in (2.0, row(1.0, 2.0, 3.0, 4.0), per_row, torch.rand(2, 3, 1, dtype=torch.float64)):
        distribution = FisherBingham(loc, precision)
        assert distribution.batch_shape == (2, 3) and distribution.event_shape == (4,)
        assert distribution.sample(5).shape == (5, 2, 3, 4) and distribution.sample().shape == (2, 3, 4)
        assert distribution.log_prob(distribution.sample(5)).shape == (5, 2, 3)
        assert distribution.mean.shape == distribution.variance.shape == distribution.mode.shape == (2, 3, 4)
        assert distribution.entropy().shape == distribution.log_normalizer().shape == (2, 3)
    one_loc = FisherBingham(unit(1, 4)[0], per_row)
    assert one_loc.batch_shape == (3,) and one_loc.sample(2).shape == (2, 3, 4)
    empty = FisherBingham(torch.empty(0, 4), row(1.0, 2.0, 3.0, 4.0, dtype=torch.float32))
    assert empty.sample().shape == (0, 4) and empty.log_normalizer().shape == (0,)
    assert FisherBingham(loc, per_row).sample(0).shape == (0, 2, 3, 4)


def test_moves_and_expands_with_its_tables() -> None:
    precision = row(1.0, 2.0, 3.0)
    tables = FisherBingham.prepare_tables("cpu", torch.float64, precision=precision)
    distribution = FisherBingham(unit(1, 3)[0], precision, tables=tables)
    assert distribution.to(dtype=torch.float32)._plan == tables
    assert distribution.expand((4,)).batch_shape == (4,) and distribution.expand((4,))._plan == tables
    assert "FisherBingham(loc=tensor(3,)" in repr(distribution)


def test_matching_similarity_is_the_log_density_up_to_a_constant() -> None:
    loc, x = unit(1, 3)[0], unit(5, 3, seed=2)
    precision = row(1.0, 20.0, 0.0)
    for parameter, kind in ((precision, Anisotropic), (7.0, LpSimilarity)):
        similarity = FisherBingham.matching_similarity(precision=parameter)
        assert isinstance(similarity, kind)
        difference = FisherBingham(loc, parameter).log_prob(x) - similarity(loc.expand(5, 3), x)
        assert torch.allclose(difference, difference[:1].expand(5), atol=1e-6)
    with pytest.raises(ValueError, match="positive precision"):
        FisherBingham.matching_similarity(precision=0.0)
    with pytest.raises(ValueError, match="same for all rows"):
        FisherBingham.matching_similarity(precision=torch.ones(2, 3))


def test_wrong_arguments_get_a_sentence() -> None:
    loc = row(0.0, 0.0, 1.0)
    with pytest.raises(ValueError, match="not negative"):
        FisherBingham(loc, row(1.0, -1.0, 2.0))
    with pytest.raises(ValueError, match="not negative"):
        FisherBingham.prepare_tables("cpu", torch.float32, precision=row(1.0, -1.0, 2.0))
    with pytest.raises(ValueError, match="finite"):
        FisherBingham(loc, row(1.0, math.nan, 2.0))
    with pytest.raises(ValueError, match="does not broadcast with loc"):
        FisherBingham(loc, row(1.0, 2.0))
    with pytest.raises(ValueError, match="must not be zero"):
        FisherBingham(torch.zeros(3), 1.0)
    with pytest.raises(ValueError, match="at least two dimensions"):
        FisherBingham(row(1.0), 1.0)
    with pytest.raises(TypeError, match="unexpected keyword"):
        FisherBingham(loc, 1.0, sampler="exact")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="not on it"):
        FisherBingham(loc, row(1.0, 2.0, 3.0)).log_prob(row(0.0, 0.0, 1.1))
    with pytest.raises(ValueError, match="vectors of length 3"):
        FisherBingham(loc, 1.0).log_prob(row(0.0, 1.0))
    with pytest.raises(NotImplementedError, match="no reparameterised sampler"):
        FisherBingham(loc, 1.0).rsample()
