"""Random numbers and elementary functions inside kernels, against float64: on a GPU, or in Triton's interpreter."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats

triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from identica.distributions.triton_random import (  # noqa: E402
    log1p,
    minus_log_of_rest,
    normal_pair,
    one_minus_exp,
    one_minus_uniform,
    random_words,
    uniform,
    unit_circle,
)
from tests.stat_checks import assert_law  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
EPS = torch.finfo(torch.float32).eps
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's numpy warns of log 0

#: Words at both ends, next to the powers of two, and anywhere.
WORDS = torch.cat(
    [
        torch.tensor([0, 1, 2, 2**30 - 1, 2**30, 2**31 - 1, 2**31, 2**31 + 1, 3 * 2**30, 2**32 - 2, 2**32 - 1]),
        torch.randint(0, 2**32, (4085,), generator=torch.Generator().manual_seed(0)),
    ]
)


@triton.jit
def both_uniforms(word):
    return uniform(word), one_minus_uniform(word)


@triton.jit
def normals(word):
    return normal_pair(word, word ^ 0x9E3779B9)


@triton.jit
def apply_to_words(words_ptr, a_ptr, b_ptr, FUNCTION: tl.constexpr, SIZE: tl.constexpr):
    place = tl.arange(0, SIZE)
    a, b = FUNCTION(tl.load(words_ptr + place).to(tl.uint32))
    tl.store(a_ptr + place, a)
    tl.store(b_ptr + place, b)


@triton.jit
def apply(x_ptr, y_ptr, FUNCTION: tl.constexpr, SIZE: tl.constexpr):
    place = tl.arange(0, SIZE)
    tl.store(y_ptr + place, FUNCTION(tl.load(x_ptr + place)))


@triton.jit
def fill_with_words(seed_ptr, out_ptr, attempt, PURPOSE: tl.constexpr, SIZE: tl.constexpr):
    place = tl.arange(0, SIZE)
    words = random_words(tl.load(seed_ptr), place, attempt, PURPOSE)
    for j in tl.static_range(4):
        tl.store(out_ptr + j * SIZE + place, words[j].to(tl.int64))


def of_words(function: Callable[..., object]) -> tuple[np.ndarray, np.ndarray]:
    words = WORDS.to(DEVICE)
    a, b = torch.empty(2, len(words), device=DEVICE).unbind()
    apply_to_words[(1,)](words, a, b, FUNCTION=function, SIZE=len(words))
    return a.double().cpu().numpy(), b.double().cpu().numpy()


def relative_error(function: Callable[..., object], x: np.ndarray, truth: Callable[[np.ndarray], np.ndarray]) -> float:
    on_device = torch.tensor(x, dtype=torch.float32, device=DEVICE)
    y = torch.empty_like(on_device)
    apply[(1,)](on_device, y, FUNCTION=function, SIZE=len(x))
    expected = truth(on_device.double().cpu().numpy())
    return float(np.abs(y.double().cpu().numpy() / expected - 1.0).max())


def test_uniform_numbers_are_never_zero_and_keep_their_digits_at_both_ends() -> None:
    u, rest = of_words(both_uniforms)
    expected = (WORDS.double().numpy() + 0.5) * 2.0**-32
    assert u.min() == rest.min() == 2.0**-33
    assert u.max() <= 1.0 and rest.max() <= 1.0
    assert np.allclose(u, expected, rtol=EPS, atol=0.0)
    assert np.allclose(rest, 1.0 - expected, rtol=EPS, atol=0.0)


def test_points_of_the_circle() -> None:
    x, y = of_words(unit_circle)
    assert np.abs(np.hypot(x, y) - 1.0).max() < 2 * EPS
    # The angle by the definition: two leading bits choose the quarter, the others the place in it.
    words = WORDS.numpy()
    inner = ((words << 2) & 0xFFFFFFFF).astype(np.uint32).view(np.int32) * (math.pi / 4 * 2.0**-31)
    swap, turn = (words >> 30) & 1, (words >> 31) & 1
    expected = np.where(swap == 1, np.sin(inner), np.cos(inner)) * (1 - 2 * turn)
    assert np.allclose(x, expected, rtol=4 * EPS, atol=1e-12)
    assert np.allclose(y, np.where(swap == 1, np.cos(inner), np.sin(inner)) * (1 - 2 * turn), rtol=4 * EPS, atol=1e-12)
    assert np.histogram(np.arctan2(y, x), bins=8, range=(-math.pi, math.pi))[0].min() > 400


def test_normal_numbers_reach_as_far_as_torchs_and_never_vanish_together() -> None:
    x, y = of_words(normals)
    size = np.hypot(x, y)
    assert size.max() == pytest.approx(math.sqrt(2 * 33 * math.log(2)), rel=1e-6)  # torch on CUDA: the same 6.76
    assert size.min() > 3e-4 and np.isfinite(size).all()


@pytest.mark.parametrize(
    ("function", "truth", "low", "high"),
    [
        (one_minus_exp, lambda a: -np.expm1(-a), 1e-30, 80.0),
        (minus_log_of_rest, lambda t: -np.log1p(-t), 1e-30, 0.5),
        (log1p, np.log1p, 1e-30, 1e20),
        (log1p, lambda y: np.log1p(y), -0.999, -1e-30),
    ],
    ids=["one_minus_exp", "minus_log_of_rest", "log1p", "log1p of negative numbers"],
)
def test_elementary_functions(
    function: Callable[..., object], truth: Callable[[np.ndarray], np.ndarray], low: float, high: float
) -> None:
    x = np.geomspace(low, high, 4096)
    assert relative_error(function, x, truth) < 4 * EPS


@pytest.mark.statistical(
    false_alarm=1e-6, what="words of the counter generator: uniform, and pairs of them independent"
)
def test_words_are_uniform_and_differ_by_seed_index_attempt_and_purpose() -> None:
    size, seen = 4096, []
    for seed, attempt, purpose in ((1, 0, 0), (1 + 2**40, 0, 0), (1, 1, 0), (1, 0, 1)):
        out = torch.empty(4, size, dtype=torch.int64, device=DEVICE)
        fill_with_words[(1,)](torch.tensor([seed], device=DEVICE), out, attempt, PURPOSE=purpose, SIZE=size)
        seen.append(out.cpu() & 0xFFFFFFFF)
    numbers = (torch.stack(seen).double() + 0.5) * 2.0**-32  # (streams, words, index)
    streams = numbers.reshape(-1, size)
    tests = len(streams) * (len(streams) + 1) // 2
    for i, first in enumerate(streams):
        assert_law(first, stats.uniform.cdf, false_alarm=1e-6 / tests)
        for second in streams[:i]:
            counts = np.histogram2d(first.numpy(), second.numpy(), bins=8, range=((0, 1), (0, 1)))[0]
            assert stats.chisquare(counts.ravel()).pvalue > 1e-6 / tests
