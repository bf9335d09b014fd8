from __future__ import annotations

import numpy as np
import pytest
import torch

from identica.distributions.log_table import build_log_table

EPS = {torch.float32: 2.0**-23, torch.float64: 2.0**-52}
SIZE = {torch.float32: {"parts": 2048, "pairs": 1}, torch.float64: {"parts": 128, "pairs": 3}}


def table(functions, lowest, highest, dtype):
    return build_log_table(functions, lowest, highest, **SIZE[dtype], device="cpu", dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("function", [np.sqrt, np.log1p, lambda x: 1 / (1 + x)])
def test_reproduces_a_smooth_function_over_thirty_octaves_to_rounding(function, dtype):
    x = torch.logspace(-6, 3, 5001, dtype=torch.float64).to(dtype)
    got = table([function], 1e-6, 1e3, dtype)(x).double().numpy()
    np.testing.assert_allclose(got, function(x.double().numpy()), rtol=6 * EPS[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_is_constant_beyond_its_ends_and_takes_zero_infinity_and_nan(dtype):
    square = table([np.square], 0.5, 2.0, dtype)
    assert square.highest == pytest.approx(2.0, rel=0.02) and square.highest >= 2.0
    x = torch.tensor([0.0, 1e-30, torch.inf, torch.nan], dtype=dtype)
    low, high = 0.25, square.highest**2
    torch.testing.assert_close(square(x)[:3].double(), torch.tensor([low, low, high]).double(), rtol=1e-6, atol=0)
    assert square(x).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_two_functions_on_one_grid(dtype):
    both = table([np.sqrt, np.reciprocal], 0.1, 10.0, dtype)
    x = torch.linspace(0.2, 9.0, 50, dtype=dtype).view(5, 10)
    side = torch.where(torch.arange(50).view(5, 10) % 3 == 0, -1.0, 1.0).to(dtype)
    torch.testing.assert_close(both(x, side=side), torch.where(side < 0, 1 / x, x.sqrt()))


def test_half_precision_is_refused_with_a_sentence():
    with pytest.raises(ValueError, match="float32 and float64"):
        build_log_table([np.sqrt], 0.1, 1.0, parts=8, pairs=1, device="cpu", dtype=torch.float16)
