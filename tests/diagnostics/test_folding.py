"""Folds of the sphere, seen from the codes alone."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from identica.diagnostics import folding


def uniform(n: int, dim: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return functional.normalize(torch.randn(n, dim, generator=generator, dtype=torch.float64), dim=1)


def folded(z: Tensor, axis: Tensor) -> Tensor:
    """z with its component along the axis made positive."""
    along = z @ axis
    return z + (along.abs() - along)[:, None] * axis


@pytest.mark.statistical(false_alarm=4e-6, what="uniform codes are called folded")
@pytest.mark.parametrize("dim", [2, 5, 10, 40])
def test_uniform_codes_are_not_folded(dim: int) -> None:
    found = folding(uniform(3000, dim))
    assert not found.folded
    assert found.size < found.by_chance
    assert "No fold" in found.sentence


@pytest.mark.parametrize(("dim", "radius"), [(2, 1.0), (10, 1.0), (20, 20**0.5), (80, 1.0)])
def test_a_fold_is_found_with_its_axis(dim: int, radius: float) -> None:
    axis = uniform(1, dim, seed=1)[0]
    found = folding(radius * folded(uniform(20_000, dim), axis))
    assert found.folded
    assert found.size == pytest.approx(found.one_fold, rel=0.05)
    # The other coordinates of the mean are noise of 1/√(n d).
    assert torch.tensor(found.axis, dtype=torch.float64) @ axis > 1 - 1e-2
    assert "lost its sign" in found.sentence


def test_what_one_fold_makes_of_the_mean() -> None:
    assert folding(uniform(10, 2)).one_fold == pytest.approx(2 / math.pi)  # E|cos φ|
    assert folding(uniform(10, 3)).one_fold == pytest.approx(0.5)  # a coordinate is uniform on [−1, 1]


def test_few_codes_are_not_called_folded_by_their_noise() -> None:
    assert folding(uniform(8, 40)).by_chance > folding(uniform(8, 40)).one_fold


@pytest.mark.parametrize(
    ("codes", "words"),
    [
        (torch.rand(100, 3), "on a sphere"),
        (torch.full((5, 3), torch.nan), "on a sphere"),
        (torch.ones(5), r"\(n, d\)"),
        (torch.ones(1, 3), "at least 2"),
    ],
)
def test_what_it_does_not_take(codes: Tensor, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        folding(codes)
