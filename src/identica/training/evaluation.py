"""Scores of an encoder on fresh latents, and the baselines it is compared with."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from identica.metrics import MatchedScore, Score, linear_r2, mcc
from identica.objectives import Objective
from identica.processes import PairProcess, Pairs
from identica.training.config import derive_seed
from identica.training.step import Process


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
    device: torch.device | str = "cpu",
) -> Evaluation:
    """Score ``encode`` on ``n`` fresh latents: cross-fitted linear R² and MCC.

    A module is put into evaluation mode meanwhile. ``generator`` may be a seed.
    """
    if isinstance(generator, int):
        generator = torch.Generator(device=device).manual_seed(generator)
    was_training = isinstance(encode, nn.Module) and encode.training
    if isinstance(encode, nn.Module):
        encode.eval()
    pairs = first_pairs(process.sample(n, generator))
    h = encode(pairs.x)
    if isinstance(encode, nn.Module):
        encode.train(was_training)
    return Evaluation(linear_r2(pairs.z, h), mcc(pairs.z, h), pairs.z, h)


@dataclass(frozen=True)
class ExcessLoss:
    """How far a loss is above the smallest possible one, with its standard error, in nats."""

    mean: float
    standard_error: float


@torch.no_grad()
def excess_loss(
    process: PairProcess,
    encode: Callable[[Tensor], Tensor],
    objective: Objective,
    n: int,
    batches: int,
    *,
    seed: int = 0,
) -> ExcessLoss:
    """The loss of an encoder minus that of the true latents with the true density ratio, on the same pairs.

    In expectation it is never negative (B, Thm C.1). Because both losses see the same pairs, most of the
    sampling noise cancels, and far fewer batches are needed than for either loss alone.
    """
    if batches < 2:
        raise ValueError(f"excess_loss needs at least two batches for its standard error, not {batches}.")
    generator = torch.Generator(device=process.device).manual_seed(derive_seed(seed, "excess"))
    differences = []
    for _ in range(batches):
        pairs = process.sample(n, generator)
        truth = process.loss_at_truth(pairs).mean()
        differences.append(float(objective.compute(encode, pairs).loss.double() - truth))
    return ExcessLoss(statistics.fmean(differences), statistics.stdev(differences) / batches**0.5)


def identity_scores(
    process: Process, n: int = 4096, *, seed: int = 0, device: torch.device | str = "cpu"
) -> Evaluation:
    """The "identity" baseline of the papers: the observations themselves scored as if they were the code."""
    return evaluate(process, lambda x: x, n, generator=derive_seed(seed, "identity"), device=device)


def first_pairs(pairs: Pairs | tuple[Pairs, ...]) -> Pairs:
    """The pairs, or the first kind of them where a process draws several."""
    return pairs[0] if isinstance(pairs, tuple) else pairs
