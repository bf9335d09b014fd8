"""Every step of paper B at its full size on a GPU: mapped over seeds, it never waits for the device.

On a CUDA device that computes nothing (:mod:`tests.experiments.imagined_cuda`), so that it takes no GPU.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from identica.data import LabelledImages  # noqa: E402
from identica.encoders import VAE  # noqa: E402
from identica.experiments import find  # noqa: E402
from identica.experiments.aninfonce.plan import LossPlan  # noqa: E402
from identica.experiments.catalogue import Model, catalogue  # noqa: E402
from identica.experiments.mnist.plan import MnistPlan  # noqa: E402
from identica.experiments.mnist.rows import VaeSettings  # noqa: E402
from identica.experiments.running.supplies import Digits, Supplies, augment  # noqa: E402
from identica.training.together import Together  # noqa: E402
from identica.training.vae import _Training  # noqa: E402
from tests.experiments.imagined_cuda import (  # noqa: E402
    DEVICE,
    Log,
    captured,
    imagined_cuda,
    imagined_generators,
    make_state,
)

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU, tests/gpu asks the GPU itself")

#: What the log-partition is computed by, forward and backward.
PAIRS = [{"triton_narrow.forward", "triton_narrow.gradient"}, {"triton_wide.forward", "triton_wide.product_gradient"}]


def every_kind() -> Iterator[Any]:
    """One model of each kind: an experiment, a row and a model, no two with equal losses, dimensions and batches."""
    seen = set()
    for experiment in catalogue():
        for row in experiment.rows if experiment.id.startswith("aninfonce/") else ():
            plan = experiment.plan(row, "fast", "cuda")
            for model in plan.trained:
                kind = (experiment.id, plan.loss_label(model), plan.row.losses[model].learned)  # type: ignore[attr-defined]
                if kind not in seen:
                    seen.add(kind)
                    yield pytest.param(experiment.id, row.number, model, id=f"{experiment.id} {row.number} {model}")


@pytest.fixture(scope="module")
def supplies(tmp_path_factory: pytest.TempPathFactory) -> Supplies:
    """A handful of images in place of MNIST, and VAEs that were not trained: only shapes matter."""
    made = Supplies(None, tmp_path_factory.mktemp("out"), torch.device("cpu"))
    images = LabelledImages(torch.zeros(5000, 1, 28, 28, dtype=torch.uint8), torch.arange(5000) % 10)
    made.__dict__["digits"] = Digits(images, images)
    for seed in range(2):
        made._vaes[VaeSettings(), seed] = VAE()
    return made


def plan_of(experiment: str, row: str, supplies: Supplies) -> LossPlan:
    """With a mixing that is drawn at once."""
    found = find(experiment)
    plan: Any = found.plan(found.row(row), "fast", "cuda")
    if isinstance(plan, MnistPlan):
        return plan.supplied(supplies)
    return replace(plan, recipe=replace(plan.recipe, candidates=1))


def step(plan: LossPlan, model: Model, seeds: int) -> Log:
    """What one step of so many seeds asks of the device, after one in which tables are built."""
    config = replace(plan.train_config(model), steps=10)
    parts: list[Any] = [
        (plan.training_process(model, seed), plan.encoder(model, seed), plan.objective(model)) for seed in range(seeds)
    ]
    with imagined_cuda() as log:
        processes = [process.to(DEVICE) for process, _, _ in parts]
        states = [make_state(encoder, objective, config, seed) for seed, (_, encoder, objective) in enumerate(parts)]
        together = Together(processes, states, config, mapped=seeds > 1)
        together.advance()
        with warnings.catch_warnings(), captured(log):
            warnings.simplefilter("error")
            together.advance()
    return log


@pytest.mark.parametrize(("experiment", "row", "model"), list(every_kind()))
def test_a_step_can_be_captured(experiment: str, row: str, model: Model, supplies: Supplies) -> None:
    plan = plan_of(experiment, row, supplies)
    seeds = min(2, plan.experiment.seeds)
    log = step(plan, model, seeds)
    batch = plan.train_config(model).batch_size
    if plan.row.losses[model].kind != "tricl":  # which needs no pairs
        assert any(way <= set(log.launches) for way in PAIRS), "the pairs are compared by fused kernels"
    if batch >= 4096:
        assert log.largest < seeds * batch**2, "nothing has the size of the matrix of all pairs"
    assert len(log.launches) + len(log.operations) < 1000, "a step is a few hundred launches at most"


@pytest.mark.parametrize("views", ["plain", "crops and blurs", "crops and flips"])
def test_a_step_of_the_vae_can_be_captured(views: Any) -> None:
    settings, vae = VaeSettings(views=views), VAE().to(DEVICE)
    images = torch.zeros(60_000, 1, 28, 28, dtype=torch.uint8, device=DEVICE)
    with imagined_cuda() as log, imagined_generators():
        training = _Training(images, vae, settings.batch_size, settings.lr, augment(settings), seed=0)
        training._step()
        with captured(log):
            training._step()
    assert log.largest < 10_000_000, "a batch is looked at, not all images"


# The imagined device notices what a real one would refuse


@pytest.mark.parametrize(
    ("sin", "complaint"),
    [
        (lambda x: x * float(x.sum()), "meta tensors"),
        (lambda x: x[x.sum(dim=1) > 0], "nonzero|dynamic|data"),
        (lambda x: x + torch.zeros(x.shape[1]), "is not on the expected device"),
        (lambda x: x + torch.zeros(x.shape[1]).to(x.device), "brings tensors of the shapes"),
        (lambda x: x * torch.tensor(2.0, device=x.device), "brings 2.0 to the device"),
        (lambda x: torch.vmap(torch.nonzero)(x), "vmap|fallback|batching"),
    ],
    ids=[
        "a number is read",
        "a shape depends on data",
        "devices are mixed",
        "a tensor is brought",
        "a number is brought",
        "cannot be mapped",
    ],
)
def test_what_cannot_be_captured_is_noticed(sin: Any, complaint: str) -> None:
    x: Tensor = torch.zeros(6, 3, device=DEVICE)
    with imagined_cuda() as log, captured(log), pytest.raises((RuntimeError, AssertionError), match=complaint):
        sin(x)
