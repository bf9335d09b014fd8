"""Latents and what was recovered of them, as receipts hold them."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor

from identica.experiments.three_d_ident.recovered import mapped, recovered
from identica.metrics import linear_r2, mcc
from identica.training import Evaluation


def evaluation(z: Tensor, h: Tensor) -> Evaluation:
    return Evaluation(linear_r2(z, h), mcc(z, h), z, h)


def uniform(n: int, seed: int) -> Tensor:
    return 2 * torch.rand(n, 10, generator=torch.Generator().manual_seed(seed)) - 1


def test_an_affine_map_is_undone_on_latents_it_was_not_fitted_on() -> None:
    mixing, shift = uniform(10, 2), 100 * uniform(1, 3)
    mixing[:, 4] *= 1e-4  # codes in units of their own
    found = evaluation(uniform(200, 0), uniform(200, 0) @ mixing + shift)
    fresh = uniform(50, 1)
    assert (mapped(found, fresh @ mixing + shift) - fresh).abs().max() < 0.01
    unrelated = mapped(found, uniform(50, 5) @ mixing + shift)
    assert (unrelated - fresh).abs().mean() > 0.3


def test_codes_that_are_constant_or_double_do_no_harm() -> None:
    z, fresh = uniform(400, 0), uniform(20, 1)

    def codes(latents: Tensor) -> Tensor:
        return torch.cat([latents, latents, torch.ones(len(latents), 1)], dim=1)

    assert (mapped(evaluation(z, codes(z)), codes(fresh)) - fresh).abs().max() < 1e-5


def test_what_codes_do_not_tell_is_the_mean() -> None:
    z, fresh = uniform(4000, 0), uniform(50, 1)
    found = mapped(evaluation(z, z[:, :9]), fresh[:, :9])
    assert (found[:, :9] - fresh[:, :9]).abs().max() < 1e-5
    # Of a uniform factor 4,000 latents estimate the mean with a standard error of 0.01, and each of 9 slopes as well.
    assert found[:, 9].abs().max() < 0.2


def test_they_are_whole_thousandths_and_take_little_room() -> None:
    z, fresh = uniform(200, 0), uniform(128, 1)
    data = recovered(evaluation(z, -3 * z), fresh, -3 * fresh)
    assert data["unit"] == 1e-3 and data["true"][0][0] == round(1000 * float(fresh[0, 0]))
    assert (torch.tensor(data["true"]) - torch.tensor(data["recovered"])).abs().max() <= 1
    assert len(json.dumps(data)) < 15_000


def test_codes_that_are_not_finite_get_a_sentence() -> None:
    z = uniform(100, 0)
    with pytest.raises(ValueError, match="not finite"):
        recovered(evaluation(z, z), z[:2], torch.full((2, 10), float("nan")))
