"""What pairs of digits look like with Λ = 5 and with Λ = 50 in all ten factors, as in B, Fig. 13.

    IDENTICA_DATA=DIR python benchmarks/digits.py --out docs/digits.png       three minutes on two cores

Draws three squares of digits from the decoder of Figure 3's VAE, which is trained unless ``--results`` has it: anchors;
positives of the anchor in the top right corner with Λ = 5; and the same with Λ = 50. Prints how often a positive is of
another class than its anchor, which the paper only calls obvious: five nearest training digits vote on each. What that
vote does by itself stands beside it: how often it differs for two digits drawn independently, and how often it is wrong
about real digits.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import identica as idt
from identica.data.png import write_png
from identica.experiments.mnist.plan import grey
from identica.experiments.mnist.rows import VaeSettings
from identica.experiments.running.provenance import choose_device
from identica.experiments.running.supplies import Supplies, data_folder
from identica.metrics.neighbours import fit_neighbours
from identica.mixing import DecoderMixing

PRECISIONS = 5.0, 50.0
VOTERS = 20_000


def square(images: Tensor, side: int) -> Tensor:
    """``side²`` digits ``(n, 784)`` side by side, with a dark line between them: ``(height, width)`` in [0, 1]."""
    tiles = torch.nn.functional.pad(images.view(side, side, 28, 28), (1, 1, 1, 1), value=0.25)
    return tiles.permute(0, 2, 1, 3).reshape(side * 30, side * 30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("digits.png"), help="the picture")
    parser.add_argument("--side", type=int, default=6, help="digits along a side of each square")
    parser.add_argument("--pairs", type=int, default=10_000, help="of which the changes of class are counted")
    parser.add_argument("--epochs", type=int, default=VaeSettings().epochs, help="of the VAE")
    parser.add_argument("--results", type=Path, default=Path("results"), help="where VAEs are found and kept")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if min(options.side, options.pairs, options.epochs) < 1:
        parser.error("--side, --pairs and --epochs are at least 1.")
    device = choose_device("auto")
    supplies = Supplies(data_folder(None), options.results, device)
    try:
        digits = supplies.digits
    except ValueError as error:
        parser.error(str(error))
    print(f"The VAE is read from {options.results}, or trained first: two minutes on two cores.", flush=True)
    vae = supplies.vae(VaeSettings(epochs=options.epochs), options.seed)
    mixing = DecoderMixing(vae.decoder).to(device)
    known, unknown = (grey(images).flatten(1) for images in (digits.train.images[:VOTERS], digits.test.images))
    vote = fit_neighbours(known, digits.train.labels[:VOTERS], 10, 5, "euclidean")
    wrong = (vote(unknown) != digits.test.labels).float().mean().item()

    sphere = idt.SphereUniform(10).to(device)
    anchors = sphere.sample(options.side**2, generator=options.seed)
    corner = anchors[options.side - 1].expand(options.side**2, -1)
    squares = [square(mixing(anchors), options.side)]
    for precision in PRECISIONS:
        pairs = idt.Conditional(idt.FisherBingham, precision=precision)
        squares.append(square(mixing(pairs(corner).sample(generator=options.seed)), options.side))
        drawn = idt.PairProcess(sphere, pairs, mixing).sample(options.pairs, options.seed)
        classes, others = vote(drawn.x), vote(drawn.x_pos)
        found = {
            "precision": precision,
            "another_class": (classes != others).float().mean().item(),
            "another_class_independent": (classes != others.roll(1)).float().mean().item(),
            "vote_wrong": wrong,
        }
        print(json.dumps({name: round(value, 4) for name, value in found.items()}), flush=True)
    between = torch.ones(squares[0].shape[0], 12, device=device)
    row = torch.cat([squares[0], between, squares[1], between, squares[2]], dim=1)
    pixels = (255 * row.clamp(0, 1)).round().to(torch.uint8)[:, :, None].expand(-1, -1, 3)
    write_png(options.out, np.repeat(np.repeat(pixels.cpu().numpy(), 2, axis=0), 2, axis=1))
    print(f"{options.out}: anchors, and positives of the one in their top right corner, Λ = 5 and Λ = 50")


if __name__ == "__main__":
    main()
