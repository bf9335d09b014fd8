"""One encoder for each seed, all trained together, from their checkpoint where there is one that can be used."""

from __future__ import annotations

import copy
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from identica.objectives import Objective
from identica.training import (
    Callback,
    CheckpointError,
    TrainConfig,
    TrainingDiverged,
    TrainingRun,
    TrainState,
    train_many,
)
from identica.training.step import Process


def train_seeds(
    processes: Sequence[Process],
    encoders: Sequence[nn.Module],
    objectives: Sequence[Objective],
    config: TrainConfig,
    *,
    seeds: Sequence[int],
    device: torch.device,
    out: Path,
    callbacks: Sequence[Callback],
) -> tuple[TrainingRun | TrainingDiverged, ...]:
    """Train copies of the encoders, one for each seed; a seed that diverges does not stop the others.

    Element i of every sequence belongs to seed i. ``out`` is the folder of their checkpoint and of nothing else: one
    that is there is continued, one that cannot be used is removed with a warning.
    """
    started = _Started()

    def attempt() -> tuple[TrainingRun, ...]:
        return train_many(
            processes,
            [copy.deepcopy(encoder) for encoder in encoders],
            [copy.deepcopy(objective) for objective in objectives],
            config,
            seeds=seeds,
            device=device,
            out=out,
            resume=True,
            callbacks=[started, *callbacks],
            quiet=True,
        )

    try:
        try:
            runs = attempt()
        except CheckpointError as error:
            if started.yes:  # not a checkpoint that cannot be used, but one that cannot be written
                raise
            warnings.warn(f"{error} It is removed, and the run starts afresh.", stacklevel=2)
            shutil.rmtree(out, ignore_errors=True)
            runs = attempt()
    except TrainingDiverged as error:  # every one of them
        return (error,) * len(seeds)
    return tuple(run if run.diverged is None else TrainingDiverged(run.diverged) for run in runs)


class _Started(Callback):
    """Whether any run got as far as training."""

    yes = False

    def on_start(self, state: TrainState, config: TrainConfig) -> None:
        self.yes = True
