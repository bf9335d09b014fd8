"""The density ratio of Fisher-Bingham positives and hard negatives: again one of their kind."""

from __future__ import annotations

import torch
from torch import Tensor

from identica.distributions.conditional import Conditional
from identica.distributions.fisher_bingham import FisherBingham
from identica.distributions.von_mises_fisher import VonMisesFisher


def precision_of(conditional: Conditional, dim: int) -> Tensor:
    """Λ of a conditional on the unit sphere in ``dim`` dimensions, ``(dim,)``; that of von Mises-Fisher is κ.

    >>> precision_of(Conditional(VonMisesFisher, concentration=3.0), 2)
    tensor([3., 3.], dtype=torch.float64)
    """
    families = {FisherBingham: "precision", VonMisesFisher: "concentration"}
    family = conditional.family if isinstance(conditional, Conditional) else None
    if family not in families:
        raise ValueError(
            "Only Conditional(FisherBingham, ...) and Conditional(VonMisesFisher, ...) have a precision; "
            f"{conditional!r} has none."
        )
    if conditional.parameters.get("method", "exact") != "exact":
        raise ValueError(
            f"{conditional!r} draws from an approximation, whose density ratio no precision matches: use "
            'method="exact".'
        )
    value = torch.as_tensor(conditional.parameters[families[family]], dtype=torch.float64)
    if value.ndim > 1 or value.numel() not in (1, dim):
        raise ValueError(f"{conditional!r} must have one precision, or {dim} of them, for latents of length {dim}.")
    if bool((value < 0).any()) or not bool(value.isfinite().all()):
        raise ValueError(f"Every entry of a precision must be at least 0 and finite, not {value.tolist()}.")
    return value.expand(dim).clone()


def ratio_precision(positive: Conditional, negative: Conditional | None, dim: int) -> Tensor:
    """Λ⁺ − Λ⁻, ``(dim,)``: the Λ̂ at which InfoNCE with these pairs is smallest (B, Cor. B.1).

    The log of p⁺(z̃|z)/p⁻(z̃|z) is −½ (z̃−z)ᵀ(Λ⁺−Λ⁻)(z̃−z) up to a function of z, which cancels in the loss. Uniform
    negatives, ``negative=None``, are Λ⁻ = 0 (B, Rem. D.3). The corollary asks for Λ⁺ > Λ⁻ in every coordinate: where
    hard negatives are as close as positives, closeness says nothing, and where they are closer it speaks against a
    positive, which no positive Λ̂ can express.

    >>> hard = Conditional(FisherBingham, precision=(4.0, 10.0))
    >>> ratio_precision(Conditional(FisherBingham, precision=(9.0, 40.0)), hard, 2)
    tensor([ 5., 30.], dtype=torch.float64)
    """
    difference = precision_of(positive, dim)
    if negative is not None:
        difference = difference - precision_of(negative, dim)
    wrong = torch.nonzero(difference <= 0)[:, 0].tolist()
    if wrong and negative is not None:
        raise ValueError(
            "Hard negatives must be farther from their anchors than positives are, but in "
            f"{_coordinates(wrong)} Λ⁻ is not below Λ⁺, so that no positive Λ̂ matches Λ⁺ − Λ⁻ = "
            f"{[round(value, 6) for value in difference.tolist()]}. Lower the precision of the negatives there."
        )
    if wrong:
        raise ValueError(
            f"Pairs with a precision of 0 in {_coordinates(wrong)} say nothing of {'them' if len(wrong) > 1 else 'it'}."
        )
    return difference


def _coordinates(wrong: list[int]) -> str:
    return f"coordinate{'s' if len(wrong) > 1 else ''} {', '.join(map(str, wrong))}"
