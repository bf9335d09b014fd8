"""identica: representations that are provably the data's own factors.

Names are imported from their rooms when they are first used, so that ``import identica`` and
``identica --help`` do not wait for torch. ``__init__.pyi`` lists the same names for type checkers.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from identica._version import __version__

_EXPORTS = {
    "gradual": ("Gradual",),
    "spaces": ("Box", "Euclidean", "Product", "Space", "Sphere"),
    "similarities": ("Anisotropic", "Annealed", "DotProduct", "LpSimilarity", "Similarity"),
    "distributions": (
        "BoxUniform",
        "Conditional",
        "FisherBingham",
        "GeneralizedNormal",
        "ProductDistribution",
        "ProjectedGeneralizedNormal",
        "ProjectedLaplace",
        "ProjectedNormal",
        "SphereUniform",
        "TruncatedGeneralizedNormal",
        "TruncatedLaplace",
        "TruncatedNormal",
        "VonMisesFisher",
    ),
    "mixing": ("InvertibleMLP", "Mixing"),
    "processes": ("EnsembleProcess", "PairProcess", "Pairs"),
    "encoders": ("MLPEncoder", "ResidualEncoder", "Whiten"),
    "objectives": (
        "AlignUniform",
        "AnInfoNCE",
        "EnsembleInfoNCE",
        "InfoNCE",
        "Objective",
        "SpectralContrastive",
        "Supervised",
        "Terms",
        "TriCL",
    ),
    "training": (
        "Callback",
        "TrainConfig",
        "TrainState",
        "TrainingRun",
        "evaluate",
        "identity_scores",
        "load",
        "make_step",
        "train",
        "train_many",
    ),
}
_HOME = {name: room for room, names in _EXPORTS.items() for name in names}
_ROOMS = (*_EXPORTS, "data", "diagnostics", "functional", "kernels", "metrics", "render")

__all__ = ["__version__", *sorted(_HOME), *sorted(_ROOMS)]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"identica.{_HOME[name]}"), name)
    elif name in _ROOMS:
        value = import_module(f"identica.{name}")
    else:
        from identica.names import suggest

        nearest = suggest(name, __all__)
        raise AttributeError(f"identica has no {name!r}." + (f" Did you mean {nearest!r}?" if nearest else ""))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
