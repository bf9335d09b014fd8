"""The loss of the true latents, against a double loop, a quadrature and other similarities."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import MultivariateNormal, Normal, Uniform

from identica.distributions import BoxUniform, SphereUniform
from identica.distributions.conditional import Conditional
from identica.distributions.generalized_normal import GeneralizedNormal
from identica.distributions.projected_normal import ProjectedNormal
from identica.distributions.truncated_laplace import TruncatedLaplace
from identica.distributions.truncated_normal import TruncatedNormal
from identica.distributions.von_mises_fisher import VonMisesFisher
from identica.mixing import InvertibleMLP
from identica.processes import OptimalLoss, PairProcess
from tests.processes.parts import LAPLACE, double_loop, make, vmf


def normal_ratio(anchor: np.ndarray, candidate: np.ndarray) -> float:
    return float((stats.norm.logpdf(candidate, anchor, 0.5) - stats.norm.logpdf(candidate)).sum())


def hard_ratio(anchor: np.ndarray, candidate: np.ndarray) -> float:
    def log_density(scale: float) -> np.ndarray:
        inside = stats.norm.cdf((1 - anchor) / scale) - stats.norm.cdf(-anchor / scale)
        return stats.norm.logpdf(candidate, anchor, scale) - np.log(inside)

    return float((log_density(0.05) - log_density(0.2)).sum())


def tilted_ratio(anchor: np.ndarray, candidate: np.ndarray) -> float:
    return float(7.0 * anchor @ candidate - 3.0 * candidate[0])


CASES = {
    "laplace on the box": (
        PairProcess(BoxUniform(3), LAPLACE),
        lambda a, b: -np.abs(a - b).sum() / 0.05,
    ),
    "vMF on a sphere of radius 2": (
        PairProcess(SphereUniform(3, radius=2.0), vmf(7.0)),
        lambda a, b: 7.0 * a @ b / 4.0,
    ),
    "vMF around a vMF marginal": (
        PairProcess(VonMisesFisher(torch.tensor([1.0, 0.0, 0.0]), 3.0), vmf(7.0)),
        tilted_ratio,
    ),
    "normal marginal, foreign": (
        PairProcess(MultivariateNormal(torch.zeros(2).double(), torch.eye(2).double()), lambda z: Normal(z, 0.5)),
        normal_ratio,
    ),
    "normal marginal, ours": (
        PairProcess(
            GeneralizedNormal(torch.zeros(2).double(), 2.0**0.5, 2.0),
            Conditional(GeneralizedNormal, scale=0.5**0.5, power=2.0),
        ),
        normal_ratio,
    ),
    "a uniform window, mostly off support": (
        PairProcess(
            MultivariateNormal(torch.zeros(2).double(), torch.eye(2).double()), lambda z: Uniform(z - 1, z + 1)
        ),
        lambda a, b: -stats.norm.logpdf(b).sum() if np.abs(a - b).max() <= 1 else -np.inf,
    ),
    "several positives": (
        PairProcess(BoxUniform(3), LAPLACE, positives_per_anchor=3),
        lambda a, b: -np.abs(a - b).sum() / 0.05,
    ),
    "hard negatives": (
        PairProcess(
            BoxUniform(2),
            Conditional(TruncatedNormal, scale=0.05),
            negative_conditional=Conditional(TruncatedNormal, scale=0.2),
            negatives_per_anchor=4,
        ),
        hard_ratio,
    ),
}


class TestOptimalLoss:
    @pytest.mark.parametrize("case", CASES)
    @pytest.mark.parametrize(("include_positive", "self_negatives"), [(True, False), (False, False), (True, True)])
    def test_equals_a_double_loop(self, case: str, include_positive: bool, self_negatives: bool) -> None:
        process, u = CASES[case]
        options = {"include_positive": include_positive, "self_negatives": self_negatives}
        result = process.optimal_loss(17, batches=2, generator=5, **options)
        exact, source = process.to(dtype=torch.float64), make(5)
        for value in result.per_batch:
            pairs = exact.sample(17, source)
            latents = [None if t is None else t.numpy() for t in (pairs.z, pairs.z_pos, pairs.z_neg)]
            expected = double_loop(latents[0], latents[1], u, latents[2], **options)  # type: ignore[arg-type]
            assert value == pytest.approx(expected.mean(), rel=1e-7, abs=1e-9)
            per_item = process.loss_at_truth(pairs, **options)
            assert np.allclose(per_item.numpy(), expected, rtol=1e-7, atol=1e-9)

    def test_blocks_do_not_matter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from identica.processes import optimal_loss

        process = PairProcess(SphereUniform(3), Conditional(ProjectedNormal, scale=0.3))
        whole = process.optimal_loss(50, 1, generator=1)
        monkeypatch.setattr(optimal_loss, "_NUMBERS_CPU", 7 * 50 * 3)  # seven rows at a time
        assert process.optimal_loss(50, 1, generator=1).mean == pytest.approx(whole.mean, rel=1e-12)

    def test_the_mixing_does_not_matter(self) -> None:
        mixed = PairProcess(BoxUniform(2), LAPLACE, InvertibleMLP(2, seed=0, candidates=5))
        assert mixed.optimal_loss(40, 2) == PairProcess(BoxUniform(2), LAPLACE).optimal_loss(40, 2)

    @pytest.mark.statistical(false_alarm=1e-6, what="one-negative loss against a three-dimensional quadrature")
    def test_equals_its_expectation(self) -> None:
        scale = 0.3

        def uniform(z: torch.Tensor) -> BoxUniform:
            return BoxUniform(1, low=torch.zeros_like(z), high=torch.ones_like(z))

        conditional = Conditional(TruncatedLaplace, scale=scale)
        process = PairProcess(BoxUniform(1), conditional, None, uniform, 1)
        losses = process.loss_at_truth(process.to(dtype=torch.float64).sample(40_000, make()))
        # E log(1 + exp(u(z, z⁻) − u(z, z⁺))) on a grid of cell centres; the error is of order 1/200².
        grid = (np.arange(200) + 0.5) / 200
        u = -np.abs(grid[:, None] - grid[None, :]) / scale
        density = np.exp(u) / np.exp(u).mean(axis=1, keepdims=True)  # of z⁺ given z
        inner = np.log1p(np.exp(u[:, None, :] - u[:, :, None])).mean(axis=2)
        expected = (density * inner).mean()
        error = losses.std().item() / math.sqrt(len(losses))
        assert abs(losses.mean().item() - expected) < stats.norm.isf(5e-7) * error + 1e-4

    @pytest.mark.statistical(
        false_alarm=1e-6, what="power: a wrong similarity costs ≥ 12 standard errors, and 5 are asked for"
    )
    def test_no_other_similarity_does_better(self) -> None:
        # Items share their negatives: over seeds the mean spreads 1.3 times as much as its standard error says.
        process = PairProcess(BoxUniform(2), LAPLACE)
        pairs = process.to(dtype=torch.float64).sample(2_000, make())
        floor = process.loss_at_truth(pairs)

        def loss(scale: float, power: float) -> torch.Tensor:
            u = -(((pairs.z[:, None] - pairs.z).abs() / scale) ** power).sum(dim=-1)
            positive = -(((pairs.z - pairs.z_pos).abs() / scale) ** power).sum(dim=-1)
            return torch.logaddexp(u.fill_diagonal_(-torch.inf).logsumexp(dim=1), positive) - positive

        assert torch.allclose(loss(0.05, 1.0), floor, atol=1e-9)
        for scale, power in ((0.03, 1.0), (0.085, 1.0), (0.05, 2.0), (0.07, 0.8)):
            excess = loss(scale, power) - floor
            assert excess.mean() > 5 * excess.std() / math.sqrt(len(excess))

    def test_a_positive_where_no_negative_can_be_is_free(self) -> None:
        process = PairProcess(BoxUniform(1), lambda z: Normal(z + 5.0, 0.01))
        assert process.optimal_loss(10, 2).per_batch == (0.0, 0.0)
        foreign = PairProcess(Uniform(torch.zeros(1), torch.ones(1)), lambda z: Normal(z + 5.0, 0.01))
        assert foreign.optimal_loss(10, 2).per_batch == (0.0, 0.0)

    def test_float32_pairs_are_welcome(self) -> None:
        process = PairProcess(SphereUniform(5), vmf())
        pairs = process.sample(64, make())
        exact = process.loss_at_truth(pairs.to(dtype=torch.float64))
        assert process.loss_at_truth(pairs).dtype == torch.float64
        assert torch.allclose(process.loss_at_truth(pairs), exact, atol=1e-12)

    def test_result(self) -> None:
        result = OptimalLoss.of([1.0, 2.0, 4.0], n=7)
        assert float(result) == result.mean == pytest.approx(7 / 3)
        assert result.standard_error == pytest.approx(np.std([1, 2, 4], ddof=1) / math.sqrt(3))
        assert math.isnan(OptimalLoss.of([1.0], n=7).standard_error)

    def test_a_single_anchor(self) -> None:
        process = PairProcess(BoxUniform(2), LAPLACE)
        assert process.optimal_loss(1, 2).mean == 0.0
        with pytest.raises(ValueError, match="n of at least 2"):
            process.optimal_loss(1, 2, include_positive=False)
        with pytest.raises(ValueError, match="batches must be a whole number of at least 1, not 0"):
            process.optimal_loss(5, 0)

    def test_pairs_of_another_process_are_refused(self) -> None:
        hard = PairProcess(BoxUniform(2), LAPLACE, None, LAPLACE, 2)
        with pytest.raises(ValueError, match="has no negative_conditional"):
            PairProcess(BoxUniform(2), LAPLACE).loss_at_truth(hard.sample(3, make()))
