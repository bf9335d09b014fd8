"""The axes at which a loss with a learned precision is smallest, and codes turned to them.

AnInfoNCE tells factors apart by their precisions, so that neighbours with nearly the same Λ stay turned against each
other for a long time: turning them back gains next to nothing. But which turn is best need not be learned step by step.
Over turned codes Qh, with any rotation Q, and any diagonal Λ̂ the similarity is

    u(h, h̃) = −½ (h − h̃)ᵀ M (h − h̃),   M = Qᵀ Λ̂ Q,

and M is any positive matrix. The loss is convex in M (a linear term, and logarithms of sums of exponentials of linear
ones), so its minimum for fixed codes is found by a quasi-Newton method; the eigenvectors of M are the axes, its
eigenvalues are Λ̂. Where codes are the latents up to a rotation and no two Λ are equal, these are the factors and their
Λ (B, Thm 3.1); within a block of equal Λ every turn is as good as any other, and what comes out there is chance.
"""

from __future__ import annotations

import copy
import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import torch
from scipy.optimize import linear_sum_assignment, minimize
from torch import Tensor

from identica.diagnostics.codes import Codes, Encode, checked_similarity, drawn_codes
from identica.objectives import InfoNCE
from identica.similarities import Anisotropic
from identica.training.run import TrainingRun
from identica.training.step import Process

#: Terms of a loss that are about the codes and not about pairs: a turn has nothing to do with them.
_WITHOUT = {"impl": "auto", "centring": 0.0, "decorrelation": 0.0}
#: An axis whose Λ̂ is this small beside the largest is none.
_NOTHING = 1e-8


@dataclass(frozen=True)
class Axes:
    """Where to turn codes, from ``batches`` batches of ``n`` pairs.

    rotation: ``(d, d)``: turned codes are ``h @ rotation.T``, in the order in which the least is turned.
    precision: their Λ̂.
    gain: by how much these batches' loss falls, in nats.
    """

    rotation: Tensor
    precision: tuple[float, ...]
    gain: float
    n: int
    batches: int

    @property
    def angle(self) -> float:
        """By how many degrees the axis that turns most does so."""
        return math.degrees(math.acos(min(1.0, float(self.rotation.diagonal().min()))))


def best_axes(process: Process, encoder: Encode, objective: InfoNCE, n: int, batches: int = 32, seed: int = 0) -> Axes:
    """The turn of an encoder's codes, and the Λ̂ to it, at which the loss over fresh pairs is smallest.

    No labels are needed: it is the loss itself that is minimised, over the one rotation that training leaves for last.
    Two axes are determined as well as their Λ̂ are told apart: ``batches · n`` must be so large that standard errors
    (:func:`~identica.diagnostics.precision_standard_errors`) are far below the distance of neighbours.

    ``objective`` is not changed; its Λ̂ is where the search starts. The other arguments are those of
    :func:`~identica.diagnostics.precision_standard_errors`.

    >>> from identica.distributions import Conditional, FisherBingham, SphereUniform
    >>> from identica.processes import PairProcess
    >>> process = PairProcess(SphereUniform(2), Conditional(FisherBingham, precision=(4.0, 16.0)))
    >>> turn = torch.tensor([[0.8, -0.6], [0.6, 0.8]])
    >>> axes = best_axes(process, lambda x: x @ turn.T, InfoNCE(Anisotropic(2, 8.0)), n=512, batches=16)
    >>> (axes.rotation.float() @ turn).abs().round()  # turned back, up to order and signs
    tensor([[1., 0.],
            [0., 1.]])
    """
    similarity = checked_similarity(process, objective)
    start = similarity.precision.detach().double().sqrt()
    codes = [_times(batch, start) for batch in drawn_codes(process, encoder, objective, n, batches, seed)]
    loss = InfoNCE(Anisotropic(similarity.dim, trainable=False), **(objective.settings() | _WITHOUT))
    loss = loss.to(codes[0][0].device, torch.float64)
    stretch, gain = _best_stretch(codes, loss, similarity.dim)
    root = start.cpu()
    metric = root[:, None] * (stretch.T @ stretch) * root
    precision, rotation = _diagonal(metric)
    if bool((precision < _NOTHING * precision.max()).any()):
        warnings.warn(
            f"{len(codes)} batches of {len(codes[0][0])} pairs do not determine these axes: along some the loss "
            "is smallest at a Λ̂ of 0. Take larger batches and more of them, unless the codes leave out factors.",
            stacklevel=2,
        )
        precision = precision.clamp_min(_NOTHING * float(precision.max()))
    return Axes(rotation, tuple(precision.tolist()), gain, len(codes[0][0]), len(codes))


def turn_to_axes(
    run: TrainingRun, process: Process, n: int | None = None, batches: int = 32, seed: int = 0
) -> TrainingRun:
    """A copy of a run of AnInfoNCE whose codes are turned to their :func:`best_axes`, with the Λ̂ found there.

    ``n`` is the batch of the training unless given. R² stays as it is, MCC rises where neighbours were still turned
    against each other. The history, and with it ``run.scores``, is that of the training: call
    :func:`identica.evaluate` again. The copy has no ``path``, as no checkpoint has its weights.

    The encoder needs a method ``turn(rotation)``, which those of identica have; codes on a sphere, or unbounded.
    """
    if not callable(getattr(run.encoder, "turn", None)):
        raise TypeError(
            f"{type(run.encoder).__name__} has no turn(rotation) that would turn its codes. Call best_axes and use "
            "codes @ axes.rotation.T in their place."
        )
    learned = checked_similarity(process, run.objective)
    encoder: Any = copy.deepcopy(run.encoder)
    objective: Any = copy.deepcopy(run.objective)
    axes = best_axes(process, encoder, objective, run.config.batch_size if n is None else n, batches, seed)
    encoder.turn(axes.rotation)
    found = Anisotropic(learned.dim, torch.tensor(axes.precision), learned.trainable, learned.link)
    objective.similarity = found.to(learned.precision.device, learned.precision.dtype)
    return replace(run, encoder=encoder, objective=objective, path=None)


def _times(codes: Codes, scale: Tensor) -> Codes:
    h, h_pos, h_neg = codes
    return h * scale, h_pos * scale, None if h_neg is None else h_neg * scale


def _best_stretch(codes: list[Codes], loss: InfoNCE, dim: int) -> tuple[Tensor, float]:
    """The symmetric B for which the loss of codes Bh is smallest, and how far below that of h it is."""

    def value_and_slope(entries: object) -> tuple[float, object]:
        stretch = _symmetric(entries, dim).to(codes[0][0].device).requires_grad_()
        total = torch.zeros((), dtype=torch.float64, device=stretch.device)
        slope = torch.zeros_like(stretch)
        for h, h_pos, h_neg in codes:
            value = loss(h @ stretch, h_pos @ stretch, None if h_neg is None else h_neg @ stretch) / len(codes)
            slope += torch.autograd.grad(value, stretch)[0]
            total += value.detach()
        return total.item(), (0.5 * (slope + slope.T)).flatten().cpu().numpy()

    unit = torch.eye(dim, dtype=torch.float64).flatten().numpy()
    options = {"gtol": 1e-8, "ftol": 1e-14, "maxiter": 200}
    found = minimize(value_and_slope, unit, jac=True, method="L-BFGS-B", options=options)
    return _symmetric(found.x, dim), value_and_slope(unit)[0] - float(found.fun)


def _symmetric(entries: object, dim: int) -> Tensor:
    square = torch.tensor(entries, dtype=torch.float64).reshape(dim, dim)
    return 0.5 * (square + square.T)


def _diagonal(metric: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, and eigenvectors as rows, each at the place and with the sign that are nearest to it."""
    values, vectors = torch.linalg.eigh(metric)
    _, order = linear_sum_assignment(-vectors.square().numpy())
    rows = vectors.T[torch.as_tensor(order)]
    signs = torch.where(rows.diagonal() < 0, -1.0, 1.0).double()
    return values[torch.as_tensor(order)], rows * signs[:, None]
