"""Points of paper B on MNIST under one recipe: the digits, the VAE, and pairs that its decoder shows (Figure 3)."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from identica.data import LabelledImages
from identica.distributions import Conditional, FisherBingham, SphereUniform
from identica.encoders import VAE, MLPEncoder, ResidualEncoder
from identica.encoders.base import Encoder
from identica.experiments.aninfonce.plan import LossPlan
from identica.experiments.aninfonce.rows import Loss
from identica.experiments.catalogue import Model
from identica.experiments.mnist.budgets import MnistRecipe
from identica.experiments.mnist.rows import ViewsRow
from identica.experiments.planning import Measured
from identica.experiments.running.supplies import Supplies, mnist_identity, views_of
from identica.metrics import knn_accuracy
from identica.mixing import DecoderMixing
from identica.mixing.decoder import weights_digest
from identica.processes import PairProcess
from identica.similarities import Anisotropic, Similarity
from identica.spaces import Sphere
from identica.training import Evaluation, TrainingRun, derive_seed

PIXELS = 28 * 28
#: Images that an encoder sees at once.
AT_ONCE = 8192
#: Up to there Λ̂ is expected to be right; above, the paper saw it fall behind (B, Sec. F).
MODERATE = 100.0


@dataclass(frozen=True)
class MnistPlan(LossPlan):
    """What plans on MNIST have in common: digits and VAEs, an encoder of pixels, readouts of real digits."""

    recipe: MnistRecipe
    supplies: Supplies | None = None

    # -- what comes from outside

    def supplied(self, supplies: Supplies) -> Self:
        """The same plan with data."""
        return dataclasses.replace(self, supplies=supplies)

    def check_supplies(self) -> None:
        """Load the data: a sentence if they are not there."""
        _ = self.given.digits

    @property
    def given(self) -> Supplies:
        """The data and VAEs."""
        if self.supplies is None:
            raise ValueError(f"{self.experiment.id} needs MNIST: call plan.supplied(supplies) first.")
        return self.supplies

    def vae(self, seed: int) -> VAE:
        """The VAE of a seed, the same in all rows."""
        return self.given.vae(self.recipe.vae, seed)

    def labelled(self) -> tuple[LabelledImages, LabelledImages]:
        """The real digits that readouts are fitted and judged on, as bytes."""
        digits, recipe = self.given.digits, self.recipe
        return _first(digits.train, recipe.readout_images), _first(digits.test, recipe.test_images)

    # -- the parts

    def encoder(self, model: Model, seed: int) -> Encoder:
        """From pixels to the unit sphere."""
        weights, space = derive_seed(seed, f"{model} encoder"), Sphere(self.row.dim)
        if self.recipe.encoder == "mlp":
            return MLPEncoder(PIXELS, space, seed=weights)
        size: dict[str, Any] = {"width": self.recipe.width, "blocks": self.recipe.blocks}
        seen: dict[str, Any] = {"whiten": self.recipe.whiten or False, "log_odds": self.recipe.log_odds}
        return ResidualEncoder(PIXELS, space, **size, **seen, seed=weights)

    def _similarity(self, loss: Loss) -> Similarity:
        """As elsewhere, but for Λ̂ that start at different values."""
        recipe, last = self.recipe, self.recipe.start_to
        if loss.kind != "anisotropic" or last is None:
            return super()._similarity(loss)
        ratio = (last / recipe.start) ** (1 / (self.row.dim - 1))
        values = [float(f"{recipe.start * ratio**k:.6g}") for k in range(self.row.dim)]
        return Anisotropic(self.row.dim, torch.tensor(values), link=recipe.link)

    # -- what is measured

    def neighbours(self, run: TrainingRun) -> float:
        """How often the nearest codes of training images have the class of a test image."""
        known, unknown = ((encoded(run, split.images), split.labels) for split in self.labelled())
        return knn_accuracy(*known, unknown, neighbours=self.recipe.neighbours, null=0).score

    def vae_info(self, seed: int) -> dict[str, Any]:
        """How good the VAE is on test images: −ELBO in nats, and how much each latent says."""
        vae, images = self.vae(seed), grey(self.labelled()[1].images).cpu()
        with torch.no_grad():
            loss = vae.terms(images, derive_seed(seed, "vae test")).loss
        per_latent = [float(f"{value:.4g}") for value in vae.divergence_per_latent(images).tolist()]
        return {"loss": round(float(loss), 3), "divergence_per_latent": per_latent, "weights": weights_digest(vae)[:16]}

    # -- as plain data

    @property
    def _mixing(self) -> dict[str, Any]:
        decoder = dataclasses.asdict(self.recipe.vae) | {"hidden": list(self.recipe.vae.hidden)}
        return {"decoder": decoder, "mnist": mnist_identity()}

    def _model_config(self, model: Model) -> dict[str, Any]:
        """Where Λ̂ starts goes through a logarithm, whose last digits are the machine's: they must not change a hash."""
        config = super()._model_config(model)
        similarity = config["objective"]["similarity"]
        if "precision" in similarity:
            similarity["precision"] = [float(f"{value:.5g}") for value in similarity["precision"]]
        return config


@dataclass(frozen=True)
class DecoderPlan(MnistPlan):
    """What to train for one point of B, Figure 3: exact pairs on the sphere, shown by the decoder of a VAE."""

    def process(self, model: Model, seed: int) -> PairProcess:
        """Latents on the unit sphere, which the decoder sees √d times as far out (B, Sec. H.5)."""
        (precision,) = self.row.precisions
        mixing = DecoderMixing(self.vae(seed).decoder)
        return PairProcess(SphereUniform(self.row.dim), Conditional(FisherBingham, precision=precision), mixing)

    def measured(
        self, model: Model, seed: int, run: TrainingRun, evaluation: Evaluation, device: torch.device
    ) -> Measured:
        """Also neighbours among real digits, and Λ̂ where Λ is moderate."""
        found = super().measured(model, seed, run, evaluation, device)
        scores = {**found.scores, "knn_accuracy": self.neighbours(run)}
        if (error := self._moderate_error(found)) is not None:
            scores["moderate_precision_error"] = error
        info = {**found.info, "vae": self.vae_info(seed)}
        return Measured(scores, found.per_dimension, info, self.given.take_seconds(seed))

    def _moderate_error(self, found: Measured) -> float | None:
        """The largest |Λ̂/Λ − 1| where Λ is below 100; None without a Λ̂."""
        learned = sorted(value for value in found.per_dimension.get("precision", ()) if value is not None)
        truth = sorted(self.row.precisions[0])
        errors = [abs(ours / true - 1.0) for ours, true in zip(learned, truth, strict=False) if true < MODERATE]
        return max(errors) if errors else None


@dataclass(frozen=True)
class OnViewsPlan(MnistPlan):
    """What plans on augmented views of real digits have in common: what the views are is part of what they say."""

    row: ViewsRow

    @property
    def _latents(self) -> dict[str, Any]:
        return {**super()._latents, "views": json.loads(json.dumps(views_of(self.row.views).to_dict()))}


def grey(images: Tensor) -> Tensor:
    """Bytes as grey values in [0, 1]."""
    return images.to(torch.get_default_dtype()) / 255


@torch.no_grad()
def encoded(run: TrainingRun, images: Tensor) -> Tensor:
    """The codes of images ``(n, 1, 28, 28)``, bytes or grey values, part by part."""
    parts = (part if part.is_floating_point() else grey(part) for part in images.split(AT_ONCE))
    return torch.cat([run(part.flatten(start_dim=1)) for part in parts])


def _first(images: LabelledImages, count: int | None) -> LabelledImages:
    return LabelledImages(images.images[:count], images.labels[:count])
