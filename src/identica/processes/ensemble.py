"""Several kinds of pairs of one world."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.types import Device

from identica._randomness import Randomness
from identica.mixing import same_mixing
from identica.processes.optimal_loss import OptimalLoss
from identica.processes.pair_process import PairProcess
from identica.processes.pairs import Pairs
from identica.processes.parts import moved_mixing
from identica.spaces import Space


class EnsembleProcess:
    """Several processes seen through one mixing (B, Rem. D.4): each step draws pairs of every kind.

    Together they identify factors that no single kind of pairs tells apart.
    """

    def __init__(self, *processes: PairProcess) -> None:
        if not processes or not all(isinstance(process, PairProcess) for process in processes):
            raise TypeError("EnsembleProcess needs PairProcesses, as in EnsembleProcess(first, second).")
        if len(processes) < 2:
            raise ValueError("An ensemble needs at least two processes; one is used as it is, without EnsembleProcess.")
        first = processes[0]
        for process in processes[1:]:
            if process.dim != first.dim:
                raise ValueError(
                    f"The processes of an ensemble share their latent space, but one has dimension {first.dim} "
                    f"and another {process.dim}."
                )
            if not same_mixing(process.mixing, first.mixing):
                raise ValueError(
                    "The processes of an ensemble are views of one world: they must share their mixing. Make "
                    "it once, mixing = InvertibleMLP(...), and pass it to each of them."
                )
        self.processes = processes
        self.dim, self.mixing, self.device, self.dtype = first.dim, first.mixing, first.device, first.dtype

    def sample(self, n: int, generator: Randomness) -> tuple[Pairs, ...]:
        """``n`` pairs of each kind, drawn one kind after the other."""
        source = self.processes[0]._generator(generator)
        return tuple(process.sample(n, source) for process in self.processes)

    def to(self, device: Device = None, dtype: torch.dtype | None = None) -> EnsembleProcess:
        """The same ensemble on another device or in another precision; the mixing is moved once."""
        mixing = moved_mixing(self.mixing, device, dtype)
        return EnsembleProcess(*(process._moved(device, dtype, mixing) for process in self.processes))

    def optimal_loss(
        self,
        n: int,
        batches: int = 16,
        *,
        generator: Randomness = 0,
        include_positive: bool = True,
        self_negatives: bool = False,
    ) -> OptimalLoss:
        """The sum of the processes' least losses, as EnsembleInfoNCE is the sum of its members' losses.

        Arguments as in :meth:`PairProcess.optimal_loss`; all batches of one process are drawn before those of the next.
        """
        source = self.processes[0]._generator(generator)
        settings = {"include_positive": include_positive, "self_negatives": self_negatives}
        each = [process.optimal_loss(n, batches, generator=source, **settings) for process in self.processes]
        return OptimalLoss.of([sum(losses) for losses in zip(*(one.per_batch for one in each), strict=True)], each[0].n)

    def loss_at_truth(
        self, pairs: tuple[Pairs, ...], *, include_positive: bool = True, self_negatives: bool = False
    ) -> Tensor:
        """The same loss on given pairs, one set per process, item by item: ``(n,)`` in float64."""
        settings = {"include_positive": include_positive, "self_negatives": self_negatives}
        each = zip(self.processes, pairs, strict=True)
        return torch.stack([process.loss_at_truth(own, **settings) for process, own in each]).sum(dim=0)

    @property
    def space(self) -> Space | None:
        """Where the anchors of the first kind live, if known."""
        return self.processes[0].space

    def to_dict(self) -> dict[str, Any]:
        """``{"process": "ensemble", "processes": [...]}``."""
        return {"process": "ensemble", "processes": [process.to_dict() for process in self.processes]}

    def __repr__(self) -> str:
        return f"EnsembleProcess({', '.join(map(repr, self.processes))})"
