"""The radial integral against an exact recurrence in many digits, and its derivatives."""

from __future__ import annotations

import math
from functools import lru_cache

import mpmath
import pytest
import torch

from identica.distributions.radial import log_radial_integral, log_radial_width, radial_mode

DIMENSIONS = (2, 3, 5, 10, 64, 512)
SLOPES = (-1e4, -30.0, -2.0, 0.0, 0.7, 3.0, 5.0, 12.0, 100.0, 1e4)


@lru_cache
def log_integrals(b: float) -> tuple[float, ...]:
    """log ∫ r^(d−1) exp(−½ r² + b r) dr for d = 1 … 512, by the recurrence M_{d+2} = b M_{d+1} + d M_d.

    For b < 0 it cancels all digits that one usually has: hence six thousand.
    """
    with mpmath.workdps(6000 if b < 0 else 40):
        slope = mpmath.mpf(b)
        first = mpmath.sqrt(mpmath.pi / 2) * mpmath.exp(slope**2 / 2) * mpmath.erfc(-slope / mpmath.sqrt(2))
        values = [first, 1 + slope * first]
        for d in range(1, 511):
            values.append(slope * values[-1] + d * values[-2])
    with mpmath.workdps(30):
        return tuple(float(mpmath.log(v)) for v in values)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_matches_the_exact_recurrence(d: int) -> None:
    slopes = torch.tensor(SLOPES, dtype=torch.float64)
    at_unit_curvature = torch.tensor([log_integrals(b)[d - 1] for b in SLOPES], dtype=torch.float64)
    for a in (1.0, 400.0):
        expected = at_unit_curvature - 0.5 * d * math.log(a)
        found = log_radial_integral(torch.full_like(slopes, a), slopes * a**0.5, d)
        # 1e-10 where the result is of order one, rounding of the result itself where it is 5e7
        assert ((found - expected).abs() < 1e-10 + 4e-15 * expected.abs()).all()


@pytest.mark.parametrize("d", DIMENSIONS)
def test_single_precision_is_good_to_its_rounding(d: int) -> None:
    b = torch.tensor(SLOPES)
    wide = log_radial_integral(torch.ones_like(b).double(), b.double(), d)
    narrow = log_radial_integral(torch.ones_like(b), b, d)
    assert ((narrow - wide).abs() < 2e-5 + 1e-6 * wide.abs()).all()


@pytest.mark.parametrize("d", (1, 2, 7, 512))
def test_closed_forms(d: int) -> None:
    a, zero = torch.tensor(3.0, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64)
    half_gamma = math.log(0.5) + 0.5 * d * math.log(2 / 3) + math.lgamma(0.5 * d)
    assert log_radial_integral(a, zero, d).item() == pytest.approx(half_gamma, abs=1e-11)
    # without the quadratic term it is a gamma function
    gamma = math.lgamma(d) - d * math.log(3.0)
    assert log_radial_integral(zero, -a, d).item() == pytest.approx(gamma, abs=1e-11)


@pytest.mark.parametrize("d", (2, 7, 512))
def test_derivatives_of_first_and_second_order(d: int) -> None:
    a = torch.tensor([0.5, 1.0, 30.0], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([-3.0, 0.0, 20.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: log_radial_integral(a, b, d), (a, b))
    assert torch.autograd.gradgradcheck(lambda a, b: log_radial_integral(a, b, d), (a, b))


def test_broadcasts_and_needs_no_gradient_for_both() -> None:
    a = torch.tensor([[1.0], [2.0]], requires_grad=True)
    value = log_radial_integral(a, torch.tensor([0.0, 1.0, 2.0]), 4)
    assert value.shape == (2, 3)
    value.sum().backward()
    assert a.grad is not None and (a.grad < 0).all()


def test_mode_is_the_positive_root_at_both_ends() -> None:
    a, b = torch.tensor([1.0, 1.0, 2.0]), torch.tensor([-1e6, 1e6, 0.0])
    mode = radial_mode(a, b, 8)
    assert torch.allclose(mode, torch.tensor([8e-6, 1e6, 2.0]), rtol=1e-6)


def test_width_tends_to_the_normal_one() -> None:
    curvature = torch.tensor([1e8, 1e12], dtype=torch.float64)
    assert torch.allclose(log_radial_width(curvature, 3), 0.5 * torch.log(2 * math.pi / curvature), atol=1e-7)
