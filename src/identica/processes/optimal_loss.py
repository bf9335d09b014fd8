"""The smallest InfoNCE loss there is: at the true latents, with the true density ratio.

Choosing the positive among candidates is a classification, and no classifier beats the posterior. With
negatives from p⁻ the posterior's similarity is (B, Thm C.1, Eq. 7)

    u(z, z̃) = log p⁺(z̃ | z) − log p⁻(z̃ | z) + c(z),

whatever c(z), so the loss with this u is a floor under every encoder's expected loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Distribution

from identica.distributions.base import LatentDistribution
from identica.distributions.conditional import Conditional
from identica.distributions.product import ProductDistribution
from identica.processes.parts import ConditionalLike, as_vectors

#: Pairs are compared this many numbers at a time. On the CPU 8 MiB in float64, small enough for the cache to help; on
#: other devices 256 MiB, enough to hide the launches.
_NUMBERS_CPU, _NUMBERS_DEVICE = 2**20, 2**25


@dataclass(frozen=True)
class OptimalLoss:
    """The floor of the loss, estimated from ``batches`` independent batches of ``n`` anchors.

    ``standard_error`` is that of the mean, from the spread between batches (NaN if there is only one).
    ``float(result)`` is the mean.
    """

    mean: float
    standard_error: float
    per_batch: tuple[float, ...]
    n: int

    @classmethod
    def of(cls, per_batch: list[float], n: int) -> OptimalLoss:
        """Summarise the batches' losses."""
        losses = torch.tensor(per_batch, dtype=torch.float64)
        error = losses.std().item() / math.sqrt(len(losses)) if len(losses) > 1 else math.nan
        return cls(losses.mean().item(), error, tuple(per_batch), n)

    def __float__(self) -> float:
        return self.mean


@torch.no_grad()
def loss_at_truth(
    latents: tuple[Tensor, Tensor, Tensor | None],
    marginal: Distribution,
    conditional: ConditionalLike,
    negative_conditional: ConditionalLike | None = None,
    *,
    include_positive: bool = True,
    self_negatives: bool = False,
) -> Tensor:
    """InfoNCE of each anchor with the true density ratio as similarity: ``(n,)``, in float64.

    latents: ``z (n, d)``, ``z_pos (n, d)`` or ``(n, P, d)``, and ``z_neg (n, M, d)`` or None. Without
        ``z_neg`` the other anchors are the negatives, and the marginal is their law; with it, only those
        rows are, and ``negative_conditional`` is theirs.

    Works through blocks of anchors, so that the memory does not grow with n².
    """
    z, z_pos, z_neg = latents
    z, z_pos = z.double(), z_pos.double()
    positives = z_pos if z_pos.ndim == 3 else z_pos[:, None]
    if z_neg is None:
        if len(z) == 1 and not (include_positive or self_negatives):
            raise ValueError(
                "A single anchor has no negatives, and the positive is left out: the denominator of the loss "
                "is empty. Use n of at least 2."
            )
        blocks = _against_anchors(z, positives, marginal, conditional, self_negatives)
    elif negative_conditional is None:
        raise ValueError("These pairs have hard negatives, but the process has no negative_conditional.")
    else:
        blocks = _against_given(z, positives, z_neg.double(), conditional, negative_conditional)
    with _unvalidated():
        return torch.cat([_info_nce(*similarities, include_positive) for similarities in blocks])


def _against_anchors(
    z: Tensor, positives: Tensor, marginal: Distribution, conditional: ConditionalLike, self_negatives: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """Similarities of the positives ``(r, P)`` and of all anchors ``(r, n)``, block by block."""
    law = _Law.simplest(conditional, z, positives)
    log_negatives, log_positives = (_log_marginal(marginal, part) for part in (z, positives))
    for block in _blocks(z, z.numel()):
        u_positive = law.each(z[block], positives[block]) - log_positives[block]
        u_negative = law.all_pairs(z[block], z) - log_negatives
        if not self_negatives:
            u_negative.diagonal(block.start).fill_(-torch.inf)
        yield u_positive, u_negative


def _against_given(
    z: Tensor,
    positives: Tensor,
    negatives: Tensor,
    conditional: ConditionalLike,
    negative_conditional: ConditionalLike,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Similarities of the positives ``(r, P)`` and of each anchor's negatives ``(r, M)``, block by block."""
    law, negative_law = _Law(conditional), _Law(negative_conditional)
    for block in _blocks(z, negatives[0].numel()):
        u_positive, u_negative = (
            law.each(z[block], values[block]) - negative_law.each(z[block], values[block])
            for values in (positives, negatives)
        )
        yield u_positive, u_negative


def _blocks(z: Tensor, numbers_per_row: int) -> Iterator[slice]:
    rows = max(1, (_NUMBERS_CPU if z.device.type == "cpu" else _NUMBERS_DEVICE) // numbers_per_row)
    return (slice(start, start + rows) for start in range(0, len(z), rows))


def _info_nce(u_positive: Tensor, u_negative: Tensor, include_positive: bool) -> Tensor:
    """InfoNCE, log Σ exp(u) − u(positive), averaged over the positives: ``(r, P), (r, K) -> (r,)``."""
    log_partition = torch.logsumexp(u_negative, dim=1, keepdim=True)
    if include_positive:
        log_partition = torch.logaddexp(u_positive, log_partition)
    loss = log_partition - u_positive
    if include_positive:
        # A positive where no negative can be is recognised with certainty.
        loss = torch.where(u_positive == torch.inf, 0.0, loss)
    return loss.mean(dim=1)


class _Law:
    """log p(z̃ | z) in float64, up to a term that depends on z only."""

    def __init__(self, conditional: ConditionalLike) -> None:
        self.conditional = conditional

    @staticmethod
    def simplest(conditional: ConditionalLike, z: Tensor, positives: Tensor) -> _Law:
        """The matching similarity, which spares the normaliser, if there is one and it matches here.

        It may not: DotProduct(1/κ) belongs to von Mises-Fisher on the unit sphere only. So it is compared
        with the density itself on a few pairs first.
        """
        law = _Law(conditional)
        if not isinstance(conditional, Conditional):
            return law
        try:
            candidate = _SimilarityLaw(conditional, z)
        except ValueError:  # the family has none
            return law
        anchors, candidates = z[:8], torch.cat([z[:16], positives[:16, 0]])
        exact = law.all_pairs(anchors, candidates)
        difference = exact - candidate.all_pairs(anchors, candidates)
        spread = difference.amax(dim=1) - difference.amin(dim=1)
        agrees = spread <= 1e-6 * (1 + exact.abs().amax(dim=1))
        return candidate if bool(agrees.all()) else law

    def _at(self, anchors: Tensor) -> Distribution:
        if isinstance(self.conditional, Conditional):
            return self.conditional.unchecked(anchors)
        return as_vectors(self.conditional(anchors))

    def each(self, anchors: Tensor, values: Tensor) -> Tensor:
        """Several values for each anchor: ``(r, d), (r, k, d) -> (r, k)``."""
        return _log_density(self._at(anchors), values.transpose(0, 1)).T

    def all_pairs(self, anchors: Tensor, candidates: Tensor) -> Tensor:
        """Every candidate for each anchor: ``(r, d), (n, d) -> (r, n)``."""
        return _log_density(self._at(anchors), candidates[:, None]).T


class _SimilarityLaw(_Law):
    def __init__(self, conditional: Conditional, like: Tensor) -> None:
        super().__init__(conditional)
        self.similarity = conditional.similarity().to(device=like.device, dtype=like.dtype)

    def each(self, anchors: Tensor, values: Tensor) -> Tensor:
        return self.similarity(anchors[:, None], values)

    def all_pairs(self, anchors: Tensor, candidates: Tensor) -> Tensor:
        return self.similarity.pairwise(anchors, candidates)


def _log_density(distribution: Distribution, values: Tensor) -> Tensor:
    """The log density, −inf off the support, where a foreign distribution without checks returns anything."""
    log_density = distribution.log_prob(values)
    if isinstance(distribution, LatentDistribution) or distribution.support is None:
        return log_density
    return torch.where(distribution.support.check(values), log_density, -torch.inf)


@contextmanager
def _unvalidated() -> Iterator[None]:
    """Foreign distributions accept values off their support meanwhile, where most candidates may well lie."""
    before = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)


def _log_marginal(marginal: Distribution, values: Tensor) -> Tensor:
    """The log density of one distribution, or of several side by side: ``(..., d) -> (...)``."""
    if isinstance(marginal, ProductDistribution):
        pieces = values.split(marginal.dims, dim=-1)
        each = [_log_marginal(part, piece) for part, piece in zip(marginal.parts, pieces, strict=True)]
        return torch.stack(each).sum(dim=0)
    if isinstance(marginal, LatentDistribution):
        marginal = marginal.to(device=values.device, dtype=values.dtype)
        marginal._validate = False  # latents drawn in float32 are off a sphere by more than float64's tolerance
    return _log_density(marginal, values)
