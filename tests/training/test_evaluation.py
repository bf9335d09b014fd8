"""Scores and baselines of an encoder, and its distance from the least possible loss."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import identica as idt
from identica.metrics import linear_r2, mcc
from identica.training import TrainConfig, evaluate, excess_loss, identity_scores

LAPLACE = idt.Conditional(idt.TruncatedLaplace, scale=0.1)


def unmixed() -> idt.PairProcess:
    return idt.PairProcess(idt.BoxUniform(2), LAPLACE)


def test_evaluate_scores_the_codes_of_fresh_latents() -> None:
    process = unmixed()
    result = evaluate(process, lambda x: 3 - 2 * x.flip(1), 512, generator=5)
    assert torch.equal(result.z, process.sample(512, 5).z), "the latents are those of the generator"
    assert torch.equal(result.h, 3 - 2 * result.z.flip(1))
    assert result.scores == {"r2": result.r2.score, "mcc": result.mcc.score}
    assert result.scores == pytest.approx({"r2": 1.0, "mcc": 1.0})
    assert result.mcc.assignment == (1, 0) and result.r2.n == 512


@pytest.mark.statistical(false_alarm=1e-6, what="held-out R² of an independent factor on one code, below 0.1")
def test_evaluate_notices_what_the_codes_lost() -> None:
    lost = evaluate(unmixed(), lambda x: x[:, :1], 512)
    assert lost.r2.per_dimension[0] == pytest.approx(1.0) and lost.r2.per_dimension[1] < 0.1
    assert lost.mcc.per_dimension == pytest.approx((1.0, 0.0))


@pytest.mark.parametrize("training", [True, False])
def test_evaluate_uses_evaluation_mode_without_gradients_and_restores_the_mode(training: bool) -> None:
    class Watched(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            assert not self.training and not torch.is_grad_enabled()
            return x

    encoder = Watched().train(training)
    evaluate(unmixed(), encoder, 64)
    assert encoder.training is training


def test_evaluate_moves_a_process_to_the_device_that_is_asked_for() -> None:
    """From a CPU to a GPU, that is, where it might be slow; here from a device on which nothing can be drawn."""

    class Elsewhere:
        device = torch.device("meta")

        def sample(self, n: int, generator: torch.Generator) -> idt.Pairs:
            raise AssertionError("was not moved")

        def to(self, device: torch.device | str) -> idt.PairProcess:
            return unmixed().to(device)

    moved = evaluate(Elsewhere(), lambda x: x, 64, generator=5, device="cpu")
    assert torch.equal(moved.z, evaluate(unmixed(), lambda x: x, 64, generator=5).z)


def test_evaluate_takes_the_first_kind_of_an_ensemble() -> None:
    ensemble = idt.EnsembleProcess(unmixed(), unmixed())
    assert torch.equal(evaluate(ensemble, lambda x: x, 64).z, ensemble.sample(64, 0)[0].z)


def test_identity_scores_are_those_of_the_observations() -> None:
    assert identity_scores(unmixed(), 256).scores == pytest.approx({"r2": 1.0, "mcc": 1.0})
    mixed = idt.PairProcess(idt.BoxUniform(2), LAPLACE, mixing=lambda z: (z.sum(dim=1, keepdim=True) ** 2).repeat(1, 2))
    found = identity_scores(mixed, 256, seed=3)
    assert torch.equal(found.h, found.z.sum(dim=1, keepdim=True).square().repeat(1, 2))
    assert found.scores == {"r2": linear_r2(found.z, found.h).score, "mcc": mcc(found.z, found.h).score}
    assert torch.equal(found.z, identity_scores(mixed, 256, seed=3).z)
    assert not torch.equal(found.z, identity_scores(mixed, 256, seed=4).z)


def test_at_the_truth_nothing_is_in_excess() -> None:
    process = unmixed().to(dtype=torch.float64)
    found = excess_loss(process, lambda x: x, idt.InfoNCE(LAPLACE.similarity()), 128, 4)
    assert abs(found.mean) < 1e-6 and found.standard_error < 1e-6


def test_what_is_added_to_infonce_is_no_excess() -> None:
    process = unmixed().to(dtype=torch.float64)
    similarity = LAPLACE.similarity()
    plain, added = (
        excess_loss(process, lambda x: x + 0.1 * x.flip(1), idt.InfoNCE(similarity, **settings), 64, 3)
        for settings in ({}, {"centring": 3.0, "decorrelation": 2.0})
    )
    assert added == plain and plain.mean > 0
    objective = idt.InfoNCE(similarity, centring=3.0)
    excess_loss(process, lambda x: x, objective, 64, 2)
    assert objective.centring == 3.0, "the objective is left as it was"


def test_the_excess_of_an_ensemble_is_the_sum_of_its_members() -> None:
    wide = idt.Conditional(idt.TruncatedLaplace, scale=0.3)
    ensemble = idt.EnsembleProcess(unmixed(), idt.PairProcess(idt.BoxUniform(2), wide)).to(dtype=torch.float64)
    loss = idt.EnsembleInfoNCE([LAPLACE.similarity(), wide.similarity()], decorrelation=2.0)
    found = excess_loss(ensemble, lambda x: x, loss, 64, 3)
    assert abs(found.mean) < 1e-6 and found.standard_error < 1e-6
    assert excess_loss(ensemble, lambda x: x.flip(1) ** 2, loss, 64, 3).mean > 0.01
    with pytest.raises(ValueError, match="An EnsembleProcess goes with an EnsembleInfoNCE"):
        excess_loss(ensemble, lambda x: x, idt.InfoNCE(LAPLACE.similarity()), 64, 3)


def test_codes_that_are_not_numbers_have_no_excess() -> None:
    with pytest.raises(ValueError, match="The loss of these codes is NaN or infinite"):
        excess_loss(unmixed(), lambda x: x * torch.nan, idt.InfoNCE(LAPLACE.similarity()), 64, 3)


@pytest.mark.statistical(
    false_alarm=4e-5, what="a trained encoder's loss less that of the truth against 0: above −5 standard errors, t₁₉"
)
def test_a_trained_encoder_comes_close_to_the_floor_and_stays_above_it() -> None:
    process = idt.PairProcess(idt.BoxUniform(2), LAPLACE, mixing=idt.InvertibleMLP(2, seed=1, candidates=200))
    objective = idt.InfoNCE(LAPLACE.similarity())
    encoder = idt.ResidualEncoder(2, idt.Box(2), width=24, blocks=2)
    start = excess_loss(process, encoder, objective, 256, 20)
    config = TrainConfig(steps=1000, batch_size=256, lr=8e-3, schedule="cosine", eval_every=1000, eval_samples=512)
    run = idt.train(process, encoder, objective, config, quiet=True)
    found = excess_loss(process, run, objective, 256, 20)
    assert -5 * found.standard_error < found.mean < 0.02
    assert start.mean > 10 * abs(found.mean) and run.scores["mcc"] > 0.99
