"""The losses as modules."""

from identica.objectives.align_uniform import AlignUniform
from identica.objectives.base import Objective, Terms, encode_pairs
from identica.objectives.ensemble import EnsembleInfoNCE
from identica.objectives.from_dict import objective_from_dict
from identica.objectives.info_nce import AnInfoNCE, InfoNCE
from identica.objectives.spectral import SpectralContrastive, TriCL
from identica.objectives.supervised import Supervised

__all__ = [
    "AlignUniform",
    "AnInfoNCE",
    "EnsembleInfoNCE",
    "InfoNCE",
    "Objective",
    "SpectralContrastive",
    "Supervised",
    "Terms",
    "TriCL",
    "encode_pairs",
    "objective_from_dict",
]
