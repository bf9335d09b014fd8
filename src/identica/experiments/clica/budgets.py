"""How much to spend on a row of paper A on synthetic latents: the recipes behind the budgets' names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from identica.experiments.budgets import Recipes, VectorRecipe
from identica.experiments.catalogue import Row


@dataclass(frozen=True, kw_only=True)
class SyntheticRecipe(VectorRecipe):
    """A recipe with what rows of paper A need besides.

    supervised_steps, supervised_lr: those of the supervised model.
    activation: of the residual encoder.
    positives_per_anchor: how many positives share an anchor (contrastive only).
    temperature: of −‖·‖_p^p / τ: "one", as in paper A, or "matched" to the pairs. On the sphere always the row's own.
    anneal_from, anneal_to, anneal_until: the temperature is multiplied with a factor that falls from the first to the
        second over that part of the steps (:class:`~identica.similarities.Annealed`); 1 and 1 leave it alone.
    learn_bound: whether a box that codes live in learns its sides.
    self_negatives, self_weight_to: whether an anchor counts among its own negatives, as in the authors' code, and what
        its weight fades to over the part ``anneal_until`` of the steps; 1 leaves it alone.
    candidates: random matrices from which each layer of the mixing is chosen; the paper's 25,000.
    """

    supervised_steps: int
    supervised_lr: float
    activation: Literal["gelu", "leaky_relu"] = "gelu"
    positives_per_anchor: int = 1
    temperature: Literal["one", "matched"] = "matched"
    anneal_from: float = 1.0
    anneal_to: float = 1.0
    anneal_until: float = 0.8
    learn_bound: bool = True
    self_negatives: bool = False
    self_weight_to: float = 1.0
    candidates: int = 25_000


_SMOKE = SyntheticRecipe(
    encoder="residual",
    width=64,
    blocks=2,
    steps=300,
    supervised_steps=300,
    batch_size=512,
    lr=5e-3,
    supervised_lr=5e-3,
    evaluations=3,
)

_FAST = SyntheticRecipe(
    encoder="residual",
    width=256,
    blocks=3,
    steps=10_000,
    supervised_steps=10_000,
    batch_size=6144,
    lr=3e-3,
    supervised_lr=3e-3,
    precision="tf32",
)

#: On a CPU the same with a smaller batch: a row and seed must end within the hour on two cores.
_FAST_CPU = replace(_FAST, batch_size=2048, precision="fp32")


def adapted_fast(recipe: SyntheticRecipe, row: Row) -> SyntheticRecipe:
    """Our recipe for a row. What chose it, with measurements, is in docs/recipe.md.

    - Sphere: pairs so wide that an anchor says little about its positive have four positives each.
    - Box into box: a box of fixed sides and a temperature that falls from 5β to β times the matched one, β being the
      power of the pairs: the lighter their tails, the fewer negatives come near.
    - Codes without bounds: temperature 1. They start small, where the kernel is wide, and grow by themselves; with
      light tails (β ≥ 2) they take twice as many steps.
    - Two kinds of rows have too few negatives near any anchor even so and take the authors' self-pairs: pairs with
      light tails under a kernel of power 3, and narrow pairs of latents without bounds, where they fade over twice as
      many steps.
    - Latents without bounds: leaky ReLU, which continues in straight lines where data are rare.
    - The many points of a figure: half the steps, because their trend counts and not their last digit.
    """
    if row.curve:
        recipe = replace(recipe, steps=recipe.steps // 2)
    if row.model_space == "sphere":
        wide = row.conditional.family == "vmf" and row.conditional.tightness < 5.0
        return replace(recipe, positives_per_anchor=4, lr=2e-3) if wide else recipe
    if row.alpha is not None:
        return recipe
    if row.space == "unbounded":
        recipe = replace(recipe, activation="leaky_relu")
    width, power = row.conditional.width_and_power
    if row.model.family == "generalized_normal" and power >= 2.0:
        own = row.conditional.family == row.model.family
        return replace(recipe, self_negatives=True, lr=2e-3, temperature="matched" if own else "one")
    if row.space == "unbounded" and width < 0.5:
        return replace(recipe, steps=2 * recipe.steps, self_negatives=True, self_weight_to=1e-3, lr=2e-3)
    if row.model_space == "box":
        return replace(recipe, learn_bound=False, anneal_from=5.0 * power, anneal_to=power)
    return replace(recipe, temperature="one", steps=recipe.steps * (2 if power >= 2.0 else 1))


_PAPER = SyntheticRecipe(
    encoder="mlp",
    steps=300_000,
    supervised_steps=100_000,
    batch_size=6144,
    lr=1e-4,
    supervised_lr=1e-4,
    schedule="constant",
    temperature="one",
    self_negatives=True,
    evaluations=60,
)

RECIPES: Recipes[Row, SyntheticRecipe] = Recipes(
    {
        "smoke": {"cpu": _SMOKE, "cuda": _SMOKE},
        "fast": {"cpu": _FAST_CPU, "cuda": _FAST},
        # On CUDA with TF32 products, where the authors' GPUs had float32: in float32 these steps take twice as long.
        "paper": {"cpu": _PAPER, "cuda": replace(_PAPER, precision="tf32")},
    },
    adapted={"fast": adapted_fast},
)
