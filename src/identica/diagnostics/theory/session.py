"""What the checks share: how much work to do, the random numbers, and what is costly enough to be made once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch

from identica.diagnostics.theory.minimisers import LAPLACE, NORMAL, SPHERE, Minimiser, Task, minimiser
from identica.diagnostics.theory.sampling import KnownMap, SampledLoss, known_maps, sampled_losses
from identica.training import derive_seed


@dataclass(frozen=True)
class Effort:
    """How much work to do.

    negatives: the numbers M of negatives; anchors, repeats: pairs in a batch, and batches, for each of them.
    nodes: quadrature nodes along an axis. steps, batch_size: of each training run.
    distortion: how far from an isometry a run this long may end; see :mod:`.isometries`.
    uniform_samples, null_draws: size of the test of uniformity, and samples of truly uniform points beside it.
    """

    negatives: tuple[int, ...]
    anchors: int
    repeats: int
    nodes: int
    steps: int
    batch_size: int
    distortion: float
    uniform_samples: int
    null_draws: int


FULL = Effort(tuple(4**k for k in range(7)), 512, 160, 32, 1600, 768, 0.05, 1024, 999)
QUICK = Effort(tuple(4**k for k in range(6)), 192, 24, 20, 250, 448, 0.10, 512, 199)


class Session:
    """One run of the checks. Trained encoders and sampled losses are made when a check first asks for them."""

    def __init__(
        self, effort: Effort = FULL, seed: int = 0, notify: Callable[[str, float], None] = lambda what, share: None
    ) -> None:
        self.effort, self.seed, self.notify = effort, seed, notify

    def generator(self, purpose: str) -> torch.Generator:
        """Random numbers of its own for each purpose."""
        return torch.Generator().manual_seed(derive_seed(self.seed, f"theory: {purpose}"))

    @cached_property
    def known(self) -> dict[str, KnownMap]:
        """The known maps, by name."""
        return known_maps(self.effort.nodes)

    @cached_property
    def losses(self) -> dict[str, tuple[SampledLoss, ...]]:
        """The sampled loss of each known map, M by M."""
        sampled = {}
        for done, (name, known) in enumerate(self.known.items()):
            self.notify(f"sampling the loss: {name}", done / len(self.known))
            sampled[name] = sampled_losses(
                known,
                self.effort.negatives,
                anchors=self.effort.anchors,
                repeats=self.effort.repeats,
                generator=self.generator(name),
            )
        return sampled

    @cached_property
    def sphere(self) -> Minimiser:
        """Von Mises-Fisher pairs on the sphere, dot product, codes on a sphere of learned radius."""
        return self._trained(SPHERE)

    @cached_property
    def laplace(self) -> Minimiser:
        """Laplace pairs on the box, L1 distance, codes in a box of learned size."""
        return self._trained(LAPLACE)

    @cached_property
    def normal(self) -> Minimiser:
        """Normal pairs on the box, squared L2 distance, codes in all of R^N."""
        return self._trained(NORMAL)

    def _trained(self, task: Task) -> Minimiser:
        effort = self.effort
        return minimiser(task, effort.steps, effort.batch_size, seed=self.seed, notify=self.notify)
