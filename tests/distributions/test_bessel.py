"""log I and its ratios against mpmath, scipy and closed forms."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
from scipy import special

from identica.distributions.bessel import (
    bessel_ratio,
    bessel_ratio_over_x,
    log_bessel_i,
    log_bessel_reduced,
)

ORDERS = (0.0, 0.5, 1.0, 1.7, 4.0, 11.5, 23.0, 23.5, 24.0, 31.0, 127.0, 255.0)
ARGUMENTS = (1e-6, 1e-3, 0.1, 1.0, 10.0, 37.0, 255.0, 1e3, 1e4, 1e5)


def double(value: object) -> torch.Tensor:
    return torch.as_tensor(value, dtype=torch.float64)


@pytest.fixture(scope="module")
def truth() -> dict[float, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """order -> log I, I_{ν+1} / I_ν and the log of x^−ν e^−x I_ν at ARGUMENTS, from 40 digits."""
    table = {}
    with mpmath.workdps(40):
        for order in ORDERS:
            rows = []
            for argument in ARGUMENTS:
                x = mpmath.mpf(argument)
                value, following = mpmath.besseli(order, x), mpmath.besseli(order + 1, x)
                log = mpmath.log(value)
                rows.append((float(log), float(following / value), float(log - x - order * mpmath.log(x))))
            table[order] = tuple(np.array(column) for column in zip(*rows, strict=True))
    return table


@pytest.mark.parametrize("order", ORDERS)
def test_against_mpmath(order: float, truth: dict[float, tuple[np.ndarray, np.ndarray, np.ndarray]]) -> None:
    x = double(ARGUMENTS)
    log, ratio, reduced = truth[order]
    np.testing.assert_allclose(log_bessel_i(order, x).numpy(), log, rtol=2e-14, atol=1e-12)
    np.testing.assert_allclose(log_bessel_reduced(order, x).numpy(), reduced, rtol=2e-14, atol=1e-12)
    np.testing.assert_allclose(bessel_ratio(order, x).numpy(), ratio, rtol=1e-12)
    np.testing.assert_allclose(bessel_ratio_over_x(order, x).numpy(), ratio / np.array(ARGUMENTS), rtol=1e-12)


def test_where_scipy_underflows() -> None:
    assert special.ive(255.0, 10.0) == 0.0
    with mpmath.workdps(40):
        expected = float(mpmath.log(mpmath.besseli(255, 10)))
    assert log_bessel_i(255.0, double(10.0)).item() == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("order", [0.0, 0.5, 2.25, 30.0])
def test_against_scipy_where_it_works(order: float) -> None:
    x = np.geomspace(0.05, 5e3, 200)
    expected = np.log(special.ive(order, x)) + x
    np.testing.assert_allclose(log_bessel_i(order, double(x)).numpy(), expected, rtol=1e-12, atol=1e-11)


def test_closed_form_of_order_one_half() -> None:
    """I_½(x) = √(2/πx) sinh x, and I_{3/2} / I_½ = coth x − 1/x."""
    x = double(np.geomspace(0.1, 300.0, 50))
    expected = 0.5 * torch.log(2 / (torch.pi * x)) + torch.log(torch.sinh(x))
    torch.testing.assert_close(log_bessel_i(0.5, x), expected, rtol=1e-13, atol=1e-12)
    torch.testing.assert_close(bessel_ratio(0.5, x), 1 / torch.tanh(x) - 1 / x, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("order", ORDERS)
def test_limits_at_zero(order: float) -> None:
    zero = double(0.0)
    expected = -order * np.log(2.0) - special.gammaln(order + 1)
    assert log_bessel_reduced(order, zero).item() == pytest.approx(expected, rel=1e-13, abs=1e-13)
    assert bessel_ratio_over_x(order, zero).item() == pytest.approx(1 / (2 * order + 2), rel=1e-13)
    assert bessel_ratio(order, zero).item() == 0.0
    assert log_bessel_i(order, zero).item() == pytest.approx(0.0 if order == 0 else -np.inf, abs=1e-12)


@pytest.mark.parametrize("order", [0.0, 0.5, 4.0, 255.0])
def test_gradients(order: float) -> None:
    """d log I / dx = I_{ν+1} / I_ν + ν / x; the ratio's slope is 1 − A² − (2ν + 1) A / x."""
    x = double([0.3, 5.0, 80.0, 1e4]).requires_grad_()
    ratio = bessel_ratio(order, x)
    (slope,) = torch.autograd.grad(log_bessel_i(order, x).sum(), x)
    torch.testing.assert_close(slope, (ratio + order / x).detach(), rtol=1e-12, atol=1e-12)
    (curvature,) = torch.autograd.grad(ratio.sum(), x)
    expected = (1 - ratio**2 - (2 * order + 1) * ratio / x).detach()
    torch.testing.assert_close(curvature, expected, rtol=1e-6, atol=1e-13)


@pytest.mark.parametrize("order", [0.0, 3.0])
def test_gradients_at_zero_are_finite(order: float) -> None:
    x = double(0.0).requires_grad_()
    (slope,) = torch.autograd.grad(log_bessel_reduced(order, x), x)
    assert slope.item() == pytest.approx(-1.0, abs=1e-13)  # only e^−x has a slope there
    (slope,) = torch.autograd.grad(bessel_ratio(order, x), x)
    assert slope.item() == pytest.approx(1 / (2 * order + 2), rel=1e-13)


def test_float32_keeps_its_dtype_and_its_digits() -> None:
    x = torch.tensor(ARGUMENTS)
    for function in (log_bessel_i, log_bessel_reduced, bessel_ratio, bessel_ratio_over_x):
        value = function(4.0, x)
        assert value.dtype == torch.float32
        torch.testing.assert_close(value.double(), function(4.0, x.double()), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("order", [-0.5, float("nan"), float("inf")])
def test_bad_order(order: float) -> None:
    with pytest.raises(ValueError, match="order of the Bessel function must be finite and at least 0"):
        log_bessel_i(order, double(1.0))
