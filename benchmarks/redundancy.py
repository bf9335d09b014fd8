"""What becomes of a factor that is hard to see: other codes take its place, and what lets it through.

    python benchmarks/redundancy.py --seed 1            Adam and Muon, plain, decorrelated, with a scaffold: six min.
    python benchmarks/redundancy.py --runs muon-6-turned,supervised --steps 3000
    python benchmarks/redundancy.py --runs muon-6-turned --spread 0.1 --widened 7 --self-pairs

A scene without images. Of ten factors in [−1, 1]^10 seven are seen as they are; three are the angles of a teapot, R =
Rz(γ) Ry(β) Rx(α) as in 3DIdent. One sees where its axis points, R e₃, at half of its size and its spout, R e₁,
at a fifth. Two random layers mix all that into 64 numbers. Pairs, similarity and box are those of row 1b of Table 4,
the encoder is a perceptron. Printed: R² of all factors and of the angles; MCC; how much of one code the other nine
know (``identica.diagnostics.redundancy``); R² of the axis seen from above and of the spout's height; and the loss
beside that of the true factors.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

import identica as idt
from identica.diagnostics import redundancy
from identica.distributions import BoxUniform, Conditional, TruncatedNormal
from identica.encoders import Scaffold, make_head
from identica.encoders.base import make_linear
from identica.encoders.scaffold import FADED, fading
from identica.metrics import linear_r2
from identica.mixing import Mixing
from identica.similarities import Annealed
from identica.spaces import Box, Euclidean, Space

DIM, ANGLES = 10, slice(3, 6)
OBSERVED, WIDTH, AXIS, SPOUT = 64, 256, 0.5, 0.2


class Teapot(Mixing):
    """Seven factors as they are, an axis, a spout that is hard to see; then two layers: ``(n, 10) -> (n, 64)``."""

    first: Tensor
    second: Tensor

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.dim = DIM
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("first", torch.randn(13, OBSERVED, generator=generator) / math.sqrt(13))
        second = torch.linalg.qr(torch.randn(OBSERVED, OBSERVED, generator=generator))[0]
        self.register_buffer("second", second)

    def forward(self, z: Tensor) -> Tensor:
        """``(n, 10) -> (n, 64)``."""
        axis, spout = pose(z)
        easy = torch.cat([z[:, : ANGLES.start], z[:, ANGLES.stop :]], dim=1)
        seen = torch.cat([easy, AXIS * axis, SPOUT * spout], dim=1)
        return functional.leaky_relu(functional.leaky_relu(seen @ self.first, 0.2) @ self.second, 0.2)


def pose(z: Tensor) -> tuple[Tensor, Tensor]:
    """Axis R e₃ and spout R e₁ of R = Rz(γ) Ry(β) Rx(α): ``(n, 3)`` each."""
    alpha, beta, gamma = (z[:, ANGLES] * (math.pi / 2)).unbind(dim=1)
    axis = torch.stack([alpha.cos() * beta.sin(), -alpha.sin(), alpha.cos() * beta.cos()], dim=1)
    spout = torch.stack([beta.cos(), torch.zeros_like(beta), -beta.sin()], dim=1)
    return turned(axis, gamma), turned(spout, gamma)


def turned(v: Tensor, angle: Tensor) -> Tensor:
    """Rz(angle) v, row by row."""
    x, y, z = v.unbind(dim=1)
    return torch.stack([angle.cos() * x - angle.sin() * y, angle.sin() * x + angle.cos() * y, z], dim=1)


class Perceptron(nn.Module):
    """Three layers of GELUs to the codes, and to those of a scaffold where there is one."""

    def __init__(self, space: Space, scaffold: int, seed: int, until: float = FADED) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.layers = nn.ModuleList(make_linear(before, WIDTH, generator) for before in (OBSERVED, WIDTH, WIDTH))
        self.scaffold = Scaffold(WIDTH, scaffold, fade=fading(until), seed=generator) if scaffold else None
        self.last = make_linear(WIDTH, space.dim, generator)
        self.head = make_head(space, learn_bound=False)

    def forward(self, x: Tensor) -> Tensor:
        """``(n, 64) -> (n, 10)``, in training followed by the scaffold."""
        for layer in self.layers:
            x = functional.gelu(layer(x))
        codes = self.head(self.last(x))
        if self.scaffold is None or not self.training:
            return codes
        return torch.cat([codes, self.scaffold(x)], dim=1)


@dataclass(frozen=True)
class Run:
    """Optimiser, decorrelation (None for supervised) and further codes.

    turned: whether the scaffold goes after two fifths of the steps, and the temperature then falls from six times the
        matched one, so that codes turn to the axes of the box.
    """

    optimizer: Literal["adam", "muon"]
    decorrelation: float | None = 0.0
    scaffold: int = 0
    turned: bool = False


RUNS = {
    "adam": Run("adam"),
    "adam-decorrelated": Run("adam", 0.1),
    "muon": Run("muon"),
    "muon-decorrelated": Run("muon", 0.1),
    "adam-6": Run("adam", scaffold=6),
    "muon-6": Run("muon", scaffold=6),
    "muon-6-turned": Run("muon", scaffold=6, turned=True),
    "supervised": Run("adam", None),
}


def trained(run: Run, process: idt.PairProcess, options: argparse.Namespace) -> nn.Module:
    """The encoder after all steps, in two stages if codes are turned."""
    if run.decorrelation is None:
        return fitted(run, process, Perceptron(Euclidean(DIM), 0, options.seed), idt.Supervised(), 1.0, options)
    until = 0.95 if run.turned else FADED  # of the steps of the first stage
    encoder: nn.Module = Perceptron(Box(DIM, low=-1.0, high=1.0), run.scaffold, options.seed, until)
    similarity: idt.Similarity = idt.LpSimilarity(2, matched(options) * options.widened)
    settings = {"decorrelation": run.decorrelation, "self_negatives": options.self_pairs}
    if run.turned:
        encoder = fitted(run, process, encoder, idt.InfoNCE(similarity, **settings), 0.4, options, last=False)
        encoder.scaffold = None
        similarity = Annealed(similarity, start=6.0)
    rest = 0.6 if run.turned else 1.0
    return fitted(run, process, encoder, idt.InfoNCE(similarity, **settings), rest, options)


def fitted(
    run: Run,
    process: idt.PairProcess,
    encoder: nn.Module,
    loss: idt.Objective,
    part: float,
    options: argparse.Namespace,
    last: bool = True,
) -> nn.Module:
    """The encoder after a part of the steps."""
    steps = round(part * options.steps)
    config = idt.TrainConfig(
        steps=steps,
        batch_size=options.batch,
        optimizer=run.optimizer,
        lr=options.lr,
        schedule="cosine" if last else "constant",
        eval_every=steps,
    )
    return idt.train(process, encoder, loss, config, quiet=True).encoder


def matched(options: argparse.Namespace) -> float:
    """The temperature that matches the pairs."""
    return float(2 * options.spread**2)


def scored(run: Run, options: argparse.Namespace) -> str:
    """One run; its scores as a line."""
    pairs = Conditional(TruncatedNormal, scale=options.spread, low=-1.0, high=1.0)
    process = idt.PairProcess(BoxUniform(DIM, low=-1.0, high=1.0), pairs, Teapot(options.seed))
    encoder = trained(run, process, options)
    evaluation = idt.evaluate(process, encoder, 8192, generator=1)
    angles = ", ".join(f"{value:5.2f}" for value in evaluation.r2.per_dimension[ANGLES])
    scores = evaluation.scores
    known = redundancy(evaluation.h).largest
    axis, spout = pose(evaluation.z)
    bold = linear_r2(torch.cat([axis[:, :2], spout[:, 2:]], dim=1), evaluation.h).per_dimension
    line = (
        f"R² {scores['r2']:.3f}  angles {angles}  MCC {scores['mcc']:.3f}  known of one code {known:.2f}  "
        f"axis and height of the spout {', '.join(f'{value:.2f}' for value in bold)}"
    )
    if run.decorrelation is None:
        return line
    sample = process.sample(8192, 2)
    encoder.eval()
    with torch.no_grad():
        codes = [encoder(x).split(options.batch) for x in (sample.x, sample.x_pos)]
    plain = idt.InfoNCE(idt.LpSimilarity(2, matched(options)))
    found, true = (
        sum(float(plain(a, b)) for a, b in zip(*parts, strict=True)) / len(parts[0])
        for parts in (codes, [sample.z.split(options.batch), sample.z_pos.split(options.batch)])
    )
    return f"{line}  loss {found:.3f} (true factors {true:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--spread", type=float, default=0.26, help="σ of the pairs")
    parser.add_argument("--widened", type=float, default=1.0, help="the temperature, in units of the matched one")
    parser.add_argument("--self-pairs", action="store_true", help="anchors among their own negatives")
    parser.add_argument("--lr", type=float, default=6e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", default=",".join(RUNS), help="some of these, separated by commas")
    options = parser.parse_args()
    names = options.runs.split(",")
    if unknown := [name for name in names if name not in RUNS]:
        parser.error(f"no such run: {', '.join(unknown)}. There are {', '.join(RUNS)}.")
    for name in names:
        print(f"seed {options.seed}  {name:<18}{scored(RUNS[name], options)}", flush=True)


if __name__ == "__main__":
    main()
