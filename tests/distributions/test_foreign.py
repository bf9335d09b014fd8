from __future__ import annotations

import pytest
import torch
from torch.distributions import Gamma, Independent, MultivariateNormal, Normal

from identica.distributions.box_uniform import BoxUniform
from identica.distributions.foreign import sample_with
from tests.stat_checks import assert_law, assert_mean


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


FOREIGN = [
    Independent(Normal(torch.zeros(3), torch.ones(3)), 1),
    MultivariateNormal(torch.zeros(2), torch.eye(2)),
    Gamma(torch.tensor([0.5, 2.0]), 1.0),
]


@pytest.mark.parametrize("distribution", FOREIGN, ids=lambda d: type(d).__name__)
def test_equal_generators_give_equal_draws(distribution):
    first, second, third = (sample_with(distribution, (4, 5), seeded(seed)) for seed in (1, 1, 2))
    assert first.shape == (4, 5, *distribution.batch_shape, *distribution.event_shape)
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


@pytest.mark.parametrize("distribution", FOREIGN, ids=lambda d: type(d).__name__)
def test_global_state_is_neither_read_nor_touched(distribution):
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    first = sample_with(distribution, 7, seeded(1))
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(123)
    assert torch.equal(sample_with(distribution, 7, seeded(1)), first)


def test_global_state_comes_back_after_an_error():
    class Broken(Normal):
        def sample(self, sample_shape=()):
            torch.rand(3)
            raise RuntimeError("broken")

    before = torch.random.get_rng_state()
    with pytest.raises(RuntimeError, match="broken"):
        sample_with(Broken(0.0, 1.0), 3, seeded(0))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_generator_moves_on():
    generator = seeded(3)
    assert not torch.equal(sample_with(FOREIGN[0], 5, generator), sample_with(FOREIGN[0], 5, generator))


def test_without_a_generator_the_global_state_decides():
    torch.manual_seed(5)
    first = sample_with(FOREIGN[0], 5, None)
    torch.manual_seed(5)
    assert torch.equal(first, FOREIGN[0].sample((5,)))


def test_our_own_distributions_take_the_generator():
    box = BoxUniform(3)
    assert torch.equal(sample_with(box, 5, seeded(6)), box.sample(5, generator=seeded(6)))


def test_gradients_on_request():
    loc = torch.zeros(2, requires_grad=True)
    for distribution in (Independent(Normal(loc, 1.0), 1), BoxUniform(2, low=loc, high=2.0)):
        assert not sample_with(distribution, 3, seeded(0)).requires_grad
        assert sample_with(distribution, 3, seeded(0), gradients=True).requires_grad


@pytest.mark.statistical(false_alarm=1e-6, what="many foreign draws of one generator, one at a time, are normal")
def test_draws_in_a_row_are_independent(generator):
    normal = Normal(torch.zeros(1), 1.0)
    draws = torch.cat([sample_with(normal, 1, generator)[0] for _ in range(2_000)])
    assert_law(draws, lambda x: Normal(0.0, 1.0).cdf(torch.as_tensor(x)).numpy(), false_alarm=1e-6 / 2)
    assert_mean((draws[1:] * draws[:-1])[:, None], torch.zeros(1), false_alarm=1e-6 / 2)


@pytest.mark.gpu
def test_draws_live_on_the_generators_device():
    generator = torch.Generator("cuda").manual_seed(0)
    torch.cuda.manual_seed_all(9)
    before = torch.cuda.get_rng_state()
    on_cpu, on_gpu = FOREIGN[1], MultivariateNormal(torch.zeros(2).cuda(), torch.eye(2).cuda())
    for distribution in (on_cpu, on_gpu):
        draws = sample_with(distribution, 3, generator)
        assert draws.device.type == "cuda"
        assert torch.equal(torch.cuda.get_rng_state(), before)
    first, second = (sample_with(on_gpu, 3, torch.Generator("cuda").manual_seed(1)) for _ in range(2))
    assert torch.equal(first, second)
