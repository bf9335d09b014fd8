"""What the factor that is found last looks like before it is found: folded.

    python benchmarks/folds.py                                  Figure 2 of B, Λ = 5 and 100, on the CPU in two minutes
    python benchmarks/folds.py --row 6 --seed 1 --steps 20000   Λ = 5 and 200, on a GPU
    python benchmarks/folds.py --experiment aninfonce/figure8 --row p75 --seed 0 --steps 20000

Trains a row as ``identica reproduce`` does, with other steps and batches where they are given, and prints after every
part of them: R²; the R² of the direction u of the latents that is worst recovered, and of |u·z|; the length of the mean
code (``identica.diagnostics.folding``); and how often the five nearest codes know the sign of u·z.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import torch
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

import identica as idt
from identica.diagnostics import folding
from identica.experiments import find

SAMPLES = 8192


def missed(codes: Tensor, targets: Tensor) -> Tensor:
    """What the best linear map of the codes ``(n, d)`` leaves of the targets ``(n, k)``."""
    inputs = torch.cat([codes, torch.ones_like(codes[:, :1])], dim=1)
    return targets - inputs @ torch.linalg.lstsq(inputs, targets).solution


def r2_of(codes: Tensor, targets: Tensor) -> Tensor:
    """Of each column of the targets: ``(k,)``."""
    return 1 - missed(codes, targets).var(dim=0) / targets.var(dim=0)


def worst_direction(codes: Tensor, z: Tensor) -> Tensor:
    """The unit vector along which most of z is missed."""
    left = missed(codes, z)
    return torch.linalg.eigh(left.T @ left).eigenvectors[:, -1]


class Watch(idt.Callback):
    """Prints a line at every evaluation."""

    def __init__(self, process: Any) -> None:
        self.process = process

    @torch.no_grad()
    def on_evaluation(self, state: Any, record: Any) -> None:
        """Look at fresh latents."""
        pairs = self.process.sample(SAMPLES, 1)
        z, codes = pairs.z.double().cpu(), state.encoder(pairs.x).double().cpu()
        found = folding(codes)
        along = z @ worst_direction(codes, z)
        signed, size = r2_of(codes, torch.stack([along, along.abs()], dim=1)).tolist()
        half = SAMPLES // 2
        neighbours = KNeighborsClassifier(5).fit(codes[:half].numpy(), (along[:half] > 0).numpy())
        sign = neighbours.score(codes[half:].numpy(), (along[half:] > 0).numpy())
        print(
            f"step {record.step:6d}  R² {record.scores['r2']:.4f}   worst direction u: R² of u·z {signed:6.3f}, "
            f"of |u·z| {size:6.3f}, sign known {sign:.2f}   mean code {found.size:.3f} "
            f"(one fold: {found.one_fold:.2f})",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--experiment", default="aninfonce/figure2")
    parser.add_argument("--row", default="5")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, help="by default that of the budget fast")
    parser.add_argument("--evaluations", type=int, default=10)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    experiment = find(options.experiment)
    kind = "cpu" if options.device == "cpu" else "cuda"
    plan: Any = experiment.plan(experiment.row(options.row), "fast", kind)  # type: ignore[arg-type]
    changes = {"steps": options.steps, "evaluations": options.evaluations}
    changes["batch_size"] = options.batch or plan.recipe.batch_size
    plan = replace(plan, recipe=replace(plan.recipe, **changes))
    model, seed = plan.trained[0], options.seed
    process = plan.process(model, seed)
    idt.train(
        process,
        plan.encoder(model, seed),
        plan.objective(model),
        plan.train_config(model),
        seed=plan.seed(model, seed),
        device=options.device,
        callbacks=[Watch(process.to(options.device))],
        quiet=True,
    )


if __name__ == "__main__":
    main()
