# mypy: disable-error-code="no-untyped-def, untyped-decorator, assignment"
"""Random numbers inside a kernel, and the elementary functions that samplers need there.

Random bits come from Philox, a function of a seed and a counter. Kernels count rows (or coordinates) and attempts,
so a draw depends on neither the size of a block nor the order in which blocks run. The seed is one 63-bit number
that the caller's generator has left in device memory.
"""

from __future__ import annotations

import triton
import triton.language as tl

QUARTER_PI = tl.constexpr(0.7853981633974483)
UNIT_31 = tl.constexpr(2.0**-31)
UNIT_32 = tl.constexpr(2.0**-32)
HALF_UNIT_32 = tl.constexpr(2.0**-33)
FIRST_BIT = tl.constexpr(0x80000000)
SECOND_BIT = tl.constexpr(0x40000000)
ALL_BITS = tl.constexpr(0xFFFFFFFF)
#: The largest float32 below 1.
BELOW_ONE = tl.constexpr(1.0 - 2.0**-24)


@triton.jit
def random_words(seed, index, attempt, purpose: tl.constexpr):
    """Four blocks of 32 random bits for each ``index``: different ones for each attempt and purpose."""
    zero = (index + attempt) * 0
    return tl.philox(seed, zero + index, zero + attempt, zero + purpose, zero)


@triton.jit
def uniform(word):
    """The number u = (k + ½) 2⁻³² as a float32 in (0, 1]: small numbers keep all their digits, down to 2⁻³³."""
    return word.to(tl.float32) * UNIT_32 + HALF_UNIT_32


@triton.jit
def one_minus_uniform(word):
    """1 − u, with all its digits where u is close to 1."""
    return uniform(word ^ ALL_BITS)


@triton.jit
def unit_circle(word):
    """The coordinates of a uniform point of the unit circle, to float32's relative precision.

    30 bits are an angle between −π/4 and π/4, whose sine and cosine are short series; one bit swaps the two and
    one turns the point round, which makes four quarters. (The library's sine is ready for angles of any size.)
    """
    angle = (word << 2).to(tl.int32, bitcast=True).to(tl.float32) * (QUARTER_PI * UNIT_31)
    squared = angle * angle
    sine = 1.0 - squared * (1.0 / 72.0)
    sine = 1.0 - squared * (1.0 / 42.0) * sine
    sine = 1.0 - squared * (1.0 / 20.0) * sine
    sine = angle * (1.0 - squared * (1.0 / 6.0) * sine)
    cosine = 1.0 - squared * (1.0 / 90.0)
    cosine = 1.0 - squared * (1.0 / 56.0) * cosine
    cosine = 1.0 - squared * (1.0 / 30.0) * cosine
    cosine = 1.0 - squared * (1.0 / 12.0) * cosine
    cosine = 1.0 - squared * (1.0 / 2.0) * cosine
    swap, turn = (word & SECOND_BIT) != 0, (word & FIRST_BIT) != 0
    x, y = tl.where(swap, sine, cosine), tl.where(swap, cosine, sine)
    return tl.where(turn, -x, x), tl.where(turn, -y, y)


@triton.jit
def normal_pair(first, second):
    """Two independent standard normal numbers (Box and Muller), up to 6.7 from 0 and never both 0."""
    radius = tl.sqrt(-2.0 * tl.log(tl.minimum(uniform(first), BELOW_ONE)))
    x, y = unit_circle(second)
    return radius * x, radius * y


@triton.jit
def four_normals(seed, index, attempt, purpose: tl.constexpr):
    """Four blocks of standard normal numbers for each ``index``."""
    words = random_words(seed, index, attempt, purpose)
    a, b = normal_pair(words[0], words[1])
    c, d = normal_pair(words[2], words[3])
    return a, b, c, d


@triton.jit
def log1p(y):
    """log(1 + y) with the relative precision of y: what 1 + y rounds away is put back to first order."""
    rounded = 1.0 + y
    return tl.log(rounded) + (y - (rounded - 1.0)) / rounded


@triton.jit
def one_minus_exp(a):
    """1 − exp(−a) for a ≥ 0, with the relative precision of a."""
    series = 1.0 - a * (1.0 / 8.0)
    series = 1.0 - a * (1.0 / 7.0) * series
    series = 1.0 - a * (1.0 / 6.0) * series
    series = 1.0 - a * (1.0 / 5.0) * series
    series = 1.0 - a * (1.0 / 4.0) * series
    series = 1.0 - a * (1.0 / 3.0) * series
    series = 1.0 - a * (1.0 / 2.0) * series
    return tl.where(a < 0.5, a * series, 1.0 - tl.exp(-a))


@triton.jit
def minus_log_of_rest(t):
    """−log(1 − t) for 0 ≤ t ≤ ½, with the relative precision of t: 2 artanh z with z = t / (2 − t) ≤ ⅓."""
    z = t / (2.0 - t)
    squared = z * z
    series = 1.0 / 11.0 + squared * (1.0 / 13.0)
    series = 1.0 / 9.0 + squared * series
    series = 1.0 / 7.0 + squared * series
    series = 1.0 / 5.0 + squared * series
    series = 1.0 / 3.0 + squared * series
    return 2.0 * z * (1.0 + squared * series)
