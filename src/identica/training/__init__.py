"""The step, the loop, checkpoints, progress, many seeds at once."""

from identica.training.checkpoint import CheckpointError
from identica.training.config import TrainConfig, derive_seed
from identica.training.evaluation import Evaluation, ExcessLoss, evaluate, excess_loss, identity_scores
from identica.training.loading import load
from identica.training.loop import train, train_many
from identica.training.progress import Callback, StopTraining
from identica.training.run import TrainingDiverged, TrainingRun
from identica.training.state import Record, TrainState
from identica.training.step import make_step
from identica.training.vae import VAEEpoch, train_vae

__all__ = [
    "Callback",
    "CheckpointError",
    "Evaluation",
    "ExcessLoss",
    "Record",
    "StopTraining",
    "TrainConfig",
    "TrainState",
    "TrainingDiverged",
    "TrainingRun",
    "VAEEpoch",
    "derive_seed",
    "evaluate",
    "excess_loss",
    "identity_scores",
    "load",
    "make_step",
    "train",
    "train_many",
    "train_vae",
]
