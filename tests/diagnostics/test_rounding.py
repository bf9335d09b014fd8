"""Codes that fill the sphere evenly: the map that makes them do so is found exactly, and axes after it are right."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import identica as idt
from identica.diagnostics import best_axes, best_precision, best_rounding, turn_to_axes
from identica.metrics import mcc
from identica.processes import PairPool
from identica.training import TrainingRun
from tests.stat_checks import FALSE_ALARM

TRUTH = (4.0, 6.0, 8.0)


def gaussian(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rotation(dim: int, seed: int) -> Tensor:
    return torch.linalg.qr(gaussian(dim, dim, seed=seed))[0]


def unit(codes: Tensor) -> Tensor:
    return codes / codes.norm(dim=-1, keepdim=True)


def frame(dim: int) -> Tensor:
    """Points on the sphere with E[z zᵀ] = I/d to the last digit: several bases."""
    return torch.cat([rotation(dim, seed) for seed in range(6)])


@pytest.mark.parametrize("dim", [2, 3, 10])
def test_a_linear_map_is_undone_up_to_a_rotation(dim: int) -> None:
    stretch = torch.eye(dim).double() + 0.2 * gaussian(dim, dim, seed=7)
    rounding = best_rounding(unit(frame(dim) @ stretch.T))
    torch.testing.assert_close(rounding, rounding.T)
    assert torch.linalg.eigvalsh(rounding)[0] > 0
    left = rounding @ stretch
    left = left / left.det().abs() ** (1 / dim)  # how large the map was no direction tells
    torch.testing.assert_close(left @ left.T, torch.eye(dim).double(), atol=1e-7, rtol=0)


def test_round_codes_stay_and_their_length_plays_no_part() -> None:
    torch.testing.assert_close(best_rounding(frame(3)), torch.eye(3).double(), atol=1e-8, rtol=0)
    stretched = unit(frame(3) * torch.tensor([1.0, 1.1, 0.9]))
    lengths = 1.0 + torch.arange(len(stretched)).double()[:, None]
    torch.testing.assert_close(best_rounding(stretched * lengths), best_rounding(stretched))
    assert best_rounding(stretched.float()).dtype == torch.float64


def test_what_cannot_be_made_round() -> None:
    with pytest.raises(ValueError, match=r"more than d ≥ 2 observations, not \(3, 3\)"):
        best_rounding(torch.eye(3))
    with pytest.raises(ValueError, match="no direction"):
        best_rounding(torch.zeros(5, 2))
    with pytest.raises(ValueError, match="no direction"):
        best_rounding(frame(3) * torch.tensor([1.0, 1.0, math.nan]))
    lost = frame(3) * torch.tensor([1.0, 1.0, 0.0])
    with pytest.raises(ValueError, match="one may be lost"):
        best_rounding(lost)
    with pytest.raises(ValueError, match="one may be lost"):  # half of all codes in one direction
        best_rounding(torch.cat([frame(2), torch.tensor([[1.0, 0.0]]).double().expand(20, 2)]))


# Axes of codes that are stretched


def pairs() -> idt.PairProcess:
    conditional = idt.Conditional(idt.FisherBingham, precision=TRUTH)
    return idt.PairProcess(idt.SphereUniform(3), conditional).to(dtype=torch.float64)


def loss() -> idt.InfoNCE:
    return idt.InfoNCE(idt.Anisotropic(3, 6.0))


@pytest.mark.statistical(false_alarm=FALSE_ALARM, what="Λ̂ along the best axes of stretched latents made round")
def test_stretched_latents_have_the_true_precision_once_they_are_round() -> None:
    stretch, process, n, batches = rotation(3, 1) * torch.tensor([1.15, 1.0, 0.85]), pairs(), 256, 40

    def encode(x: Tensor) -> Tensor:
        return unit(x @ stretch.T)

    found = best_axes(process, encode, loss(), n=n, batches=batches, rounded=True)
    known = best_precision(process, loss(), n=n, batches=batches)
    # Of Tyler's estimate of log S_kk: asymptotic variance 2 (1 + 2/d)(1 − 1/d) / N.
    of_rounding = math.sqrt(2 * (1 + 2 / 3) * (1 - 1 / 3) / (n * batches))
    limit = stats.t.isf(FALSE_ALARM / 6, batches - 1)
    for value, true, error in zip(sorted(found.precision), TRUTH, known.standard_error, strict=True):
        assert abs(value - true) < limit * math.hypot(error, true * of_rounding)
    z = process.sample(2000, 3).z
    assert mcc(z, found.turn(encode(z)), null=0).score > 0.99
    torch.testing.assert_close(found.turn(encode(z)).norm(dim=1), torch.ones(2000).double())
    # As they are, the stretch passes for precision.
    as_they_are = best_axes(process, encode, loss(), n=n, batches=batches)
    assert as_they_are.rounding is None
    error = math.hypot(known.standard_error[0], TRUTH[0] * of_rounding)
    assert abs(min(as_they_are.precision) - TRUTH[0]) > limit * error


@pytest.fixture(scope="module")
def run() -> tuple[TrainingRun, idt.PairProcess]:
    """Codes that are the latents, turned and stretched."""
    process = pairs().to(dtype=torch.float32)
    encoder = idt.ResidualEncoder(3, idt.Sphere(3), width=8, blocks=1, whiten=False)
    config = idt.TrainConfig(steps=1, batch_size=256, eval_samples=256, eval_every=1)
    found = idt.train(process, encoder, loss(), config, seed=0)
    with torch.no_grad():
        for weights in encoder.parameters():
            weights.zero_()
        encoder.skip.weight.copy_(rotation(3, 5) * torch.tensor([1.15, 1.0, 0.85]))
    return replace(found, encoder=encoder), process


def test_a_run_is_made_round_and_turned(run: tuple[TrainingRun, idt.PairProcess]) -> None:
    old, process = run
    axes = best_axes(process, old, loss(), n=512, batches=16, rounded=True)
    new = turn_to_axes(old, process, n=512, batches=16, rounded=True)
    z = process.sample(2000, 7).z
    assert mcc(z, new(z), null=0).score > 0.99 > mcc(z, old(z), null=0).score
    objective = new.objective
    assert isinstance(objective, idt.InfoNCE) and isinstance(objective.similarity, idt.Anisotropic)
    assert objective.similarity.precision.tolist() == pytest.approx(axes.precision, rel=1e-3)
    torch.testing.assert_close(new(z), axes.turn(old(z)), atol=1e-3, rtol=0)
    assert torch.equal(axes.turn(torch.zeros(1, axes.rotation.shape[0])), torch.zeros(1, axes.rotation.shape[0]))


def test_codes_on_a_cap_get_a_warning() -> None:
    def on_a_cap(x: Tensor) -> Tensor:
        return unit(0.5 * x + torch.tensor([0.0, 0.0, 1.0]))

    with pytest.warns(UserWarning, match="stretched .* times as much .* folding") as warned:
        best_axes(pairs(), on_a_cap, loss(), n=128, batches=8, rounded=True)
    assert {str(warning.filename) for warning in warned} == {__file__}, "it names the line that asked for axes"


def test_errors_are_sentences(run: tuple[TrainingRun, idt.PairProcess]) -> None:
    old, process = run
    north = idt.VonMisesFisher(torch.tensor([1.0, 0.0, 0.0]), 2.0)
    uneven = idt.PairProcess(north, process.conditional)
    with pytest.raises(ValueError, match="SphereUniform marginal, not VonMisesFisher"):
        best_axes(uneven, old, loss(), n=8, rounded=True)
    pool = PairPool(process, 64, refresh=8)
    with pytest.raises(ValueError, match="not PairPool. .* pass its process"):
        best_axes(pool, old, loss(), n=8, rounded=True)
    with pytest.raises(ValueError, match="all equally long"):
        best_axes(process, lambda x: x * (1 + x[:, :1].abs()), loss(), n=64, rounded=True)
    unbounded = idt.MLPEncoder(3, idt.Euclidean(3), hidden=(4,))
    with pytest.raises(ValueError, match="nothing brings them back"):  # before anything is drawn
        turn_to_axes(replace(old, encoder=unbounded), process, n=10**9, rounded=True)

    class Turnable(nn.Linear):
        def turn(self, rotation: Tensor) -> None:
            """Nothing else."""

    with pytest.raises(TypeError, match=r"Turnable has no stretch\(matrix\)"):
        turn_to_axes(replace(old, encoder=Turnable(3, 3)), process, rounded=True)
