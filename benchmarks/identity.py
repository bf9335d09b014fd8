"""What the observations themselves score, over many mixings.

    python benchmarks/identity.py                seeds 0 to 23 of rows of Tables 1 and 2 and the far ends of Figure 2
    python benchmarks/identity.py --seeds 5      those of the tables

Five mixings are few: this says whether a column of identity scores is their luck. And a narrow marginal sees little
of the mixing's bends: this says how much of a score at the far end of Figure 2 the observations have already.
"""

from __future__ import annotations

import argparse
import statistics

import identica as idt
from identica.experiments import find

ROWS = (
    ("table1", "1", "r2"),
    ("table1", "5", "r2"),
    ("table2", "1", "mcc"),
    ("figure2", "9", "r2"),
    ("figure2", "29", "r2"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=24)
    seeds = range(parser.parse_args().seeds)
    for name, number, metric in ROWS:
        experiment = find(f"clica/{name}")
        plan = experiment.plan(experiment.row(number), "fast", "cpu")
        found = [idt.identity_scores(plan.process("identity", seed), seed=seed).scores for seed in seeds]
        scores = [100 * one[metric] for one in found]
        mean, spread = statistics.fmean(scores), statistics.stdev(scores)
        print(f"clica/{name} row {number}, {metric}: {mean:.2f} ± {spread:.2f} over {len(seeds)} mixings", flush=True)


if __name__ == "__main__":
    main()
