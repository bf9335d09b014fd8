"""What codes of augmented digits know while they are trained: by the loss, by how wide it is, by what the views are.

    IDENTICA_DATA=DIR python benchmarks/views.py                             AnInfoNCE; half an hour of one core
    IDENTICA_DATA=DIR python benchmarks/views.py --link softplus --start 0.7 --similarity-lr 1e-3
    IDENTICA_DATA=DIR python benchmarks/views.py --loss infonce --temperature 0.2
    IDENTICA_DATA=DIR python benchmarks/views.py --radius 6                  blurs by the whole of a Gaussian
    IDENTICA_DATA=DIR python benchmarks/views.py --loss infonce --blur 0 --flip 0.5

The encoder and the optimiser are those of ``aninfonce/mnist-views``; steps and batches are smaller unless given. After
every part of the training it prints how well the class of real digits is read off, how often five nearest codes vote
for it, how well it is read off which augmentation was applied (each with probability ½, so that chance is ½), and Λ̂,
smallest first. Readouts are fitted on 20,000 training digits and judged on the test digits.
"""

from __future__ import annotations

import argparse
import json

import torch
from torch import Tensor

import identica as idt
from identica.data import AugmentedViews, LabelledImages, load_mnist
from identica.data.augment import GaussianBlur, HorizontalFlip, RandomResizedCrop
from identica.data.augmentation import Augmentations
from identica.experiments.mnist.plan import grey
from identica.experiments.running.provenance import choose_device
from identica.experiments.running.supplies import data_folder
from identica.metrics import knn_accuracy, linear_readout
from identica.training import Record

FITTED = 20_000


class Watch(idt.Callback):
    """Prints a line at every evaluation."""

    def __init__(self, fitted: LabelledImages, judged: LabelledImages, halves: Augmentations) -> None:
        self.splits = fitted, judged
        self.augmented = [halves(grey(split.images), seed) for seed, split in enumerate(self.splits)]

    def on_evaluation(self, state: idt.TrainState, record: Record) -> None:
        """Read off what the codes know."""
        self.state = state
        if state.step == 0:
            return
        fitted, judged = (self._codes(grey(split.images)) for split in self.splits)
        labels = [split.labels for split in self.splits]
        found = {
            "step": state.step,
            "loss": record.terms["loss"],
            "class": linear_readout(fitted, labels[0], (judged, labels[1]), null=0).score,
            "neighbours": knn_accuracy(fitted, labels[0], (judged, labels[1]), null=0).score,
        }
        known, unknown = (self._codes(augmented.images) for augmented in self.augmented)
        for name, parameters in self.augmented[0].parameters.items():
            others = self.augmented[1].parameters[name]
            if parameters.applied.any():
                found[name] = linear_readout(known, parameters.applied, (unknown, others.applied), null=0).score
        found = {name: round(value, 4) for name, value in found.items()}
        print(json.dumps({**found, **self._learned()}), flush=True)

    @torch.no_grad()
    def _codes(self, images: Tensor) -> Tensor:
        return torch.cat(
            [self.state.encoder(part.flatten(1)) for part in images.to(self.state.device).split(5000)]
        ).cpu()

    def _learned(self) -> dict[str, list[float]]:
        precision = getattr(self.state.objective.similarity, "precision", None)
        return {} if precision is None else {"precision": [round(value, 2) for value in sorted(precision.tolist())]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loss", choices=("aninfonce", "infonce"), default="aninfonce")
    parser.add_argument("--temperature", type=float, default=1.0, help="of InfoNCE")
    parser.add_argument("--similarity-lr", type=float, default=1e-2, help="of AnInfoNCE")
    parser.add_argument("--link", choices=("log", "softplus"), default="log", help="of AnInfoNCE's Λ̂")
    parser.add_argument("--start", type=float, default=1.0, help="where all Λ̂ start")
    parser.add_argument("--blur", type=float, default=0.5, help="how often")
    parser.add_argument("--radius", type=int, help="where the blur is cut off, in pixels; by default SimCLR's, 1")
    parser.add_argument("--flip", type=float, default=0.0, help="how often")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--evaluations", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()

    def augmentation(crop: float, blur: float, flip: float) -> Augmentations:
        return Augmentations(
            RandomResizedCrop(probability=crop),
            HorizontalFlip(probability=flip),
            GaussianBlur(probability=blur, radius=options.radius),
        )

    folder = data_folder(None)
    if folder is None:
        raise SystemExit("Set IDENTICA_DATA to the folder of MNIST's four files.")
    digits, test = (load_mnist(folder, split, dtype=torch.uint8) for split in ("train", "test"))
    first = LabelledImages(digits.images[:FITTED], digits.labels[:FITTED])
    halves = augmentation(0.5, *(0.5 if probability else 0.0 for probability in (options.blur, options.flip)))
    if options.loss == "aninfonce":
        similarity: idt.Similarity = idt.Anisotropic(10, options.start, link=options.link)
    else:
        similarity = idt.DotProduct(options.temperature)
    idt.train(
        AugmentedViews(digits.images, augmentation(1.0, options.blur, options.flip), flatten=True),
        idt.ResidualEncoder(784, idt.Sphere(10), width=512, blocks=3, whiten=False, seed=options.seed),
        idt.InfoNCE(similarity),
        idt.TrainConfig(
            steps=options.steps,
            batch_size=options.batch,
            lr=1e-3,
            similarity_lr=options.similarity_lr,
            schedule="cosine",
            eval_every=options.steps // options.evaluations,
            eval_samples=options.batch,
        ),
        seed=options.seed,
        device=choose_device(options.device),
        callbacks=[Watch(first, test, halves)],
        quiet=True,
    )


if __name__ == "__main__":
    main()
