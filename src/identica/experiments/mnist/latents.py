"""What augmentation does to the assumptions (B, Figs. 6 and 7): latents of the views of one digit, and of all digits.

The theory takes the views of one image to be a normal law around it, projected on the sphere. Here the views of single
test digits go through a VAE that was trained on such views, and each latent of theirs is asked two things: can it
be normal (Anderson–Darling), and can it have a single mode (Hartigan's dip)? The second row of the figure
asks whether training on views and testing on plain images are the same thing: a classifier tells them apart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from identica.experiments.catalogue import Model
from identica.experiments.mnist.normality import dip, kolmogorov_distance, largest_null_dip, normality_p_value
from identica.experiments.mnist.plan import OnViewsPlan, grey
from identica.experiments.mnist.rows import ComputedRow
from identica.experiments.planning import Measured, NoScore
from identica.experiments.running.supplies import views_of
from identica.metrics import domain_classifier
from identica.processes import PairProcess
from identica.training import derive_seed

#: A latent that says less than this, in nats, is not used by the decoder, and its distribution means nothing.
USED = 0.1
#: At which a latent of one digit's views counts as not normal. About 200 are asked, so that 0.2 may be false alarms.
LEVEL = 0.001
#: Bins of the histograms in a receipt, and how many are kept: those with the largest dips.
BINS, HISTOGRAMS = 24, 4


@dataclass(frozen=True)
class ComputedPlan(OnViewsPlan):
    """A row of Figure 7 that trains no contrastive model."""

    row: ComputedRow

    @property
    def trained(self) -> tuple[Model, ...]:
        """None."""
        return ()

    def process(self, model: Model, seed: int) -> PairProcess:
        """There are no pairs."""
        raise NotImplementedError(f"Row {self.row.number} of {self.experiment.id} is computed, not trained.")

    def computed(self, model: Model, seed: int, device: torch.device) -> Measured:
        """The latents of views, or whether views can be told from plain images."""
        return self._latents_of_views(seed, device) if model == "vae" else self._domains(seed, device)

    # -- latents

    def _latents_of_views(self, seed: int, device: torch.device) -> Measured:
        settings = dataclasses.replace(self.recipe.vae, views=self.row.views)
        vae = self.given.vae(settings, seed)
        self.given.take_seconds(seed)  # the clock of this row is running already
        test, generator = self.labelled()[1], derive_seed(seed, "views")
        chosen = one_of_each(test.labels, self.recipe.digits_each)
        views = self._views(test.images[chosen].repeat_interleave(self.recipe.views_each, dim=0), generator)
        vae.to(device)
        codes = _encoded(vae, views).unflatten(0, (len(chosen), self.recipe.views_each))
        marginal = _encoded(vae, self._views(test.images, derive_seed(seed, "one view of each")))
        used = [k for k, nats in enumerate(vae.divergence_per_latent(grey(test.images)).tolist()) if nats > USED]
        vae.to("cpu")
        if not used:
            raise NoScore("The VAE uses none of its latents, so there is nothing to look at: train it for longer.")
        return conditional_measures(codes[..., used], marginal[:, used], test.labels[chosen].tolist(), used)

    def _views(self, images: Tensor, generator: int) -> Tensor:
        return views_of(self.row.views)(grey(images), generator).images

    # -- domains

    def _domains(self, seed: int, device: torch.device) -> Measured:
        """Views of one half of the training images against the plain images of the other half."""
        images, source = self.labelled()[0].images, torch.Generator().manual_seed(derive_seed(seed, "halves"))
        order = torch.randperm(len(images), generator=source).to(images.device)
        first, second = images[order[: len(images) // 2]], images[order[len(images) // 2 :]]
        views = self._views(first, derive_seed(seed, "domain"))
        score = domain_classifier(
            views,
            grey(second),
            network=image_classifier,
            steps=self.recipe.domain_steps,
            seed=derive_seed(seed, "classifier"),
            null=0,
        )
        return Measured({"share": score.score}, {}, {"images": score.n, "method": score.method})

    # -- as plain data

    def _model_config(self, model: Model) -> dict[str, Any]:
        recipe = self.recipe
        if model == "vae":
            looked_at = {"views_each": recipe.views_each, "digits_each": recipe.digits_each}
            return looked_at | {"test_images": recipe.test_images}
        return {"domain_steps": recipe.domain_steps, "images": recipe.readout_images}


def conditional_measures(codes: Tensor, marginal: Tensor, labels: Sequence[int], names: Sequence[int]) -> Measured:
    """What is said of latents ``codes: (images, views, d)`` of single images, and ``marginal: (n, d)`` of all.

    labels: the class of each image; names: which latent each of the d is.

    share: of all latents of all images, those that no normal law explains (Anderson–Darling, p < 0.001).
    bimodal: those whose dip exceeds the largest of 500 uniform samples of that size.
    largest_dip, kolmogorov: the largest dip, and the mean distance of distribution functions from normal ones.
    marginal_kolmogorov: the same distance for latents of all images taken together.
    """
    samples = codes.double().cpu().numpy().transpose(0, 2, 1)
    images, dimensions, views = samples.shape
    flat = samples.reshape(-1, views)
    dips = np.array([dip(sample) for sample in flat])
    shares = np.array([normality_p_value(sample) < LEVEL for sample in flat])
    together = marginal.double().cpu().numpy().T
    scores = {
        "share": float(shares.mean()),
        "bimodal": float((dips > largest_null_dip(views)).mean()),
        "largest_dip": float(dips.max()),
        "kolmogorov": float(np.mean([kolmogorov_distance(sample) for sample in flat])),
        "marginal_kolmogorov": float(np.mean([kolmogorov_distance(sample) for sample in together])),
    }
    per_latent = dips.reshape(images, dimensions).max(axis=0)
    largest = np.argsort(-dips, kind="stable")[:HISTOGRAMS]
    histograms = [
        {"digit": labels[place // dimensions], "latent": names[place % dimensions], **_histogram(flat[place])}
        for place in largest.tolist()
    ]
    info = {"latents": [*names], "images": images, "views": views, "histograms": histograms}
    return Measured(scores, {"largest_dip": [*map(float, per_latent)]}, info)


def _histogram(sample: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, Any]:
    """Density in equal bins from ``low`` to ``high``, in standard deviations from the mean; and the dip."""
    density, edges = np.histogram((sample - sample.mean()) / sample.std(), bins=BINS, density=True)
    return {
        "low": float(f"{edges[0]:.4g}"),
        "high": float(f"{edges[-1]:.4g}"),
        "density": [float(f"{value:.4g}") for value in density],
        "dip": float(f"{dip(sample):.4g}"),
    }


@torch.no_grad()
def _encoded(vae: nn.Module, images: Tensor) -> Tensor:
    """The posterior means, part by part."""
    return torch.cat([vae(part) for part in images.split(8192)])


def one_of_each(labels: Tensor, count: int) -> Tensor:
    """Where the first ``count`` images of each class are, classes in order.

    >>> one_of_each(torch.tensor([1, 0, 1, 0, 0]), 1).tolist()
    [1, 0]
    """
    classes = labels.unique().tolist()
    return torch.cat([(labels == one).nonzero()[:count, 0] for one in classes])


def image_classifier() -> nn.Module:
    """A small convolutional network with two outputs for images ``(n, 1, 28, 28)``."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1),
        nn.LeakyReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.LeakyReLU(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 64),
        nn.LeakyReLU(),
        nn.Linear(64, 2),
    )
