"""Adam over one vector against torch's Adam, in Triton's interpreter and (``-m gpu``) on the GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("triton")

from identica.training.flat_adam import FlatAdam  # noqa: E402

HAS_CUDA = torch.cuda.is_available()
DEVICES = [
    pytest.param("cpu", marks=pytest.mark.skipif(HAS_CUDA, reason="the interpreter is off where there is a GPU")),
    pytest.param("cuda", marks=pytest.mark.gpu),
]


def make_parameters(device: str) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(3, 4), (5,), (), (70, 30)]
    return [nn.Parameter(torch.randn(shape, generator=generator).to(device)) for shape in shapes]


def make_optimizer(parameters: list[nn.Parameter], kind: str) -> torch.optim.Optimizer:
    rate = torch.full((), 1e-2, device=parameters[0].device)
    groups: list[dict[str, Any]] = [{"params": parameters[:2], "lr": rate}, {"params": parameters[2:], "lr": 3 * rate}]
    if kind == "flat adam":
        return FlatAdam(groups)
    if kind == "flat adamw":
        return FlatAdam(groups, weight_decay=0.01, decoupled=True)
    plain = [{**group, "lr": float(group["lr"])} for group in groups]
    return torch.optim.Adam(plain) if kind == "adam" else torch.optim.AdamW(plain, weight_decay=0.01)


def take_steps(parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer, first: int, count: int) -> None:
    for step in range(first, first + count):
        generator = torch.Generator().manual_seed(step)
        for k, parameter in enumerate(parameters):
            scale = 10.0 ** (2 * k - 4)  # gradients of all sizes
            parameter.grad = (scale * torch.randn(parameter.shape, generator=generator)).to(parameter.device)
        optimizer.step()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_the_numbers_are_those_of_torch(device: str, kind: str) -> None:
    ours, theirs = make_parameters(device), make_parameters(device)
    take_steps(ours, make_optimizer(ours, f"flat {kind}"), 0, 20)
    take_steps(theirs, make_optimizer(theirs, kind), 0, 20)
    for mine, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("saved_by", ["adam", "flat adam"])
def test_what_either_saved_can_be_loaded(device: str, saved_by: str) -> None:
    before = make_parameters(device)
    saving = make_optimizer(before, saved_by)
    take_steps(before, saving, 0, 5)
    after = make_parameters(device)
    with torch.no_grad():
        for new, old in zip(after, before, strict=True):
            new.copy_(old)
    loading = make_optimizer(after, "flat adam")
    rates = [group["lr"] for group in loading.param_groups]
    loading.load_state_dict(saving.state_dict())
    for group, rate in zip(loading.param_groups, rates, strict=True):
        group["lr"] = rate
    take_steps(before, saving, 5, 5)
    take_steps(after, loading, 5, 5)
    for mine, expected in zip(after, before, strict=True):
        torch.testing.assert_close(mine, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_parameters_share_one_vector_and_stay_what_they_were(device: str) -> None:
    parameters, expected = make_parameters(device), make_parameters(device)
    optimizer = make_optimizer(parameters, "flat adam")
    for mine, before in zip(parameters, expected, strict=True):
        assert torch.equal(mine, before)
    assert parameters[0].untyped_storage().data_ptr() == parameters[1].untyped_storage().data_ptr()
    parameters[0].grad = torch.ones_like(parameters[0])  # the others have none
    optimizer.step()
    assert not torch.equal(parameters[0], expected[0]) and torch.equal(parameters[3], expected[3])
