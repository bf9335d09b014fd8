"""The mass to move, against closed forms, direct quadrature and draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from identica.experiments.clica.tables import FIGURE2, TABLE1
from identica.experiments.clica.transport import box_mass, sphere_mass, transported_mass


@pytest.mark.parametrize("kappa", [0.01, 1.0, 30.0, 300.0])
def test_on_the_ordinary_sphere_it_has_a_closed_form(kappa: float) -> None:
    # In R³ cos θ is uniform, and under vMF its density is κ exp(κ t) / (2 sinh κ).
    log_sinh = kappa + math.log1p(-math.exp(-2 * kappa)) - math.log(2)
    threshold = (log_sinh - math.log(kappa)) / kappa
    above = (1 - math.exp(kappa * (threshold - 1))) / (1 - math.exp(-2 * kappa))
    assert sphere_mass(kappa, 3) == pytest.approx(above - (1 - threshold) / 2, abs=1e-10)


@pytest.mark.parametrize("scale", [2.0, 0.3, 0.05])
def test_in_a_box_of_two_dimensions_it_is_a_double_integral(scale: float) -> None:
    normaliser = (math.sqrt(2 * math.pi) * scale * (2 * stats.norm.cdf(0.5 / scale) - 1)) ** 2

    def outside(x: float) -> float:
        """½∫|p − 1| over y, from the two edges where p = 1."""
        squared = -2 * scale**2 * math.log(normaliser) - x**2
        edge = min(math.sqrt(squared), 0.5) if squared > 0 else 0.0
        column = math.exp(-0.5 * (x / scale) ** 2) / normaliser * math.sqrt(2 * math.pi) * scale
        inner = column * (2 * stats.norm.cdf(edge / scale) - 1) - 2 * edge
        outer = column * 2 * (stats.norm.cdf(0.5 / scale) - stats.norm.cdf(edge / scale)) - (1 - 2 * edge)
        return 0.5 * (inner - outer)

    corner = math.sqrt(max(0.0, -2 * scale**2 * math.log(normaliser)))
    expected = sum(
        2 * integrate.quad(outside, low, high, epsabs=1e-12)[0]
        for low, high in ((0.0, min(corner, 0.5)), (min(corner, 0.5), 0.5))
    )
    assert box_mass(scale, 2) == pytest.approx(expected, abs=3e-5)  # few dimensions converge slowest


@pytest.mark.statistical(false_alarm=1e-6, what="mass to move in the 10-d box and on S⁹ against draws")
@pytest.mark.parametrize("row", [FIGURE2.rows[4], FIGURE2.rows[23]], ids=lambda row: row.label)
def test_in_ten_dimensions_it_is_what_draws_say(row) -> None:
    rng, n = np.random.default_rng(0), 200_000
    if row.space == "box":
        scale = row.marginal.scale
        drawn = stats.truncnorm(-0.5 / scale, 0.5 / scale, scale=scale).rvs((n, 10), random_state=rng)
        log_one = math.log(math.sqrt(2 * math.pi) * scale * (2 * stats.norm.cdf(0.5 / scale) - 1))
        above = [(-0.5 * (y / scale) ** 2 - log_one).sum(axis=1) > 0 for y in (drawn, rng.random((n, 10)) - 0.5)]
    else:
        kappa, pole = row.marginal.concentration, np.eye(10)[0]
        log_ratio = stats.vonmises_fisher(pole, kappa).logpdf(pole) - kappa
        area = math.log(2) + 5 * math.log(math.pi) - math.lgamma(5)
        uniform = rng.standard_normal((n, 10))
        uniform /= np.linalg.norm(uniform, axis=1, keepdims=True)
        drawn = stats.vonmises_fisher(pole, kappa).rvs(n, random_state=rng)
        above = [kappa * x[:, 0] + log_ratio + area > 0 for x in (drawn, uniform)]
    # 4.9 standard errors of a difference of two proportions, each at most ½ / √n.
    assert transported_mass(row, 10) == pytest.approx(
        above[0].mean() - above[1].mean(), abs=4.9 * 0.5 * math.sqrt(2 / n)
    )


def test_it_grows_from_nothing_to_everything() -> None:
    for curve in FIGURE2.curves:
        masses = [transported_mass(row, 10) for row in FIGURE2.rows if row.curve == curve]
        assert masses == sorted(masses) and masses[0] < 0.01 and masses[-1] > 0.99
    assert transported_mass(TABLE1.row("1"), 10) == 0.0
    with pytest.raises(ValueError, match="Laplace 1 on the unbounded"):
        transported_mass(TABLE1.row("11"), 10)
