"""How much to spend on a point of paper B: the recipes behind the budgets' names.

``fast`` has negatives from the other anchors alone, which are uniform as the theory wants them, and learns log Λ̂.
``paper`` is the authors' protocol: a plain perceptron, Adam 1e-4 and 1e-3 for Λ̂, batch 1000, 300,000 steps, Λ̂ a
softplus that starts at 0.7, both views as negatives, both directions. It deviates in two places. Pairs are
exact, where the authors kept normal draws within a tenth of the sphere and projected them; and the second view's
rows have their own negatives, where the authors' code reuses the first view's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from identica.experiments.aninfonce.rows import LossRow
from identica.experiments.budgets import Recipes, VectorRecipe
from identica.functional import Negatives


@dataclass(frozen=True, kw_only=True)
class LossRecipe(VectorRecipe):
    """A recipe with what the losses of paper B need besides.

    width: in ten dimensions; it grows with the dimension up to twice that.
    plain_steps, plain_batch: the steps and the batch of losses that learn no Λ̂; None for those of the others.
    similarity_lr, similarity_after: the learning rate of Λ̂, of a learned τ and of TriCL's importances, and the part of
        the steps after which Λ̂ begins to learn (AnInfoNCE alone).
    negatives, symmetric: as of :class:`~identica.objectives.InfoNCE`.
    centring: the same, for losses that learn Λ̂ alone.
    link, start: how Λ̂ is kept positive, and where it starts; as of :class:`~identica.similarities.Anisotropic`.
    floor_batches, floor_pairs: on how many batches of how many pairs the loss is compared with its minimum.
    error_batches, error_pairs: from how many batches of how many pairs the standard errors of Λ̂ come. Neither takes
        more pairs than a batch of the training has.
    turned: after the training codes are made round and turned to the axes at which their loss is smallest (AnInfoNCE
        with one Λ̂ alone; :func:`~identica.diagnostics.turn_to_axes`), from as many batches as the standard errors. For
        pairs of which all Λ are different. Where they cannot be made round the receipt says so in place of scores.
    """

    plain_steps: int | None = None
    plain_batch: int | None = None
    similarity_lr: float = 1e-2
    similarity_after: float = 0.0
    negatives: Negatives = "anchors"
    symmetric: bool = False
    centring: float = 0.0
    link: Literal["log", "softplus"] = "log"
    start: float = 1.0
    floor_batches: int = 8
    floor_pairs: int = 4096
    error_batches: int = 40
    error_pairs: int = 4096
    turned: bool = False


@dataclass(frozen=True, kw_only=True)
class SyntheticLossRecipe(LossRecipe):
    """A recipe for latents that an invertible mixing shows.

    candidates: random matrices from which each layer of the mixing is chosen; the paper's 25,000.
    """

    candidates: int = 25_000


_FAST = SyntheticLossRecipe(
    encoder="residual",
    width=256,
    blocks=3,
    steps=20_000,
    batch_size=4096,
    lr=1e-3,
    precision="tf32",
)
_FAST_CPU = replace(_FAST, batch_size=1024, precision="fp32", floor_batches=16, error_pairs=512)
_SMOKE = SyntheticLossRecipe(
    encoder="residual",
    width=64,
    blocks=2,
    steps=150,
    batch_size=384,
    lr=5e-3,
    similarity_lr=5e-2,
    evaluations=3,
    floor_batches=4,
    error_batches=8,
    error_pairs=128,
)
#: The authors' protocol, where their code says it.
PAPER = SyntheticLossRecipe(
    encoder="mlp",
    steps=300_000,
    batch_size=1000,
    lr=1e-4,
    similarity_lr=1e-3,
    schedule="constant",
    negatives="both",
    symmetric=True,
    link="softplus",
    start=0.7,
    evaluations=60,
    floor_batches=32,
)

RECIPES: Recipes[LossRow, SyntheticLossRecipe] = Recipes(
    {
        "smoke": {"cpu": _SMOKE, "cuda": _SMOKE},
        "fast": {"cpu": _FAST_CPU, "cuda": _FAST},
        "paper": {"cpu": PAPER, "cuda": replace(PAPER, precision="tf32")},
    }
)
