from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch

from identica.distributions.power_integral import (
    TabulatedIntegral,
    distance_power,
    power_integral,
)

EPS = {torch.float32: 2.0**-23, torch.float64: 2.0**-52}
# What the tables promise: rounding in float32, the precision of scipy's gamma functions in float64.
RTOL = {torch.float32: 4 * 2.0**-23, torch.float64: 1e-13}
DTYPES = [torch.float32, torch.float64]
POWERS = [0.1, 0.5, 0.9, 1.0, 1.5, 2.0, 3.0, 10.0, 100.0]


def exact(s: float, power: float, order: int = 0) -> float:
    """∫₀ˢ t^order exp(−t^power) dt with thirty digits, from the lower incomplete gamma function."""
    with mpmath.workdps(30):
        a = mpmath.mpf(order + 1) / mpmath.mpf(power)
        return float(mpmath.gammainc(a, 0, mpmath.mpf(s) ** mpmath.mpf(power)) / mpmath.mpf(power))


def points(dtype: torch.dtype, power: float) -> torch.Tensor:
    """Arguments from where H(s) = s to where H(s) = H(∞), most of them where it bends."""
    bend = torch.logspace(-4, 1.0, 60, dtype=torch.float64) ** (1 / power)
    return torch.cat([bend, torch.logspace(-12, 2, 20, dtype=torch.float64)]).clamp(1e-30, 1e30).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("power", POWERS)
def test_integral_has_full_relative_precision_and_is_odd(power, dtype):
    s = points(dtype, power)
    integral = power_integral(power, "cpu", dtype)
    want = np.array([exact(x, power) for x in s.tolist()])
    np.testing.assert_allclose(integral(s).double().numpy(), want, rtol=RTOL[dtype])
    torch.testing.assert_close(integral(-s), -integral(s), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("power", POWERS)
def test_inverse_is_an_inverse_to_full_relative_precision(power, dtype):
    integral = power_integral(power, "cpu", dtype)
    share = torch.cat([torch.logspace(-12, -0.01, 40), 1 - torch.logspace(-6, -0.31, 40)]).double()
    t = (share * integral.total).to(dtype)
    s = integral.inverse(t)
    got = np.array([exact(x, power) for x in s.tolist()])
    # A rounding of s moves H(s) by exp(−s^power) s/H(s) of a rounding, at most 1.
    np.testing.assert_allclose(got, t.double().numpy(), rtol=RTOL[dtype])
    torch.testing.assert_close(integral.inverse(-t), -s, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("power", POWERS)
def test_ends(power, dtype):
    integral = power_integral(power, "cpu", dtype)
    s = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan], dtype=dtype)
    want = torch.tensor([0.0, 0.0, integral.total, -integral.total, torch.nan], dtype=dtype)
    torch.testing.assert_close(integral(s), want, rtol=4 * EPS[dtype], atol=0, equal_nan=True)
    t = torch.tensor([0.0, 1.0, -1.0, torch.nan], dtype=dtype) * integral.total
    inverse = integral.inverse(t)
    assert inverse[0] == 0 and inverse[1] == -inverse[2] and inverse[3].isnan()
    # The last representable quantile: beyond it is a share between an eighth and twice a rounding error.
    beyond = 1 - exact(inverse[1].item(), power) / integral.total if dtype == torch.float32 else EPS[dtype]
    assert EPS[dtype] / 8 < beyond < 2 * EPS[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("power", [1.0, 2.0])
def test_tables_agree_with_the_closed_forms(power, dtype):
    closed, table = power_integral(power, "cpu", dtype), TabulatedIntegral(power, torch.device("cpu"), dtype)
    s = torch.linspace(-8, 8, 4001, dtype=dtype)
    torch.testing.assert_close(table(s), closed(s), rtol=RTOL[dtype], atol=0)
    t = torch.linspace(-0.99, 0.99, 4001, dtype=dtype) * closed.total
    torch.testing.assert_close(table.inverse(t), closed.inverse(t), rtol=20 * RTOL[dtype], atol=0)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0, 3.0, 10.0])
@pytest.mark.parametrize("order", [1, 2])
def test_moments(power, order):
    s = torch.tensor([1e-6, 1e-3, 0.2, 0.9, 1.3, 5.0, 1e3], dtype=torch.float64)
    want = np.array([exact(x, power, order) for x in s.tolist()])
    for dtype in DTYPES:
        integral = power_integral(power, "cpu", dtype)
        got = integral.moment(s.to(dtype), order)
        np.testing.assert_allclose(got.double().numpy(), want, rtol=100 * EPS[dtype])
        torch.testing.assert_close(integral.moment(-s.to(dtype), order), got * (-1) ** (order + 1))


@pytest.mark.parametrize("power", [0.5, 1.0, 1.5, 2.0, 3.0, 10.0])
def test_derivatives(power):
    integral = power_integral(power, "cpu", torch.float64)
    s = torch.tensor([-1.2, -0.3, 0.1, 0.8, 1.4], dtype=torch.float64, requires_grad=True)
    t = (0.9 * s.detach() / 1.4 * integral.total).requires_grad_()
    for function, x in (
        (integral, s),
        (integral.inverse, t),
        (lambda s: integral.moment(s, 1), s),
        (integral.distance_moment, s),
    ):
        assert torch.autograd.gradcheck(function, x)
        assert torch.autograd.gradgradcheck(function, x)


@pytest.mark.parametrize("power", [0.5, 1.0, 1.5, 2.0, 3.0])
def test_derivatives_at_the_mode(power):
    s = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(power_integral(power, "cpu", torch.float64)(s).sum(), s)
    assert slope.tolist() == [1.0, 1.0, 1.0]
    (slope,) = torch.autograd.grad(distance_power(s, power).sum(), s)
    assert slope.tolist() == [0.0, 0.0, 0.0]


def test_differentiates_inside_functional_transforms():
    integral = power_integral(3.0, "cpu", torch.float64)
    s = torch.linspace(-1, 1, 7, dtype=torch.float64)
    slopes = torch.func.vmap(torch.func.grad(integral))(s)
    torch.testing.assert_close(slopes, torch.exp(-(s.abs() ** 3)))


def test_tables_are_built_once_and_outlive_inference_mode():
    with torch.inference_mode():
        first = power_integral(3.25, "cpu", torch.float32)
    assert power_integral(3.25, torch.device("cpu"), torch.float32) is first
    s = torch.tensor([0.3], requires_grad=True)
    first(s).backward()
    torch.testing.assert_close(s.grad, torch.exp(-(s.detach() ** 3.25)))


def test_a_double_argument_of_a_single_integral_is_rounded_not_misread():
    integral = power_integral(3.0, "cpu", torch.float32)
    s = torch.tensor([0.7], dtype=torch.float64)
    assert integral(s).dtype == torch.float32
    assert integral(s).item() == pytest.approx(exact(0.7, 3.0), rel=1e-6)
