"""How much to spend on a row of Tables 4 and 5: the recipes behind the budgets' names, as data.

``fast`` is our own: pairs from a pool of exact renders, small images first and large ones last, a box of fixed sides
with a temperature that falls towards the matched one. ``paper`` is the authors' protocol: 224 pixels, batch 512, Adam
1e-4, 200,000 steps, temperature 1, a box that learns its sides, self-pairs among the negatives. It deviates in one
place: images are rendered when they are needed, by our own renderer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from identica.experiments.budgets import Recipe
from identica.experiments.catalogue import DeviceKind
from identica.experiments.three_d_ident.tables import ImageRow
from identica.names import no_such
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


@dataclass(frozen=True)
class ImageRecipe(Recipe):
    """A recipe with what images need besides. The temperature falls during the first of the ``resolutions`` alone.

    depth, stem: of the ResNet.
    scaffold: its further codes at the first resolution (contrastive only).
    decorrelation: as of :class:`~identica.objectives.InfoNCE`; not while there is a scaffold.
    rendered: the latents that pairs are snapped to, where they are.
    test_images: on which scores are computed, at the last resolution; as many training images for Table 5.
    identity_pixels: the "identity" column regresses on images scaled to so many pixels along each side.
    """

    resolutions: tuple[Resolution, ...] = ()
    depth: int = 18
    stem: Literal["large", "small"] = "large"
    scaffold: int = 0
    decorrelation: float = 0.0
    rendered: int = 250_000
    test_images: int = 25_000
    identity_pixels: int = 16

    @property
    def last_size(self) -> int:
        """Of the images that scores are computed on."""
        return self.resolutions[-1].size


def _recipe(*resolutions: Resolution, batch_size: int, **settings: Any) -> ImageRecipe:
    steps, lr = sum(resolution.steps for resolution in resolutions), resolutions[-1].lr
    return ImageRecipe(
        encoder="resnet",
        steps=steps,
        supervised_steps=steps,
        batch_size=batch_size,
        lr=lr,
        supervised_lr=lr,
        schedule=resolutions[-1].schedule,
        resolutions=resolutions,
        **{"evaluation_samples": settings.get("test_images", 25_000), **settings},
    )


_SMOKE = _recipe(
    Resolution(16, 6, 1e-3, pool=24),
    Resolution(32, 2, 1e-3, pool=16),
    batch_size=16,
    rendered=64,
    test_images=128,
    identity_pixels=2,
    evaluations=1,
)

_FAST = _recipe(
    Resolution(64, 10_000, 1e-3, pool=32_768, refresh=256),
    Resolution(128, 2_000, 1e-3, pool=16_384, refresh=128),
    Resolution(224, 1_000, 1e-3, "cosine", pool=16_384, refresh=128),
    batch_size=512,
    precision="bf16",
    evaluations=10,
)

#: On a CPU a smaller task: 64 pixels, and hours even so.
_FAST_CPU = _recipe(
    Resolution(32, 4_000, 1e-3, pool=4_096, refresh=4),
    Resolution(64, 2_000, 1e-3, "cosine", pool=2_048, refresh=4),
    batch_size=128,
    test_images=2_000,
    identity_pixels=8,
    evaluations=10,
)

_PAPER = _recipe(
    Resolution(224, 200_000, 1e-4),
    batch_size=512,
    temperature="one",
    self_negatives=True,
    evaluations=60,
)

#: Pairs of a smaller σ per coordinate, on [−1, 1], have hardly a negative near them in a batch.
_NARROW = 0.2

RECIPES: dict[str, Mapping[DeviceKind, ImageRecipe]] = {
    "smoke": {"cpu": _SMOKE, "cuda": _SMOKE},
    "fast": {"cpu": _FAST_CPU, "cuda": _FAST},
    "paper": {"cpu": _PAPER, "cuda": replace(_PAPER, precision="tf32")},
}


def recipe_of(row: ImageRow, budget: str, device: DeviceKind) -> ImageRecipe:
    """The recipe of a budget for one row.

    What the loss needs was found without images, on the CPU: ten latents of a box through an invertible mixing, pairs
    as wide for its sides as these, batch 512, 3000 steps (runs 101 to 106 of ``benchmarks/recipe.py``). Wide pairs
    (σ = 0.26) with a temperature that falls from 10 to 1 times the matched one: R² 0.994, MCC 0.997 (to 2: 0.990,
    0.995; with self-pairs 0.992, 0.995). Narrow ones (σ = 0.1) have too few negatives near in a batch of 512: R² 0.84;
    with self-pairs, from 20 to 4: 0.992, 0.994 (from 10 to 2: 0.991, 0.979).
    """
    if budget not in RECIPES:
        raise ValueError(no_such("budget", budget, RECIPES))
    recipe = RECIPES[budget][device]
    if budget == "paper" or row.model_space == "sphere":
        return recipe
    if row.model_space != "box":
        return replace(recipe, temperature="one")
    if row.spread < _NARROW:
        return replace(recipe, learn_bound=False, anneal_from=20.0, anneal_to=4.0, self_negatives=True)
    return replace(recipe, learn_bound=False, anneal_from=10.0, anneal_to=1.0)
