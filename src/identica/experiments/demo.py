"""The theory in two runs: a matched objective finds the factors, a rotation-symmetric one only their span.

Five factors, uniform on a box, pairs that differ by truncated Laplace noise, a nonlinear mixing. The
similarity that matches the noise, −‖·‖₁/λ, identifies the factors up to order, sign and scale (A, Theorem 6).
A squared Euclidean distance on an unbounded code cannot tell a rotation from the truth (A, Theorem 5):
the same data, the same network, and the axes are lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from identica.distributions import BoxUniform, Conditional, TruncatedLaplace
from identica.encoders import ResidualEncoder
from identica.mixing import InvertibleMLP
from identica.objectives import InfoNCE, Objective, Supervised
from identica.processes import OptimalLoss, PairProcess
from identica.similarities import LpSimilarity
from identica.spaces import Box, Euclidean, Space
from identica.training import (
    Evaluation,
    ExcessLoss,
    TrainConfig,
    TrainingRun,
    derive_seed,
    evaluate,
    excess_loss,
    identity_scores,
    train,
)
from identica.training.checkpoint import checkpoint_path

DIM = 5
SCALE = 0.05
PAIRS = Conditional(TruncatedLaplace, scale=SCALE)
EVALUATION_SAMPLES = 4096
FLOOR_BATCHES = 16


@dataclass(frozen=True)
class DemoRow:
    """One model of the demo and how well it recovers the factors."""

    name: str
    title: str
    sees: str
    evaluation: Evaluation
    run: TrainingRun | None = None
    excess: ExcessLoss | None = None


@dataclass(frozen=True)
class Demo:
    """Everything the demo's table and report show."""

    rows: tuple[DemoRow, ...]
    process: PairProcess
    floor: OptimalLoss
    seed: int
    seconds: float

    def __getitem__(self, name: str) -> DemoRow:
        return next(row for row in self.rows if row.name == name)


@dataclass(frozen=True)
class _Model:
    """What sets one trained model of the demo apart from the others."""

    name: str
    title: str
    sees: str
    label: str
    space: Space
    objective: Callable[[], Objective]


def demo_process(seed: int) -> PairProcess:
    """Uniform factors on [0, 1]^5, Laplace pairs, a three-layer invertible mixing."""
    return PairProcess(
        marginal=BoxUniform(DIM),
        conditional=PAIRS,
        mixing=InvertibleMLP(DIM, layers=3, seed=derive_seed(seed, "mixing")),
    )


_CONFIG = TrainConfig(
    steps=1000, batch_size=1024, lr=6e-3, schedule="cosine", eval_every=50, eval_samples=2048, checkpoint_every=100
)
#: The wrong kernel may be as wide as one likes: on an unbounded code it only sets the scale.
_WRONG_TEMPERATURE = 0.2

_MODELS = (
    _Model(
        "supervised",
        "Supervised",
        "the true factors as targets",
        "supervised",
        Box(DIM),
        Supervised,
    ),
    _Model(
        "matched",
        "Contrastive, matched objective",
        "pairs only; −‖h − h̃‖₁/λ, as the pairs differ",
        "matched (L1)",
        Box(DIM),
        lambda: InfoNCE(PAIRS.similarity()),
    ),
    _Model(
        "mismatched",
        "Contrastive, rotation-symmetric objective",
        "the same pairs; −‖h − h̃‖₂², unbounded code",
        "mismatched (L2)",
        Euclidean(DIM),
        lambda: InfoNCE(LpSimilarity(2, temperature=_WRONG_TEMPERATURE)),
    ),
)


def run_demo(out: Path, *, seed: int = 0, steps: int | None = None, resume: bool = False, quiet: bool = False) -> Demo:
    """Train the three models, score them and the raw observations. ``out`` keeps their checkpoints.

    Without ``resume`` an earlier demo in the same folder is replaced.
    """
    process, config = demo_process(seed), _CONFIG if steps is None else replace(_CONFIG, steps=steps)
    rows = [DemoRow("identity", "Identity", "the observations themselves", identity_scores(process, seed=seed))]
    if not resume:  # all of them now: a resumed run must never meet a model of an earlier demo
        for model in _MODELS:
            checkpoint_path(out / model.name).unlink(missing_ok=True)
    for model in _MODELS:
        encoder = ResidualEncoder(DIM, model.space, seed=derive_seed(seed, "encoder"))
        run = train(
            process,
            encoder,
            model.objective(),
            config,
            seed=seed,
            out=out / model.name,
            resume=resume,
            quiet=quiet,
            description=f"{model.label:<15}",
        )
        evaluation = evaluate(process, run, EVALUATION_SAMPLES, generator=derive_seed(seed, "demo"))
        excess = None
        if isinstance(run.objective, InfoNCE):
            excess = excess_loss(process, run, run.objective, _CONFIG.batch_size, FLOOR_BATCHES, seed=seed)
        rows.append(DemoRow(model.name, model.title, model.sees, evaluation, run, excess))
    floor = process.optimal_loss(_CONFIG.batch_size, FLOOR_BATCHES, generator=derive_seed(seed, "floor"))
    return Demo(tuple(rows), process, floor, seed, sum(row.run.seconds for row in rows if row.run))
