"""The axes at which a loss with a learned precision is smallest, and codes turned to them.

AnInfoNCE tells factors apart by their precisions, so that neighbours with nearly the same Λ stay turned against each
other for a long time: turning them back gains next to nothing. But which turn is best need not be learned step by step.
Over turned codes Qh, with any rotation Q, and any diagonal Λ̂ the similarity is

    u(h, h̃) = −½ (h − h̃)ᵀ M (h − h̃),   M = Qᵀ Λ̂ Q,

and M is any positive matrix. The loss is convex in M (a linear term, and logarithms of sums of exponentials of linear
ones), so its minimum for fixed codes is found by a quasi-Newton method; the eigenvectors of M are the axes, its
eigenvalues are Λ̂. Where codes are the latents up to a rotation and no two Λ are equal, these are the factors and their
Λ (B, Thm 3.1); within a block of equal Λ every turn is as good as any other, and what comes out there is chance.

Codes that are the latents up to another linear map have the axes of that map in M as well. Where anchors are uniform on
the sphere it can be undone first, for which :mod:`identica.diagnostics.rounding` is.
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
from identica.diagnostics.precision import PrecisionProblem
from identica.diagnostics.rounding import best_rounding
from identica.distributions import SphereUniform
from identica.objectives import InfoNCE
from identica.similarities import Anisotropic
from identica.training.run import TrainingRun
from identica.training.step import Process

#: Terms of a loss that are about the codes and not about pairs: a turn has nothing to do with them.
_WITHOUT = {"impl": "auto", "centring": 0.0, "decorrelation": 0.0}
#: Codes on a sphere are equally long up to this part. A rounding that stretches more than so much is warned of.
_UNEQUAL, _STRONG = 1e-3, 1.5
#: The search starts with no Λ̂ smaller than this beside the largest, and ends with none smaller than that.
_LEAST_START, _LEAST = 0.05, 1e-8


@dataclass(frozen=True)
class Axes:
    """Where to turn codes, from ``batches`` batches of ``n`` pairs.

    rotation: ``(d, d)``, orthogonal: turned codes are R h, in the order in which the least is turned; see :meth:`turn`.
    rounding: ``(d, d)``, symmetric: what codes are mapped by before, to fill the sphere evenly; None for not at all.
    precision, standard_error: their Λ̂, and how well it is known if the axes are.
    gain: by how much these batches' loss falls, in nats; of rounded codes it may rise.
    """

    rotation: Tensor
    precision: tuple[float, ...]
    standard_error: tuple[float, ...]
    gain: float
    n: int
    batches: int
    rounding: Tensor | None = None

    @property
    def angle(self) -> float:
        """By how many degrees the axis that turns most does so."""
        return math.degrees(math.acos(min(1.0, float(self.rotation.diagonal().min()))))

    def turn(self, codes: Tensor) -> Tensor:
        """R h for codes ``h: (..., d)``, in their precision and on their device; made round before, where asked for."""
        if self.rounding is not None:
            codes = _rounded(codes, self.rounding)
        return codes @ self.rotation.T.to(codes)


def best_axes(
    process: Process,
    encoder: Encode,
    objective: InfoNCE,
    n: int,
    batches: int = 32,
    seed: int = 0,
    rounded: bool = False,
) -> Axes:
    """The turn of an encoder's codes, and the Λ̂ to it, at which the loss over fresh pairs is smallest.

    No labels are needed: it is the loss itself that is minimised, over the one rotation that training leaves for last.
    Two axes are determined as well as their Λ̂ are told apart: ``batches · n`` must be so large that standard errors
    are far below the distance of neighbours. A warning names entries that the batches hardly determine.

    ``rounded`` codes are first mapped by :func:`~identica.diagnostics.best_rounding` to fill the sphere evenly, which
    takes anchors that are uniform on it and undoes what Λ̂ has made up for: training leaves codes and Λ̂ off by several
    percent that only turn up in each other. What it is off by itself, about √(2 / (n · batches)) of each Λ̂, is not in
    the standard errors.

    ``objective`` is not changed; its Λ̂ is where the search starts. The other arguments are those of
    :func:`~identica.diagnostics.precision_standard_errors`.

    >>> from identica.distributions import Conditional, FisherBingham, SphereUniform
    >>> from identica.processes import PairProcess
    >>> process = PairProcess(SphereUniform(2), Conditional(FisherBingham, precision=(4.0, 16.0)))
    >>> turn = torch.tensor([[0.8, -0.6], [0.6, 0.8]])
    >>> axes = best_axes(process, lambda x: x @ turn.T, InfoNCE(Anisotropic(2, 8.0)), n=512, batches=16)
    >>> axes.turn(turn.T).abs().round()  # turned back, up to order and signs
    tensor([[1., 0.],
            [0., 1.]])
    """
    found = _found(process, encoder, objective, n, batches, seed, rounded)
    dim, settings = len(found.precision), objective.settings() | _WITHOUT
    learned = checked_similarity(process, objective).precision.detach().to("cpu", torch.float64)
    before = PrecisionProblem(found.given, settings, dim, n).mean(learned.log())[0]
    problem = PrecisionProblem([_mapped(batch, found.rotation.T) for batch in found.codes], settings, dim, n)
    estimate = problem.estimate(found.precision.log())
    gain = before - found.loss
    return Axes(found.rotation, estimate.precision, estimate.standard_error, gain, n, batches, found.rounding)


def turn_to_axes(
    run: TrainingRun, process: Process, n: int | None = None, batches: int = 32, seed: int = 0, rounded: bool = False
) -> TrainingRun:
    """A copy of a run of AnInfoNCE whose codes are turned to their :func:`best_axes`, with the Λ̂ found there.

    ``n`` is the batch of the training unless given. How well the batches determine the axes is not asked, which takes
    half as long again: ``best_axes`` does, and warns. R² stays as it is (nearly so for ``rounded`` codes), MCC rises
    where neighbours were still turned against each other. The history, and with it ``run.scores``, is that of training:
    call :func:`identica.evaluate` again. The copy has no ``path``, as no checkpoint has its weights; ``save`` does it.

    The encoder needs a method ``turn(rotation)``, which those of identica have; codes on a sphere, or unbounded. For
    ``rounded`` codes it needs ``stretch(matrix)``, too, and they are on a sphere.
    """
    for needed in ("turn(rotation)", *(["stretch(matrix)"] if rounded else [])):
        if not callable(getattr(run.encoder, needed.partition("(")[0], None)):
            raise TypeError(
                f"{type(run.encoder).__name__} has no {needed}, so its codes cannot be turned in place. Call best_axes "
                "and use axes.turn(codes) instead."
            )
    learned = checked_similarity(process, run.objective)
    encoder: Any = copy.deepcopy(run.encoder)
    objective: Any = copy.deepcopy(run.objective)
    encoder.turn(torch.eye(learned.dim))  # what cannot be turned says so before anything is computed
    if rounded:
        encoder.stretch(torch.eye(learned.dim))
    n = run.config.batch_size if n is None else n
    found = _found(process, encoder, objective, n, batches, seed, rounded)
    if found.rounding is not None:
        encoder.stretch(found.rounding)
    encoder.turn(found.rotation)
    similarity = Anisotropic(learned.dim, found.precision, learned.trainable, learned.link)
    objective.similarity = similarity.to(learned.precision.device, learned.precision.dtype)
    return replace(run, encoder=encoder, objective=objective, path=None)


@dataclass(frozen=True)
class _Found:
    """Axes and the Λ̂ there, with the codes that they were found from, as they are and made round, and their loss."""

    rotation: Tensor
    rounding: Tensor | None
    precision: Tensor
    loss: float
    given: list[Codes]
    codes: list[Codes]


def _found(
    process: Process, encoder: Encode, objective: InfoNCE, n: int, batches: int, seed: int, rounded: bool
) -> _Found:
    """The search itself, of which standard errors are no part: they take half as long again."""
    similarity = checked_similarity(process, objective)
    if rounded:
        _check_uniform(process)
    codes = given = drawn_codes(process, encoder, objective, n, batches, seed)
    rounding = _checked_rounding(torch.cat([h for h, _, _ in given])) if rounded else None
    if rounding is not None:
        codes = [_all_rounded(batch, rounding) for batch in given]
    learned = similarity.precision.detach().to("cpu", torch.float64)
    root = learned.clamp_min(_LEAST_START * float(learned.max())).sqrt()
    unit = Anisotropic(similarity.dim, trainable=False).to(codes[0][0].device, torch.float64)
    scaled = [_mapped(batch, root.diag()) for batch in codes]
    stretch, loss = _best_stretch(scaled, InfoNCE(unit, **objective.settings() | _WITHOUT))
    precision, rotation = _diagonal(root[:, None] * (stretch.T @ stretch) * root)
    return _Found(rotation, rounding, precision.clamp_min(_LEAST * float(precision.max())), loss, given, codes)


def _check_uniform(process: Process) -> None:
    marginal = getattr(process, "marginal", None)
    if not isinstance(marginal, SphereUniform):
        given = type(process).__name__ if marginal is None else repr(marginal)
        raise ValueError(
            "Codes fill the sphere evenly where anchors do: rounded=True takes a process with a SphereUniform "
            f"marginal, not {given}. Leave it out for others; for a pool of such pairs pass its process."
        )


def _checked_rounding(codes: Tensor) -> Tensor:
    """The rounding of codes that are on a sphere, with a warning where it is so strong that something else is wrong."""
    lengths = codes.norm(dim=1)
    if not bool((lengths - lengths.mean()).abs().max() < _UNEQUAL * lengths.mean()):
        raise ValueError("rounded=True takes codes on a sphere, which are all equally long; these are not.")
    rounding = best_rounding(codes).cpu()
    values = torch.linalg.eigvalsh(rounding)
    if float(values[-1]) > _STRONG * float(values[0]):
        warnings.warn(
            f"To be round, codes must be stretched {float(values[-1] / values[0]):.1f} times as much in one direction "
            "as in another: they are not the latents up to small errors. Look at R², and at folding(codes): they may "
            "be on a part of the sphere.",
            stacklevel=4,
        )
    return rounding


def _rounded(codes: Tensor, rounding: Tensor) -> Tensor:
    """W h with the length of h."""
    mapped = codes @ rounding.T.to(codes)
    least = torch.finfo(mapped.dtype).tiny  # a code of 0 stays 0
    return mapped * (codes.norm(dim=-1, keepdim=True) / mapped.norm(dim=-1, keepdim=True).clamp_min(least))


def _all_rounded(codes: Codes, rounding: Tensor) -> Codes:
    h, h_pos, h_neg = codes
    return _rounded(h, rounding), _rounded(h_pos, rounding), None if h_neg is None else _rounded(h_neg, rounding)


def _mapped(codes: Codes, matrix: Tensor) -> Codes:
    """All codes times a matrix from the right."""
    h, h_pos, h_neg = codes
    matrix = matrix.to(h.device)
    return h @ matrix, h_pos @ matrix, None if h_neg is None else h_neg @ matrix


def _best_stretch(codes: list[Codes], objective: InfoNCE) -> tuple[Tensor, float]:
    """The symmetric B for which the loss of codes Bh is smallest, and that loss."""
    place, dim = codes[0][0].device, codes[0][0].shape[1]

    def value_and_slope(entries: object) -> tuple[float, object]:
        stretch = _symmetric(entries, dim).to(place).requires_grad_()
        total, slope = torch.zeros((), dtype=torch.float64, device=place), torch.zeros_like(stretch)
        for batch in codes:
            value = objective(*_mapped(batch, stretch)) / len(codes)
            slope += torch.autograd.grad(value, stretch)[0]
            total += value.detach()
        return total.item(), (0.5 * (slope + slope.T)).flatten().cpu().numpy()

    unit = torch.eye(dim, dtype=torch.float64).flatten().numpy()
    options = {"gtol": 1e-7, "ftol": 1e-14, "maxiter": 500, "maxfun": 1000}
    found = minimize(value_and_slope, unit, jac=True, method="L-BFGS-B", options=options)
    if not found.success:
        warnings.warn(f"The search for axes stopped before the minimum of the loss: {found.message}.", stacklevel=4)
    return _symmetric(found.x, dim), float(found.fun)


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
