"""Where Λ̂ ends at the true latents, and how well that is known: sampled pairs, fixed seeds, stated error rates."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import identica as idt
from identica.data import AugmentedViews, RandomResizedCrop
from identica.diagnostics import (
    PrecisionEstimate,
    best_axes,
    best_precision,
    precision_scan,
    precision_standard_errors,
)
from identica.distributions.fisher_bingham_ratio import ratio_precision
from identica.processes import PairPool
from tests.stat_checks import FALSE_ALARM

#: Many tests look at a Λ̂ that is not at its minimum; one looks at what is said then.
pytestmark = pytest.mark.filterwarnings("ignore:Λ̂ is not at its minimum")

#: How many standard errors off a bias must be before we believe it; every one below is 12 or more off over several
#: seeds, so that a right implementation comes out below 8 with a probability of 4e-5 at most.
SIGNIFICANT = 8.0


def pairs(precision: Sequence[float], method: str = "exact", **negatives: object) -> idt.PairProcess:
    conditional = idt.Conditional(idt.FisherBingham, precision=precision, method=method)
    return idt.PairProcess(idt.SphereUniform(len(precision)), conditional, **negatives)  # type: ignore[arg-type]


def off(found: PrecisionEstimate, truth: Sequence[float]) -> np.ndarray:
    """How many standard errors each entry is off."""
    return (np.array(found.precision) - np.array(truth)) / np.array(found.standard_error)


def assert_unbiased(found: PrecisionEstimate, truth: Sequence[float]) -> None:
    # Student's t: the errors themselves are estimated, from as many batches.
    limit = stats.t.isf(FALSE_ALARM / (2 * len(truth)), found.batches - 1)
    assert np.abs(off(found, truth)).max() < limit, f"{found} for {list(truth)}"


TRUTH = (4.0, 8.0, 16.0)


@pytest.mark.statistical(false_alarm=FALSE_ALARM, what="spread of 30 fitted log Λ̂ against the sandwich's errors, χ²")
def test_standard_errors_are_the_spread_of_fits() -> None:
    process, truth = pairs(TRUTH), idt.InfoNCE(idt.Anisotropic(3, torch.tensor(TRUTH)))
    fits = [best_precision(process, truth, n=64, batches=8, seed=seed) for seed in range(30)]
    found = np.log([fit.precision for fit in fits])
    long = precision_standard_errors(process, lambda x: x, truth, n=64, batches=240, seed=1000)
    error = np.array(long.standard_error) / np.array(long.precision) * (240 / 8) ** 0.5
    ratio = ((found - found.mean(axis=0)) ** 2).sum(axis=0) / error**2
    low, high = stats.chi2.ppf([FALSE_ALARM / 6, 1 - FALSE_ALARM / 6], len(fits) - 1)
    assert (low < ratio).all() and (ratio < high).all(), ratio
    # Each fit's own errors scatter around these, and a fit has nothing left to go.
    own = np.mean([np.array(fit.standard_error) / np.array(fit.precision) for fit in fits], axis=0)
    np.testing.assert_allclose(own, error, rtol=0.25)
    assert max(abs(step) for fit in fits for step in fit.to_minimum) < 1e-3


def test_errors_shrink_with_the_number_of_batches() -> None:
    process, truth = pairs(TRUTH), idt.InfoNCE(idt.Anisotropic(3, torch.tensor(TRUTH)))
    few, many = (precision_standard_errors(process, lambda x: x, truth, n=64, batches=b) for b in (40, 160))
    np.testing.assert_allclose(np.array(few.standard_error) / np.array(many.standard_error), 2.0, rtol=0.35)


def test_a_precision_that_stopped_short_is_told_how_far() -> None:
    process = pairs(TRUTH)
    short = idt.InfoNCE(idt.Anisotropic(3, 0.9 * torch.tensor(TRUTH)))
    found = precision_standard_errors(process, lambda x: x, short, n=128, batches=64)
    np.testing.assert_allclose(found.precision, 0.9 * np.array(TRUTH), rtol=1e-6)
    np.testing.assert_allclose(np.array(found.precision) + np.array(found.to_minimum), TRUTH, rtol=0.1)
    best = best_precision(process, short, n=128, batches=64)
    np.testing.assert_allclose(np.array(found.precision) + np.array(found.to_minimum), best.precision, rtol=0.03)


def test_a_precision_far_from_its_minimum_is_warned_of_and_one_that_is_there_is_not() -> None:
    process, start = pairs(TRUTH), torch.tensor((TRUTH[0], 0.3 * TRUTH[1], TRUTH[2]))
    with pytest.warns(UserWarning, match="not at its minimum at 1: one step"):
        precision_standard_errors(process, lambda x: x, idt.AnInfoNCE(3, init=start), n=128, batches=64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        precision_standard_errors(process, lambda x: x, idt.AnInfoNCE(3, init=torch.tensor(TRUTH)), n=128, batches=64)


@pytest.mark.parametrize("start", [(1.0, 1.0, 1.0), (2.0, 2.0, 2.0), (1.0, 8.0, 16.0)])
def test_far_below_the_truth_the_step_still_points_upwards(start: tuple[float, ...]) -> None:
    """The loss is not convex in log Λ̂: a plain Newton step would go to where it is highest."""
    objective = idt.InfoNCE(idt.Anisotropic(3, torch.tensor(start)))
    found = precision_standard_errors(pairs(TRUTH), lambda x: x, objective, n=256, batches=16)
    for step, value, truth in zip(found.to_minimum, start, TRUTH, strict=True):
        before, after = (abs(math.log(entry / truth)) for entry in (value, value + step))
        assert after < 0.6 * before if value < truth else after < 0.1


@pytest.mark.parametrize("start", [1e-3, 1.0, 100.0, 1000.0, 1e5])
def test_the_minimum_is_found_from_anywhere(start: float) -> None:
    process = pairs((0.5, 20.0, 200.0))
    near = best_precision(process, idt.InfoNCE(idt.Anisotropic(3, torch.tensor((0.5, 20.0, 200.0)))), n=256, batches=8)
    far = best_precision(process, idt.AnInfoNCE(3, init=start), n=256, batches=8)
    np.testing.assert_allclose(far.precision, near.precision, rtol=1e-3)


def test_neither_the_link_nor_a_mixing_that_is_undone_makes_a_difference() -> None:
    conditional = idt.Conditional(idt.FisherBingham, precision=(6.0, 9.0))
    process = idt.PairProcess(idt.SphereUniform(2), conditional, lambda z: 4.0 * z).to(dtype=torch.float64)
    log, soft = (idt.InfoNCE(idt.Anisotropic(2, 5.0, link=link)) for link in ("log", "softplus"))  # type: ignore[arg-type]
    errors = [
        precision_standard_errors(process, lambda x: x / 4.0, o, n=64, batches=8).standard_error for o in (log, soft)
    ]
    np.testing.assert_allclose(errors[0], errors[1], rtol=1e-5)
    latents = best_precision(process, log, n=64, batches=8)
    seen = best_precision(process, log, n=64, batches=8, encoder=lambda x: x / 4.0)
    np.testing.assert_allclose(seen.precision, latents.precision, rtol=1e-9)


def test_a_module_is_left_as_it_was() -> None:
    encoder = nn.Sequential(nn.Identity(), nn.Dropout(0.9))
    encoder[0].eval()
    found = [
        precision_standard_errors(pairs(TRUTH), encode, idt.AnInfoNCE(3), n=32, batches=4)
        for encode in (encoder, lambda x: x)
    ]
    assert found[0] == found[1] and encoder.training and not encoder[0].training


# The bias of approximate pairs, and of positives as negatives


LOOSE_AND_TIGHT = (1.0,) * 5 + (10.0,) * 5


def score(process: idt.PairProcess, truth: Sequence[float], negatives: str, seed: int = 1) -> tuple[np.ndarray, float]:
    """At the true Λ: how many standard errors the minimum is away, entry by entry, and the limit for "not at all"."""
    objective = idt.InfoNCE(idt.Anisotropic(len(truth), torch.tensor(truth)), negatives=negatives)  # type: ignore[arg-type]
    found = precision_standard_errors(process, lambda x: x, objective, n=128, batches=240, seed=seed)
    limit = float(stats.t.isf(FALSE_ALARM / (2 * len(truth)), found.batches - 1))
    return np.array(found.to_minimum) / np.array(found.standard_error), limit


@pytest.mark.statistical(
    false_alarm=FALSE_ALARM, what="exact pairs, uniform negatives: the slope of the loss at Λ against 0"
)
@pytest.mark.parametrize("precision", ((5.0, 5.0, 400.0, 400.0), LOOSE_AND_TIGHT), ids=("four", "ten"))
def test_exact_pairs_have_no_bias(precision: tuple[float, ...]) -> None:
    away, limit = score(pairs(precision), precision, "anchors")
    assert np.abs(away).max() < limit


@pytest.mark.statistical(
    false_alarm=FALSE_ALARM, what="Λ̂ fitted to exact pairs with uniform negatives against Λ, t-test"
)
def test_a_fit_to_exact_pairs_finds_the_truth() -> None:
    precision = (5.0, 5.0, 400.0, 400.0)
    assert_unbiased(best_precision(pairs(precision), idt.AnInfoNCE(4), n=256, batches=24, seed=1), precision)


@pytest.mark.statistical(false_alarm=4e-5, what="power: shell pairs put Λ̂ ≥ 12 standard errors off, 8 are asked for")
def test_shell_pairs_bias_the_precision() -> None:
    precision = (5.0, 5.0, 400.0, 400.0)
    found = best_precision(pairs(precision, "shell"), idt.AnInfoNCE(4), n=256, batches=24, seed=1)
    assert off(found, precision)[2:].sum() / 2**0.5 < -SIGNIFICANT
    assert np.mean(found.precision[2:]) < 0.85 * 400


@pytest.mark.statistical(
    false_alarm=4e-5, what="power: positives as negatives put Λ̂ ≥ 12 standard errors off, 8 asked for"
)
def test_positives_as_negatives_bias_the_precision() -> None:
    away, _ = score(pairs(LOOSE_AND_TIGHT), LOOSE_AND_TIGHT, "positives")
    assert away[:5].sum() / 5**0.5 > SIGNIFICANT


# Hard negatives


def hard(positive: Sequence[float], negative: Sequence[float], count: int) -> idt.PairProcess:
    conditional = idt.Conditional(idt.FisherBingham, precision=negative)
    return pairs(positive, negative_conditional=conditional, negatives_per_anchor=count)


@pytest.mark.statistical(false_alarm=FALSE_ALARM, what="Λ̂ with hard negatives against Λ⁺ − Λ⁻, t-test")
def test_hard_negatives_put_the_minimum_at_the_difference() -> None:
    """B, Cor. B.1."""
    positive, negative = (9.0, 20.0, 40.0), (4.0, 10.0, 15.0)
    process = hard(positive, negative, 6)
    found = best_precision(process, idt.InfoNCE(idt.Anisotropic(3)), n=512, batches=24, seed=2)
    expected = ratio_precision(process.conditional, process.negative_conditional, 3)  # type: ignore[arg-type]
    assert expected.tolist() == [5.0, 10.0, 25.0]
    assert_unbiased(found, expected.tolist())
    assert max(found.standard_error[k] / found.precision[k] for k in range(3)) < 0.15


@pytest.mark.statistical(
    false_alarm=1e-6, what="power: 30 % beside the minimum costs ≥ 11 standard errors, 5.5 are asked for"
)
def test_the_loss_is_smallest_where_the_paper_scanned_it() -> None:
    """B, Fig. 10A: d = 20, Λ⁺ = 150, Λ⁻ = 100, minimum at 50."""
    process = hard((150.0,) * 20, (100.0,) * 20, 8)
    values = (20.0, 35.0, 50.0, 65.0, 100.0, 150.0)
    scan = precision_scan(process, idt.InfoNCE(idt.Anisotropic(20)), values, n=512, batches=32)
    means = [loss.mean for loss in scan]
    assert means.index(min(means)) == 2
    for loss in (scan[0], scan[1], scan[3], scan[4], scan[5]):
        cost = np.array(loss.per_batch) - np.array(scan[2].per_batch)
        assert cost.mean() / stats.sem(cost) > 5.5


class MixedRatio(idt.Similarity):
    """log p⁺(b|a) − log(K p⁻(b|a) + N p₀(b)), the ratio that K hard and N uniform negatives imply."""

    def __init__(self, process: idt.PairProcess, uniform: int) -> None:
        super().__init__()
        self.positive, self.negative = process.conditional, process.negative_conditional
        self.hard, self.uniform = process.negatives_per_anchor, uniform
        self.log_area = idt.Sphere(process.dim).log_volume()

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        log_hard = np.log(self.hard) + self.negative(a).log_prob(b)  # type: ignore[misc]
        log_uniform = torch.full_like(log_hard, np.log(self.uniform) - self.log_area)
        return self.positive(a).log_prob(b) - torch.logaddexp(log_hard, log_uniform)  # type: ignore[operator]


@pytest.mark.statistical(
    false_alarm=4e-5, what="power: the best Λ̂ costs ≥ 10 standard errors more than the mixture's ratio, 5 are asked for"
)
def test_hard_and_uniform_negatives_together_imply_a_ratio_between_the_two() -> None:
    n = 128
    process = hard((100.0,) * 3, (95.0,) * 3, 16).to(dtype=torch.float64)
    mixed = best_precision(process, idt.InfoNCE(idt.Anisotropic(3, 30.0), in_batch=True), n=n, batches=24)
    assert all(5.0 + 6 * e < p < 100.0 - 6 * e for p, e in zip(mixed.precision, mixed.standard_error, strict=True))
    best = idt.InfoNCE(idt.Anisotropic(3, torch.tensor(mixed.precision), trainable=False), in_batch=True)
    ratio = idt.InfoNCE(MixedRatio(process, n - 1), in_batch=True)
    generator, costs = torch.Generator().manual_seed(5), []
    for _ in range(80):
        batch = process.sample(n, generator)
        costs.append((best(batch.z, batch.z_pos, batch.z_neg) - ratio(batch.z, batch.z_pos, batch.z_neg)).item())
    assert np.mean(costs) / stats.sem(costs) > 5.0


def test_a_warning_names_what_the_batches_do_not_determine() -> None:
    """Negatives closer than positives drive an entry to 0, and codes that are constant say nothing about it."""
    with pytest.warns(UserWarning, match="Λ⁻ is not below Λ⁺"):
        process = idt.PairProcess(
            idt.SphereUniform(2),
            idt.Conditional(idt.FisherBingham, precision=(9.0, 9.0)),
            negative_conditional=idt.Conditional(idt.FisherBingham, precision=(1.0, 90.0)),
            negatives_per_anchor=2,
        )
    with pytest.warns(UserWarning, match="Batches of 64 pairs hardly determine Λ̂ at 1:"):
        assert best_precision(process, idt.AnInfoNCE(2), n=64, batches=8).precision[1] < 1e-6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        best_precision(pairs(TRUTH), idt.AnInfoNCE(3), n=256, batches=16)


@pytest.mark.parametrize(
    "estimate",
    [
        lambda process, encode: best_precision(process, idt.AnInfoNCE(3), 256, 8, encoder=encode),
        lambda process, encode: precision_standard_errors(process, encode, idt.AnInfoNCE(3), 256, 8),
        lambda process, encode: best_axes(process, encode, idt.AnInfoNCE(3), 256, 8),
    ],
    ids=["best_precision", "precision_standard_errors", "best_axes"],
)
def test_a_code_that_says_nothing_is_not_known_well(estimate: Any) -> None:
    """The loss does not depend on its Λ̂, so that every fit leaves it where it is: that is not a small error."""
    alive = torch.tensor([1.0, 0.0, 1.0])
    with pytest.warns(UserWarning, match="hardly determine Λ̂ at 1:"):
        found = estimate(pairs(TRUTH), lambda x: x * alive)
    assert math.isinf(found.standard_error[1]) and max(found.standard_error[::2]) < 5.0


def test_errors_need_no_latents() -> None:
    """Only the true latents need a PairProcess; pairs can come from anything that draws them."""
    objective = idt.InfoNCE(idt.Anisotropic(3, torch.tensor(TRUTH)))
    images = torch.rand(40, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    views = AugmentedViews(images, RandomResizedCrop(), flatten=True)
    torch.manual_seed(0)
    encode = nn.Linear(36, 3)
    for process, encoder in ((PairPool(pairs(TRUTH), size=64, refresh=16), nn.Identity()), (views, encode)):
        found = precision_standard_errors(process, encoder, objective, n=16, batches=6)
        assert all(error > 0 for error in found.standard_error)
        assert best_precision(process, objective, n=16, batches=4, encoder=encoder).batches == 4
    with pytest.raises(TypeError, match="which a PairProcess has, not AugmentedViews"):
        best_precision(views, objective, n=16)


def test_sentences() -> None:
    process = pairs(TRUTH)
    with pytest.raises(ValueError, match="NaN or infinite codes"):
        precision_standard_errors(process, lambda x: x * torch.nan, idt.AnInfoNCE(3), n=16)
    for wrong in ((1.0, 2.0), -1.0):
        with pytest.raises(ValueError, match="one positive number, or 3 of them, one per code; not"):
            precision_scan(process, idt.AnInfoNCE(3), [wrong], n=16)
    with pytest.raises(TypeError, match=r"one process, which has sample\(\)"):
        precision_standard_errors("pairs", lambda x: x, idt.AnInfoNCE(3), n=16)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no precision to estimate: its similarity is DotProduct"):
        best_precision(process, idt.InfoNCE(idt.DotProduct()), n=16)
    ensemble = idt.EnsembleProcess(process, process)
    with pytest.raises(TypeError, match=r"process.processes\[i\] with objective.members\[i\]"):
        best_precision(ensemble, idt.AnInfoNCE(3), n=16)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="have no logarithm"):
        free = idt.InfoNCE(idt.Anisotropic(3, torch.tensor([0.0, 1.0, 1.0]), trainable=False))
        best_precision(process, free, n=16)
    assert repr(best_precision(process, idt.AnInfoNCE(3), n=16, batches=2)).startswith("PrecisionEstimate(")
