"""What training leaves behind: the trained encoder and how it got there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from identica.objectives import Objective
from identica.training.checkpoint import save_model
from identica.training.config import TrainConfig
from identica.training.state import Record


class TrainingDiverged(FloatingPointError):
    """The loss was NaN or infinite; the message names the step and what to try."""


@dataclass(frozen=True)
class TrainingRun:
    """A trained encoder and how it got there. Calling it encodes: ``run(x) -> h``, without gradients.

    ``diverged`` is None, or says what went wrong with this seed where others were trained together with it.
    """

    encoder: nn.Module
    objective: Objective
    config: TrainConfig
    history: tuple[Record, ...]
    seconds: float
    step: int
    seed: int
    path: Path | None = None
    diverged: str | None = None

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """The codes of the observations ``x: (n, ...)``."""
        return self.encoder(x)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as it is now into one ``.safetensors`` file, which :func:`identica.load` reads.

        For a run without ``out=``, or one whose codes were turned since. Training cannot go on from that file; for that
        there are the checkpoints in ``out``, which are not overwritten. An older model there is replaced when the new
        one is whole.
        """
        save_model(Path(path), self)

    @property
    def scores(self) -> dict[str, float]:
        """The last evaluation's scores."""
        return dict(self.history[-1].scores)
