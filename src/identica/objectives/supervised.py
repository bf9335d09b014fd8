"""The supervised baseline: regression onto the true latents."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from identica.functional import plain_terms
from identica.objectives.base import Encoder, Objective, Terms
from identica.similarities import at_least_float32


class Supervised(Objective):
    """Mean squared error between f(x) and the true latents z: what the encoder could do if it knew them.

    Called on codes as ``loss(h, z)``.

    >>> import torch
    >>> Supervised()(torch.zeros(3, 2), torch.ones(3, 2))
    tensor(1.)
    """

    def terms(
        self,
        h: Tensor,
        h_pos: Tensor,
        h_neg: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Terms:
        """The error of codes ``h: (B, d)`` against latents ``h_pos: (B, d)``; the other terms are NaN."""
        if h_neg is not None or mask is not None:
            raise ValueError("Supervised has no negatives: leave out h_neg and mask.")
        if h.ndim != 2 or h.shape != h_pos.shape:
            raise ValueError(
                f"Supervised compares codes and latents of one shape (B, d), not {tuple(h.shape)} and "
                f"{tuple(h_pos.shape)}; the encoder's output must have as many dimensions as z."
            )
        return plain_terms((at_least_float32(h) - at_least_float32(h_pos)).square().mean(dim=1), weights)

    def to_dict(self) -> dict[str, Any]:
        """``{"objective": "supervised"}``."""
        return {"objective": "supervised"}

    def compute(self, encoder: Encoder, pairs: Any) -> Terms:
        """Encode the anchors and compare with their true latents."""
        pairs = self._one_kind(pairs)
        if getattr(pairs, "z", None) is None:
            raise ValueError("Supervised needs the true latents z of the pairs, which these pairs do not have.")
        return self.terms(encoder(pairs.x), pairs.z)
