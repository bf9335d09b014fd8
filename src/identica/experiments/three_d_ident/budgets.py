"""How much to spend on a row of Tables 4 and 5: the recipes behind the budgets' names, as data.

``fast`` is our own: Muon, large batches, pairs from a pool of exact renders, small images first and larger ones last, a
box of fixed sides. First all factors are found, with a few codes to spare; then they are turned to the axes, by a
temperature that falls towards the matched one (docs/3dident.md, "Factors that are hard to see"). ``paper`` is the
authors' protocol: 224 pixels, batch 512, Adam 1e-4, 200,000 steps, temperature 1, a box that learns its sides,
self-pairs among the negatives. It deviates in one place: images are rendered when they are needed, by our own renderer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from identica.encoders.scaffold import FADED
from identica.experiments.budgets import Recipe, Recipes
from identica.experiments.three_d_ident.tables import ImageRow
from identica.training.config import Schedule


@dataclass(frozen=True)
class Resolution:
    """Training at one size of the images, from where the sizes before it left off.

    size: pixels along each side. steps, lr, schedule: as in ``TrainConfig``.
    pool, refresh: pairs that are kept in memory and how many are new in every step; 0 and 0 for new pairs only.
    batch_size: None for that of the recipe.
    """

    size: int
    steps: int
    lr: float
    schedule: Schedule = "constant"
    pool: int = 0
    refresh: int = 0
    batch_size: int | None = None


@dataclass(frozen=True, kw_only=True)
class ImageRecipe(Recipe):
    """A recipe with what images need besides.

    resolutions: the stages of training. The temperature falls in the first of them that has no scaffold, and has its
        last value in all others.
    temperature, anneal_from, anneal_to, anneal_until, learn_bound, self_negatives: as of
        :class:`~identica.experiments.clica.budgets.SyntheticRecipe`.
    depth, stem: of the ResNet.
    scaffold, scaffold_until: its further codes in the first stage (contrastive only), and the part of the steps of that
        stage after which they have faded.
    decorrelation: as of :class:`~identica.objectives.InfoNCE`; not while there is a scaffold.
    rendered: the latents that pairs are snapped to, where they are.
    test_images: on which scores are computed, at the last resolution; in the end on all of them, which
        ``evaluation_samples`` says again. As many training images for Table 5.
    identity_pixels: the "identity" column regresses on images scaled to so many pixels along each side.
    """

    resolutions: tuple[Resolution, ...]
    temperature: Literal["one", "matched"] = "matched"
    anneal_from: float = 1.0
    anneal_to: float = 1.0
    anneal_until: float = 0.8
    learn_bound: bool = True
    self_negatives: bool = False
    depth: int = 18
    stem: Literal["large", "small"] = "large"
    scaffold: int = 0
    scaffold_until: float = FADED
    decorrelation: float = 0.0
    rendered: int = 250_000
    test_images: int = 25_000
    evaluation_samples: int = 25_000
    identity_pixels: int = 16

    @property
    def falling(self) -> int:
        """In which of the stages the temperature falls; with one stage alone in that."""
        return min(1 if self.scaffold else 0, len(self.resolutions) - 1)

    @property
    def last_size(self) -> int:
        """Of the images that scores are computed on."""
        return self.resolutions[-1].size


_SMOKE = ImageRecipe(
    resolutions=(
        Resolution(16, 6, 1e-3, pool=24),
        Resolution(32, 2, 1e-3, pool=16),
    ),
    batch_size=16,
    rendered=64,
    test_images=128,
    evaluation_samples=128,
    identity_pixels=2,
    evaluations=1,
)

_FAST = ImageRecipe(
    resolutions=(
        Resolution(64, 1_500, 4e-3, "cosine", pool=32_768, refresh=1_024),
        Resolution(64, 1_000, 4e-3, "cosine", pool=32_768, refresh=1_024),
        Resolution(128, 300, 2e-3, "cosine", pool=16_384, refresh=512),
    ),
    batch_size=2048,
    optimizer="muon",
    scaffold=6,
    precision="bf16",
    evaluations=10,
)

#: On a CPU a smaller task: 64 pixels, and hours even so.
_FAST_CPU = ImageRecipe(
    resolutions=(
        Resolution(32, 2_000, 2e-3, "cosine", pool=4_096, refresh=4),
        Resolution(32, 2_000, 2e-3, "cosine", pool=4_096, refresh=4),
        Resolution(64, 2_000, 1e-3, "cosine", pool=2_048, refresh=4),
    ),
    batch_size=128,
    optimizer="muon",
    scaffold=6,
    test_images=2_000,
    evaluation_samples=2_000,
    identity_pixels=8,
    evaluations=10,
)

_PAPER = ImageRecipe(
    resolutions=(Resolution(224, 200_000, 1e-4),),
    batch_size=512,
    temperature="one",
    self_negatives=True,
    evaluations=60,
)

#: Pairs of a smaller σ per coordinate, on [−1, 1], have hardly a negative near them in a batch.
_NARROW = 0.2


def adapted(recipe: ImageRecipe, row: ImageRow) -> ImageRecipe:
    """Our recipe for a row.

    What the loss needs was found without images, on the CPU (``benchmarks/redundancy.py``): codes to spare (a scaffold)
    while factors are found, at the matched temperature; then a temperature that falls from six times that. How long
    either takes was found with images (``benchmarks/recipe.jsonl``, runs 154 and 158). Narrow pairs
    (σ = 0.1) have too few negatives near in a batch: self-pairs, and seven times these temperatures, as if σ were
    0.26. Codes that may grow follow the temperature, so there it does not fall; a sphere has no scaffold.
    """
    if row.model_space == "sphere":
        return replace(recipe, scaffold=0)
    if row.model_space != "box":
        return replace(recipe, temperature="one")
    narrow = row.spread < _NARROW
    width = 7.0 if narrow else 1.0
    return replace(recipe, learn_bound=False, anneal_from=6.0 * width, anneal_to=width, self_negatives=narrow)


RECIPES: Recipes[ImageRow, ImageRecipe] = Recipes(
    {
        "smoke": {"cpu": _SMOKE, "cuda": _SMOKE},
        "fast": {"cpu": _FAST_CPU, "cuda": _FAST},
        "paper": {"cpu": _PAPER, "cuda": replace(_PAPER, precision="tf32")},
    },
    adapted={"smoke": adapted, "fast": adapted},
)
