"""Several InfoNCE losses with one encoder: one per process, each with its own similarity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from identica.objectives.base import Encoder, Objective, Terms, encode_pairs, sum_of_terms
from identica.objectives.info_nce import InfoNCE
from identica.similarities import Anisotropic, Similarity, can_be_rebuilt


class EnsembleInfoNCE(Objective):
    """Σᵢ InfoNCE(similarityᵢ) on the pairs of process i, with one shared encoder (B, Cor. B.2).

    If for every two factors some process varies them differently, the ensemble tells all factors apart, which
    none of its members has to (B, Rem. D.4).

    ``similarities`` has at least two members, each with parameters of its own; ``settings`` are those of
    :class:`InfoNCE` and hold for all. Codes come as one tuple per argument: ``loss((h1, h2), (h1_pos, h2_pos))``. In
    :class:`Terms` everything is the sum over the members, except the accuracy, which is their mean.

    >>> import torch
    >>> from identica.similarities import Anisotropic
    >>> loss = EnsembleInfoNCE([Anisotropic(2), Anisotropic(2)])
    >>> h = torch.eye(2)
    >>> loss((h, h), (h, h))
    tensor(0.6265, grad_fn=<SumBackward1>)
    """

    def __init__(self, similarities: Sequence[Similarity], **settings: Any) -> None:
        super().__init__()
        if not isinstance(similarities, Sequence | nn.ModuleList):
            raise TypeError(
                f"An ensemble takes a list of similarities, one per process, not {similarities!r}; for example "
                "EnsembleInfoNCE([Anisotropic(3), Anisotropic(3)])."
            )
        if len(similarities) < 2:
            raise ValueError(
                f"An ensemble needs at least two similarities, one per process, not {len(similarities)}; with "
                "one, use InfoNCE(similarity)."
            )
        _require_own_parameters(similarities)
        dims = {similarity.dim for similarity in similarities if isinstance(similarity, Anisotropic)}
        if len(dims) > 1:
            raise ValueError(
                f"The members of an ensemble share one encoder, but their Λ̂ are for codes of {sorted(dims)} "
                "dimensions: make all of one."
            )
        self.members = nn.ModuleList(InfoNCE(similarity, **settings) for similarity in similarities)

    @property
    def similarities(self) -> tuple[Similarity, ...]:
        """The similarity of each member."""
        return tuple(member.similarity for member in self._members())

    def _members(self) -> list[InfoNCE]:
        return [member for member in self.members if isinstance(member, InfoNCE)]

    def terms(  # type: ignore[override]
        self,
        h: Sequence[Tensor],
        h_pos: Sequence[Tensor],
        h_neg: Sequence[Tensor | None] | None = None,
        *,
        mask: Sequence[Tensor | None] | None = None,
        weights: Sequence[Tensor | None] | None = None,
    ) -> Terms:
        """The loss and what it is made of; every argument has one entry per member."""
        nothing = (None,) * len(self.members)
        optional = (nothing if value is None else value for value in (h_neg, mask, weights))
        arguments = (h, h_pos, *optional)
        for name, value in zip(("h", "h_pos", "h_neg", "mask", "weights"), arguments, strict=True):
            self._check_count(name, value)
        if len({len(codes) for codes in h}) > 1:
            raise ValueError(
                "All members of an ensemble need the same number of rows, but their batches have "
                f"{', '.join(str(len(codes)) for codes in h)}."
            )
        return sum_of_terms(
            [
                member.terms(a, b, c, mask=m, weights=w)
                for member, a, b, c, m, w in zip(self._members(), *arguments, strict=True)
            ]
        )

    def forward(self, h: Any, h_pos: Any, h_neg: Any = None, *, mask: Any = None, weights: Any = None) -> Tensor:
        """The loss; every argument has one entry per member."""
        return self.terms(h, h_pos, h_neg, mask=mask, weights=weights).loss

    def compute(self, encoder: Encoder, pairs: Any) -> Terms:
        """Encode a tuple of pairs, one per member, in one call of the encoder, and return the terms."""
        if not isinstance(pairs, tuple | list):
            pairs = (pairs,)
        self._check_count("pairs", pairs)
        h, h_pos, h_neg = zip(*encode_pairs(encoder, *pairs), strict=True)
        return self.terms(h, h_pos, h_neg)

    def to_dict(self) -> dict[str, Any]:
        """``{"objective": "ensemble", "similarities": [...], ...}``, with the settings of InfoNCE.

        With a similarity of your own, ``{"class": ...}``, as in :meth:`InfoNCE.to_dict`.
        """
        if type(self) is not EnsembleInfoNCE or not all(map(can_be_rebuilt, self.similarities)):
            names = ", ".join(type(similarity).__qualname__ for similarity in self.similarities)
            return {"class": f"{type(self).__qualname__}([{names}])"}
        settings = self._members()[0].plain_settings()
        return {"objective": "ensemble", "similarities": [s.to_dict() for s in self.similarities], **settings}

    def _check_count(self, name: str, value: Any) -> None:
        if isinstance(value, Tensor) or len(value) != len(self.members):
            got = "a single tensor" if isinstance(value, Tensor) else f"{len(value)}"
            raise ValueError(
                f"This ensemble has {len(self.members)} members, so {name} must be a tuple of "
                f"{len(self.members)}, one per process, not {got}."
            )


def _require_own_parameters(similarities: Sequence[Any]) -> None:
    """Members that share what they learn, such as Λ̂, cannot each fit their own process."""
    seen: set[int] = set()
    for similarity in similarities:
        own = {id(parameter) for parameter in similarity.parameters()} if isinstance(similarity, nn.Module) else set()
        if own & seen:
            raise ValueError(
                f"Two members of this ensemble are one object, {similarity!r}, and would learn one set of parameters "
                "for different processes: make one each, as in [Anisotropic(3) for _ in range(2)]."
            )
        seen |= own
