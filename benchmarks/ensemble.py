"""What decides how much a single similarity recovers from the two kinds of pairs of Figure 11 of B.

    python benchmarks/ensemble.py                                     AnInfoNCE as in the figure, on the CPU
    python benchmarks/ensemble.py --centring 0                        a sphere that may stay folded
    python benchmarks/ensemble.py --pairs first                       pairs of the first kind alone
    python benchmarks/ensemble.py --model infonce --pairs first
    python benchmarks/ensemble.py --model ensemble --centring 0
    python benchmarks/ensemble.py --model ensemble --waits 25         every Λ̂ waits there for 0.6 of the steps

The encoder and the optimiser are those of ``aninfonce/figure11``; steps and batches are smaller unless given. After
every part of the training it prints R², that of the three factors that no pair changes (400) and of the two groups that
take turns (8 and 9), the length of the mean code, and Λ̂, smallest first. A factor of which only the sign is missing
counts 0 in its group, and makes the mean code 0.18 long.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import Any

import identica as idt
from identica.diagnostics import folding
from identica.experiments import find
from identica.experiments.aninfonce.measures import similarities
from identica.experiments.running.provenance import choose_device
from identica.similarities import Anisotropic
from identica.training import Record, TrainState, evaluate

GROUPS = {"unchanged": slice(0, 3), "eight": slice(3, 11), "nine": slice(11, 20)}


class Watch(idt.Callback):
    """Prints a line at every evaluation."""

    def __init__(self, process: Any) -> None:
        self.process = process

    def on_evaluation(self, state: TrainState, record: Record) -> None:
        """Score the groups."""
        found = evaluate(self.process, state.encoder, 8192, generator=1, device=state.device)
        factors = found.r2.per_dimension
        line: dict[str, Any] = {"step": state.step, "loss": record.terms.get("loss", 0.0), "r2": found.r2.score}
        line |= {name: sum(factors[group]) / len(factors[group]) for name, group in GROUPS.items()}
        line = {name: round(value, 4) for name, value in line.items()} | {"mean_code": round(folding(found.h).size, 3)}
        for similarity in similarities(state.objective):
            if isinstance(similarity, Anisotropic):
                ordered = sorted(similarity.precision.tolist())
                line.setdefault("precision", []).append([round(value) for value in ordered])
        print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=("ensemble", "aninfonce", "infonce"), default="aninfonce")
    parser.add_argument("--pairs", choices=("both", "first"), default="both", help="of which kinds")
    parser.add_argument("--centring", type=float, default=10.0, help="of losses that learn Λ̂")
    parser.add_argument("--waits", type=float, help="where Λ̂ starts and stays for 0.6 of the steps; by default 1, 0")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--evaluations", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    if options.pairs == "first" and options.model == "ensemble":
        parser.error("An ensemble has pairs of both kinds: leave --pairs away.")
    device = choose_device(options.device)
    experiment = find("aninfonce/figure11")
    row: Any = experiment.rows[0]
    if options.pairs == "first":
        row = replace(row, also=())
    plan: Any = experiment.plan(row, "fast", device.type)  # type: ignore[arg-type]
    changes: dict[str, Any] = {"steps": options.steps, "batch_size": options.batch}
    changes |= {"evaluations": options.evaluations, "centring": options.centring}
    if options.waits is not None:
        changes |= {"start": options.waits, "similarity_after": 0.6}
    plan = replace(plan, recipe=replace(plan.recipe, **changes))
    process = plan.process(options.model, options.seed)
    idt.train(
        process,
        plan.encoder(options.model, options.seed),
        plan.objective(options.model),
        plan.train_config(options.model),
        seed=plan.seed(options.model, options.seed),
        device=device,
        callbacks=[Watch(process.to(device))],
        quiet=True,
    )


if __name__ == "__main__":
    main()
