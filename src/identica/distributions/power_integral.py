"""H(s) = ∫₀ˢ exp(−|t|^β) dt, its inverse and its moments: the calculus of the families with a power.

H is odd and not normalised, so H(s) ≈ s near 0: a density far wider than its box loses nothing in float32.
Its limit is H(∞) = Γ(1 + 1/β). For β = 1 and 2 there are closed forms; any other β is tabulated once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from scipy import special
from torch import Tensor
from torch.types import Device

from identica.distributions.base import require_supported
from identica.distributions.log_table import build_log_table


class _KnownDerivative(torch.autograd.Function):
    """Apply ``function`` to a tensor; differentiate by ``derivative(input, output)``."""

    @staticmethod
    def forward(
        x: Tensor, function: Callable[[Tensor], Tensor], derivative: Callable[[Tensor, Tensor], Tensor]
    ) -> Tensor:
        return function(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, _, ctx.derivative = inputs
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad * ctx.derivative(*ctx.saved_tensors), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], x: Tensor, function: Any, derivative: Any) -> tuple[Tensor, Any]:
        return _KnownDerivative.apply(x, function, derivative), in_dims[0]  # it works element by element


def _differentiable(
    x: Tensor, function: Callable[[Tensor], Tensor], derivative: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    return _KnownDerivative.apply(x, function, derivative) if torch.is_grad_enabled() else function(x)


def distance_power(s: Tensor, power: float) -> Tensor:
    """|s|^power, with gradient 0 at s = 0 for every power."""
    if power == 1.0:
        return s.abs()
    if power == 2.0:
        return s.square()
    if power > 1.0:
        return s.abs().pow(power)
    is_zero = s == 0
    return torch.where(is_zero, 0.0, torch.where(is_zero, 1.0, s).abs().pow(power))


class PowerIntegral:
    """H for one power, in one precision, on one device."""

    def __init__(self, power: float, device: torch.device, dtype: torch.dtype) -> None:
        self.power, self.device, self.dtype = power, device, dtype
        #: H(∞)
        self.total = math.gamma(1.0 + 1.0 / power)

    def __call__(self, s: Tensor) -> Tensor:
        """H(s), any shape; dH/ds = exp(−|s|^β)."""
        return _differentiable(s.to(self.dtype), self._integrate, lambda s, _: self.integrand(s))

    def around(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """H(low) and H(high) for low ≤ 0 ≤ high; without gradients the arguments may be overwritten."""
        return self(low), self(high)

    def inverse(self, t: Tensor) -> Tensor:
        """The s with H(s) = t; for t = ±H(∞) the last one that the precision tells from ±∞."""
        return _differentiable(t.to(self.dtype), self._invert, lambda _, s: distance_power(s, self.power).exp())

    def integrand(self, s: Tensor) -> Tensor:
        """exp(−|s|^β)."""
        return distance_power(s, self.power).neg().exp()

    def moment(self, s: Tensor, order: int) -> Tensor:
        """∫₀ˢ t^order exp(−|t|^β) dt."""
        return _differentiable(
            s.to(self.dtype), lambda s: self._moment(s, order), lambda s, _: s**order * self.integrand(s)
        )

    def distance_moment(self, s: Tensor) -> Tensor:
        """∫₀ˢ |t|^β exp(−|t|^β) dt = (H(s) − s exp(−|s|^β)) / β, by parts."""
        return (self(s) - s * self.integrand(s)) / self.power

    def _moment(self, s: Tensor, order: int) -> Tensor:
        exponent = (order + 1) / self.power
        y = distance_power(s, self.power)
        whole = math.exp(math.lgamma(exponent)) / self.power
        size = whole * torch.special.gammainc(y.new_full((), exponent), y)
        # |s|^β may underflow where |s| does not.
        size = torch.where(y < 0.1 * torch.finfo(s.dtype).eps, s.abs() ** (order + 1) / (order + 1), size)
        return size if order % 2 else size.copysign(s)

    def _integrate(self, s: Tensor) -> Tensor:
        raise NotImplementedError

    def _invert(self, t: Tensor) -> Tensor:
        raise NotImplementedError


class _LaplaceIntegral(PowerIntegral):
    """β = 1: H(s) = ±(1 − exp(−|s|))."""

    def around(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """H(low) and H(high) for low ≤ 0 ≤ high; knowing the signs saves a third of the time."""
        if not torch.is_grad_enabled():
            return low.expm1_(), high.neg_().expm1_().neg_()
        slope = lambda s, _: self.integrand(s)  # noqa: E731
        below = _differentiable(low, torch.expm1, slope)
        return below, _differentiable(high, lambda s: s.neg().expm1_().neg_(), slope)

    def _integrate(self, s: Tensor) -> Tensor:
        return s.abs().neg_().expm1_().copysign_(s)

    def _invert(self, t: Tensor) -> Tensor:
        largest = 1.0 - 0.5 * torch.finfo(t.dtype).eps
        return t.abs().clamp_max_(largest).neg_().log1p_().copysign_(t)


class _NormalIntegral(PowerIntegral):
    """β = 2: H(s) = √π/2 · erf(s)."""

    def _integrate(self, s: Tensor) -> Tensor:
        return torch.erf(s).mul_(self.total)

    def _invert(self, t: Tensor) -> Tensor:
        largest = 1.0 - 0.5 * torch.finfo(t.dtype).eps
        return (t / self.total).clamp_(-largest, largest).erfinv_()


class TabulatedIntegral(PowerIntegral):
    """Any β: the ratios H(s)/s and H⁻¹(t)/t from piecewise polynomials, to the precision of the dtype.

    Near 0 both ratios are 1 plus a multiple of |·|^β, which a logarithmic grid resolves for every β; ratios,
    and not the functions themselves, keep the relative precision there. Towards H(∞) the inverse is
    a function of H(∞) − |t|, on a second sheet of the same grid.
    """

    def __init__(self, power: float, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(power, device, dtype)
        eps = float(torch.finfo(dtype).eps)
        shape = 1.0 / power
        # Below `smallest` the ratios are 1; beyond `largest` H is H(∞); both to an eighth of a rounding error.
        smallest = max((0.125 * eps * (1.0 + power)) ** shape, 4.0 * float(torch.finfo(dtype).tiny))
        largest = float(special.gammainccinv(shape, 0.125 * eps)) ** shape

        def ratio(s: np.ndarray) -> np.ndarray:
            return self.total * special.gammainc(shape, s**power) / s

        def inverse_ratio(t: np.ndarray) -> np.ndarray:
            # For tiny t the power of s underflows before s does.
            s = special.gammaincinv(shape, t / self.total) ** shape
            return np.where(t < smallest, 1.0, s / t)

        def inverse_ratio_from_top(rest: np.ndarray) -> np.ndarray:
            rest = np.maximum(rest, 0.25 * eps * self.total)
            return special.gammainccinv(shape, rest / self.total) ** shape / (self.total - rest)

        # Lines over cells of 1/2048, or quintics over cells of 1/128: below a rounding error either way.
        parts, pairs = (2048, 1) if dtype == torch.float32 else (128, 3)
        fineness = math.ceil(max(1.0, power))
        kind: dict[str, Any] = {"pairs": pairs, "device": device, "dtype": dtype}
        self.ratio = build_log_table([ratio], smallest, largest, parts=parts * fineness, **kind)
        self._saturated = self.ratio.highest
        self.inverse_ratio = build_log_table(
            [inverse_ratio, inverse_ratio_from_top],
            min(smallest, 0.25 * eps * self.total),
            0.5 * self.total,
            parts=parts,
            **kind,
        )

    def _integrate(self, s: Tensor) -> Tensor:
        return self.ratio(s).mul_(s.clamp(-self._saturated, self._saturated))

    def _invert(self, t: Tensor) -> Tensor:
        size = t.abs()
        rest = self.total - size
        nearer = torch.minimum(size, rest)
        return self.inverse_ratio(nearer, side=rest.sub_(size)).mul_(t)


def power_integral(
    power: float, device: Device, dtype: torch.dtype, ready: PowerIntegral | None = None
) -> PowerIntegral:
    """H for this power: the ready one if it fits, else built once for each power, device and precision."""
    device = torch.device("cpu" if device is None else device)
    if ready is not None and (ready.power, ready.device, ready.dtype) == (power, device, dtype):
        return ready
    return _built(power, device, dtype)


@lru_cache(maxsize=64)
def _built(power: float, device: torch.device, dtype: torch.dtype) -> PowerIntegral:
    require_supported(dtype, "loc", "A family with a power")
    if power == 1.0:
        return _LaplaceIntegral(power, device, dtype)
    if power == 2.0:
        return _NormalIntegral(power, device, dtype)
    return tabulated_integral(power, device, dtype)


@lru_cache(maxsize=64)
def tabulated_integral(power: float, device: torch.device, dtype: torch.dtype) -> TabulatedIntegral:
    """H for this power from tables, even where there is a closed form: a fused kernel is faster with them."""
    # The tables outlive the caller's inference mode, so they must not be inference tensors.
    with torch.inference_mode(False):
        return TabulatedIntegral(power, device, dtype)
