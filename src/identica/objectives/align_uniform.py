"""Alignment and uniformity, weighed against each other."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from identica._numbers import as_float
from identica.functional import align_uniform_terms
from identica.kernels import check_impl
from identica.objectives.base import Objective, Terms


class AlignUniform(Objective):
    """L_AU(α, p) = α·E log E exp(−‖h−h⁻‖_p^p) + (1−α)·E‖h−h⁺‖_p^p (W, Eq. 70-72).

    With α = ½ it is half the limit of InfoNCE for many negatives, less a constant (A, Prop. 3), so that codes
    which are latents divided by λ are its optimum for pairs with density ∝ exp(−‖z−z⁺‖_p^p / λ^p). More
    weight on uniformity keeps codes from collapsing when data do not match.

    The inner mean runs over the other anchors of the batch, or over a given ``h_neg``.

    >>> import torch
    >>> h = torch.tensor([[0.0], [1.0], [3.0]])
    >>> AlignUniform(alpha=0.5, p=1)(h, h + 0.5)
    tensor(-0.6377)
    """

    def __init__(self, alpha: float = 0.5, p: float = 1.0, impl: str = "auto") -> None:
        super().__init__()
        self.alpha, self.p, self.impl = as_float(alpha), as_float(p), impl
        if not 0.0 <= self.alpha <= 1.0:
            raise ValueError(f"alpha weighs uniformity against alignment and lies in [0, 1], not {alpha!r}.")
        if not (math.isfinite(self.p) and self.p > 0):
            raise ValueError(f"AlignUniform needs a positive, finite p, not {p!r}.")
        check_impl(impl)

    def terms(
        self,
        h: Tensor,
        h_pos: Tensor,
        h_neg: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Terms:
        """The loss and what it is made of; ``information`` is −(uniformity + alignment)."""
        return align_uniform_terms(
            h, h_pos, h_neg, alpha=self.alpha, p=self.p, mask=mask, weights=weights, impl=self.impl
        )

    def to_dict(self) -> dict[str, Any]:
        """``{"objective": "align_uniform", "alpha": ..., "p": ..., "impl": ...}``."""
        return {"objective": "align_uniform", "alpha": self.alpha, "p": self.p, "impl": self.impl}

    def extra_repr(self) -> str:
        """The two parameters."""
        return f"alpha={self.alpha:g}, p={self.p:g}"
