"""What turning codes to the axes of their loss is worth, and what making them round before is.

    python benchmarks/axes.py                             Figure 2 of B, linear Λ, 1500 steps: two minutes of a CPU
    IDENTICA_DATA=DIR python benchmarks/axes.py --experiment aninfonce/figure3 --row C        with MNIST, a quarter hour

Trains AnInfoNCE of a row as ``identica reproduce`` does, with other steps and batches where they are given. Prints the
singular values of the linear map from latents to codes, all 1 for a rotation; and MCC, R² and Λ̂/Λ − 1 in percent, in
order of size, of the codes as they were trained, turned, and made round and turned.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import torch

import identica as idt
from identica.diagnostics import turn_to_axes
from identica.experiments import find
from identica.experiments.aninfonce.plan import LossPlan
from identica.experiments.running.supplies import Supplies, data_folder
from identica.training import TrainingRun

SAMPLES = 8192


def stretches(process: idt.PairProcess, run: TrainingRun) -> list[float]:
    """Singular values of the best linear map from latents to codes."""
    pairs = process.sample(SAMPLES, 1)
    fitted = torch.linalg.lstsq(pairs.z.double(), run(pairs.x).double()).solution
    return torch.linalg.svdvals(fitted).tolist()


def line(name: str, process: idt.PairProcess, run: TrainingRun, truth: tuple[float, ...], device: torch.device) -> str:
    scores = idt.evaluate(process, run, SAMPLES, generator=2, device=device).scores
    learned = sorted(run.objective.similarity.precision.tolist())  # type: ignore[union-attr]
    off = [100 * (ours / true - 1) for ours, true in zip(learned, sorted(truth), strict=True)]
    each = " ".join(f"{value:+.1f}" for value in off)
    largest = max(abs(value) for value in off)
    return f"{name:<17} MCC {scores['mcc']:.4f}  R² {scores['r2']:.4f}  Λ̂ off by up to {largest:4.1f} %: {each}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--experiment", default="aninfonce/figure2")
    parser.add_argument("--row", default="linear")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, help="pairs; those of the recipe unless given")
    parser.add_argument("--pairs", type=int, default=512, help="of a batch that axes are found from")
    parser.add_argument("--batches", type=int, default=40)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    experiment, seed = find(options.experiment), options.seed
    plan = experiment.plan(experiment.row(options.row), "fast", "cuda" if device.type == "cuda" else "cpu")
    plan = plan.supplied(Supplies(data_folder(None), Path("results"), device))
    if not isinstance(plan, LossPlan) or len(plan.row.precisions) != 1:
        parser.error("takes a row of paper B with one kind of pairs")
    changes = {"steps": options.steps, "batch_size": options.batch or plan.recipe.batch_size, "evaluations": 1}
    plan = replace(plan, recipe=replace(plan.recipe, **changes))
    config = plan.train_config("aninfonce")
    process = plan.process("aninfonce", seed).to(device)
    assert isinstance(process, idt.PairProcess)
    parts = plan.training_process("aninfonce", seed), plan.encoder("aninfonce", seed), plan.objective("aninfonce")
    print(
        f"{experiment.id}, row {plan.row.number}, seed {seed}: {config.steps} steps of {config.batch_size} on {device}"
    )
    run = idt.train(*parts, config, seed=plan.seed("aninfonce", seed), device=device, quiet=True)
    (truth,) = plan.row.precisions
    print("singular values", " ".join(f"{value:.3f}" for value in stretches(process, run)))
    print(line("as trained", process, run, truth, device), flush=True)
    for name, rounded in (("turned", False), ("round and turned", True)):
        begin = time.perf_counter()
        new = turn_to_axes(run, process, options.pairs, options.batches, seed=1, rounded=rounded)
        seconds = time.perf_counter() - begin
        print(f"{line(name, process, new, truth, device)}   ({seconds:.1f} s)", flush=True)


if __name__ == "__main__":
    main()
