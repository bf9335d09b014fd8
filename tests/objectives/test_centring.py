"""InfoNCE with ``centring``: the truth stays the optimum, and a folded sphere costs what it should."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import identica as idt
from identica.experiments import find
from identica.objectives import InfoNCE, objective_from_dict
from identica.similarities import DotProduct


def codes(n: int, dim: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return functional.normalize(torch.randn(n, dim, generator=generator, dtype=torch.float64), dim=1)


def added(h: Tensor, weights: Tensor | None = None) -> Tensor:
    """What centring of weight 1 adds to the loss."""
    with_it, without = (InfoNCE(DotProduct(), centring=centring).double() for centring in (1.0, 0.0))
    return with_it(h, h, weights=weights) - without(h, h, weights=weights)


@pytest.mark.parametrize("weighted", [False, True])
def test_it_adds_the_mean_product_of_different_anchors(weighted: bool) -> None:
    h = codes(7, 3)
    weights = torch.arange(1.0, 8.0, dtype=torch.float64) if weighted else torch.ones(7, dtype=torch.float64)
    both = (weights[:, None] * weights).fill_diagonal_(0.0)
    expected = (both * (h @ h.T)).sum() / both.sum()
    torch.testing.assert_close(added(h, weights if weighted else None), expected)


def test_a_fold_costs_its_squared_mean_and_the_truth_nothing() -> None:
    n = 20_000
    z = codes(n // 2, 10)
    z = torch.cat([z, -z])  # mean exactly 0
    folded = torch.cat([z[:, :9], z[:, 9:].abs()], dim=1)
    assert abs(added(z).item()) < 1.1 / n
    assert added(folded).item() == pytest.approx(idt.diagnostics.folding(folded).one_fold ** 2, rel=0.05)


def test_the_slope_vanishes_where_the_mean_does() -> None:
    z = codes(50, 4)
    z = torch.cat([z, -z]).requires_grad_()
    (slope,) = torch.autograd.grad(added(z), z)
    along_the_sphere = slope - (slope * z).sum(dim=1, keepdim=True) * z
    assert along_the_sphere.abs().max() < 1e-12


def test_one_anchor_has_no_pairs() -> None:
    h = codes(1, 3)
    assert added(h).item() == 0.0


def test_it_is_kept_with_the_settings_and_absent_where_there_is_none() -> None:
    loss = InfoNCE(DotProduct(0.1), centring=10.0)
    assert "centring=10.0" in repr(loss)
    again = objective_from_dict(loss.to_dict())
    assert isinstance(again, InfoNCE) and again.centring == 10.0
    assert "centring" not in InfoNCE(DotProduct(0.1)).to_dict()
    ensemble = idt.EnsembleInfoNCE([DotProduct(), DotProduct()], centring=2.0)
    assert ensemble.to_dict()["centring"] == 2.0


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf")])
def test_what_it_does_not_take(wrong: float) -> None:
    with pytest.raises(ValueError, match="centring is a weight of at least 0"):
        InfoNCE(DotProduct(), centring=wrong)


@pytest.mark.slow
def test_training_does_not_fold() -> None:
    """Λ = 5 and 100 (B, Figure 2): without it one factor of ten loses its sign, and is gone; with it none does."""
    experiment = find("aninfonce/figure2")
    r2, folded = {}, {}
    for centring in (0.0, 10.0):
        plan = experiment.plan(experiment.row("5"), "fast", "cpu")
        changes = {"steps": 900, "batch_size": 1024, "evaluations": 1, "centring": centring}
        plan = replace(plan, recipe=replace(plan.recipe, **changes))
        process = plan.process("aninfonce", 2)
        parts = process, plan.encoder("aninfonce", 2), plan.objective("aninfonce")
        run = idt.train(*parts, plan.train_config("aninfonce"), seed=plan.seed("aninfonce", 2), quiet=True)
        r2[centring] = run.history[-1]["r2"]
        with torch.no_grad():
            folded[centring] = idt.diagnostics.folding(run(process.sample(4096, 1).x)).folded
    assert folded == {0.0: True, 10.0: False}
    assert r2[0.0] < 0.9
    assert r2[10.0] > 0.95
