"""The axes of a loss: found from turned latents, kept where they are right, and put into a trained encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import identica as idt
from identica.diagnostics import best_axes, best_precision, precision_standard_errors, turn_to_axes
from identica.metrics import mcc
from identica.training import TrainingRun
from tests.stat_checks import FALSE_ALARM

TRUTH = (4.0, 8.0, 16.0)


def pairs(precision: Sequence[float] = TRUTH, **negatives: object) -> idt.PairProcess:
    conditional = idt.Conditional(idt.FisherBingham, precision=precision)
    process = idt.PairProcess(idt.SphereUniform(len(precision)), conditional, **negatives)  # type: ignore[arg-type]
    return process.to(dtype=torch.float64)


def rotation(dim: int, seed: int) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(dim, dim, generator=source, dtype=torch.float64))[0]


def wide(precision: float | Tensor = 8.0, **settings: object) -> idt.InfoNCE:
    return idt.InfoNCE(idt.Anisotropic(3, precision), **settings)  # type: ignore[arg-type]


@pytest.mark.statistical(false_alarm=FALSE_ALARM, what="Λ̂ along the best axes of turned latents, in standard errors")
@pytest.mark.parametrize("seed", [0, 1])
def test_turned_latents_are_turned_back(seed: int) -> None:
    turn, process = rotation(3, seed), pairs()
    axes = best_axes(process, lambda x: x @ turn.T, wide(), n=256, batches=40, seed=seed)
    found = axes.rotation @ turn  # from latents to turned codes: one factor each
    assert found.abs().max(dim=1).values.min() > 0.99
    order = found.abs().argmax(dim=1)
    assert sorted(order.tolist()) == [0, 1, 2]
    # Λ̂ as certain as if the axes had been known.
    known = best_precision(process, wide(), n=256, batches=40, seed=seed)
    limit = stats.t.isf(FALSE_ALARM / 6, known.batches - 1)
    for value, k in zip(axes.precision, order.tolist(), strict=True):
        assert abs(value - TRUTH[k]) < limit * known.standard_error[k]


def test_no_other_axes_have_a_smaller_loss() -> None:
    turn, process = rotation(3, 2), pairs()
    axes = best_axes(process, lambda x: x @ turn.T, wide(), n=128, batches=4)

    def loss(rotation: Tensor, precision: Tensor) -> float:
        source, values = torch.Generator().manual_seed(0), []
        objective = wide(precision).double()
        for _ in range(4):
            drawn = process.sample(128, source)
            values.append(objective(drawn.x @ turn.T @ rotation.T, drawn.x_pos @ turn.T @ rotation.T).item())
        return sum(values) / 4

    best = loss(axes.rotation, torch.tensor(axes.precision))
    assert loss(torch.eye(3).double(), torch.full((3,), 8.0)) - best == pytest.approx(axes.gain, abs=1e-7)
    true_ones = best_precision(process, wide(), n=128, batches=4)
    assert best <= loss(turn.T, torch.tensor(true_ones.precision)) + 1e-8
    for k in range(20):
        source = torch.Generator().manual_seed(k)
        skew = 0.1 * torch.randn(3, 3, generator=source, dtype=torch.float64)
        other = torch.linalg.matrix_exp(skew - skew.T) @ axes.rotation
        assert loss(other, torch.tensor(axes.precision)) > best


def test_turning_twice_is_turning_once_and_right_codes_stay() -> None:
    turn, process = rotation(3, 3), pairs()
    first = best_axes(process, lambda x: x @ turn.T, wide(), n=128, batches=8)
    turned = wide(torch.tensor(first.precision))
    again = best_axes(process, lambda x: x @ turn.T @ first.rotation.T, turned, n=128, batches=8)
    assert again.angle < 0.01
    assert abs(again.gain) < 1e-7
    assert again.precision == pytest.approx(first.precision, rel=1e-4)
    assert first.angle > 5.0


def test_order_and_signs_are_those_of_the_nearest_codes() -> None:
    process = pairs()
    swapped = torch.tensor([[0.0, 0.0, -1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], dtype=torch.float64)
    axes = best_axes(process, lambda x: x @ swapped.T, wide(), n=256, batches=16)
    assert axes.angle < 15.0
    assert [round(value / 4) for value in axes.precision] == [4, 1, 2]
    assert (axes.rotation.diagonal() > 0.95).all()


@pytest.mark.statistical(false_alarm=FALSE_ALARM, what="Λ̂ along the best axes with hard negatives, in standard errors")
def test_hard_negatives_have_axes_too() -> None:
    conditional = idt.Conditional(idt.FisherBingham, precision=2.0)
    process = pairs(negative_conditional=conditional, negatives_per_anchor=4)
    turn = rotation(3, 4)
    objective = wide()
    axes = best_axes(process, lambda x: x @ turn.T, objective, n=256, batches=40)
    known = best_precision(process, objective, n=256, batches=40)
    order = (axes.rotation @ turn).abs().argmax(dim=1).tolist()
    limit = stats.t.isf(FALSE_ALARM / 6, known.batches - 1)
    for value, k in zip(axes.precision, order, strict=True):
        assert abs(value - (TRUTH[k] - 2.0)) < limit * known.standard_error[k]


@pytest.mark.parametrize("start", [1e-5, 100.0])
def test_a_bad_start_is_no_obstacle(start: float) -> None:
    """Training may end with a Λ̂ near 0."""
    turn, process = rotation(3, 6), pairs()
    objective = wide(torch.tensor([start, 8.0, 8.0]))
    bad, good = (best_axes(process, lambda x: x @ turn.T, loss, n=128, batches=8) for loss in (objective, wide()))
    assert (bad.rotation @ good.rotation.T).abs().max(dim=1).values.min() > 0.999
    assert sorted(bad.precision) == pytest.approx(sorted(good.precision), rel=1e-3)


def test_a_code_that_pairs_do_not_share_gets_a_warning_and_a_positive_precision() -> None:
    def chance(x: Tensor) -> Tensor:
        return torch.cat([x[:, :2], (1e6 * x[:, 2:]).sin()], dim=1)

    with pytest.warns(UserWarning, match="Batches of 64 pairs hardly determine Λ̂ at 2"):
        axes = best_axes(pairs(), chance, wide(), n=64, batches=4, seed=2)
    assert 0.0 < min(axes.precision) < 1e-6  # with other seeds small, by chance, and not 0


def test_too_few_pairs_get_a_warning() -> None:
    """In twenty dimensions so few are told apart without looking: some Λ̂ run away."""
    process = pairs(torch.linspace(5.0, 200.0, 20).tolist())
    with pytest.warns(UserWarning, match="hardly determine"):
        best_axes(process, lambda x: x, idt.AnInfoNCE(20, init=100.0), n=64, batches=6)


def test_the_loss_that_is_given_stays_as_it_is() -> None:
    objective = wide(self_negatives=idt.Gradual(1.0, 1e-3), centring=10.0)
    before = {name: value.clone() for name, value in objective.state_dict().items()}
    axes = best_axes(pairs(), lambda x: x, objective, n=64, batches=4)
    after = objective.state_dict()
    assert all(torch.equal(after[name], value) and after[name].dtype == value.dtype for name, value in before.items())
    codes = torch.eye(3)  # of whatever precision
    torch.testing.assert_close(axes.turn(codes), axes.rotation.T.float())


# A trained run


def trained(encoder: nn.Module, objective: idt.Objective, process: idt.PairProcess, steps: int = 1) -> TrainingRun:
    config = idt.TrainConfig(steps=steps, batch_size=256, eval_samples=256, eval_every=steps, lr=1e-3)
    return idt.train(process, encoder, objective, config, seed=0)


@pytest.fixture(scope="module")
def run() -> tuple[TrainingRun, idt.PairProcess]:
    """Codes that are the latents, turned: what a longer training would end at, but for the axes."""
    process = pairs().to(dtype=torch.float32)
    encoder = idt.ResidualEncoder(3, idt.Sphere(3), width=8, blocks=1, whiten=False)
    found = trained(encoder, wide(), process)
    with torch.no_grad():
        for weights in encoder.parameters():
            weights.zero_()
        encoder.skip.weight.copy_(rotation(3, 5))
    return replace(found, encoder=encoder), process


def test_a_run_is_turned_and_the_old_one_stays(run: tuple[TrainingRun, idt.PairProcess]) -> None:
    old, process = run
    turned = turn_to_axes(old, process, n=512, batches=32)
    z = process.sample(2000, 7).z
    assert mcc(z, old(z), null=0).score < 0.9
    assert mcc(z, turned(z), null=0).score > 0.999
    assert isinstance(turned.objective, idt.InfoNCE) and isinstance(turned.objective.similarity, idt.Anisotropic)
    assert sorted(turned.objective.similarity.precision.tolist()) == pytest.approx(TRUTH, rel=0.1)
    assert turned.objective.similarity.trainable and turned.path is None
    assert old.objective.similarity.precision.tolist() != turned.objective.similarity.precision.tolist()
    # It is at the minimum of its loss, as far as standard errors tell.
    left = precision_standard_errors(process, turned, turned.objective, n=512, batches=32)
    steps = zip(left.to_minimum, left.standard_error, strict=True)
    assert all(abs(step) < 0.2 * error for step, error in steps)


def test_a_turned_run_can_be_saved(run: tuple[TrainingRun, idt.PairProcess], tmp_path: Path) -> None:
    old, process = run
    turned = turn_to_axes(old, process, n=64, batches=4, rounded=True)
    turned.save(tmp_path / "turned.safetensors")
    loaded, x = idt.load(tmp_path / "turned.safetensors"), process.sample(8, 0).x
    assert torch.equal(loaded(x), turned(x)) and not torch.allclose(loaded(x), old(x), atol=0.1)
    assert torch.equal(loaded.objective.similarity.precision, turned.objective.similarity.precision)  # type: ignore[union-attr]


def test_the_batch_of_the_training_unless_given(run: tuple[TrainingRun, idt.PairProcess]) -> None:
    old, process = run
    by_itself, given = (turn_to_axes(old, process, n, batches=2) for n in (None, 256))
    x = process.sample(4, 0).x
    assert torch.equal(by_itself(x), given(x))


def test_errors_are_sentences(run: tuple[TrainingRun, idt.PairProcess]) -> None:
    old, process = run
    with pytest.raises(TypeError, match="Linear has no turn"):
        turn_to_axes(replace(old, encoder=nn.Linear(3, 3)), process)
    with pytest.raises(ValueError, match="no precision to estimate"):
        turn_to_axes(replace(old, objective=idt.InfoNCE(idt.DotProduct(0.1))), process)
    with pytest.raises(TypeError, match="one by one"):
        best_axes(idt.EnsembleProcess(process, process), old, wide(), n=8)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="would leave it"):  # before anything is drawn
        turn_to_axes(replace(old, encoder=idt.MLPEncoder(3, idt.Box(3), hidden=(4,))), process, n=10**9)
    with pytest.raises(ValueError, match=r"codes of shape \(8, 2\), and the loss takes 3"):
        best_axes(process, lambda x: x[:, :2], wide(), n=8)
    with pytest.raises(ValueError, match="NaN"):
        best_axes(process, lambda x: x * float("nan"), wide(), n=8)
