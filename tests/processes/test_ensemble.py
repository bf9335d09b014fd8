"""Several kinds of pairs that share a mixing."""

from __future__ import annotations

import pytest
import torch

from identica.distributions import SphereUniform
from identica.mixing import InvertibleMLP
from identica.processes import EnsembleProcess, PairProcess
from identica.spaces import Sphere
from tests.processes.parts import make, vmf


class TestEnsemble:
    def test_draws_pairs_of_every_kind(self) -> None:
        mixing = InvertibleMLP(3, seed=0, candidates=10)
        kinds = [PairProcess(SphereUniform(3), vmf(k), mixing) for k in (1.0, 100.0)]
        ensemble = EnsembleProcess(*kinds)
        source = make(2)
        expected = [kind.sample(8, source) for kind in kinds]
        drawn = ensemble.sample(8, make(2))
        assert isinstance(drawn, tuple) and len(drawn) == 2
        for one, other in zip(drawn, expected, strict=True):
            assert torch.equal(one.x_pos, other.x_pos)
        assert torch.equal(ensemble.sample(8, 2)[1].z, drawn[1].z)
        assert ensemble.dim == 3 and ensemble.space == Sphere(3)
        assert [kind["process"] for kind in ensemble.to_dict()["processes"]] == ["pairs", "pairs"]

    def test_moves_its_mixing_once(self) -> None:
        mixing = InvertibleMLP(3, seed=0, candidates=10)
        ensemble = EnsembleProcess(*(PairProcess(SphereUniform(3), vmf(k), mixing) for k in (1.0, 2.0)))
        moved = ensemble.to(dtype=torch.float64)
        assert moved.processes[0].mixing is moved.processes[1].mixing is moved.mixing
        assert moved.sample(4, 0)[0].x.dtype == torch.float64 and mixing.weights.dtype == torch.float32

    def test_one_world_only(self) -> None:
        def process(seed: int, dim: int = 3) -> PairProcess:
            return PairProcess(SphereUniform(dim), vmf(), InvertibleMLP(dim, seed=seed, candidates=5))

        EnsembleProcess(process(0), process(0))  # two copies of one mixing
        with pytest.raises(ValueError, match="must share their mixing"):
            EnsembleProcess(process(0), process(1))
        with pytest.raises(ValueError, match="share their latent space"):
            EnsembleProcess(process(0), process(0, dim=4))
        with pytest.raises(TypeError, match="EnsembleProcess needs PairProcesses"):
            EnsembleProcess()
        with pytest.raises(ValueError, match="at least two processes"):
            EnsembleProcess(process(0))

    def test_the_floor_is_the_sum_of_the_floors(self) -> None:
        kinds = [PairProcess(SphereUniform(3), vmf(k)) for k in (1.0, 100.0)]
        source = make(2)
        expected = [kind.optimal_loss(32, 4, generator=source, self_negatives=True) for kind in kinds]
        found = EnsembleProcess(*kinds).optimal_loss(32, 4, generator=2, self_negatives=True)
        assert found.per_batch == tuple(a + b for a, b in zip(*(one.per_batch for one in expected), strict=True))
        assert found.n == 32 and found.standard_error > 0
        pairs = EnsembleProcess(*kinds).sample(8, 0)
        losses = [kind.loss_at_truth(own) for kind, own in zip(kinds, pairs, strict=True)]
        assert torch.equal(EnsembleProcess(*kinds).loss_at_truth(pairs), losses[0] + losses[1])
