"""InfoNCE and its anisotropic form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from torch import Tensor

from identica._numbers import as_float
from identica.functional import Negatives, info_nce_terms
from identica.gradual import Gradual
from identica.kernels import check_impl
from identica.objectives.base import Objective, Terms
from identica.objectives.marginals import squared_mean, total_correlation
from identica.similarities import Anisotropic, Similarity, can_be_rebuilt

_DEFAULTS = {
    "negatives": "anchors",
    "include_positive": True,
    "self_negatives": False,
    "symmetric": False,
    "in_batch": False,
    "impl": "auto",
    "centring": 0.0,
    "decorrelation": 0.0,
}
#: Settings that add a term to the loss; where they are 0, they are not written down.
_ADDED = ("centring", "decorrelation")


class InfoNCE(Objective):
    """−log( exp u(h, h⁺) / (exp u(h, h⁺) + Σⱼ exp u(h, hⱼ⁻)) ), averaged over the batch.

    (A, Eq. 1 and 6; B, Eq. 3.) At its optimum u is the log of the density ratio of positives and negatives, up
    to a constant per anchor (B, Thm C.1): with the matching similarity the codes are then the latents, up to
    the similarity's own symmetries. Its floor is the entropy of guessing which candidate was the positive
    (B, Eq. 22).

    Parameters
    ----------
    similarity
        u(a, b): :class:`~identica.similarities.DotProduct`, :class:`~identica.similarities.LpSimilarity`,
        :class:`~identica.similarities.Anisotropic`, or one of your own.
    negatives
        Which codes of the batch are the negatives of anchor i: the other ``"anchors"`` hⱼ, the ``"positives"``
        hⱼ⁺ of other anchors, or ``"both"``. Positives are right only if z⁺ has the same marginal as the
        negatives of the theory: true for von Mises-Fisher pairs of uniform anchors, false for anisotropic
        pairs on the sphere and for truncated pairs in a box, where the similarity that is learned (such as Λ̂)
        would be biased.
    include_positive
        Whether the positive is in the denominator. The theory holds either way.
    self_negatives
        Whether an anchor also counts as its own negative. False is the definition. True is the protocol of the
        published experiments, which compare each anchor with all anchors, itself included. On the sphere
        at temperature 1 that one pair among thousands is negligible. On a box with narrow pairs it is not:
        the other anchors then weigh almost nothing, the self-pair weighs exp(0) = 1, and it alone keeps the
        loss from saturating and the codes from growing; it also biases what is learned. A number weighs that one
        pair; a :class:`~identica.gradual.Gradual` number weighs it less and less: ``Gradual(1.0, 1e-4)`` begins with
        the published protocol, which never runs out of signal, and ends with (almost) the definition, which is
        not biased. A weighed pair is not counted in accuracy and information.
    symmetric
        Average the loss with that of the exchanged views: anchor h⁺, positive h. With ``negatives="anchors"``
        the negatives are then the other h⁺, so the remark on ``negatives`` applies.
    in_batch
        Given negatives replace those from the batch; with True they join them.
    impl
        Which implementation of the log-partition: ``"auto"``, ``"triton"`` (CUDA), ``"tiled"`` or
        ``"reference"`` (:func:`identica.kernels.log_partition`).
    centring
        Adds this number times ‖E h‖² to the loss, estimated without bias from the anchors of a batch. For codes on a
        sphere and uniform latents: the truth has mean 0, so that nothing changes at the minimum, but an encoder that
        has folded the sphere, a state from which the loss alone takes long to escape, has not
        (:func:`identica.diagnostics.folding`, docs/folds.md). Where the latents' mean is not 0, leave it at 0.
    decorrelation
        Adds this number times −log det C to the loss, with C the correlation matrix of the anchors' codes. For
        latents that are independent, or uniform on a sphere: the truth has C = 1, so that the minimum stays where it
        is, but a code that repeats others, where it should find a factor that is hard to see, is pushed away from them
        (:func:`identica.diagnostics.redundancy`, docs/3dident.md). Around 0.1. Where the latents are correlated, leave
        it at 0.

    Called as ``loss(h, h_pos, h_neg=None, mask=None, weights=None)``: ``h`` (B, d); ``h_pos`` (B, d), or
    (B, P, d), averaged over the P positives, each with a denominator of its own; ``h_neg`` (M, d), shared, or
    (B, M, d), per anchor. ``mask`` is bool, True where an item may be a negative (False for a known false
    negative): (B, B) by index in the batch, (B, M) for given negatives, (B, B + M) for both. ``weights`` (B,),
    at least 0 (which is not checked), make the mean a weighted one. A batch of one without negatives has the loss 0.

    >>> import torch
    >>> from identica.similarities import DotProduct
    >>> h = torch.nn.functional.normalize(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), dim=-1)
    >>> terms = InfoNCE(DotProduct(temperature=0.1)).terms(h, h)
    >>> terms.accuracy, terms.loss
    (tensor(1.), tensor(0.0686))
    """

    def __init__(
        self,
        similarity: Similarity,
        negatives: Negatives = "anchors",
        include_positive: bool = True,
        self_negatives: bool | float | Gradual | Mapping[str, float] = False,
        symmetric: bool = False,
        in_batch: bool = False,
        impl: str = "auto",
        centring: float = 0.0,
        decorrelation: float = 0.0,
    ) -> None:
        super().__init__()
        if not isinstance(similarity, Similarity):
            raise ValueError(
                f"InfoNCE needs a similarity, such as DotProduct(0.1) or LpSimilarity(1), not {similarity!r}."
            )
        if negatives not in ("anchors", "positives", "both"):
            raise ValueError(f'negatives must be "anchors", "positives" or "both", not {negatives!r}.')
        check_impl(impl)
        self.similarity = similarity
        self.negatives: Negatives = negatives
        self.include_positive = bool(include_positive)
        self.self_negatives = _self_negatives(self_negatives)
        self.symmetric = bool(symmetric)
        self.in_batch = bool(in_batch)
        self.impl = impl
        self.centring = _weight("centring", centring)
        self.decorrelation = _weight("decorrelation", decorrelation)

    def terms(
        self,
        h: Tensor,
        h_pos: Tensor,
        h_neg: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Terms:
        """The loss and what it is made of; ``centring`` and ``decorrelation`` count in the loss alone."""
        settings = self.settings() | {"self_negatives": _weight_now(self.self_negatives)}
        for name in _ADDED:
            del settings[name]
        found = info_nce_terms(h, h_pos, h_neg, similarity=self.similarity, mask=mask, weights=weights, **settings)
        loss = found.loss
        if self.centring and len(h) > 1:
            loss = loss + self.centring * squared_mean(h, weights)
        if self.decorrelation and len(h) > 1:
            loss = loss + self.decorrelation * total_correlation(h, weights)
        return replace(found, loss=loss)

    def settings(self) -> dict[str, Any]:
        """Everything but the similarity, as keyword arguments of the constructor."""
        return {name: getattr(self, name) for name in _DEFAULTS}

    def plain_settings(self) -> dict[str, Any]:
        """The same as plain data; without ``centring`` and ``decorrelation`` where there is none."""
        settings = self.settings()
        if isinstance(self.self_negatives, Gradual):
            settings["self_negatives"] = self.self_negatives.to_dict()
        return {name: value for name, value in settings.items() if value or name not in _ADDED}

    def to_dict(self) -> dict[str, Any]:
        """``{"objective": "info_nce", "similarity": {...}, ...}``.

        With a similarity of your own, which cannot be rebuilt from plain data, ``{"class": "InfoNCE(...)"}``.
        """
        if type(self) is not InfoNCE or not can_be_rebuilt(self.similarity):
            return {"class": f"{type(self).__qualname__}({type(self.similarity).__qualname__})"}
        return {"objective": "info_nce", "similarity": self.similarity.to_dict(), **self.plain_settings()}

    def extra_repr(self) -> str:
        """The settings that differ from their defaults."""
        return ", ".join(f"{k}={v!r}" for k, v in self.settings().items() if v != _DEFAULTS[k])


def _weight(name: str, given: float) -> float:
    weight = as_float(given)
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"{name} is a weight of at least 0, not {given!r}.")
    return weight


def _self_negatives(given: bool | float | Gradual | Mapping[str, float]) -> bool | float | Gradual:
    """The setting as it is kept: a plain number 0 or 1 is False or True; plain data of a gradual number is one."""
    if isinstance(given, Mapping):
        return Gradual(**given)
    if isinstance(given, Gradual):
        return given
    weight = as_float(given)
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"self_negatives is True, False or a weight of at least 0, not {given!r}.")
    return bool(weight) if weight in (0.0, 1.0) else weight


def _weight_now(setting: bool | float | Gradual) -> bool | float | Tensor:
    return setting.value if isinstance(setting, Gradual) else setting


def AnInfoNCE(
    dim: int,
    init: float | Tensor = 1.0,
    trainable: bool = True,
    link: Literal["log", "softplus"] = "log",
    **settings: Any,
) -> InfoNCE:
    """InfoNCE with a learned diagonal precision (B, Eq. 3): ``InfoNCE(Anisotropic(dim, ...), **settings)``.

    >>> AnInfoNCE(3, in_batch=True)
    InfoNCE(
      in_batch=True
      (similarity): Anisotropic(3, precision=1)
    )
    """
    return InfoNCE(Anisotropic(dim, init, trainable, link), **settings)
