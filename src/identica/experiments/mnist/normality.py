"""How far a sample is from any normal law, and from any law with a single mode."""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt
from scipy import special

Sample = npt.NDArray[np.float64]
#: Uniform samples that a dip is compared with.
NULL_SAMPLES = 500


def kolmogorov_distance(sample: Sample) -> float:
    """The largest |F − Φ| between the sample's distribution function and the normal one of its mean and variance.

    >>> round(kolmogorov_distance(np.array([-1.0, 1.0] * 50)), 2)  # two points: half of it lies at −1
    0.34
    """
    n, below = len(sample), special.ndtr(_standardised(sample))
    steps = np.arange(n + 1) / n
    return float(max((steps[1:] - below).max(), (below - steps[:-1]).max()))


def normality_p_value(sample: Sample) -> float:
    """Of the Anderson–Darling test against all normal laws (Stephens, 1986, case 3); small values speak against them.

    A² = −n − (1/n) Σ (2i−1) (log Φ(yᵢ) + log(1 − Φ(yₙ₊₁₋ᵢ))) with y standardised and sorted, corrected for the fitted
    mean and variance by the factor 1 + 0.75/n + 2.25/n².
    """
    statistic = anderson_darling(sample)
    n = len(sample)
    a = statistic * (1 + 0.75 / n + 2.25 / n**2)
    if a >= 0.6:
        # The fitted parabola turns upwards at 153, where all that is left is zero.
        return math.exp(1.2937 - 5.709 * min(a, 100.0) + 0.0186 * min(a, 100.0) ** 2)
    if a >= 0.34:
        return math.exp(0.9177 - 4.279 * a - 1.38 * a**2)
    if a >= 0.2:
        return 1 - math.exp(-8.318 + 42.796 * a - 59.938 * a**2)
    return 1 - math.exp(-13.436 + 101.14 * a - 223.73 * a**2)


def anderson_darling(sample: Sample) -> float:
    """The statistic A², without the correction."""
    y, n = _standardised(sample), len(sample)
    weights = 2 * np.arange(1, n + 1) - 1
    return float(-n - (weights * (special.log_ndtr(y) + special.log_ndtr(-y[::-1]))).mean())


def _standardised(sample: Sample) -> Sample:
    """Sorted, with mean 0 and variance 1."""
    ordered = np.sort(np.asarray(sample, dtype=np.float64))
    spread = ordered.std(ddof=1)
    if len(ordered) < 8 or not spread > 0:
        raise ValueError("Whether a sample is normal can be asked of at least 8 numbers that are not all equal.")
    return (ordered - ordered.mean()) / spread


def dip(sample: Sample) -> float:
    """Hartigan's dip: the smallest sup |F − G| over distribution functions G with a single mode (1985).

    Between 1/(2n) and ¼, which two points of equal weight come close to. G is convex up to its mode and concave after
    it. So the distribution function is compared with its greatest convex minorant below a modal interval and its
    least concave majorant above; the interval shrinks to where the two are farthest apart, until what is
    outside deviates more than anything inside could.

    >>> dip(np.arange(10.0)), round(dip(np.r_[np.zeros(50), np.ones(50)] + np.arange(100) * 1e-9), 2)
    (0.05, 0.25)
    """
    x = np.sort(np.asarray(sample, dtype=np.float64))
    n = len(x)
    if n < 4 or x[0] == x[-1]:
        raise ValueError("The dip is that of at least 4 numbers that are not all equal.")
    places, low, high, deviation = x.tolist(), 0, n - 1, 1.0
    while True:
        convex, concave = _hull(places, low, high, 1.0), _hull(places, low, high, -1.0)
        apart, new_low, new_high = _farthest(x, convex, concave)
        if apart <= deviation:
            break
        outside = max(_below(x, convex, low, new_low), _above(x, concave, new_high, high))
        deviation = max(deviation, outside)
        if (new_low, new_high) == (low, high):
            break
        low, high = new_low, new_high
    return deviation / (2 * n)


def _hull(x: list[float], low: int, high: int, sign: float) -> list[int]:
    """The knots of the convex minorant (sign 1) or concave majorant (−1) of the points (xᵢ, i), low ≤ i ≤ high."""
    knots: list[int] = []
    for i in range(low, high + 1):
        while len(knots) > 1:
            a, b = knots[-2], knots[-1]
            if sign * ((b - a) * (x[i] - x[b]) - (i - b) * (x[b] - x[a])) < 0:
                break  # the slope still grows (falls)
            knots.pop()
        knots.append(i)
    return knots


def _farthest(x: Sample, convex: list[int], concave: list[int]) -> tuple[float, int, int]:
    """How far apart the two hulls are at their knots, in numbers of points, and the modal interval around there.

    The distribution function jumps by one at each point: the majorant lies on top of the jumps, the minorant below.
    """
    lower = np.interp(x[concave], x[convex], convex)
    upper = np.interp(x[convex], x[concave], concave)
    at_concave, at_convex = np.asarray(concave) + 1 - lower, upper + 1 - np.asarray(convex)
    i, j = int(at_concave.argmax()), int(at_convex.argmax())
    if at_concave[i] >= at_convex[j]:
        place = concave[i]
        return float(at_concave[i]), max(k for k in convex if k <= place), place
    place = convex[j]
    return float(at_convex[j]), place, min(k for k in concave if k >= place)


def _below(x: Sample, convex: list[int], low: int, new_low: int) -> float:
    """How far the distribution function rises above its convex minorant to the left of the modal interval."""
    inside = np.arange(low, new_low + 1)
    return float((inside + 1 - np.interp(x[inside], x[convex], convex)).max()) if len(inside) > 1 else 0.0


def _above(x: Sample, concave: list[int], new_high: int, high: int) -> float:
    """How far it falls below its concave majorant to the right."""
    inside = np.arange(new_high, high + 1)
    return float((np.interp(x[inside], x[concave], concave) - inside + 1).max()) if len(inside) > 1 else 0.0


@functools.lru_cache(maxsize=8)
def largest_null_dip(n: int, seed: int = 0) -> float:
    """The largest dip of 500 uniform samples of size n: one with a single mode exceeds it in one of 500 cases at most.

    The uniform law is the least favourable one with a single mode (Hartigan and Hartigan, 1985), asymptotically.
    """
    generator = np.random.default_rng(seed)
    return max(dip(generator.random(n)) for _ in range(NULL_SAMPLES))
