"""One similarity for several kinds of pairs: what a single loss is where an ensemble has a similarity for each."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from identica.objectives import InfoNCE, Objective
from identica.objectives.base import Encoder, Terms, encode_pairs, sum_of_terms


class SharedInfoNCE(Objective):
    """Σᵢ InfoNCE on the pairs of process i, all with the similarity of ``member`` (the single losses of B, Fig. 11).

    An ensemble of one similarity taken twice would be the same, but parameters that appear twice cannot be trained
    for several seeds at once.

    >>> from identica.similarities import Anisotropic
    >>> sum(1 for _ in SharedInfoNCE(InfoNCE(Anisotropic(2))).parameters())
    1
    """

    def __init__(self, member: InfoNCE) -> None:
        super().__init__()
        self.member = member

    def terms(
        self,
        h: Tensor,
        h_pos: Tensor,
        h_neg: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Terms:
        """Those of one kind of pairs."""
        return self.member.terms(h, h_pos, h_neg, mask=mask, weights=weights)

    def compute(self, encoder: Encoder, pairs: Any) -> Terms:
        """Encode all kinds of pairs in one call; sums over the kinds, and the mean of their accuracies."""
        return sum_of_terms([self.terms(*codes) for codes in encode_pairs(encoder, *pairs)])

    def to_dict(self) -> dict[str, Any]:
        """``{"class": "SharedInfoNCE", "member": {...}}``."""
        return {"class": "SharedInfoNCE", "member": self.member.to_dict()}
