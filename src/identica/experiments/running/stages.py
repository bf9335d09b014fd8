"""Training in stages: one run after the other, each with the encoder that the one before has left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from identica.experiments.catalogue import Model
from identica.experiments.running.seeds import train_seeds
from identica.objectives import Objective
from identica.training import Callback, Record, TrainConfig, TrainingDiverged, TrainingRun, derive_seed
from identica.training.step import Process

if TYPE_CHECKING:
    from identica.experiments.planning import BasePlan


@dataclass(frozen=True)
class Stage:
    """One run of several. Each has an optimiser, a schedule, a process and a loss of its own.

    begin: what is done to the encoder before the stage, if anything.
    """

    name: str
    config: TrainConfig
    process: Callable[[], Process]
    objective: Callable[[], Objective]
    begin: Callable[[nn.Module], None] | None = None


def train_stages(
    plan: BasePlan,
    model: Model,
    seeds: Sequence[int],
    *,
    device: torch.device,
    folder: Path,
    callbacks: Sequence[Callback],
) -> tuple[TrainingRun | TrainingDiverged, ...]:
    """Train each seed through all stages of a plan, one seed after the other, since one fills the device.

    Every stage has a checkpoint of its own in ``folder``: what was interrupted goes on in the stage it was in.
    """
    return tuple(_one_seed(plan, model, seed, device, folder / f"seed-{seed}", callbacks) for seed in seeds)


def _one_seed(
    plan: BasePlan, model: Model, seed: int, device: torch.device, folder: Path, callbacks: Sequence[Callback]
) -> TrainingRun | TrainingDiverged:
    encoder, runs = plan.encoder(model, seed), []
    for stage in plan.stages(model):
        if stage.begin is not None:
            stage.begin(encoder)
        (run,) = train_seeds(
            [stage.process()],
            [encoder],
            [stage.objective()],
            stage.config,
            seeds=[derive_seed(plan.seed(model, seed), stage.name)],
            device=device,
            out=folder / stage.name,
            callbacks=callbacks,
        )
        if isinstance(run, TrainingDiverged):
            return TrainingDiverged(f"{stage.name}: {run}")
        encoder = run.encoder
        runs.append(run)
    return joined(runs)


def joined(runs: Sequence[TrainingRun]) -> TrainingRun:
    """Several runs as one: steps and seconds go on from one to the next."""
    history: list[Record] = []
    steps, seconds = 0, 0.0
    for run in runs:
        # A stage is scored before its first step as well: what the encoder of the one before makes of its data.
        history += [
            replace(record, step=steps + record.step, seconds=seconds + record.seconds) for record in run.history
        ]
        steps, seconds = steps + run.step, seconds + run.seconds
    return replace(runs[-1], history=tuple(history), step=steps, seconds=seconds)
