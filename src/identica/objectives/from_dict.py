"""Objectives from plain data, for saved runs."""

from __future__ import annotations

from typing import Any

import torch

from identica.objectives.align_uniform import AlignUniform
from identica.objectives.base import Objective
from identica.objectives.ensemble import EnsembleInfoNCE
from identica.objectives.info_nce import InfoNCE
from identica.objectives.spectral import SpectralContrastive, TriCL
from identica.objectives.supervised import Supervised
from identica.similarities import similarity_from_dict


def objective_from_dict(data: dict[str, Any]) -> Objective:
    """The inverse of an objective's ``to_dict``, learned similarities included.

    >>> objective_from_dict(AlignUniform(alpha=0.9, p=1).to_dict())
    AlignUniform(alpha=0.9, p=1)
    """
    settings = dict(data)
    kind = settings.pop("objective", None)
    if kind == "info_nce":
        return InfoNCE(similarity_from_dict(settings.pop("similarity")), **settings)
    if kind == "ensemble":
        return EnsembleInfoNCE([similarity_from_dict(s) for s in settings.pop("similarities")], **settings)
    if kind == "align_uniform":
        return AlignUniform(**settings)
    if kind == "spectral":
        return SpectralContrastive()
    if kind == "tricl":
        return TriCL(settings["dim"], torch.tensor(settings["importance"]), settings["decorrelation"])
    if kind == "supervised":
        return Supervised()
    if "class" in data:
        raise ValueError(
            f"The objective {data['class']!r} is not one of identica's: rebuild it yourself and load its "
            "parameters with load_state_dict."
        )
    raise ValueError(
        f"Unknown objective {kind!r}: expected info_nce, ensemble, align_uniform, spectral, tricl or supervised."
    )
