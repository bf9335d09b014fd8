"""The pool: exact pairs, the oldest replaced, none twice in a batch, and scores that leave it alone."""

from __future__ import annotations

import pytest
import torch

from identica.distributions import BoxUniform, Conditional, TruncatedNormal
from identica.encoders import ResidualEncoder, ResNetEncoder
from identica.mixing import RenderedMixing
from identica.objectives import InfoNCE
from identica.processes import EvaluatedOn, PairPool, PairProcess, Pairs
from identica.spaces import Box
from identica.training import TrainConfig, train
from tests.processes.painting import Painting
from tests.stat_checks import FALSE_ALARM, assert_same_law

CONDITIONAL = Conditional(TruncatedNormal, scale=0.1, low=-1.0, high=1.0)


def counting(log: list[int]) -> PairProcess:
    """Pairs whose first latent counts the pairs drawn so far."""

    class Counting(PairProcess):
        def sample(self, n: int, generator: object) -> Pairs:
            z = torch.arange(sum(log), sum(log) + n, dtype=torch.float32)[:, None].expand(-1, 10)
            log.append(n)
            return Pairs(z, z + 0.5, z, z + 0.5)

    return Counting(BoxUniform(10, low=-1.0), CONDITIONAL)


def test_the_oldest_are_replaced_in_a_ring() -> None:
    log: list[int] = []
    pool = PairPool(counting(log), size=10, refresh=4, chunk=3)
    source = torch.Generator().manual_seed(0)

    def kept() -> list[int]:
        pairs = pool.sample(10, source)
        assert torch.equal(pairs.z_pos, pairs.z + 0.5) and torch.equal(pairs.x_pos, pairs.x + 0.5)
        return sorted(pairs.z[:, 0].int().tolist())

    assert kept() == list(range(10)) and log == [3, 3, 3, 1]
    assert kept() == list(range(4, 14))
    assert kept() == list(range(8, 18))
    assert kept() == list(range(12, 22))  # round the ring
    assert log[4:] == [4, 4, 4]


def test_a_pool_whose_filling_was_interrupted_is_empty() -> None:
    """What was not drawn must never be handed out."""
    log: list[int] = []
    process = counting(log)
    drawn = process.sample

    def sample(n: int, generator: object) -> Pairs:
        if len(log) == 2:
            log.append(0)
            raise KeyboardInterrupt
        return drawn(n, generator)  # type: ignore[arg-type]

    process.sample = sample  # type: ignore[method-assign, assignment]
    pool = PairPool(process, size=10, refresh=4, chunk=3)
    source = torch.Generator().manual_seed(0)
    with pytest.raises(KeyboardInterrupt):
        pool.sample(10, source)
    assert sorted(pool.sample(10, source).z[:, 0].int().tolist()) == list(range(6, 16))


def test_an_encoder_that_wants_to_see_more_than_a_pool_has_sees_all_of_it() -> None:
    process = PairProcess(BoxUniform(10, low=-1.0), CONDITIONAL, RenderedMixing(Painting(8)))
    encoder = ResNetEncoder(Box(10, low=-1.0), stem="small")
    assert encoder.prepare_samples > 16
    for pool in (PairPool(process, 16, 4), EvaluatedOn(PairPool(process, 16, 4), process)):
        config = TrainConfig(steps=1, batch_size=8, eval_samples=64)
        run = train(pool, encoder, InfoNCE(CONDITIONAL.similarity()), config, quiet=True)
        assert bool(run.encoder.fitted)  # type: ignore[arg-type]


def test_no_pair_is_twice_in_a_batch_and_all_are_used() -> None:
    pool = PairPool(counting([]), size=50, refresh=0)
    source = torch.Generator().manual_seed(0)
    seen: set[int] = set()
    for _ in range(30):
        batch = pool.sample(20, source).z[:, 0].int().tolist()
        assert len(set(batch)) == 20
        seen |= set(batch)
    assert seen == set(range(50))


@pytest.mark.statistical(false_alarm=FALSE_ALARM, what="pairs of a pool against fresh pairs")
def test_pooled_pairs_have_the_law_of_fresh_ones() -> None:
    process = PairProcess(BoxUniform(3, low=-1.0), CONDITIONAL)
    pool = PairPool(process, size=4000, refresh=2000)
    source = torch.Generator().manual_seed(1)
    pool.sample(1, source)
    pooled, fresh = pool.sample(4000, source), process.sample(4000, generator=2)
    assert_same_law(
        torch.cat([pooled.z, pooled.z_pos - pooled.z], dim=1), torch.cat([fresh.z, fresh.z_pos - fresh.z], dim=1)
    )


def test_rendered_pairs_stay_bytes() -> None:
    scene = Painting()
    process = PairProcess(BoxUniform(10, low=-1.0), CONDITIONAL, RenderedMixing(scene))
    pool = PairPool(process, size=16, refresh=4)
    source = torch.Generator().manual_seed(0)
    pool.sample(8, source)
    scene.drawn = 0
    pairs = pool.sample(8, source)
    assert scene.drawn == 8  # four pairs, two views each
    assert pairs.x.dtype == torch.uint8 and torch.equal(pairs.x, scene.render(pairs.z))


def test_looking_at_the_scores_does_not_change_the_training() -> None:
    process = PairProcess(BoxUniform(3), Conditional(TruncatedNormal, scale=0.1))

    def weights(eval_every: int) -> torch.Tensor:
        encoder = ResidualEncoder(3, Box(3), width=8, whiten=False)
        config = TrainConfig(steps=6, batch_size=16, eval_every=eval_every, eval_samples=64)
        objective = InfoNCE(Conditional(TruncatedNormal, scale=0.1).similarity())
        train(PairPool(process, size=10_000, refresh=8), encoder, objective, config, quiet=True)
        return torch.cat([p.detach().flatten() for p in encoder.parameters()])

    assert torch.equal(weights(1), weights(6))


def test_wrong_sizes_get_a_sentence() -> None:
    process = PairProcess(BoxUniform(3), Conditional(TruncatedNormal, scale=0.1))
    with pytest.raises(ValueError, match="cannot renew 20 at every draw"):
        PairPool(process, size=10, refresh=20)
    with pytest.raises(ValueError, match="has no 11 different ones"):
        PairPool(process, size=10, refresh=2).sample(11, 0)
    assert PairPool(process, size=10, refresh=2).to("cpu", torch.float64).sample(3, 0).z.dtype == torch.float64
