"""InfoNCE with ``decorrelation``: the truth stays the optimum, and a code that repeats others costs what it should."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import identica as idt
from identica.objectives import InfoNCE, objective_from_dict
from identica.objectives.marginals import total_correlation
from identica.similarities import LpSimilarity


def latents(n: int, dim: int, seed: int = 0) -> Tensor:
    return torch.rand(n, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1


def added(h: Tensor, weights: Tensor | None = None) -> Tensor:
    """What decorrelation of weight 1 adds to the loss."""
    with_it, without = (InfoNCE(LpSimilarity(2), decorrelation=weight).double() for weight in (1.0, 0.0))
    return with_it(h, h, weights=weights) - without(h, h, weights=weights)


@pytest.mark.parametrize("weighted", [False, True])
def test_it_adds_the_log_determinant_of_the_correlations(weighted: bool) -> None:
    h = latents(40, 4) @ latents(4, 4, seed=1)
    weights = torch.arange(1.0, 41.0, dtype=torch.float64) if weighted else None
    covariance = torch.cov(h.T, aweights=weights)
    scale = covariance.diagonal().rsqrt()
    shrunk = (covariance * scale * scale[:, None] + 1e-3 * torch.eye(4)) / 1.001
    torch.testing.assert_close(added(h, weights), -torch.logdet(shrunk))


def test_gradients() -> None:
    h = (latents(12, 3) @ latents(3, 3, seed=1)).requires_grad_()
    assert torch.autograd.gradcheck(total_correlation, (h,))


def test_independent_codes_cost_what_chance_makes_of_them() -> None:
    """B draws of d independent codes: d(d−1)/2B on average."""
    values = [float(added(latents(500, 10, seed))) for seed in range(20)]
    assert sum(values) / 20 == pytest.approx(10 * 9 / (2 * 500), rel=0.1)


def test_it_does_not_see_scales_and_sees_repetitions() -> None:
    z = latents(2000, 5)
    torch.testing.assert_close(added(z * 7 + 3), added(z))
    nearer = [float(added(torch.cat([z[:, :4], z[:, :1] + eps * z[:, 4:]], dim=1))) for eps in (1.0, 0.1, 0.0)]
    assert nearer[0] < 1 < nearer[1] < nearer[2] < 7
    assert nearer[2] == pytest.approx(-torch.tensor(2 * 1e-3).log().item(), rel=0.02)  # the shrinkage bounds it


def test_codes_that_do_not_vary_have_finite_values_and_slopes() -> None:
    h = latents(30, 3)
    h[:, 1] = 0.5
    h.requires_grad_()
    value = total_correlation(h)
    (slope,) = torch.autograd.grad(value, h)
    assert bool(value.isfinite()) and bool(slope.isfinite().all())
    assert InfoNCE(LpSimilarity(2), decorrelation=1.0)(h[:1], h[:1]).item() == 0.0


def test_bfloat16_codes_are_summed_in_float32() -> None:
    h = latents(3000, 6).float()
    torch.testing.assert_close(total_correlation(h.bfloat16()), total_correlation(h), atol=2e-3, rtol=0)


def test_it_can_be_mapped_over_seeds() -> None:
    h = torch.stack([latents(50, 4, seed) for seed in range(3)])
    torch.testing.assert_close(
        torch.vmap(total_correlation)(h), torch.stack([total_correlation(one) for one in h.unbind()])
    )


def test_it_is_kept_with_the_settings_and_absent_where_there_is_none() -> None:
    loss = InfoNCE(LpSimilarity(2), decorrelation=0.1)
    assert "decorrelation=0.1" in repr(loss)
    again = objective_from_dict(loss.to_dict())
    assert isinstance(again, InfoNCE) and again.decorrelation == 0.1
    assert "decorrelation" not in InfoNCE(LpSimilarity(2)).to_dict()
    assert idt.EnsembleInfoNCE([LpSimilarity(2)] * 2, decorrelation=2.0).to_dict()["decorrelation"] == 2.0


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf")])
def test_what_it_does_not_take(wrong: float) -> None:
    with pytest.raises(ValueError, match="decorrelation is a weight of at least 0"):
        InfoNCE(LpSimilarity(2), decorrelation=wrong)
