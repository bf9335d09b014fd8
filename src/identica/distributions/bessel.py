"""The modified Bessel function I_ν of real order, in logarithms: never under- or overflowing, differentiable.

The von Mises-Fisher normaliser needs log I_ν(κ) from ν = 0 to ν = 255 and κ from 0 to 1e4, where I_ν
itself leaves the range of float64 in both directions. One method covers all of it without branches on the
data, so that it runs on any device without waiting for it:

1. at an order μ = ν + N of at least 24, Debye's expansion (DLMF 10.41.3), which is uniform in x, with
   nine terms leaves a relative error below 2e-13;
2. the ratios s_μ(x) = I_{μ+1}(x) / (x I_μ(x)) then follow from s_{μ−1} = 1 / (2μ + x² s_μ), a recurrence
   that is stable in this direction, and carry log I down from order ν + N to ν.

Both steps work with x^(−μ) e^(−x) I_μ(x), which is finite, positive and smooth from x = 0 on; autograd
therefore gives derivatives of any order, also at 0.
"""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

LEAST_ORDER = 24.0
TERMS = 9


def _debye_polynomials(count: int) -> tuple[tuple[float, ...], ...]:
    """Coefficients c_kj of u_k(p) = p^k Σ_j c_kj p^(2j), k = 0 … count − 1.

    DLMF 10.41.9: u_{k+1}(p) = ½ p² (1 − p²) u_k'(p) + ⅛ ∫₀ᵖ (1 − 5t²) u_k(t) dt.
    """
    polynomials = [[Fraction(1)]]
    for k in range(count - 1):
        following = [Fraction(0)] * (k + 2)
        for j, c in enumerate(polynomials[k]):
            power = k + 2 * j
            following[j] += c * Fraction(power, 2) + c * Fraction(1, 8 * (power + 1))
            following[j + 1] -= c * Fraction(power, 2) + c * Fraction(5, 8 * (power + 3))
        polynomials.append(following)
    return tuple(tuple(float(c) for c in polynomial) for polynomial in polynomials)


DEBYE = _debye_polynomials(TERMS)


def _debye_sum(order: float, hypotenuse: Tensor) -> Tensor:
    """Σ_k u_k(p) / μ^k at p = μ / √(μ² + x²), as a polynomial in 1/√(μ² + x²) and p²."""
    inverse = 1.0 / hypotenuse
    p_squared = (order * inverse) ** 2
    total = torch.zeros_like(inverse)
    for polynomial in reversed(DEBYE):
        inner = torch.zeros_like(inverse)
        for coefficient in reversed(polynomial):
            inner = inner * p_squared + coefficient
        total = total * inverse + inner
    return total


def _log_at_high_order(order: float, x: Tensor) -> Tensor:
    """The log of x^(−μ) e^(−x) I_μ(x) for μ of at least 24, by Debye's expansion."""
    hypotenuse = torch.sqrt(x * x + order * order)
    exponent = order * order / (hypotenuse + x) - order * torch.log(order + hypotenuse)
    return exponent - 0.5 * torch.log(2 * math.pi * hypotenuse) + torch.log(_debye_sum(order, hypotenuse))


def _ratio_at_high_order(order: float, x: Tensor) -> Tensor:
    """s_μ(x) for μ of at least 24: the quotient of two expansions, arranged so that nothing cancels."""
    low = torch.sqrt(x * x + order * order)
    high = torch.sqrt(x * x + (order + 1) ** 2)
    step = (2 * order + 1) / (low + high)  # high − low
    exponent = step - order * torch.log1p((1 + step) / (order + low)) - 0.5 * torch.log1p(step / low)
    return torch.exp(exponent) / (order + 1 + high) * _debye_sum(order + 1, high) / _debye_sum(order, low)


def _check_order(order: float) -> float:
    order = float(order)
    if not (math.isfinite(order) and order >= 0):
        raise ValueError(f"The order of the Bessel function must be finite and at least 0, not {order!r}.")
    return order


def _descend(order: float, x: Tensor) -> tuple[Tensor, Tensor]:
    """The log of x^(−ν) e^(−x) I_ν(x), and s_ν(x), in float64."""
    x = x.double()
    steps = max(0, math.ceil(LEAST_ORDER - order))
    log_value = _log_at_high_order(order + steps, x)
    ratio = _ratio_at_high_order(order + steps, x)
    for step in range(steps, 0, -1):
        denominator = 2 * (order + step) + x * x * ratio
        log_value = log_value + torch.log(denominator)
        ratio = 1.0 / denominator
    return log_value, ratio


def log_bessel_reduced(order: float, x: Tensor) -> Tensor:
    """The log of x^(−ν) e^(−x) I_ν(x): log I without its zero at x = 0 and its growth at infinity.

    ``order`` is a number ν ≥ 0, ``x: (...)`` is not negative; returns ``(...)`` in x's dtype, computed in
    float64. At x = 0 the value is −ν log 2 − log Γ(ν + 1).

    >>> log_bessel_reduced(1.0, torch.zeros(()))
    tensor(-0.6931)
    """
    return _descend(_check_order(order), x)[0].to(x.dtype)


def log_bessel_i(order: float, x: Tensor) -> Tensor:
    """The log of I_ν(x) for ν ≥ 0 and x ≥ 0; −inf at x = 0 unless ν = 0.

    >>> log_bessel_i(255.0, torch.tensor(10.0, dtype=torch.float64))  # I is 6e-327 here
    tensor(-751.2078, dtype=torch.float64)
    """
    order = _check_order(order)
    wide = x.double()
    value = _descend(order, wide)[0] + wide
    if order > 0:
        value = value + order * torch.log(wide)
    return value.to(x.dtype)


def bessel_ratio_over_x(order: float, x: Tensor) -> Tensor:
    """I_{ν+1}(x) / (x I_ν(x)) for ν ≥ 0 and x ≥ 0; at x = 0 the limit 1 / (2ν + 2).

    >>> bessel_ratio_over_x(0.0, torch.zeros(()))
    tensor(0.5000)
    """
    return _descend(_check_order(order), x)[1].to(x.dtype)


def bessel_ratio(order: float, x: Tensor) -> Tensor:
    """I_{ν+1}(x) / I_ν(x) for ν ≥ 0 and x ≥ 0, between 0 and 1.

    At ν = d/2 − 1 this is A_d(κ), the length of the mean of a von Mises-Fisher distribution on the unit
    sphere in R^d.

    >>> bessel_ratio(0.5, torch.tensor(2.0))  # d = 3: coth κ − 1/κ
    tensor(0.5373)
    """
    wide = x.double()
    return (wide * _descend(_check_order(order), wide)[1]).to(x.dtype)
