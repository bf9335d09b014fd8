"""``load``: a trained model from a checkpoint, ready to use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from identica.encoders import encoder_from_dict
from identica.objectives import Objective, objective_from_dict
from identica.training.checkpoint import CheckpointError, checkpoint_path, read_checkpoint
from identica.training.config import TrainConfig
from identica.training.run import TrainingRun
from identica.training.state import Record


def load(
    path: str | os.PathLike[str],
    *,
    encoder: nn.Module | None = None,
    objective: Objective | None = None,
    seed: int | None = None,
) -> TrainingRun:
    """A trained model from a checkpoint, its run's folder or a file that ``run.save`` wrote, on the CPU, ready to use.

    An encoder or objective of your own class cannot be rebuilt from a file: pass one of the same
    architecture, and the saved weights are loaded into it. Weights keep the precision that they were trained in.
    Of seeds that were trained together, ``seed`` says which.
    """
    file = checkpoint_path(path)
    tensors, data = read_checkpoint(file, seed)
    encoder = encoder or _rebuilt(encoder_from_dict, data["encoder"], "encoder", file)
    objective = objective or _rebuilt(objective_from_dict, data["objective"], "objective", file)
    for name, module in (("encoder", encoder), ("objective", objective)):
        weights = {k.removeprefix(f"{name}."): v for k, v in tensors.items() if k.startswith(f"{name}.")}
        try:
            _cast(module, weights).load_state_dict(weights)
        except RuntimeError as error:
            raise CheckpointError(f"The weights in {file} do not fit this {name}: {error}") from error
    return TrainingRun(
        encoder.eval(),
        objective,
        TrainConfig(**data["config"]),
        tuple(Record(**record) for record in data["history"]),
        data["seconds"],
        data["step"],
        data["seed"],
        file,
        diverged=data.get("diverged"),
    )


def _cast(module: nn.Module, weights: dict[str, Tensor]) -> nn.Module:
    """The module in the precision its weights were saved in, which load_state_dict alone would round them from."""
    own = module.state_dict()
    kept = [
        w.dtype for name, w in weights.items() if w.is_floating_point() and name in own and own[name].dtype != w.dtype
    ]
    return module.to(kept[0]) if kept else module


def _rebuilt(build: Any, description: dict[str, Any], name: str, file: Path) -> Any:
    if set(description) == {"class"}:
        raise CheckpointError(
            f"The {name} in {file} is of the class {description['class']}, which is not one of this library's: "
            f"pass one of the same architecture as load(..., {name}=...)."
        )
    try:
        return build(description)
    except (TypeError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"The {name} in {file} cannot be rebuilt ({error}); pass one of the same architecture as "
            f"load(..., {name}=...)."
        ) from error
