from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from identica.distributions.box_uniform import BoxUniform
from tests.distributions.power_truth import no_waiting, seeded
from tests.stat_checks import assert_law, assert_mean

DTYPES = [torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.statistical(false_alarm=1e-6, what="uniform draws on a box against scipy's uniform law")
def test_draws_follow_the_law(dtype):
    low, high = torch.tensor([-1.0, 0.0, 5.0], dtype=dtype), torch.tensor([1.0, 1e-3, 5.5], dtype=dtype)
    draws = BoxUniform(3, low, high).sample(30_000, seeded(1))
    assert draws.dtype == dtype and ((draws >= low) & (draws <= high)).all()
    for column, a, b in zip(draws.T, low.tolist(), high.tolist(), strict=True):
        assert_law(column, stats.uniform(a, b - a).cdf, false_alarm=1e-6 / 3)


@pytest.mark.statistical(false_alarm=1e-6, what="moments of uniform draws on a box")
def test_moments():
    law = BoxUniform(2, torch.tensor([-2.0, 0.0], dtype=torch.float64), 1.0)
    draws = law.sample(20_000, seeded(2))
    assert_mean(draws, law.mean, false_alarm=1e-6 / 2)
    assert_mean((draws - law.mean) ** 2, law.variance, false_alarm=1e-6 / 2)


def test_distribution_function_and_quantiles():
    law = BoxUniform(2, low=torch.tensor([-1.0, 0.0]), high=torch.tensor([[1.0, 0.5], [3.0, 2.0]]))
    q = torch.tensor([[0.25, 0.5]])
    x = law.icdf(q)
    torch.testing.assert_close(x, torch.tensor([[-0.5, 0.25], [0.0, 1.0]]))
    torch.testing.assert_close(law.cdf(x), q.expand(2, 2))
    outside = torch.tensor([-9.0, 9.0])
    assert torch.equal(law.cdf(outside), torch.tensor([[0.0, 1.0], [0.0, 1.0]]))
    assert torch.equal(law.icdf(torch.tensor([0.0, 1.0])), torch.tensor([[-1.0, 0.5], [-1.0, 2.0]]))
    with pytest.raises(ValueError, match="probabilities between 0 and 1"):
        law.icdf(torch.tensor([0.5, 1.5]))


def test_density_is_one_over_the_volume_inside_and_zero_outside():
    law = BoxUniform(2, low=-1.0, high=torch.tensor([1.0, 3.0]))
    x = torch.tensor([[0.0, 0.0], [-1.0, 3.0], [1.1, 0.0], [0.0, -1.1]])
    want = torch.tensor([-math.log(8.0), -math.log(8.0), -math.inf, -math.inf])
    torch.testing.assert_close(law.log_prob(x), want)
    assert law.entropy().item() == pytest.approx(math.log(8.0))


def test_shapes_and_edges_per_row():
    law = BoxUniform(3, low=torch.zeros(4, 1), high=torch.arange(1.0, 5.0)[:, None])
    assert law.batch_shape == (4,) and law.event_shape == (3,)
    draws = law.sample((2, 6), seeded(0))
    assert draws.shape == (2, 6, 4, 3) and (draws <= law.high).all()
    assert law.log_prob(draws).shape == (2, 6, 4)
    torch.testing.assert_close(law.entropy(), 3 * torch.arange(1.0, 5.0).log())
    assert law.mean.shape == law.variance.shape == (4, 3)


def test_equal_generators_give_equal_draws():
    law = BoxUniform(3)
    assert torch.equal(law.sample(5, seeded(3)), law.sample(5, seeded(3)))
    assert not torch.equal(law.sample(5, seeded(3)), law.sample(5, seeded(4)))


def test_draws_move_with_the_edges():
    high = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    low = torch.tensor([0.0], dtype=torch.float64, requires_grad=True)

    def draw(low, high):
        return BoxUniform(2, low, high, validate_args=False).rsample(4, seeded(0))

    assert torch.autograd.gradcheck(draw, (low, high))


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_uneven_box_is_never_left(dtype):
    low, high = torch.tensor([0.1, -1e6, 1e-30], dtype=dtype), torch.tensor([0.3, 1e-3, 3e-30], dtype=dtype)
    draws = BoxUniform(3, low, high).sample(50_000, seeded(5))
    assert ((draws >= low) & (draws <= high)).all()


def test_unchecked_sampling_never_waits_for_the_device():
    with no_waiting():
        law = BoxUniform(3, torch.zeros(3), torch.ones(3), validate_args=False)
        law.log_prob(law.sample(5, seeded(0)))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((2, 1.0, 1.0), "low < high"),
        ((2, 0.0, math.inf), "finite edges"),
        ((2, math.nan, 1.0), "finite edges"),
        ((2, torch.zeros(3), 1.0), "broadcast"),
        ((0,), "dim must be"),
    ],
)
def test_wrong_parameters_get_a_sentence(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        BoxUniform(*arguments)


def test_wrong_values_get_a_sentence():
    with pytest.raises(ValueError, match="vectors of length 3"):
        BoxUniform(3).log_prob(torch.zeros(2))
