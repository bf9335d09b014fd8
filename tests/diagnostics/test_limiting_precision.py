"""The quadrature against others: a plain grid on the circle, and one over pairs of points of the sphere."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

import identica as idt
from identica.diagnostics import limiting_precision

CASES = (("shell", "anchors"), ("exact", "positives"), ("exact", "both"), ("shell", "both"))


def circle() -> tuple[Tensor, Tensor]:
    angle = 2 * math.pi * (torch.arange(200, dtype=torch.float64) + 0.5) / 200
    return torch.stack([angle.cos(), angle.sin()], dim=1), torch.full((200,), 1 / 200, dtype=torch.float64)


def sphere(n: int = 14) -> tuple[Tensor, Tensor]:
    nodes, weights = np.polynomial.legendre.leggauss(n)
    angle = 2 * math.pi * (np.arange(2 * n) + 0.5) / (2 * n)
    height, turn = (x.flatten() for x in np.meshgrid(nodes, angle, indexing="ij"))
    side = np.sqrt(1 - height**2)
    z = torch.tensor(np.stack([side * np.cos(turn), side * np.sin(turn), height], axis=1))
    return z, torch.tensor(np.repeat(weights, 2 * n) / (4 * n))


def by_brute_force(
    points: tuple[Tensor, Tensor], precision: tuple[float, ...], method: str, negatives: str
) -> list[float]:
    """The minimiser with a free Λ̂ for each coordinate, all pairs of points at once, densities from log_prob."""
    z, weight = points
    conditional = idt.Conditional(idt.FisherBingham, precision=precision, method=method)
    positive = conditional(z).log_prob(z[:, None]).T.exp() * weight
    positive = positive / positive.sum(dim=1, keepdim=True)
    negative = {"anchors": weight, "positives": weight @ positive, "both": 0.5 * (weight + weight @ positive)}[
        negatives
    ]
    gaps = (z[:, None] - z[None]).square()

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        free = torch.tensor(theta, requires_grad=True)
        u = -0.5 * gaps @ free.exp()
        value = (weight * ((u + negative.log()).logsumexp(dim=1) - (positive * u).sum(dim=1))).sum()
        value.backward()
        assert free.grad is not None
        return value.item(), free.grad.numpy()

    found = minimize(loss, np.log(precision) + 0.3, jac=True, method="L-BFGS-B", options={"gtol": 1e-11, "ftol": 1e-16})
    return np.exp(found.x).tolist()


@pytest.mark.parametrize(("method", "negatives"), CASES)
def test_on_the_circle(method: str, negatives: str) -> None:
    expected = by_brute_force(circle(), (5.0, 25.0), method, negatives)
    found = limiting_precision((1, 1), (5.0, 25.0), method=method, negatives=negatives)  # type: ignore[arg-type]
    assert found == pytest.approx(expected, rel=1e-5)
    assert max(abs(f / p - 1) for f, p in zip(found, (5.0, 25.0), strict=True)) > 1e-3


@pytest.mark.parametrize(("method", "negatives"), CASES[:2])
def test_on_the_sphere(method: str, negatives: str) -> None:
    expected = by_brute_force(sphere(), (2.0, 2.0, 12.0), method, negatives)
    found = limiting_precision((2, 1), (2.0, 12.0), method=method, negatives=negatives)  # type: ignore[arg-type]
    assert [found[0], found[0], found[1]] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("sizes", [(1, 1), (2, 3), (5, 5), (10, 10)], ids=str)
@pytest.mark.parametrize("precisions", [(5.0, 25.0), (40.0, 1.0)], ids=str)
def test_the_truth_is_the_minimum_for_exact_pairs_and_uniform_negatives(
    sizes: tuple[int, int], precisions: tuple[float, float]
) -> None:
    """B, Thm 3.1. On the circle, by brute force from another start, too."""
    assert limiting_precision(sizes, precisions) == pytest.approx(precisions, rel=1e-9)
    if sizes == (1, 1):
        assert by_brute_force(circle(), precisions, "exact", "anchors") == pytest.approx(precisions, rel=1e-5)


def test_equal_precisions_have_uniform_positives_and_no_bias() -> None:
    """Von Mises-Fisher pairs of uniform anchors: positives may serve as negatives."""
    assert limiting_precision((3, 4), (9.0, 9.0), negatives="positives") == pytest.approx((9.0, 9.0), rel=1e-6)


def test_blocks_may_be_exchanged() -> None:
    there = limiting_precision((3, 5), (4.0, 30.0), method="shell")
    assert limiting_precision((5, 3), (30.0, 4.0), method="shell") == pytest.approx(there[::-1], rel=1e-6)


def test_sentences() -> None:
    for wrong in ((0.0, 1.0), (1.0, 300.0), (math.nan, 1.0)):
        with pytest.raises(ValueError, match="positive and at most 250"):
            limiting_precision((1, 1), wrong)
    with pytest.raises(ValueError, match='must be "exact" or "shell"'):
        limiting_precision((1, 1), (1.0, 1.0), method="other")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='"anchors", "positives" or "both"'):
        limiting_precision((1, 1), (1.0, 1.0), negatives="other")  # type: ignore[arg-type]
