"""The checks of ``identica verify``: their short version holds, their truths are true, and they can fail."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import pytest
import torch
from scipy import integrate

from identica.diagnostics.theory import CHECKS, QUICK, Check, Session, isometries, limits, marginals, mismatch
from identica.diagnostics.theory import quadrature as quad
from identica.diagnostics.theory import uniformity as uni
from identica.diagnostics.theory.minimisers import smooth_mixing
from identica.diagnostics.theory.sampling import TEMPERATURE
from identica.similarities import DotProduct


@pytest.fixture(scope="module")
def session() -> Session:
    return Session(QUICK, seed=0)


# The short version of everything


@pytest.mark.statistical(
    false_alarm=5e-3, what="the short version of `identica verify`; most checks 5e-5, uniformity 5e-3"
)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_every_claim_holds(check: Callable[[Session], Check], session: Session) -> None:
    found = check(session)
    assert found.holds, f"{found.claim}: {found.measured} {found.relation} {found.predicted} ± {found.tolerance}"
    assert found.note or found.curve is not None or found.tolerance_is
    assert found.theorem.startswith(("A, ", "W, "))


# A check can fail


def test_a_loss_of_the_wrong_temperature_is_noticed() -> None:
    small = Session(dataclasses.replace(QUICK, negatives=(256,)))
    small.known = {
        name: dataclasses.replace(known, similarity=DotProduct(2 * TEMPERATURE))
        for name, known in small.known.items()
        if name.startswith("sphere")
    }
    assert not limits.sphere_limit(small).holds
    assert not limits.without_positive(small).holds


def test_an_encoder_that_was_not_trained_is_noticed(session: Session) -> None:
    fresh = Session(QUICK)
    for name in ("sphere", "laplace", "normal"):
        run = getattr(session, name)
        setattr(fresh, name, dataclasses.replace(run, looks=run.looks[:1]))
    checks = (
        isometries.keeps_the_dot_product,
        isometries.keeps_the_distance,
        isometries.orthogonal,
        isometries.affine,
        isometries.permutation,
        uni.uniform_pushforward,
        mismatch.p_two_keeps_isometry,
    )
    assert [check.__name__ for check in checks if check(fresh).holds] == []


def test_the_axes_that_p_one_finds_would_fail_where_they_must_be_lost(session: Session) -> None:
    other = Session(QUICK)
    other.laplace = other.normal = session.laplace
    assert not mismatch.p_two_loses_the_axes(other).holds


@pytest.mark.parametrize(
    ("relation", "measured", "holds"),
    [
        ("=", 1.05, True),
        ("=", 0.85, False),
        ("≤", -9.0, True),
        ("≤", 1.2, False),
        ("≥", 9.0, True),
        ("≥", 0.8, False),
        ("=", math.nan, False),
        ("≤", math.nan, False),
        ("≥", math.nan, False),
        ("≤", math.inf, False),
        ("≥", -math.inf, False),
    ],
)
def test_a_verdict_follows_from_the_numbers(relation: str, measured: float, holds: bool) -> None:
    check = Check("limit", "c", "A, x", "q", measured, 1.0, 0.1, "t", relation)  # type: ignore[arg-type]
    assert check.holds is holds


# The truths it compares with


def test_von_mises_fisher_pairs_have_the_entropy_of_the_closed_form() -> None:
    kappa, tau = 4.0, 0.5
    entropy = math.log(4 * math.pi * math.sinh(kappa) / kappa) - kappa * (1 / math.tanh(kappa) - 1 / kappa)
    scale = math.sqrt(tau * kappa)
    found = quad.on_sphere(lambda z: scale * z, concentration=kappa, temperature=tau, nodes=20)
    assert found.entropy == pytest.approx(entropy, abs=1e-10)
    assert found.cross_entropy == pytest.approx(entropy, abs=1e-10)
    assert found.log_volume == pytest.approx(math.log(4 * math.pi))


def test_laplace_pairs_on_an_interval_agree_with_adaptive_quadrature() -> None:
    scale, temperature = 0.25, 0.5
    h = lambda z: 2 * z + 0.2 * math.sin(2 * math.pi * z)  # noqa: E731

    def row(z: float) -> float:
        def weighted(f: Callable[[float], float]) -> float:
            return integrate.quad(f, 0, z)[0] + integrate.quad(f, z, 1)[0]

        normaliser = weighted(lambda t: math.exp(-abs(t - z) / scale))
        alignment = weighted(lambda t: math.exp(-abs(t - z) / scale) * -abs(h(t) - h(z))) / normaliser / temperature
        return math.log(weighted(lambda t: math.exp(-abs(h(t) - h(z)) / temperature))) - alignment

    found = quad.on_interval(
        lambda z: 2 * z + 0.2 * torch.sin(2 * math.pi * z), scale=scale, temperature=temperature, power=1.0, nodes=24
    )
    assert found.cross_entropy == pytest.approx(integrate.quad(row, 0, 1)[0], abs=1e-8)
    assert found.excess > 0.001


def test_two_coordinates_are_twice_one() -> None:
    one = quad.on_interval(lambda z: 3 * z, scale=0.25, temperature=1.0, power=2.0, nodes=20)
    z, weights = quad.unit_rule(20)
    both = torch.cartesian_prod(z, z)
    squared = (both[:, None] - both).square().sum(dim=-1)
    product = torch.outer(weights, weights).reshape(-1)
    two = quad.population(-squared / 0.25**2, -9 * squared, product, product)
    for name, value in dataclasses.asdict(two).items():
        assert getattr(one.copies(2), name) == pytest.approx(value, abs=1e-6), name
    assert one.copies(2).cross_entropy == pytest.approx(two.cross_entropy, abs=1e-6)
    assert one.copies(2).first_order == pytest.approx(two.first_order, abs=1e-6)


def test_the_sphere_rule_is_exact_for_polynomials() -> None:
    points, weights = quad.sphere_rule(4)
    x, y, height = points.T
    assert float(weights.sum()) == pytest.approx(4 * math.pi)
    assert float(weights @ height**6) == pytest.approx(4 * math.pi / 7)
    assert float(weights @ (x**2 * y**2)) == pytest.approx(4 * math.pi / 15)
    assert float(weights @ (x * y * height)) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("power", "angle", "cost"),
    [
        (1.0, math.pi / 4, 3 / math.sqrt(2) - 2),  # |a + b| + |a − b| = 2 max(|a|, |b|), whose mean is 3/2
        (4.0, math.pi / 4, 3 * (math.gamma(0.75) / math.gamma(0.25)) ** 2 - 0.25),
        (2.0, 0.7, 0.0),
        (3.0, math.pi / 2, 0.0),
    ],
)
def test_what_a_rotation_costs(power: float, angle: float, cost: float) -> None:
    assert mismatch.rotation_cost(power, angle) == pytest.approx(cost, abs=1e-6)


def test_only_the_right_power_reaches_the_floor() -> None:
    assert mismatch.smallest_excess(3.0, 3.0) < 1e-8
    assert mismatch.smallest_excess(3.0, 2.0) > 5e-3


@pytest.mark.parametrize("width", [0.2, 0.5])
def test_p_max_bounds_from_below_and_p_min_from_above(width: float) -> None:
    found = marginals.sides(width, 20)
    assert found.lower < found.cross_entropy - 0.05 and found.upper > found.cross_entropy + 0.05


def test_both_bounds_are_the_cross_entropy_of_a_uniform_marginal() -> None:
    found = marginals.sides(1e4, 20)
    assert found.lower == pytest.approx(found.cross_entropy, abs=1e-6)
    assert found.upper == pytest.approx(found.cross_entropy, abs=1e-6)


# Uniformity, degree and the mixing


def points_of_the_sphere(n: int, generator: torch.Generator) -> torch.Tensor:
    drawn = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    return drawn / drawn.norm(dim=1, keepdim=True)


@pytest.mark.statistical(
    false_alarm=1e-6, what="energy statistic of 500 uniform points, mean 1.35 and tail as χ², below 12"
)
@pytest.mark.parametrize("times", [1, 2, 3])
def test_winding_keeps_points_uniform(times: int, generator: torch.Generator) -> None:
    assert uni.energy(uni.wound(points_of_the_sphere(500, generator), times)) < 12


def test_points_that_are_not_uniform_have_energy(generator: torch.Generator) -> None:
    bent = points_of_the_sphere(500, generator) + torch.tensor([0.0, 0.0, 0.5])
    assert uni.energy(bent / bent.norm(dim=1, keepdim=True)) > 12


@pytest.mark.parametrize("degree", [1, 2, 3, -1])
def test_the_degree_counts_how_often_the_sphere_is_covered(degree: int, generator: torch.Generator) -> None:
    flip = torch.tensor([1.0, 1.0, math.copysign(1.0, degree)], dtype=torch.float64)
    ratio = uni.area_ratio(lambda z: 2.5 * uni.wound(z, abs(degree)) * flip, points_of_the_sphere(50, generator))
    assert torch.allclose(ratio, torch.full_like(ratio, degree), atol=1e-8)  # winding stretches evenly


def test_the_mixing_is_injective_and_not_linear(generator: torch.Generator) -> None:
    mix = smooth_mixing(3, generator)
    z = torch.rand(200, 3, generator=generator, dtype=torch.float64)
    jacobian = torch.func.vmap(torch.func.jacrev(lambda row: mix(row[None])[0]))(z)
    determinant = torch.linalg.det(jacobian)
    assert bool((determinant.sign() == determinant[0].sign()).all()) and float(determinant.abs().min()) > 0.25**2
    assert float(determinant.std() / determinant.mean().abs()) > 0.1
