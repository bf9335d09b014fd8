"""What all families on a box promise, checked for each of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from identica.distributions.truncated_generalized_normal import TruncatedGeneralizedNormal
from identica.distributions.truncated_laplace import TruncatedLaplace
from identica.distributions.truncated_normal import TruncatedNormal
from tests.distributions.power_truth import average, log_normaliser, no_waiting, seeded
from tests.stat_checks import assert_law, assert_mean

DTYPES = [torch.float32, torch.float64]
# Name: how to make it from (loc, scale, low, high), the power, the width of a scale of 1.
FAMILIES = {
    "laplace": (TruncatedLaplace, {}, 1.0, 1.0),
    "normal": (TruncatedNormal, {}, 2.0, math.sqrt(2.0)),
    "power 0.5": (TruncatedGeneralizedNormal, {"power": 0.5}, 0.5, 1.0),
    "power 3": (TruncatedGeneralizedNormal, {"power": 3.0}, 3.0, 1.0),
    "power 10": (TruncatedGeneralizedNormal, {"power": 10.0}, 10.0, 1.0),
}
every_family = pytest.mark.parametrize("name", FAMILIES)
LOCS = torch.tensor([0.0, 1e-4, 0.3, 0.5, 1.0], dtype=torch.float64)


def make(name, loc, scale, **others):
    family, settings_, _, _ = FAMILIES[name]
    return family(loc, scale, **settings_, **others)


@every_family
@pytest.mark.parametrize("scale", [1e-3, 0.05, 1.0, 1e3])
def test_log_prob_is_normalised_and_minus_infinity_outside(name, scale):
    _, _, power, width = FAMILIES[name]
    x = torch.tensor([0.02, 0.0, 0.31, 0.52, 0.97], dtype=torch.float64)
    want = -sum(
        (abs(x_i - loc) / (scale * width)) ** power + log_normaliser(loc, scale * width, power)
        for x_i, loc in zip(x.tolist(), LOCS.tolist(), strict=True)
    )
    got = make(name, LOCS, scale).log_prob(x)
    assert got.item() == pytest.approx(want, rel=1e-12, abs=1e-9)
    single = make(name, LOCS.float(), scale).log_prob(x.float())
    assert single.item() == pytest.approx(want, rel=1e-4, abs=1e-4)
    outside = x.repeat(2, 1)
    outside[0, 2], outside[1, 4] = -1e-9, 1.0 + 1e-9
    assert make(name, LOCS, scale).log_prob(outside).tolist() == [-math.inf, -math.inf]


@every_family
@pytest.mark.parametrize("scale", [0.01, 0.2, 1e3])
def test_mean_variance_and_entropy_against_quadrature(name, scale):
    _, _, power, width = FAMILIES[name]
    mean, variance, entropy = [], [], 0.0
    for loc in LOCS.tolist():
        law = (loc, scale * width, power)
        mean.append(average(lambda x: x, *law))
        variance.append(average(lambda x, m=mean[-1]: (x - m) ** 2, *law))
        distance = average(lambda x, loc=loc: (abs(x - loc) / (scale * width)) ** power, *law)
        entropy += distance + log_normaliser(*law)
    for dtype, tolerance in ((torch.float64, 1e-8), (torch.float32, 2e-5)):
        law = make(name, LOCS.to(dtype), scale)
        np.testing.assert_allclose(law.mean.numpy(), mean, rtol=tolerance)
        np.testing.assert_allclose(law.variance.numpy(), variance, rtol=10 * tolerance)
        np.testing.assert_allclose(law.entropy().numpy(), entropy, rtol=tolerance, atol=tolerance)


@every_family
@pytest.mark.statistical(false_alarm=1e-6, what="mean of the draws against the truncated families' mean")
def test_draws_have_the_stated_mean(name):
    law = make(name, LOCS, 0.1)
    assert_mean(law.sample(20_000, seeded(1)), law.mean)


@every_family
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.statistical(false_alarm=1e-6, what="truncated families of scale 1e6 against the uniform law")
def test_a_scale_far_wider_than_the_box_is_uniform(name, dtype):
    draws = make(name, LOCS.to(dtype), 1e6, low=0.0, high=1.0).sample(20_000, seeded(2))
    for column in draws.T:
        # Power 0.5 still bends by (1e-6)^0.5 = 1e-3, far below what 20,000 draws show.
        assert_law(column, lambda x: np.clip(x, 0, 1), false_alarm=1e-6 / 5)


@every_family
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_their_own_and_broadcasting(name, dtype):
    loc = torch.rand(7, 3, generator=seeded(0), dtype=dtype)
    law = make(name, loc, torch.tensor([0.1, 0.2, 0.3], dtype=dtype))
    assert law.batch_shape == (7,) and law.event_shape == (3,)
    assert law.sample((2, 5)).shape == (2, 5, 7, 3) and law.sample().dtype == dtype
    assert law.log_prob(loc[0]).shape == (7,) and law.cdf(loc[:1]).shape == (7, 3)
    for value in (law.mean, law.variance, law.mode):
        assert value.shape == (7, 3)
    row = make(name, loc[4], torch.tensor([0.1, 0.2, 0.3], dtype=dtype))
    torch.testing.assert_close(law.log_prob(loc[:1])[4], row.log_prob(loc[0]))
    per_row = make(name, loc[0], torch.tensor([[0.1], [0.2]], dtype=dtype))
    assert per_row.batch_shape == (2,) and per_row.entropy().shape == (2,)
    assert law.expand((4, 7)).sample().shape == (4, 7, 3)
    assert law.to(dtype=torch.float64).sample().dtype == torch.float64


@every_family
def test_draws_far_in_the_tail_stay_near_the_mode(name):
    """A uniform number of exactly 0 is the last quantile that float32 resolves, not the edge of the box."""
    scale = 1e-4
    _, _, power, width = FAMILIES[name]
    law = make(name, torch.full((3,), 0.5), scale)
    farthest = (law._quantile(torch.zeros(3)) - 0.5).abs().max().item() / (scale * width)
    assert 12.0 ** (1 / power) < farthest < 24.0 ** (1 / power)
    assert law.icdf(torch.tensor([0.0, 0.5, 1.0])).tolist() == [0.0, 0.5, 1.0]


@every_family
@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(data=st.data())
def test_never_leaves_the_box_never_nan(name, dtype, data):
    low = data.draw(st.floats(-10, 10, width=32))
    high = low + data.draw(st.floats(0.125, 100, width=32))
    shares = data.draw(
        st.lists(st.sampled_from([0.0, 1e-7, 0.5, 1 - 1e-7, 1.0]) | st.floats(0, 1), min_size=1, max_size=4)
    )
    low, high = torch.tensor([low, high], dtype=dtype)
    loc = torch.lerp(low, high, torch.tensor(shares, dtype=dtype)).clamp(low, high)
    scale = (high - low) * 10.0 ** data.draw(st.floats(-3, 6))
    law = make(name, loc, scale, low=low, high=high)
    draws = law.sample(200, seeded(data.draw(st.integers(0, 99))))
    least = torch.finfo(dtype).eps / 2
    ends = law._quantile(torch.tensor([0.0, least, 2 * least, 1 - 2 * least, 1 - least], dtype=dtype)[:, None])
    for x in (draws, ends):
        assert ((x >= low) & (x <= high)).all()
    assert law.log_prob(draws).isfinite().all() and law.entropy().isfinite()
    share = law.cdf(draws)
    assert ((share >= 0) & (share <= 1)).all()
    back = law.icdf(share)
    # A rounding of the share moves x by that much divided by the density.
    slack = torch.finfo(dtype).eps * 8 / torch.autograd.functional.jacobian(lambda x: law.cdf(x).sum(), draws)
    assert ((back - draws).abs() <= slack + 8 * torch.finfo(dtype).eps * (low.abs() + high.abs())).all()


@every_family
def test_cdf_ends_and_grows(name):
    law = make(name, torch.tensor([0.3], dtype=torch.float64), 0.1, low=0.2, high=2.0)
    x = torch.linspace(0.0, 2.5, 200, dtype=torch.float64)[:, None]
    share = law.cdf(x)[:, 0]
    assert (share.diff() >= 0).all() and share[0] == 0 and share[-1] == 1
    assert law.cdf(torch.tensor([[0.2], [2.0]], dtype=torch.float64)).flatten().tolist() == [0.0, 1.0]


@every_family
def test_gradients_of_draws_and_densities(name):
    loc = torch.tensor([0.01, 0.3, 0.99], dtype=torch.float64, requires_grad=True)
    scale = torch.tensor([0.2], dtype=torch.float64, requires_grad=True)
    high = torch.tensor(1.1, dtype=torch.float64, requires_grad=True)
    x = torch.tensor([0.2, 0.5, 0.7], dtype=torch.float64, requires_grad=True)

    def law(loc, scale, high):
        return make(name, loc, scale, high=high, validate_args=False)

    draw = lambda *parameters: law(*parameters).rsample(6, seeded(3))  # noqa: E731
    assert torch.autograd.gradcheck(draw, (loc, scale, high))
    assert torch.autograd.gradcheck(lambda x, *p: law(*p).log_prob(x), (x, loc, scale, high))
    assert torch.autograd.gradcheck(lambda *p: (law(*p).mean, law(*p).variance, law(*p).entropy()), (loc, scale, high))
    assert not law(loc, scale, high).sample(6).requires_grad


@every_family
def test_draws_move_by_minus_the_slope_of_the_cdf_over_the_density(name):
    loc = torch.tensor([0.4], dtype=torch.float64, requires_grad=True)
    x = make(name, loc, 0.2).rsample(generator=seeded(4))
    (moved,) = torch.autograd.grad(x.sum(), loc)
    x = x.detach()
    step = 1e-6
    slope = (make(name, loc.detach() + step, 0.2).cdf(x) - make(name, loc.detach() - step, 0.2).cdf(x)) / (2 * step)
    torch.testing.assert_close(moved, -slope / make(name, loc.detach(), 0.2).log_prob(x).exp(), rtol=1e-6, atol=1e-8)


@every_family
def test_equal_generators_give_equal_draws(name):
    law = make(name, torch.rand(5, 4, generator=seeded(0)), 0.1)
    assert torch.equal(law.sample(3, seeded(7)), law.sample(3, seeded(7)))
    assert not torch.equal(law.sample(3, seeded(7)), law.sample(3, seeded(8)))
    assert torch.equal(law.sample(3, seeded(7)), law.rsample(3, seeded(7)))


@every_family
@pytest.mark.parametrize("dtype", DTYPES)
def test_training_path_never_waits_for_the_device(name, dtype):
    loc = torch.rand(5, 4, generator=seeded(0), dtype=dtype)
    family, settings_, _, _ = FAMILIES[name]
    tables = family.prepare_tables(loc.device, dtype, scale=0.1, **settings_)
    with no_waiting():
        law = family(loc, 0.1, **settings_, validate_args=False, tables=tables)
        assert law.log_prob(law.sample(generator=seeded(0))).shape == (5,)
    with pytest.raises(AssertionError, match="waits"), no_waiting():
        family(loc, 0.1, **settings_, validate_args=True)


@every_family
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"scale": -0.1}, "scale of .* must be positive"),
        ({"scale": 0.0}, "scale of .* must be positive"),
        ({"scale": torch.tensor([0.1, torch.nan])}, "scale of .* must be positive"),
        ({"scale": torch.ones(3)}, "does not broadcast"),
        ({"loc": torch.tensor(0.5)}, "loc must have shape"),
        ({"loc": torch.tensor([0.5, torch.nan])}, "loc of .* must be finite"),
        ({"loc": torch.tensor([0.5, 1.001])}, "closed box"),
        ({"loc": torch.tensor([-0.001, 0.5])}, "closed box"),
        ({"loc": torch.tensor([0.5]), "scale": torch.ones(3)}, "vectors of length"),
        ({"low": 0.8}, "closed box"),
        ({"low": 1.0}, "low < high"),
        ({"high": torch.inf}, "finite edges"),
        ({"scale": torch.ones(3, 2), "low": torch.zeros(4, 2)}, "do not broadcast"),
        ({"loc": torch.tensor([0.5, 0.5], dtype=torch.float16)}, "float32 and float64"),
    ],
)
def test_wrong_parameters_get_a_sentence(name, change, sentence):
    arguments = {"loc": torch.tensor([0.5, 0.5]), "scale": 0.1} | change
    with pytest.raises(ValueError, match=sentence):
        make(name, **arguments)


@every_family
def test_wrong_values_get_a_sentence(name):
    law = make(name, torch.rand(5, 4, generator=seeded(0)), 0.1)
    with pytest.raises(ValueError, match="vectors of length 4"):
        law.log_prob(torch.zeros(5))
    with pytest.raises(ValueError, match="does not broadcast"):
        law.cdf(torch.zeros(3, 4))
    with pytest.raises(ValueError, match="between 0 and 1"):
        law.icdf(torch.full((5, 4), 1.5))


@every_family
def test_nan_does_not_crash_an_unchecked_training_step(name):
    draws = make(name, torch.tensor([0.5, torch.nan]), 0.1, validate_args=False).sample(3, seeded(0))
    assert draws[:, 0].isfinite().all() and draws[:, 1].isnan().all()


@pytest.mark.gpu
@every_family
@pytest.mark.parametrize("dtype", DTYPES)
def test_draws_are_captured_in_a_graph(name, dtype):
    loc = torch.rand(64, 4, device="cuda", dtype=dtype)
    generator = torch.Generator("cuda").manual_seed(0)
    family, settings_, _, _ = FAMILIES[name]
    tables = family.prepare_tables(loc.device, dtype, **settings_)

    def step():
        return family(loc, 0.1, **settings_, validate_args=False, tables=tables).sample(generator=generator)

    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        draws = step()
    graph.replay()
    first = draws.clone()
    graph.replay()
    assert not torch.equal(first, draws) and ((draws >= 0) & (draws <= 1)).all()
