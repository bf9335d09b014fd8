"""Independent one-dimensional truths for the families with a power: scipy's laws, and quadrature."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from scipy import integrate, stats
from torch.utils._python_dispatch import TorchDispatchMode

# What makes the host wait for a CUDA device: reading a number, or a shape that depends on the data.
WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "item", "unique")


class _NoWaiting(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.split(".")[0]
        assert name not in WAITING and not name.startswith("unique"), f"{name} waits for the device"
        return func(*args, **(kwargs or {}))


@contextmanager
def no_waiting() -> Iterator[None]:
    """Fails on operations for which a CUDA device would have to be waited for."""
    with _NoWaiting():
        yield


def truncated_cdf(law: Any, low: float = 0.0, high: float = 1.0) -> Callable[[np.ndarray], np.ndarray]:
    """The distribution function of a frozen scipy law cut to [low, high]."""
    below, above = law.cdf(low), law.cdf(high)
    return lambda x: (law.cdf(x) - below) / (above - below)


def gennorm(loc: float, scale: float, power: float) -> Any:
    """scipy's law with density ∝ exp(−(|x−loc|/scale)^power)."""
    return stats.gennorm(power, loc=loc, scale=scale)


def average(
    f: Callable[[float], float], loc: float, scale: float, power: float, low: float = 0.0, high: float = 1.0
) -> float:
    """E f(x) under the truncated density, by adaptive quadrature, split around the mode."""

    def weight(x: float) -> float:
        return float(np.exp(-((abs(x - loc) / scale) ** power)))

    splits = {low, high, loc} | {loc + sign * k * scale for sign in (-1, 1) for k in (0.01, 0.1, 1, 10, 100)}
    ends = sorted(s for s in splits if low <= s <= high)

    def integral(g: Callable[[float], float]) -> float:
        return sum(
            integrate.quad(g, a, b, epsabs=0, epsrel=1e-12, limit=200)[0]
            for a, b in zip(ends[:-1], ends[1:], strict=True)
        )

    return integral(lambda x: f(x) * weight(x)) / integral(weight)


def log_normaliser(loc: float, scale: float, power: float, low: float = 0.0, high: float = 1.0) -> float:
    """log ∫ exp(−(|x−loc|/scale)^power) dx over [low, high] from scipy's law."""
    law = gennorm(loc, scale, power)
    # At the mode the density is 1 / (mass of the whole line); the rest is the share inside the box.
    return float(np.log(law.cdf(high) - law.cdf(low)) - law.logpdf(loc))


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
