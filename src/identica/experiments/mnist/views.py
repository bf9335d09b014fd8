"""Losses on augmented views of real digits (B, Sec. G): what the codes still know, and what was given up for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from identica.data import AugmentedViews, LabelledImages, simclr_without_colour
from identica.distributions import Conditional, FisherBingham, SphereUniform
from identica.experiments.aninfonce.measures import learned
from identica.experiments.catalogue import Model
from identica.experiments.mnist.plan import OnViewsPlan, encoded, grey
from identica.experiments.mnist.rows import PROBABILITIES
from identica.experiments.planning import Measured
from identica.experiments.running.supplies import views_of
from identica.metrics import linear_r2, linear_readout
from identica.mixing import DecoderMixing
from identica.processes import PairProcess
from identica.training import Callback, Evaluation, Record, TrainingRun, TrainState, derive_seed, evaluate

#: Codes are scored on the latents of generated images, of which anchors alone are looked at: any pairs will do.
_UNUSED_PRECISION = 25.0


@dataclass(frozen=True)
class ViewsPlan(OnViewsPlan):
    """What to train on views. Codes are scored on images that the VAE of plain digits makes of known latents."""

    def training_process(self, model: Model, seed: int) -> AugmentedViews:
        """Two views each of random training images, made on the device."""
        return AugmentedViews(self.given.digits.train.images, views_of(self.row.views), flatten=True)

    def process(self, model: Model, seed: int) -> PairProcess:
        """Uniform latents and their images: the data of Figure 3, on which R² is measured in the same way."""
        pairs = Conditional(FisherBingham, precision=_UNUSED_PRECISION)
        return PairProcess(SphereUniform(self.row.dim), pairs, DecoderMixing(self.vae(seed).decoder))

    def watchers(self, model: Model, seeds: Sequence[int], device: torch.device) -> tuple[Callback, ...]:
        """R² on generated images and Λ̂ over time."""
        processes = {self.seed(model, seed): self.process(model, seed).to(device) for seed in seeds}
        return (_Watch(processes, self.recipe.evaluation_samples),)

    # -- what is measured

    def measured(
        self, model: Model, seed: int, run: TrainingRun, evaluation: Evaluation, device: torch.device
    ) -> Measured:
        """Readouts of real digits, and R² of the VAE's latents of real test images."""
        known, unknown = self.labelled()
        codes = [encoded(run, split.images) for split in (known, unknown)]
        scores = {
            "class_accuracy": linear_readout(codes[0], known.labels, (codes[1], unknown.labels), null=0).score,
            "knn_accuracy": self.neighbours(run),
            "image_r2": linear_r2(self._posterior_means(unknown, seed, device), codes[1]).score,
            **self._augmentations(run, seed),
        }
        if self.experiment.metric == "share":  # Figure 7 asks how good these views are for telling classes apart
            scores["share"] = scores["knn_accuracy"]
        per_dimension: dict[str, list[float | None]] = {name: [*v] for name, v in learned(run.objective).items()}
        return Measured(scores, per_dimension, {"vae": self.vae_info(seed)}, self.given.take_seconds(seed))

    @torch.no_grad()
    def _posterior_means(self, images: LabelledImages, seed: int, device: torch.device) -> torch.Tensor:
        return self.vae(seed)(grey(images.images).cpu()).to(device)

    def _augmentations(self, run: TrainingRun, seed: int) -> dict[str, float]:
        """Was it applied or not? Each with probability ½, fitted on training images and judged on test images."""
        probabilities = PROBABILITIES[self.row.views]
        names = [name for name, probability in probabilities.items() if probability > 0]
        halves = simclr_without_colour(**{name: 0.5 if name in names else 0.0 for name in probabilities})
        views = [
            halves(grey(split.images), derive_seed(seed, f"readout {k}")) for k, split in enumerate(self.labelled())
        ]
        codes = [encoded(run, view.images) for view in views]
        flags = {name: [view.parameters[name].applied for view in views] for name in names}
        return {
            f"{name}_accuracy": linear_readout(codes[0], fitted, (codes[1], judged), null=0).score
            for name, (fitted, judged) in flags.items()
        }


class _Watch(Callback):
    """Adds R² and MCC on generated images to every evaluation, and what the loss has learned by then.

    processes: by the seed of the run.
    """

    def __init__(self, processes: dict[int, PairProcess], samples: int) -> None:
        self._processes, self._samples = processes, samples

    def on_evaluation(self, state: TrainState, record: Record) -> None:
        """Score on latents of its own."""
        source, process = derive_seed(state.seed, f"generated {state.step}"), self._processes[state.seed]
        found = evaluate(process, state.encoder, self._samples, generator=source, device=state.device)
        record.scores.update(found.scores)
        for name, values in learned(state.objective).items():
            record.terms.update({f"{name}/{k}": value for k, value in enumerate(values)})
