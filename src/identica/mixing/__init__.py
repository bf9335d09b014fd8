"""z -> x: how latents become observations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from identica.mixing.base import FunctionMixing, Mixing, MixingLike, as_mixing, same_mixing
from identica.mixing.decoder import DecoderMixing
from identica.mixing.invertible_mlp import InvertibleMLP
from identica.mixing.rendered import RenderedMixing

__all__ = [
    "DecoderMixing",
    "FunctionMixing",
    "InvertibleMLP",
    "Mixing",
    "MixingLike",
    "RenderedMixing",
    "as_mixing",
    "mixing_from_dict",
    "same_mixing",
]


def mixing_from_dict(data: Mapping[str, Any]) -> Mixing:
    """The inverse of ``to_dict``: the same weights, drawn again from the seed.

    >>> mixing = InvertibleMLP(2, seed=1, candidates=10)
    >>> same_mixing(mixing, mixing_from_dict(mixing.to_dict()))
    True
    """
    kind = data.get("mixing")
    if kind == "invertible_mlp":
        return InvertibleMLP(**{name: value for name, value in data.items() if name != "mixing"})
    if kind == "decoder":
        raise ValueError(
            "This mixing was a decoder, whose weights are not part of its description: load them and pass "
            "DecoderMixing(decoder) again."
        )
    if kind == "rendered":
        raise ValueError("This mixing was a renderer: make its scene and pass RenderedMixing(scene) again.")
    if kind == "user function":
        raise ValueError("This mixing was a user's own function, which no data can rebuild: pass it again.")
    raise ValueError(f"Unknown mixing {kind!r}: expected invertible_mlp.")
