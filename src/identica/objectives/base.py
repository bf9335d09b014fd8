"""What every objective is: a module that turns codes, or an encoder and pairs, into a loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from identica.functional import Terms

__all__ = ["Encoder", "Objective", "PairsLike", "Terms", "encode_pairs", "sum_of_terms"]

Encoder = Callable[[Tensor], Tensor]


class PairsLike(Protocol):
    """What objectives read of :class:`identica.processes.Pairs`."""

    @property
    def z(self) -> Any:
        """True latents of the anchors, if known: ``(B, d)``."""

    @property
    def x(self) -> Tensor:
        """Observations of the anchors: ``(B, ...)``."""

    @property
    def x_pos(self) -> Tensor:
        """Observations of the positives: ``(B, ...)`` or ``(B, P, ...)``."""

    @property
    def x_neg(self) -> Tensor | None:
        """Observations of given negatives: ``(M, ...)``, ``(B, M, ...)`` or None."""


class Objective(nn.Module):
    """Base of all objectives.

    One of your own implements :meth:`terms` on codes and works in the training loop; one that needs more than
    codes (true latents, several sets of pairs, the observations) overrides :meth:`compute`.
    """

    def forward(
        self,
        h: Tensor,
        h_pos: Tensor,
        h_neg: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """The loss of codes ``h: (B, d)`` and ``h_pos: (B, d)`` or ``(B, P, d)``, a scalar.

        ``weights: (B,)`` must be at least 0; their values are not checked.
        """
        return self.terms(h, h_pos, h_neg, mask=mask, weights=weights).loss

    def terms(
        self,
        h: Tensor,
        h_pos: Tensor,
        h_neg: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Terms:
        """The loss and what it is made of; arguments as in :meth:`forward`."""
        raise NotImplementedError(f"{type(self).__name__} must implement terms(h, h_pos, h_neg, ...).")

    def to_dict(self) -> dict[str, Any]:
        """Plain data that :func:`identica.objectives.objective_from_dict` turns back into the objective."""
        return {"class": type(self).__qualname__}

    def compute(self, encoder: Encoder, pairs: Any) -> Terms:
        """Encode the pairs, all views in one call of the encoder, and return the terms."""
        return self.terms(*encode_pairs(encoder, self._one_kind(pairs))[0])

    def _one_kind(self, pairs: Any) -> Any:
        """The pairs, unless they are several kinds of pairs, as an ensemble of processes draws them."""
        if isinstance(pairs, tuple | list) and not hasattr(pairs, "x"):
            raise ValueError(
                f"{type(self).__name__} takes one kind of pairs, not a {type(pairs).__name__} of {len(pairs)}, as "
                "an EnsembleProcess draws: train on one of its processes, or use EnsembleInfoNCE with a similarity "
                "for each."
            )
        return pairs


def sum_of_terms(parts: Sequence[Terms]) -> Terms:
    """Those of a loss that is a sum, as over several kinds of pairs: everything is summed but the accuracy, a mean."""

    def total(name: str) -> Tensor:
        return torch.stack([getattr(part, name) for part in parts]).sum(dim=0)

    return Terms(
        loss=total("loss"),
        alignment=total("alignment"),
        log_partition=total("log_partition"),
        accuracy=total("accuracy") / len(parts),
        information=total("information"),
        per_item=total("per_item"),
    )


def encode_pairs(encoder: Encoder, *several: PairsLike) -> list[tuple[Tensor, Tensor, Tensor | None]]:
    """``(h, h_pos, h_neg)`` for each set of pairs, all encoded in one concatenated call.

    One call is faster than several, and layers that look at the whole batch see all of it.
    """
    flat: list[Tensor] = []
    shapes: list[list[torch.Size | None]] = []
    for pairs in several:
        row = pairs.x.ndim - 1  # axes of one observation
        views = (pairs.x, pairs.x_pos, pairs.x_neg)
        shapes.append([None if x is None else x.shape[: x.ndim - row] for x in views])
        flat.extend(x.reshape(-1, *x.shape[x.ndim - row :]) for x in views if x is not None)
    codes = iter(encoder(torch.cat(flat)).split([len(x) for x in flat]))
    result = []
    for shape in shapes:
        h, h_pos, h_neg = (None if s is None else next(codes).unflatten(0, s) for s in shape)
        assert h is not None and h_pos is not None
        result.append((h, h_pos, h_neg))
    return result
