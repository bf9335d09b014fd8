from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
from scipy import integrate, optimize, special

from identica.distributions import ray_quadrature
from identica.distributions.radial import log_radial_integral
from identica.distributions.ray_quadrature import log_ray_integral

POWERS = (0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 10.0)


def rays(
    d: int, scale: float, power: float, rows: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Slopes and offsets as the projected families make them, for directions that they would draw."""
    loc = torch.nn.functional.normalize(torch.randn(rows, d, generator=generator, dtype=torch.float64), dim=-1)
    noise = torch.randn(rows, d, generator=generator, dtype=torch.float64)
    direction = torch.nn.functional.normalize(loc + scale * noise, dim=-1)
    return direction / scale, loc / scale


def by_mpmath(slope: torch.Tensor, offset: torch.Tensor, power: float) -> float:
    """The same integral in 30 digits, split at the kinks and around the largest value on a fine grid."""
    a, b, d = slope.tolist(), offset.tolist(), len(slope)
    with mpmath.workdps(30):

        def log_integrand(r):
            return (d - 1) * mpmath.log(r) - sum(abs(r * x - y) ** mpmath.mpf(power) for x, y in zip(a, b, strict=True))

        kinks = sorted(y / x for x, y in zip(a, b, strict=True) if x * y > 0)
        grid = np.exp(np.linspace(-15, 15, 4001))
        heights = (d - 1) * np.log(grid) - (np.abs(np.outer(grid, a) - b) ** power).sum(axis=1)
        wide = grid[heights > heights.max() - 60]
        edges = [mpmath.mpf(0), *np.linspace(wide[0] / 2, wide[-1] * 1.01, 25), mpmath.mpf(50 * wide[-1])]
        edges = sorted([*edges, *(mpmath.mpf(k) for k in kinks if k < 50 * wide[-1])])
        level = heights.max()
        total = sum(
            mpmath.quad(lambda r: mpmath.exp(log_integrand(r) - level), [low, high])
            for low, high in zip(edges, edges[1:], strict=False)
            if high > low
        )
        return float(mpmath.log(total) + level)


@pytest.mark.parametrize("power", (0.5, 0.8, 1.0, 1.5, 3.0, 10.0))
@pytest.mark.parametrize("scale", (0.05, 1.0))
def test_agrees_with_thirty_digits(power, scale, generator):
    slope, offset = rays(3, scale, power, 1, generator)
    expected = by_mpmath(slope[0], offset[0], power)
    assert log_ray_integral(slope, offset, power).item() == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("d", (2, 10, 100))
@pytest.mark.parametrize("scale", (1e-3, 0.1, 1.0, 1e3))
def test_power_two_is_the_normal_integral(d, scale, generator):
    slope, offset = rays(d, scale, 2.0, 5, generator)
    a, b = 2 * (slope**2).sum(dim=-1), 2 * (slope * offset).sum(dim=-1)
    expected = log_radial_integral(a, b, d) - (offset**2).sum(dim=-1)
    # The right-hand side subtracts numbers of the size of (1/scale)².
    torch.testing.assert_close(
        log_ray_integral(slope, offset, 2.0), expected, rtol=1e-10, atol=1e-10 + 1e-15 / scale**2
    )


@pytest.mark.parametrize("d", (2, 3, 10, 512))
@pytest.mark.parametrize("power", POWERS)
def test_without_offset_it_is_a_gamma_function(d, power, generator):
    slope = torch.randn(d, generator=generator, dtype=torch.float64)
    strength = (slope.abs() ** power).sum().log().item()
    expected = special.gammaln(d / power) - np.log(power) - d / power * strength
    result = log_ray_integral(slope, torch.zeros_like(slope), power).item()
    assert result == pytest.approx(expected, abs=1e-8, rel=1e-12)


@pytest.mark.parametrize("scale", (0.02, 1.0))
def test_five_hundred_dimensions(scale, generator):
    slope, offset = rays(512, scale, 4.0, 1, generator)
    a, b = slope[0].numpy(), offset[0].numpy()

    def minus_log(rho):
        return -(512 * rho - (np.abs(np.exp(rho) * a - b) ** 4).sum())

    peak = optimize.minimize_scalar(minus_log, bounds=(-5, 10), method="bounded", options={"xatol": 1e-10}).x
    width = 12 / np.sqrt((minus_log(peak + 1e-3) + minus_log(peak - 1e-3) - 2 * minus_log(peak)) * 1e6)
    rho = np.linspace(peak - width, peak + width, 4001)
    values = -np.array([minus_log(x) for x in rho])
    expected = special.logsumexp(values) + np.log(rho[1] - rho[0])  # trapezoid: exact for a smooth peak
    assert log_ray_integral(slope, offset, 4.0).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("power", (0.6, 1.0, 3.0))
def test_more_panels_and_smaller_chunks_change_nothing(power, generator, monkeypatch):
    slope, offset = rays(6, 0.2, power, 50, generator)
    first = log_ray_integral(slope, offset, power)
    monkeypatch.setattr(ray_quadrature, "_BUDGET_CPU", 1)
    monkeypatch.setattr(ray_quadrature, "_PANELS", 40)
    monkeypatch.setattr(ray_quadrature, "_SCANS", 14)
    monkeypatch.setattr(ray_quadrature, "NEGLIGIBLE", 45.0)
    torch.testing.assert_close(log_ray_integral(slope, offset, power), first, rtol=0, atol=1e-8)


def test_lines_between_kinks_are_the_general_rule_at_power_one(generator):
    slope, offset = rays(6, 0.2, 1.0, 50, generator)
    nearly_one = log_ray_integral(slope, offset, 1.0 + 1e-13)
    torch.testing.assert_close(log_ray_integral(slope, offset, 1.0), nearly_one, rtol=0, atol=1e-9)


def test_a_narrow_peak_beside_the_main_one():
    """Below power 1 a kink can be a peak of its own, narrow and far from the others.

    In two dimensions a direct sum over a grid dense at 0 and at the kink tells the truth.
    """
    slope = torch.tensor([718.7785780665628, 695.2390637130585], dtype=torch.float64)
    offset = torch.tensor([-26.117494423797353, 999.6588800611052], dtype=torch.float64)
    a, b = slope.numpy(), offset.numpy()
    steps = np.concatenate([[0.0], np.exp(np.linspace(-40, 4, 40001))])
    r = np.unique(np.concatenate([steps, b[1] / a[1] + steps, b[1] / a[1] - steps]))
    r = r[(r >= 0) & (r < 20)]
    values = np.log(np.maximum(r, 1e-300)) - (np.abs(np.outer(r, a) - b) ** 0.85).sum(axis=1)
    expected = np.log(integrate.trapezoid(np.exp(values - values.max()), r)) + values.max()
    assert log_ray_integral(slope, offset, 0.85).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("power", (0.8, 1.0, 1.5, 3.0))
def test_gradients(power, generator):
    slope, offset = (v.requires_grad_() for v in rays(3, 0.4, power, 4, generator))
    assert torch.autograd.gradcheck(
        lambda a, b: log_ray_integral(a, b, power), (slope, offset), eps=1e-6, atol=2e-5, rtol=1e-4
    )


def test_memory_is_not_kept_for_the_gradient(generator):
    """The graph holds the chunks' inputs, not their nodes."""
    slope, offset = (v.requires_grad_() for v in rays(10, 0.4, 3.0, 400, generator))
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        log_ray_integral(slope, offset, 3.0).sum()
    assert sum(kept) <= 20 * slope.numel()


def test_coordinates_that_do_not_matter():
    """A coordinate with slope 0 and offset 0 changes only the power of r."""
    slope = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    offset = torch.zeros(3, dtype=torch.float64)
    for power in POWERS:
        expected = special.gammaln(3 / power) - np.log(power)  # ∫ r² exp(-r^power) dr
        assert log_ray_integral(slope, offset, power).item() == pytest.approx(expected, abs=1e-9)


def test_no_rows():
    empty = torch.zeros(0, 3, dtype=torch.float64)
    assert log_ray_integral(empty, empty, 1.0).shape == (0,)
