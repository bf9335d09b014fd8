"""x -> h: networks from observations to codes, and the heads that end in a space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from identica._randomness import Randomness
from identica.encoders.base import Encoder
from identica.encoders.heads import BoxHead, EuclideanHead, ProductHead, SphereHead, make_head
from identica.encoders.mlp import MLPEncoder
from identica.encoders.residual import ResidualEncoder
from identica.encoders.resnet import ResNet, ResNetEncoder
from identica.encoders.scaffold import Scaffold
from identica.encoders.vae import VAE, ElboTerms
from identica.encoders.whiten import Whiten
from identica.spaces import space_from_dict

__all__ = [
    "VAE",
    "BoxHead",
    "ElboTerms",
    "Encoder",
    "EuclideanHead",
    "MLPEncoder",
    "ProductHead",
    "ResNet",
    "ResNetEncoder",
    "ResidualEncoder",
    "Scaffold",
    "SphereHead",
    "Whiten",
    "encoder_from_dict",
    "make_head",
]

_ENCODERS = {"mlp": MLPEncoder, "residual": ResidualEncoder}


def encoder_from_dict(data: Mapping[str, Any], *, seed: Randomness = 0) -> Encoder | ResNetEncoder:
    """An encoder of the architecture that ``to_dict`` described; its weights are new, drawn from ``seed``.

    >>> from identica.spaces import Box
    >>> encoder = ResidualEncoder(3, Box(2), width=8)
    >>> encoder_from_dict(encoder.to_dict()).to_dict() == encoder.to_dict()
    True
    """
    settings = dict(data)
    kind = settings.pop("encoder", None)
    if set(data) == {"class"}:
        raise ValueError(
            f"The encoder {data['class']!r} is not one of identica's: rebuild it yourself and load its weights "
            "with load_state_dict."
        )
    if kind not in (*_ENCODERS, "resnet"):
        raise ValueError(f"Unknown encoder {kind!r}: expected one of {', '.join((*_ENCODERS, 'resnet'))}.")
    space = space_from_dict(settings.pop("space"))
    if kind == "resnet":
        return ResNetEncoder(space, **settings, seed=seed)
    return _ENCODERS[kind](settings.pop("dim_in"), space, **settings, seed=seed)
