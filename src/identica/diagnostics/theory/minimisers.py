"""Encoders trained for seconds, as close to a minimiser of the loss as that gets: what the theorems speak of."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from identica.distributions import (
    BoxUniform,
    Conditional,
    SphereUniform,
    TruncatedLaplace,
    TruncatedNormal,
    VonMisesFisher,
)
from identica.encoders import ResidualEncoder
from identica.objectives import InfoNCE
from identica.processes import PairProcess
from identica.similarities import DotProduct, LpSimilarity
from identica.spaces import Box, Euclidean, Space, Sphere
from identica.training import Callback, ExcessLoss, TrainConfig, derive_seed, excess_loss, train
from identica.training.state import Record, TrainState

DIM = 3
EVALUATION_SAMPLES = 4096
#: How often a run is looked at on its way.
LOOKS = 8


@dataclass(frozen=True)
class Task:
    """Pairs, a similarity that matches them up to scale, and the space of the codes.

    ``kept`` is the matching similarity of the latents: at a minimiser u(h(z), h(z̃)) = kept(z, z̃) (A, Prop. 1, 4).
    """

    name: str
    process: Callable[[Callable[[Tensor], Tensor]], PairProcess]
    objective: Callable[[], InfoNCE]
    space: Space
    kept: Callable[[Tensor, Tensor], Tensor]


KAPPA, SPHERE_TEMPERATURE = 4.0, 0.5
LAPLACE_SCALE, LAPLACE_TEMPERATURE = 0.15, 0.3
NORMAL_SCALE, NORMAL_TEMPERATURE = 0.15, 0.2

SPHERE = Task(
    "sphere",
    lambda mixing: PairProcess(SphereUniform(DIM), Conditional(VonMisesFisher, concentration=KAPPA), mixing),
    lambda: InfoNCE(DotProduct(SPHERE_TEMPERATURE)),
    Sphere(DIM),
    lambda a, b: KAPPA * (a * b).sum(dim=-1),
)
LAPLACE = Task(
    "box, L1",
    lambda mixing: PairProcess(BoxUniform(DIM), Conditional(TruncatedLaplace, scale=LAPLACE_SCALE), mixing),
    lambda: InfoNCE(LpSimilarity(1, LAPLACE_TEMPERATURE)),
    Box(DIM),
    lambda a, b: -(a - b).abs().sum(dim=-1) / LAPLACE_SCALE,
)
NORMAL = Task(
    "box, L2",
    lambda mixing: PairProcess(BoxUniform(DIM), Conditional(TruncatedNormal, scale=NORMAL_SCALE), mixing),
    lambda: InfoNCE(LpSimilarity(2, NORMAL_TEMPERATURE)),
    Euclidean(DIM),
    lambda a, b: -(a - b).square().sum(dim=-1) / (2 * NORMAL_SCALE**2),
)


def smooth_mixing(dim: int, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
    """A smooth, nonlinear, injective g: R^dim → R^dim, as the theorems ask for.

    Two rounds of z ↦ z + Q sin(3 Qᵀz + b)/6 with random orthogonal Q, then a linear map that stretches by 1 to 2.
    The Jacobian of a round is I + ½ Q diag(cos) Qᵀ, whose eigenvalues lie between ½ and 3/2.
    """
    rounds = [
        (_orthogonal(dim, generator), 2 * math.pi * torch.rand(dim, generator=generator, dtype=torch.float64))
        for _ in range(2)
    ]
    stretch = _orthogonal(dim, generator) * torch.linspace(1, 2, dim, dtype=torch.float64)
    last = stretch @ _orthogonal(dim, generator)

    def mix(z: Tensor) -> Tensor:
        for turn, phase in rounds:
            q, b = turn.to(z), phase.to(z)
            z = z + torch.sin(3 * z @ q + b) @ q.T / 6
        return z @ last.to(z)

    return mix


def _orthogonal(dim: int, generator: torch.Generator) -> Tensor:
    return torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64)).Q


@dataclass(frozen=True)
class Snapshot:
    """An encoder on its way: codes of the evaluation latents, and how far its loss is above the smallest possible."""

    step: int
    excess: ExcessLoss
    h: Tensor


@dataclass(frozen=True)
class Minimiser:
    """A trained encoder. ``z: (n, d)`` evaluation latents, ``x`` and ``h`` of them, ``looks``: the way there."""

    task: Task
    process: PairProcess
    encoder: ResidualEncoder
    objective: InfoNCE
    z: Tensor
    x: Tensor
    looks: tuple[Snapshot, ...]
    seconds: float

    @property
    def h(self) -> Tensor:
        """The codes of ``z`` at the end: ``(n, d)``."""
        return self.looks[-1].h

    @property
    def excess(self) -> ExcessLoss:
        """How far the loss is above the smallest possible at the end."""
        return self.looks[-1].excess

    @property
    def leftover(self) -> str:
        """Why a theorem about minimisers is not met to the last digit, in a few words."""
        excess = self.excess
        return f"what training leaves: {excess.mean:.4f} ± {excess.standard_error:.4f} nats above the floor"

    def map(self, z: Tensor) -> Tensor:
        """The map h = f ∘ g on latents ``(n, d)``, with gradients."""
        assert self.process.mixing is not None
        return self.encoder(self.process.mixing(z))


def minimiser(task: Task, steps: int, batch_size: int, *, seed: int, notify: Callable[[str, float], None]) -> Minimiser:
    """Train an encoder on ``task`` and look at it on its way. ``notify(name, share done)`` is called as it goes."""
    mixing = smooth_mixing(DIM, torch.Generator().manual_seed(derive_seed(seed, f"{task.name} mixing")))
    process, objective = task.process(mixing), task.objective()
    encoder = ResidualEncoder(DIM, task.space, width=64, learn_radius=True, seed=derive_seed(seed, "encoder"))
    config = TrainConfig(
        steps=steps,
        batch_size=batch_size,
        lr=1e-2,
        schedule="cosine",
        eval_every=math.ceil(steps / LOOKS),
        eval_samples=256,
    )
    watcher = _Watcher(task, process, objective, notify, seed)
    run = train(process, encoder, objective, config, seed=seed, callbacks=[watcher], quiet=True)
    pairs, last = watcher.pairs, watcher.look(run.step, encoder, batches=48)
    return Minimiser(task, process, encoder, objective, pairs.z, pairs.x, (*watcher.looks, last), run.seconds)


class _Watcher(Callback):
    """Keeps the codes and the excess loss at each evaluation, and says how far training is."""

    def __init__(
        self,
        task: Task,
        process: PairProcess,
        objective: InfoNCE,
        notify: Callable[[str, float], None],
        seed: int,
    ) -> None:
        self._task, self._process, self._objective, self._notify = task, process, objective, notify
        self._seed, self._steps = seed, 1
        self.pairs = process.sample(EVALUATION_SAMPLES, derive_seed(seed, f"{task.name} evaluation"))
        self.looks: list[Snapshot] = []

    def on_start(self, state: TrainState, config: TrainConfig) -> None:
        """Remember how many steps there will be."""
        self._steps = config.steps

    def on_step(self, state: TrainState) -> None:
        """Say how far it is."""
        self._notify(f"training: {self._task.name}", state.step / self._steps)

    def on_evaluation(self, state: TrainState, record: Record) -> None:
        """Keep what the encoder is now; the last look is taken when training is over, with more care."""
        if state.step < self._steps:
            self.looks.append(self.look(state.step, state.encoder, batches=16))

    @torch.no_grad()
    def look(self, step: int, encoder: nn.Module, batches: int) -> Snapshot:
        """The codes of the evaluation latents, and the excess loss from so many batches of 512 pairs."""
        excess = excess_loss(self._process, encoder, self._objective, 512, batches, seed=self._seed)
        return Snapshot(step, excess, encoder(self.pairs.x))
