"""The fused samplers of independent coordinates against float64 truths: scipy's laws, never the torch path."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats

from identica.distributions import (
    BoxUniform,
    GeneralizedNormal,
    LatentDistribution,
    TruncatedGeneralizedNormal,
    TruncatedLaplace,
    TruncatedNormal,
)
from tests.distributions.power_truth import gennorm, truncated_cdf
from tests.distributions.triton_draws import draw, few_and_many, in_box, no_numpy_warnings, on_gpu
from tests.stat_checks import assert_law

pytest.importorskip("triton")

pytestmark = no_numpy_warnings


@pytest.mark.statistical(false_alarm=1e-6, what="fused uniform draws on a box against the uniform law")
@few_and_many
@pytest.mark.parametrize("edges", [(0.0, 1.0), (-3.0, 2.0), ((-1.0, 0.0, 5.0), (1.0, 1e-3, 5.5))], ids=str)
def test_box_uniform(edges: tuple[float | tuple[float, ...], ...], rows: int) -> None:
    low, high = (torch.tensor(edge).expand(3) for edge in edges)
    x = draw(BoxUniform(3, *(torch.tensor(edge) for edge in edges)), rows)
    assert x.shape == (rows, 3) and x.dtype == torch.float32
    assert bool(((x >= low) & (x <= high)).all())
    for j in range(3):
        law = stats.uniform(low[j].item(), (high[j] - low[j]).item())
        assert_law(x[:, j], law.cdf, false_alarm=1e-6 / 3)


@pytest.mark.statistical(false_alarm=1e-6, what="neighbouring numbers of fused uniform draws: independent, chi-square")
@few_and_many
def test_neighbours_are_independent(rows: int) -> None:
    x = draw(BoxUniform(5), rows).flatten().numpy()
    lags = (1, 4, 5, 1024, len(x) // 4, len(x) // 4 + 16)
    for lag in lags:
        first = np.flatnonzero(np.arange(len(x) - lag) // lag % 2 == 0)  # pairs that share no number
        counts = np.histogram2d(x[first], x[first + lag], bins=16, range=((0, 1), (0, 1)))[0]
        assert stats.chisquare(counts.ravel()).pvalue > 1e-6 / len(lags)


# ------------------------------------------------------------------------------------------------ with a power


FAMILIES: dict[str, Callable[..., LatentDistribution]] = {
    "1": TruncatedLaplace,
    "2": lambda loc, scale, **box: TruncatedNormal(loc, scale / 2**0.5, **box),
    **{
        str(power): lambda loc, scale, power=power, **box: TruncatedGeneralizedNormal(loc, scale, power, **box)
        for power in (0.5, 1.0, 1.5, 2.0, 3.0, 10.0)
    },
}


@pytest.mark.statistical(false_alarm=1e-6, what="fused draws on a box: distribution function at the draws, uniform")
@few_and_many
@pytest.mark.parametrize("scale", [1e-3, 0.05, 0.5, 1e4])
@pytest.mark.parametrize("name", FAMILIES)
def test_truncated_law(name: str, scale: float, rows: int) -> None:
    loc = in_box(rows, 1)
    x = draw(FAMILIES[name](loc, scale))
    assert bool(((x >= 0) & (x <= 1)).all())
    law = gennorm(loc.double().numpy(), scale, float(name))
    # Over the locations, the distribution function at the draw is uniform.
    u = torch.as_tensor(truncated_cdf(law)(x.double().numpy())).flatten()
    assert_law(u, stats.uniform.cdf)


@pytest.mark.statistical(
    false_alarm=1e-6, what="fused draws on a box around one loc, above and below it: the exact law"
)
@few_and_many
@pytest.mark.parametrize("loc", [0.0, 0.02, 0.5, 1.0])
@pytest.mark.parametrize("name", ["1", "2", "3.0"])
def test_truncated_law_around_one_location(name: str, loc: float, rows: int) -> None:
    x = draw(FAMILIES[name](torch.tensor([loc]), 0.05), rows)[:, 0]
    assert_law(x, truncated_cdf(gennorm(loc, 0.05, float(name))), false_alarm=0.5e-6)
    near = x[(x - loc).abs() < 1e-3]
    part = truncated_cdf(gennorm(loc, 0.05, float(name)), max(0.0, loc - 1e-3), min(1.0, loc + 1e-3))
    assert_law(near, part, false_alarm=0.5e-6)


@pytest.mark.parametrize("name", FAMILIES)
def test_truncated_draws_never_leave_the_box(name: str) -> None:
    """Narrow boxes far from 0, whose edges are floats next to each other, and a wide one."""
    boxes = torch.tensor([(3.0, 3.0 + 2.0**-22), (-1e6, -1e6 + 0.125), (-1e3, 1e3), (0.1, 0.3)])
    scales = torch.tensor([1e-6, 1.0, 1e6])
    low, high = boxes.T.reshape(2, 4, 1, 1, 1)
    loc = torch.cat([low, high], dim=1).expand(4, 2, 3, 1)
    x = draw(FAMILIES[name](loc, scales[:, None], low=low, high=high), 2000)
    assert x.shape == (2000, 4, 2, 3, 1)
    assert bool(((x >= low) & (x <= high)).all())


@pytest.mark.statistical(
    false_alarm=1e-6, what="fused draws on a box with a scale and edges for each coordinate or row"
)
@few_and_many
def test_truncated_parameters_of_every_shape(rows: int) -> None:
    loc, scale = torch.tensor([0.2, 0.5]), torch.tensor([[0.1, 0.2], [0.3, 0.4]])
    low, high = torch.tensor([0.0, 0.4]), torch.tensor([[1.0], [2.0]])
    x = draw(TruncatedLaplace(loc, scale, low, high), rows)
    assert x.shape == (rows, 2, 2)
    for i in range(2):
        for j in range(2):
            law = gennorm(loc[j].item(), scale[i, j].item(), 1.0)
            assert_law(x[:, i, j], truncated_cdf(law, low[j].item(), high[i, 0].item()), false_alarm=1e-6 / 4)


@pytest.mark.statistical(false_alarm=1e-6, what="fused generalised normal draws against scipy's law")
@few_and_many
@pytest.mark.parametrize("power", [0.5, 1.0, 1.5, 2.0, 3.0, 10.0])
def test_generalized_normal_law(power: float, rows: int) -> None:
    loc = torch.tensor([-1.0, 100.0])
    x = draw(GeneralizedNormal(loc, torch.tensor([0.5, 3.0]), power), rows)
    for j, scale in enumerate((0.5, 3.0)):
        assert_law(x[:, j], gennorm(loc[j].item(), scale, power).cdf, false_alarm=1e-6 / 2)


@pytest.mark.statistical(
    false_alarm=1e-6, what="fused Laplace and normal draws beyond all but 1e-4 of the mass: their law"
)
@pytest.mark.parametrize("rows", [10**6, pytest.param(2**26, marks=on_gpu)])
@pytest.mark.parametrize("power", [1.0, 2.0, 3.0])
def test_the_tails_keep_their_law(power: float, rows: int) -> None:
    x = draw(GeneralizedNormal(torch.zeros(1), 1.0, power), rows).abs()[:, 0]
    law = gennorm(0.0, 1.0, power)
    start = law.isf(0.5e-4)
    tail = x[x > start].double()
    assert stats.binomtest(len(tail), rows, 1e-4).pvalue > 0.5e-6
    assert_law(tail, lambda x: 1.0 - law.sf(x) / law.sf(start), false_alarm=0.5e-6)
