"""Normal or not, one mode or more: against scipy, a linear program, and laws whose answer is known."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import optimize, stats

from identica.experiments.mnist.normality import (
    anderson_darling,
    dip,
    kolmogorov_distance,
    largest_null_dip,
    normality_p_value,
)


def dip_by_linear_programs(sample: np.ndarray) -> float:
    """The definition itself: for each place of the mode the nearest G that is convex before and concave after it.

    Unknown are the values of G at the points (at the mode from the left and from the right), and the distance.
    """
    x, n = np.sort(sample), len(sample)
    best = 1.0
    for mode in range(n):
        places = [*range(mode + 1), *range(mode, n)]  # the mode is there twice
        constraints: list[tuple[dict[int, float], float]] = []  # Σ coefficient · unknown ≤ bound
        for k, i in enumerate(places):
            jump = [i / n] if k == mode else [(i + 1) / n] if k == mode + 1 else [i / n, (i + 1) / n]
            for value in jump:
                constraints += [({k: 1.0, n + 1: -1.0}, value), ({k: -1.0, n + 1: -1.0}, -value)]
        constraints += [({k: 1.0, k + 1: -1.0}, 0.0) for k in range(n)]  # G does not fall
        for k in set(range(1, n)) - {mode, mode + 1}:
            sign = 1.0 if k < mode else -1.0
            a, b = x[places[k]] - x[places[k - 1]], x[places[k + 1]] - x[places[k]]
            constraints.append(({k: sign * (1 / a + 1 / b), k - 1: -sign / a, k + 1: -sign / b}, 0.0))
        rows, bounds = np.zeros((len(constraints), n + 2)), [bound for _, bound in constraints]
        for row, (coefficients, _) in zip(rows, constraints, strict=True):
            row[list(coefficients)] = list(coefficients.values())
        target = np.zeros(n + 2)
        target[-1] = 1.0
        found = optimize.linprog(target, A_ub=rows, b_ub=bounds, bounds=[(0, 1)] * (n + 2))
        best = min(best, found.fun)
    return best


@pytest.mark.parametrize("n", [6, 9, 14])
@pytest.mark.parametrize("kind", ["uniform", "normal", "two"])
def test_the_dip_is_what_its_definition_says(kind: str, n: int) -> None:
    generator = np.random.default_rng(n)
    for _ in range(2):
        sample = generator.random(n) if kind == "uniform" else generator.normal(size=n)
        sample = sample + 4.0 * (np.arange(n) % 2) if kind == "two" else sample
        assert dip(sample) == pytest.approx(dip_by_linear_programs(sample), abs=1e-7)


def test_the_dip_of_known_laws() -> None:
    assert dip(np.arange(100.0)) == pytest.approx(1 / 200)  # as even as can be
    assert dip(np.r_[np.zeros(200), np.ones(200)]) == pytest.approx(0.25, abs=0.01)  # two points
    generator = np.random.default_rng(0)
    # ½ N(−2, ½²) + ½ N(2, ½²): far more than noise; a single normal law: less than the uniform one.
    two = generator.normal(size=400) / 2 + 4.0 * (np.arange(400) % 2)
    assert dip(two) > 0.1 > largest_null_dip(400)
    assert dip(generator.normal(size=400)) < largest_null_dip(400)
    assert dip(-5.0 * two + 3.0) == pytest.approx(dip(two))  # whatever the unit, and mirrored


@pytest.mark.statistical(false_alarm=1e-6, what="50 exponential samples against the largest of 500 uniform dips")
def test_skewed_is_not_bimodal() -> None:
    generator = np.random.default_rng(3)
    assert sum(dip(generator.exponential(size=200)) > largest_null_dip(200) for _ in range(50)) <= 5


@pytest.mark.parametrize("n", [20, 300])
def test_anderson_and_darling_as_scipy_has_it(n: int) -> None:
    sample = np.random.default_rng(n).gamma(3.0, size=n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions want to be told how to interpolate a p-value
        expected = stats.anderson(sample, "norm").statistic
    assert anderson_darling(sample) == pytest.approx(expected, rel=1e-9)


@pytest.mark.statistical(false_alarm=1e-6, what="p-values below 0.05 among 1000 normal samples, binomial")
def test_normal_samples_are_seldom_called_anything_else() -> None:
    generator = np.random.default_rng(5)
    p_values = np.array([normality_p_value(3.0 + 0.1 * generator.normal(size=100)) for _ in range(1000)])
    rejected = int((p_values < 0.05).sum())
    # Stephens' formula is good to about a tenth of the level.
    assert stats.binom.ppf(5e-7, 1000, 0.045) <= rejected <= stats.binom.ppf(1 - 5e-7, 1000, 0.055)
    assert p_values.min() > 0 and p_values.max() <= 1


def test_what_is_not_normal_is_found() -> None:
    generator = np.random.default_rng(6)
    assert normality_p_value(generator.random(300)) < 1e-3
    assert normality_p_value(np.r_[np.zeros(500), np.ones(500)] + 1e-3 * generator.random(1000)) < 1e-6
    assert kolmogorov_distance(generator.random(4000)) == pytest.approx(0.0576, abs=0.02)  # sup |x − Φ(√12 (x − ½))|
    assert kolmogorov_distance(generator.normal(size=4000)) < 0.02


def test_samples_that_say_nothing_are_refused() -> None:
    for function in (dip, normality_p_value, kolmogorov_distance):
        with pytest.raises(ValueError, match="not all equal"):
            function(np.ones(50))
        with pytest.raises(ValueError, match="at least"):
            function(np.arange(3.0))
