"""The runs behind docs/recipe.md: list them, or run some of them again.

    python benchmarks/recipe.py                  every recorded run with its settings and last scores
    python benchmarks/recipe.py --again 3,17     train these again here and print both

Each line of recipe.jsonl is one run, seed 0: settings, and a curve of [step, R², MCC, loss]. Those of the H200 are in
TF32 unless they say otherwise, and some of them older than the fused kernels, whose rounding is another.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import identica as idt
from identica.experiments import find
from identica.experiments.parts import make_conditional, make_marginal, make_space, power_of

RUNS = Path(__file__).with_name("recipe.jsonl")
#: What a line does not name.
DEFAULTS: dict[str, Any] = {
    "dim": 10,
    "candidates": 25_000,
    "positives": 1,
    "learn_bound": True,
    "anneal": None,
    "self_weight": None,
    "scaled_codes": False,
    "precision": "tf32",
}


class Scaled(nn.Module):
    """An encoder whose codes are centred and scaled, batch by batch, to a given size."""

    def __init__(self, encoder: idt.ResidualEncoder, size: float) -> None:
        super().__init__()
        self.encoder, self.size = encoder, size

    def prepare(self, x: Tensor) -> None:
        """Let the encoder look at observations."""
        self.encoder.prepare(x)

    def forward(self, x: Tensor) -> Tensor:
        """``(n, dim_in) -> (n, dim)``."""
        codes = self.encoder(x)
        codes = codes - codes.mean(dim=0)
        return codes * (self.size / codes.square().mean().sqrt())


def train(run: dict[str, Any]) -> idt.TrainingRun:
    """One run again, on the GPU if there is one."""
    row, dim = find(run["experiment"]).row(run["row"]), run["dim"]
    process = idt.PairProcess(
        make_marginal(row.marginal, row.space, dim),
        make_conditional(row.conditional, row.space),
        idt.InvertibleMLP(dim, seed=0, candidates=run["candidates"]),
        positives_per_anchor=run["positives"],
    )
    space = make_space(row.model_space, dim)
    encoder: nn.Module = idt.ResidualEncoder(dim, space, width=run["width"], learn_bound=run["learn_bound"], seed=0)
    if run["scaled_codes"]:  # to the size of the true latents
        encoder = Scaled(encoder, 12**-0.5 if row.space == "box" else 1.0)
    p = power_of(row.model)
    similarity: idt.Similarity = (
        idt.DotProduct(run["temperature"]) if p is None else idt.LpSimilarity(p, run["temperature"])
    )
    if run["anneal"]:
        similarity = idt.Annealed(similarity, *run["anneal"])
    own: Any = idt.Gradual(*run["self_weight"]) if run["self_weight"] else False
    steps, last = run["steps"], len(run["curve"]) - 1
    config = idt.TrainConfig(
        steps=steps,
        batch_size=run["batch"],
        lr=run["lr"],
        schedule="cosine",
        eval_every=steps // last,
        precision=run["precision"],
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return idt.train(process, encoder, idt.InfoNCE(similarity, self_negatives=own), config, device=device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--again", default="", help="numbers of runs, separated by commas")
    options = parser.parse_args()
    runs = [json.loads(line) for line in RUNS.read_text(encoding="utf-8").splitlines()]
    chosen = [int(number) for number in options.again.split(",") if number] or range(len(runs))
    for number in chosen:
        settings = {name: value for name, value in runs[number].items() if name != "curve"}
        _, r2, mcc, loss = runs[number]["curve"][-1]
        print(f"{number:>3}  R² {r2:.4f}  MCC {mcc:.4f}  loss {loss:.4f}  {json.dumps(settings)}", flush=True)
        if options.again:
            record = train({**DEFAULTS, **runs[number]}).history[-1]
            print(f"now  R² {record['r2']:.4f}  MCC {record['mcc']:.4f}  loss {record['loss']:.4f}", flush=True)


if __name__ == "__main__":
    main()
