"""Codes of fresh pairs, batch by batch: what a precision and its axes are estimated from."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from identica._numbers import whole_number
from identica._randomness import as_generator
from identica.objectives import InfoNCE
from identica.objectives.base import encode_pairs
from identica.processes import EnsembleProcess
from identica.similarities import Anisotropic
from identica.training.evaluation import evaluation_mode
from identica.training.step import Process

Encode = Callable[[Tensor], Tensor]
#: Of anchors, of positives, and of negatives where pairs bring their own.
Codes = tuple[Tensor, Tensor, Tensor | None]

ONE_BY_ONE = "For an ensemble take them one by one: process.processes[i] with objective.members[i]."


@torch.no_grad()
def drawn_codes(process: Process, encoder: Encode, objective: InfoNCE, n: int, batches: int, seed: int) -> list[Codes]:
    """Codes of ``batches`` batches of ``n`` fresh pairs, in float64; an encoder is in evaluation mode meanwhile."""
    n, batches = whole_number(n, "n", least=2), whole_number(batches, "batches", least=2)
    generator = as_generator(seed, getattr(process, "device", "cpu"))
    with evaluation_mode(encoder):
        kinds = (objective._one_kind(process.sample(n, generator)) for _ in range(batches))
        drawn = [encode_pairs(encoder, pairs)[0] for pairs in kinds]
    codes = [(h.double(), h_pos.double(), None if h_neg is None else h_neg.double()) for h, h_pos, h_neg in drawn]
    dim = checked_similarity(process, objective).dim
    if codes[0][0].shape[1:] != (dim,):
        raise ValueError(
            f"The encoder returns codes of shape {tuple(codes[0][0].shape)}, and the loss takes {dim} of them."
        )
    if not all(h is None or bool(h.isfinite().all()) for batch in codes for h in batch):
        raise ValueError("The encoder returns NaN or infinite codes, at which no precision can be estimated.")
    return codes


def checked_similarity(process: Process, objective: object) -> Anisotropic:
    """The similarity of a loss that learns a precision from one process; a sentence for anything else."""
    if isinstance(process, EnsembleProcess) or not hasattr(process, "sample") or not isinstance(objective, InfoNCE):
        raise TypeError(f"A precision is estimated for one process, which has sample(), and one InfoNCE. {ONE_BY_ONE}")
    if not isinstance(objective.similarity, Anisotropic):
        raise ValueError(
            f"This loss has no precision to estimate: its similarity is {objective.similarity!r}, not Anisotropic. Use "
            "AnInfoNCE(dim), which is InfoNCE(Anisotropic(dim))."
        )
    if not bool((objective.similarity.precision > 0).all()):
        raise ValueError("Entries of 0 in a fixed precision have no logarithm; start from positive ones.")
    return objective.similarity
