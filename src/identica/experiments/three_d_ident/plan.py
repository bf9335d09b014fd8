"""One row of Tables 4 and 5 under one recipe: processes that render, a ResNet, a loss, and what is measured."""

from __future__ import annotations

import dataclasses
import functools
import json
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.types import Device

from identica._randomness import Randomness
from identica.data import AugmentedProcess, simclr_with_colour
from identica.distributions import BoxUniform, Conditional, TruncatedLaplace, TruncatedNormal
from identica.encoders import ResNetEncoder
from identica.experiments.catalogue import Model
from identica.experiments.planning import BasePlan, Measured
from identica.experiments.running.stages import Stage
from identica.experiments.three_d_ident.budgets import ImageRecipe, Resolution
from identica.experiments.three_d_ident.recovered import SHOWN, recovered
from identica.experiments.three_d_ident.tables import ImageRow
from identica.mixing import RenderedMixing
from identica.objectives import InfoNCE, Objective, Supervised
from identica.processes import AnchorProcess, EvaluatedOn, PairPool, PairProcess, Pairs, SnappedProcess
from identica.processes.anchors import DrawsPairs, FiniteAnchors
from identica.render import FACTORS, VERSION, ThreeDIdentScene
from identica.similarities import Annealed, DotProduct, LpSimilarity, Similarity
from identica.spaces import Box, Euclidean, Space, Sphere
from identica.training import Evaluation, TrainConfig, TrainingRun, derive_seed, evaluate

DIM = len(FACTORS)
_FAMILIES = {"normal": TruncatedNormal, "laplace": TruncatedLaplace}
#: The published data set has so many training images.
_LARGEST_SET = 250_000
#: Of a set of which less than one in so many is asked for, only those are rendered.
_FEW = 8
#: A checkpoint of a ResNet18 has 130 MB: not after fewer steps.
_SELDOM = 50
#: Scores during training are computed on so many images at most.
_LOOK = 4096


def marginal() -> BoxUniform:
    """The latents of 3DIdent: uniform in [−1, 1]^10."""
    return BoxUniform(DIM, low=-1.0, high=1.0)


@functools.lru_cache(maxsize=8)
def scene_of(size: int) -> ThreeDIdentScene:
    """One scene for each size: it bakes tables once."""
    return ThreeDIdentScene(resolution=size)


@functools.lru_cache(maxsize=4)
def rendered_set(name: str, count: int, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Latents ``(n, 10)`` and images ``(n, 3, H, W)`` of a set that is the same for all rows and seeds, on a device."""
    latents = latents_of(name, count).to(device)
    return latents, RenderedMixing(scene_of(size))(latents)


def latents_of(name: str, count: int) -> Tensor:
    """The latents of a set, "test" or "train"; a smaller one is the beginning of a larger one."""
    drawn = marginal().sample((max(count, _LARGEST_SET),), generator=derive_seed(0, f"3dident {name}"))
    return drawn[:count]


def without_scaffold(encoder: nn.Module) -> None:
    """Remove further codes, which are worth nothing once they have faded."""
    if isinstance(encoder, ResNetEncoder):
        encoder.scaffold = None


class RenderedSet:
    """Draws from a rendered set, which is made when it is first drawn from, on the device it is then on.

    pixels: with a number, images are scaled to so many pixels and observed as vectors.
    """

    def __init__(self, name: str, count: int, size: int, *, pixels: int | None = None, device: Device = "cpu") -> None:
        self.name, self.count, self.size, self.pixels = name, count, size, pixels
        self.device, self.dtype = torch.empty(0, device=device).device, torch.float32

    def sample(self, n: int, generator: Randomness) -> Pairs:
        """Draw ``n`` images with their latents, all different as long as there are enough."""
        if n * _FEW <= self.count:  # a look: not worth the whole set
            latents = latents_of(self.name, self.count).to(self.device)
            drawn = FiniteAnchors(latents, mixing=RenderedMixing(scene_of(self.size))).sample(n, generator)
        else:
            drawn = FiniteAnchors(*rendered_set(self.name, self.count, self.size, self.device)).sample(n, generator)
        if self.pixels is None:
            return drawn
        small = [functional.adaptive_avg_pool2d(part.float() / 255, self.pixels) for part in drawn.x.split(1024)]
        vectors = torch.cat(small).flatten(1)
        return Pairs(drawn.z, drawn.z, vectors, vectors)

    def to(self, device: Device = None, dtype: torch.dtype | None = None) -> RenderedSet:
        """The same set on another device."""
        place = device or self.device
        return RenderedSet(self.name, self.count, self.size, pixels=self.pixels, device=place)

    def to_dict(self) -> dict[str, Any]:
        """What it depends on."""
        names = ("name", "count", "size", "pixels")
        return {"process": "rendered set", **{name: getattr(self, name) for name in names}}


@dataclass(frozen=True)
class ImagePlan(BasePlan):
    """What to train for one row of Table 4 or 5. Seeds differ in weights and pairs; the scene is one."""

    row: ImageRow
    recipe: ImageRecipe

    # -- what is scored on, and what is trained on

    def process(self, model: Model, seed: int) -> DrawsPairs:
        """The test images at the last resolution; for identity as short vectors."""
        pixels = self.recipe.identity_pixels if model == "identity" else None
        return RenderedSet("test", self.recipe.test_images, self.recipe.last_size, pixels=pixels)

    def pairs(self, model: Model, resolution: Resolution) -> DrawsPairs:
        """What is trained on at one size of the images, scored on test images of that size."""
        mixing = RenderedMixing(scene_of(resolution.size))
        process: DrawsPairs
        if model == "supervised":
            process = self._pooled(AnchorProcess(marginal(), mixing), resolution)
        elif self.row.protocol == "augmented":
            anchors = self._pooled(AnchorProcess(marginal(), mixing), resolution)
            process = AugmentedProcess(anchors, simclr_with_colour())
        else:
            exact = PairProcess(marginal(), self._conditional(), mixing)
            snapped = self.row.protocol == "snapped"
            drawn = SnappedProcess(exact, latents_of("train", self.recipe.rendered)) if snapped else exact
            process = self._pooled(drawn, resolution)
        return EvaluatedOn(process, RenderedSet("test", self.recipe.test_images, resolution.size))

    def _pooled(self, process: DrawsPairs, resolution: Resolution) -> DrawsPairs:
        return PairPool(process, resolution.pool, resolution.refresh) if resolution.pool else process

    def _conditional(self) -> Conditional:
        law = self.row.conditional
        return Conditional(_FAMILIES[law.family], scale=law.scale, low=-1.0, high=1.0)

    # -- encoder and loss

    def encoder(self, model: Model, seed: int) -> ResNetEncoder:
        """An untrained ResNet that ends in the model's space."""
        recipe, space = self.recipe, self._space(model)
        return ResNetEncoder(
            space,
            recipe.depth,
            stem=recipe.stem,
            learn_bound=recipe.learn_bound or not isinstance(space, Box),
            scaffold=0 if model == "supervised" else recipe.scaffold,
            scaffold_until=recipe.scaffold_until,
            seed=derive_seed(seed, f"{model} encoder"),
        )

    def _space(self, model: Model) -> Space:
        """The latents' own box where its sides are fixed; the paper's starts as [0, 1] and learns its sides."""
        if model == "supervised" or self.row.model_space == "unbounded":
            return Euclidean(DIM)
        if self.row.model_space == "sphere":
            return Sphere(DIM)
        return Box(DIM) if self.recipe.learn_bound else Box(DIM, low=-1.0, high=1.0)

    def objective(self, model: Model) -> Objective:
        """The loss of the stage in which the temperature falls."""
        return self._loss(model, self.recipe.falling)

    def _loss(self, model: Model, place: int) -> Objective:
        """Of the stage at a place. A scaffold is not decorrelated."""
        if model == "supervised":
            return Supervised()
        recipe, similarity = self.recipe, self._similarity()
        if (recipe.anneal_from, recipe.anneal_to) != (1.0, 1.0):
            start = recipe.anneal_from if place == recipe.falling else recipe.anneal_to
            similarity = Annealed(similarity, start, recipe.anneal_to, recipe.anneal_until)
        decorrelation = 0.0 if recipe.scaffold and place == 0 else recipe.decorrelation
        return InfoNCE(similarity, self_negatives=recipe.self_negatives, decorrelation=decorrelation)

    def _similarity(self) -> Similarity:
        if self.row.model.concentration is not None:
            return DotProduct(1.0 / self.row.model.concentration)
        matched = 2.0 * self.row.spread**2  # of −‖·‖² and pairs with that σ
        return LpSimilarity(2, matched if self.recipe.temperature == "matched" else 1.0)

    # -- training

    def stages(self, model: Model) -> tuple[Stage, ...]:
        """One for each resolution."""
        return tuple(
            Stage(
                f"{place + 1}-{resolution.size}-pixels",
                self._config(resolution),
                functools.partial(self.pairs, model, resolution),
                functools.partial(self._loss, model, place),
                without_scaffold if place else None,
            )
            for place, resolution in enumerate(self.recipe.resolutions)
        )

    def _config(self, resolution: Resolution) -> TrainConfig:
        recipe = self.recipe
        return TrainConfig(
            steps=resolution.steps,
            batch_size=resolution.batch_size or recipe.batch_size,
            optimizer=recipe.optimizer,
            lr=resolution.lr,
            schedule=resolution.schedule,
            eval_every=max(1, resolution.steps // recipe.evaluations),
            eval_samples=min(_LOOK, recipe.test_images),
            checkpoint_every=max(_SELDOM, resolution.steps // 10),
            precision=recipe.precision,
        )

    def train_config(self, model: Model) -> TrainConfig:
        """The settings of all stages together: those of the last, with the steps of all."""
        last = self._config(self.recipe.resolutions[-1])
        return dataclasses.replace(last, steps=sum(resolution.steps for resolution in self.recipe.resolutions))

    @property
    def trained(self) -> tuple[Model, ...]:
        """The contrastive model first: it tells most about the time needed."""
        return tuple(model for model in ("contrastive", "supervised") if model in self.models)

    def loss_label(self, model: Model) -> str:
        """Where images come from decides how long a step takes."""
        return "supervised" if model == "supervised" else self.row.protocol

    # -- what is measured

    def measured(
        self, model: Model, seed: int, run: TrainingRun, evaluation: Evaluation, device: torch.device
    ) -> Measured:
        """Scores on training images, by factor too, when each point of the curve was reached, and latents recovered."""
        recipe = self.recipe
        info = {
            "factors": list(FACTORS),
            "curve_seconds": [round(record.seconds, 2) for record in run.history],
            "resolutions": [[resolution.size, resolution.steps] for resolution in recipe.resolutions],
            "recovered": self._recovered(run, evaluation, device),
        }
        return self._on_training_images(run, None, derive_seed(seed, f"{model} train"), device, info)

    def _recovered(self, run: TrainingRun, evaluation: Evaluation, device: torch.device) -> dict[str, Any]:
        """Of latents that no model was trained or scored on, the same for all of them."""
        latents = latents_of("shown", SHOWN).to(device)
        return recovered(evaluation, latents, run(RenderedMixing(scene_of(self.recipe.last_size))(latents)))

    def measured_identity(self, seed: int, device: torch.device) -> Measured:
        """Scores on training images."""
        source = derive_seed(seed, "identity train")
        return self._on_training_images(lambda x: x, self.recipe.identity_pixels, source, device, {})

    def _on_training_images(
        self, encode: Any, pixels: int | None, source: int, device: torch.device, info: dict[str, Any]
    ) -> Measured:
        count, size = self.recipe.test_images, self.recipe.last_size
        train = RenderedSet("train", count, size, pixels=pixels, device=device)
        found = evaluate(train, encode, count, generator=source, device=device)
        return Measured(
            scores={"r2_train": found.r2.score, "mcc_train": found.mcc.score},
            per_dimension={"r2_train": list(found.r2.per_dimension), "mcc_train": list(found.mcc.per_dimension)},
            info=info,
        )

    # -- as plain data: identity depends on the test images alone, supervised on its training as well, contrastive also
    # -- on the pairs and the loss

    @property
    def _latents(self) -> dict[str, Any]:
        return {
            "scene": f"3dident {VERSION}",
            "space": self.row.space,
            "marginal": self.row.marginal.to_dict(),
            "dim": DIM,
            "test": {"images": self.recipe.test_images, "size": self.recipe.last_size},
            "evaluation_samples": self.recipe.evaluation_samples,
        }

    def _model_config(self, model: Model) -> dict[str, Any]:
        if model == "identity":
            return {"encoder": "identity", "pixels": self.recipe.identity_pixels}
        data: dict[str, Any] = {
            "encoder": self.encoder(model, 0).to_dict(),
            "objective": self.objective(model).to_dict(),
            "train": self.train_config(model).to_dict(),
            "resolutions": [dataclasses.asdict(resolution) for resolution in self.recipe.resolutions],
        }
        if model == "contrastive":
            data["pairs"] = self._described_pairs()
        return json.loads(json.dumps(data))

    def _described_pairs(self) -> dict[str, Any]:
        protocol = {"protocol": self.row.protocol}
        if self.row.protocol == "augmented":
            return {**protocol, "augmentation": simclr_with_colour().to_dict()}
        law = {"conditional": self.row.conditional.to_dict()}
        return {**protocol, **law, **({"rendered": self.recipe.rendered} if self.row.protocol == "snapped" else {})}
