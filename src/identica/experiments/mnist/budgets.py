"""How much to spend on a point of paper B's MNIST experiments: the recipes behind the budgets' names.

The paper specifies neither the contrastive encoder nor its training; ``paper`` takes those of the synthetic figures.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from identica.experiments.aninfonce.budgets import PAPER, LossRecipe
from identica.experiments.aninfonce.rows import LossRow
from identica.experiments.budgets import Recipes
from identica.experiments.mnist.rows import VaeSettings, ViewsRow


@dataclass(frozen=True, kw_only=True)
class MnistRecipe(LossRecipe):
    """A recipe with what MNIST needs besides.

    start_to: where the last of the Λ̂ starts, the first being at ``start`` and those between equally far apart in
        logarithm; None for all at ``start``. See docs/recipe.md for what it is good for.
    log_odds, whiten: as of :class:`~identica.encoders.ResidualEncoder`, for images that a decoder makes; 0 for neither.
    vae: the VAE whose decoder is the mixing.
    readout_images: readouts and neighbours are fitted on so many of the training images; None for all.
    test_images: and judged on so many of the test images.
    neighbours: how many vote.
    views_each, digits_each: of how many views of how many test images of each class the latents are looked at.
    domain_steps: batches that the classifier of views and plain images is trained on.
    """

    start_to: float | None = None
    log_odds: float = 0.0
    whiten: float = 0.0
    vae: VaeSettings = VaeSettings()
    readout_images: int | None = None
    test_images: int | None = None
    neighbours: int = 5
    views_each: int = 1000
    digits_each: int = 2
    domain_steps: int = 2000


_FAST = MnistRecipe(
    encoder="residual",
    width=512,
    blocks=3,
    steps=12_000,
    batch_size=4096,
    optimizer="muon",
    lr=1e-3,
    precision="tf32",
    start=1.0,
    start_to=100.0,
    log_odds=1e-4,
)
_FAST_CPU = replace(_FAST, batch_size=1024, precision="fp32", floor_batches=16, error_pairs=512)
_SMOKE = MnistRecipe(
    encoder="residual",
    width=32,
    blocks=1,
    steps=40,
    batch_size=128,
    lr=5e-3,
    similarity_lr=5e-2,
    evaluations=2,
    evaluation_samples=1024,
    floor_batches=2,
    error_batches=4,
    error_pairs=64,
    vae=VaeSettings(hidden=(64, 32), epochs=2, images=2000),
    readout_images=1000,
    test_images=500,
    views_each=100,
    digits_each=1,
    domain_steps=60,
)
_PAPER = MnistRecipe(**{setting.name: getattr(PAPER, setting.name) for setting in fields(LossRecipe)})

#: Where no two Λ are equal, each of them is asked for. The axes are the factors' there, so codes are turned to them. An
#: encoder that sees the faintest pixels, too, comes closer to the latents, though it finds worse neighbours among real
#: digits. And high Λ are learned from negatives that are near, of which a large batch has more (docs/recipe.md,
#: "Digits of known latents"). InfoNCE, whose R² is the same from step 600 on, has the batches of the other rows, and a
#: third of their steps.
_SHARP_CPU = replace(_FAST_CPU, lr=2e-3, log_odds=1e-12, whiten=0.5, turned=True)
_SHARP = replace(
    _FAST,
    steps=4_000,
    batch_size=16_384,
    plain_steps=4_000,
    plain_batch=4096,
    lr=2e-3,
    log_odds=1e-12,
    whiten=0.5,
    turned=True,
    floor_pairs=16_384,
    error_pairs=8192,
)
#: What an encoder is off by makes Λ̂ too small, by a part that grows with Λ: above this Λ there are at least so many
#: steps, which a CPU has anyway.
_FAR, _FAR_STEPS = 100.0, 6_000


def _longer_where_far(recipe: MnistRecipe, row: LossRow) -> MnistRecipe:
    far = max(row.precisions[0]) > _FAR
    return replace(recipe, steps=max(recipe.steps, _FAR_STEPS)) if far else recipe


#: Views of real digits want more steps and smaller batches: what sets the pace is the number of images seen. All Λ̂
#: start at 1: from 100 on, pairs that are far apart push all codes into one point before anything is learned.
_VIEWS = replace(_FAST, steps=20_000, batch_size=2048, optimizer="adam", start_to=None, log_odds=0.0)
_VIEWS_CPU = replace(_VIEWS, batch_size=512, precision="fp32")

#: For pairs that a decoder shows.
DECODED_RECIPES: Recipes[LossRow, MnistRecipe] = Recipes(
    {
        "smoke": {"cpu": _SMOKE, "cuda": _SMOKE},
        "fast": {"cpu": _FAST_CPU, "cuda": _FAST},
        "paper": {"cpu": _PAPER, "cuda": replace(_PAPER, precision="tf32")},
    }
)
#: For such pairs of which no two Λ are equal.
SHARP_RECIPES: Recipes[LossRow, MnistRecipe] = Recipes(
    {**DECODED_RECIPES.by_budget, "fast": {"cpu": _SHARP_CPU, "cuda": _SHARP}},
    adapted={"fast": _longer_where_far},
)
#: For views of real digits.
VIEWS_RECIPES: Recipes[LossRow, MnistRecipe] = Recipes(
    {**DECODED_RECIPES.by_budget, "fast": {"cpu": _VIEWS_CPU, "cuda": _VIEWS}}
)


def recipes_of(row: LossRow) -> Recipes[LossRow, MnistRecipe]:
    """Those of the kind that a row is of."""
    if isinstance(row, ViewsRow):
        return VIEWS_RECIPES
    return SHARP_RECIPES if len(row.precisions) == 1 and len(set(row.precisions[0])) == row.dim else DECODED_RECIPES
