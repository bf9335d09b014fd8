"""The spectral contrastive loss, and TriCL, which orders its features by importance."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from identica._numbers import as_float, whole_number
from identica.functional import spectral_contrastive_terms
from identica.objectives.base import Objective, Terms


class SpectralContrastive(Objective):
    """−2·E⟨h, h⁺⟩ + E⟨h, h⁻⟩²: a low-rank factorisation of the pairs' density ratio.

    The optimum is ⟨h(z), h(z')⟩ = Σₖ μₖ φₖ(z) φₖ(z'), with the d largest eigenvalues μ and the eigenfunctions φ
    of p(z, z') / (p(z) p(z')), and its value −Σₖ μₖ²: the codes are √μₖ φₖ, up to a rotation. The first
    eigenfunction is the constant 1; for von Mises-Fisher pairs of uniform anchors the next d are the latents
    themselves.

    >>> SpectralContrastive()(torch.eye(2), torch.eye(2))
    tensor(-2.)
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
        """The loss and its alignment; it has no denominator, so the other terms are NaN."""
        return spectral_contrastive_terms(h, h_pos, h_neg, mask=mask, weights=weights)

    def to_dict(self) -> dict[str, Any]:
        """``{"objective": "spectral"}``."""
        return {"objective": "spectral"}


class TriCL(Objective):
    """−2·E⟨h, Sh⁺⟩ + E⟨h, Sh⁻⟩² + ‖E hhᵀ − I‖² with a learned diagonal S > 0 (compared with in B, Appx. H.4).

    The last term decorrelates the codes, so that the optimum is hₖ = φₖ and Sₖ = μₖ in the notation of
    :class:`SpectralContrastive`: features are identified one by one, up to sign, wherever the importances Sₖ
    differ. This is the form the paper prints, with S in every term; its authors' code scales only half of
    them. ``decorrelation`` weighs the last term, whose expectation is estimated by the batch's own mean.

    >>> TriCL(dim=2)(torch.eye(2), torch.eye(2)).detach()
    tensor(-1.5000)
    """

    def __init__(self, dim: int, init: float | Tensor = 1.0, decorrelation: float = 1.0) -> None:
        super().__init__()
        self.dim, self.decorrelation = whole_number(dim, "dim"), as_float(decorrelation)
        start = torch.as_tensor(init, dtype=torch.get_default_dtype())
        if start.ndim > 1 or (start.ndim == 1 and len(start) != dim) or not bool((start > 0).all()):
            raise ValueError(f"init must be one positive number or {dim} of them, not {init!r}.")
        if not (math.isfinite(self.decorrelation) and self.decorrelation >= 0):
            raise ValueError(f"decorrelation must be finite and at least 0, not {decorrelation!r}.")
        self.log_importance = nn.Parameter(start.log().expand(self.dim).clone())

    @property
    def importance(self) -> Tensor:
        """The diagonal of S: ``(dim,)``."""
        return self.log_importance.exp()

    def terms(
        self,
        h: Tensor,
        h_pos: Tensor,
        h_neg: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Terms:
        """The loss and its alignment; it has no denominator, so the other terms are NaN."""
        if h.shape[-1] != self.dim:
            raise ValueError(f"TriCL({self.dim}) needs codes of length {self.dim}, not {h.shape[-1]}.")
        return spectral_contrastive_terms(
            h,
            h_pos,
            h_neg,
            importance=self.importance,
            decorrelation=self.decorrelation,
            mask=mask,
            weights=weights,
        )

    def to_dict(self) -> dict[str, Any]:
        """``{"objective": "tricl", "dim": ..., "importance": [...], "decorrelation": ...}``."""
        return {
            "objective": "tricl",
            "dim": self.dim,
            "importance": self.importance.detach().double().tolist(),
            "decorrelation": self.decorrelation,
        }

    def extra_repr(self) -> str:
        """The dimension, and the weight of the decorrelation if it is not 1."""
        return f"{self.dim}" + ("" if self.decorrelation == 1 else f", decorrelation={self.decorrelation:g}")
