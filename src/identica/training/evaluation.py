"""Scores of an encoder on fresh latents, and the baselines it is compared with."""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from identica.metrics import MatchedScore, Score, linear_r2, mcc
from identica.objectives import EnsembleInfoNCE, InfoNCE, Objective
from identica.processes import EnsembleProcess, PairProcess, Pairs
from identica.training.config import derive_seed
from identica.training.step import Process

#: Settings of InfoNCE without a part in the density ratio.
_NOTHING_ADDED = {"centring": 0.0, "decorrelation": 0.0}


@dataclass(frozen=True)
class Evaluation:
    """The two scores of the papers on one sample, and the sample: ``z: (n, d)`` true, ``h: (n, k)`` recovered."""

    r2: Score
    mcc: MatchedScore
    z: Tensor
    h: Tensor

    @property
    def scores(self) -> dict[str, float]:
        """``{"r2": ..., "mcc": ...}``."""
        return {"r2": self.r2.score, "mcc": self.mcc.score}


@torch.no_grad()
def evaluate(
    process: Process,
    encode: Callable[[Tensor], Tensor],
    n: int = 4096,
    *,
    generator: torch.Generator | int = 0,
    device: torch.device | str | None = None,
) -> Evaluation:
    """Score ``encode`` on ``n`` fresh latents: cross-fitted linear R² and MCC.

    A module is put into evaluation mode meanwhile. ``generator`` may be a seed. A process with an
    ``evaluation_process`` (:class:`identica.processes.EvaluatedOn`) is scored on that one.

    device: where ``encode`` is; a process that is elsewhere is moved there. None: where the process is.
    """
    scored = _placed(_scored_on(process), device)
    if isinstance(generator, int):
        place = getattr(scored, "device", "cpu") if device is None else device
        generator = torch.Generator(device=place).manual_seed(generator)
    pairs = first_pairs(scored.sample(n, generator))
    if not _has_latents(pairs):
        raise ValueError(
            f"{type(process).__name__} draws observations without latents, so there is nothing to score codes against; "
            "readouts such as identica.metrics.knn_accuracy judge them by labels."
        )
    return _evaluated(pairs, encode)


@torch.no_grad()
def scores_where_known(
    process: Process, encode: Callable[[Tensor], Tensor], n: int, generator: torch.Generator
) -> dict[str, float]:
    """The scores of :func:`evaluate`; none where nobody knows the latents, as of augmented views of real images."""
    pairs = first_pairs(_scored_on(process).sample(n, generator))
    return _evaluated(pairs, encode).scores if _has_latents(pairs) else {}


def _scored_on(process: Any) -> Process:
    """What scores are computed on: the process itself, unless it names another one for that."""
    return getattr(process, "evaluation_process", process)


def _placed(process: Any, device: torch.device | str | None) -> Process:
    """The process on a device. One that does not say where it is stays as it is."""
    place = getattr(process, "device", None)
    if device is None or place is None or torch.empty(0, device=device).device == torch.empty(0, device=place).device:
        return process
    return process.to(device)


def _has_latents(pairs: Any) -> bool:
    return getattr(pairs, "z", None) is not None


def _evaluated(pairs: Pairs, encode: Callable[[Tensor], Tensor]) -> Evaluation:
    with evaluation_mode(encode):
        h = encode(pairs.x)
    return Evaluation(linear_r2(pairs.z, h), mcc(pairs.z, h), pairs.z, h)


@contextmanager
def evaluation_mode(encode: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Evaluation mode while it lasts; afterwards every submodule is as it was, also those someone froze."""
    modules = list(encode.modules()) if isinstance(encode, nn.Module) else []
    modes = [module.training for module in modules]
    for module in modules:
        module.training = False
    try:
        yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode


@dataclass(frozen=True)
class ExcessLoss:
    """How far a loss is above the smallest possible one, with its standard error, in nats."""

    mean: float
    standard_error: float


@torch.no_grad()
def excess_loss(
    process: PairProcess | EnsembleProcess,
    encode: Callable[[Tensor], Tensor],
    objective: Objective,
    n: int,
    batches: int,
    *,
    seed: int = 0,
) -> ExcessLoss:
    """The loss of an encoder minus that of the true latents with the true density ratio, on the same pairs.

    With InfoNCE's default settings it is never negative in expectation (B, Thm C.1). Because both losses see
    the same pairs, most of the sampling noise cancels, and far fewer batches are needed than for either alone.
    ``include_positive`` and ``self_negatives`` hold for both losses; other negatives have another floor.
    ``centring`` and ``decorrelation`` are no part of that floor, and are left out. For an EnsembleProcess with an
    EnsembleInfoNCE it is the sum over the members.
    """
    objective, settings = _with_a_floor(objective)
    if isinstance(process, EnsembleProcess) != isinstance(objective, EnsembleInfoNCE):
        raise ValueError(
            "An EnsembleProcess goes with an EnsembleInfoNCE, one similarity for each of its processes, and one "
            "process with one InfoNCE."
        )
    if batches < 2:
        raise ValueError(f"excess_loss needs at least two batches for its standard error, not {batches}.")
    generator = torch.Generator(device=process.device).manual_seed(derive_seed(seed, "excess"))
    differences = []
    for _ in range(batches):
        pairs: Any = process.sample(n, generator)
        truth = process.loss_at_truth(pairs, **settings).mean()
        differences.append(float(objective.compute(encode, pairs).loss.double() - truth))
        if not math.isfinite(differences[-1]):
            raise ValueError(
                "The loss of these codes is NaN or infinite, so that it has no distance from its minimum: look at "
                "what the encoder returns."
            )
    return ExcessLoss(statistics.fmean(differences), statistics.stdev(differences) / batches**0.5)


def _with_a_floor(objective: Objective) -> tuple[Objective, dict[str, bool]]:
    """The loss without what is added to InfoNCE, and the settings that its floor depends on."""
    if isinstance(objective, EnsembleInfoNCE):
        member = objective._members()[0]  # the settings are those of all
        _, settings = _with_a_floor(member)
        return EnsembleInfoNCE(objective.similarities, **member.settings() | _NOTHING_ADDED), settings
    if not isinstance(objective, InfoNCE) or objective.negatives != "anchors":
        raise ValueError("excess_loss needs an InfoNCE whose negatives are the other anchors.")
    if not isinstance(objective.self_negatives, bool):
        raise ValueError("excess_loss does not know the floor of a loss with weighed self-pairs.")
    if objective.symmetric or objective.in_batch:
        raise ValueError("excess_loss does not know the floor of a symmetric loss, nor of mixed negatives.")
    bare = copy.copy(objective)
    vars(bare).update(_NOTHING_ADDED)
    return bare, {name: getattr(objective, name) for name in ("include_positive", "self_negatives")}


def identity_scores(
    process: Process, n: int = 4096, *, seed: int = 0, device: torch.device | str = "cpu"
) -> Evaluation:
    """The "identity" baseline of the papers: the observations themselves scored as if they were the code."""
    return evaluate(process, lambda x: x, n, generator=derive_seed(seed, "identity"), device=device)


def first_pairs(pairs: Pairs | tuple[Pairs, ...]) -> Pairs:
    """The pairs, or the first kind of them where a process draws several."""
    return pairs[0] if isinstance(pairs, tuple) else pairs
