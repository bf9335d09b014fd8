"""Ledgers full of made-up results, written by the ledger's own writer. Nothing in them was trained."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from identica.experiments import Experiment, Receipt, Row, append, find, ledger_path

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SECONDS = {"fast": 9.0, "paper": 480.0, "smoke": 3.5}


def made_up(experiment: Experiment, row: Row, /, seed: int, budget: str = "fast", **changes: Any) -> Receipt:
    """A receipt as training might have left it: scores near the paper's, a learning curve that leads there."""
    source = random.Random(f"{experiment.id} {row.number} {seed} {budget}")
    published = row.published.get("contrastive")
    target = published.mean / 100 if published else _on_the_curve(row)
    identity = row.published["identity"].mean / 100 if published else 0.5
    best = {"identity": identity, "supervised": 0.9991, "contrastive": target - 0.0002}
    scores = {}
    for model in experiment.models:
        score = best[model] + (1 - best[model]) * source.uniform(-0.1, 0.1)
        other = 0.6 if row.theory == "forbids" else score - 0.001
        r2, mcc = (score, other) if experiment.metric == "r2" else (0.998, score)
        scores[model] = {"r2": r2, "mcc": mcc}
    steps = [500 * k for k in range(21)]
    curve: dict[str, list[Any]] = {"step": steps}
    for metric, final in scores["contrastive"].items():
        curve[metric] = [round(final * (1 - 0.5 * 0.6 ** (k + source.random())), 5) for k in range(21)]
    info = {
        "hash": f"{experiment.id} {row.number}",
        "steps": 10_000,
        "seconds": SECONDS.get(budget, 1.0),
        "trained_together": 5,
        "curve": curve,
    }
    data: dict[str, Any] = {
        "experiment": experiment.id,
        "row": row.number,
        "x": dict(row.x),
        "seed": seed,
        "budget": budget,
        "scores": scores,
        "models": {"contrastive": info},
        "config": {"steps": 10_000},
        "config_hash": "abc",
        "steps": 10_000,
        "batch": 6144,
        "seconds": SECONDS.get(budget, 1.0) + source.random(),
        "device": "NVIDIA H200",
        "precision": "tf32",
        "versions": {"torch": "2.11.0"},
        "commit": COMMIT,
    }
    return Receipt(**(data | changes))


def _on_the_curve(row: Row) -> float:
    """Flat as long as the marginal is wider than the pairs, then down; 0.99 where there is no curve."""
    if row.curve is None:
        return 0.99
    beyond = row.marginal.tightness / row.conditional.tightness
    return 0.998 if beyond <= 0.5 else max(0.1, 0.998 - 0.3 * beyond)


def write(folder: Path, experiment_id: str, rows: str | None = None, seeds: int = 5, **changes: Any) -> Path:
    """Receipts for these rows (``"1,5"``; all without) in the experiment's ledger, which is returned."""
    experiment = find(experiment_id)
    folder.mkdir(parents=True, exist_ok=True)
    path = ledger_path(folder, experiment.id)
    for row in experiment.select(None if rows is None else rows.split(",")):
        for seed in range(seeds):
            append(path, made_up(experiment, row, seed, **changes))
    return path


def write_everything(folder: Path) -> Path:
    """A folder with some of everything: two budgets, a figure, rows that were not run, a seed that diverged."""
    write(folder, "clica/table1", "1,2,3,4,5,6,7,8,9,10,11b,12b")
    write(folder, "clica/table1", "1,5,12", seeds=1, budget="paper")
    table2 = write(folder, "clica/table2")
    experiment = find("clica/table2")
    failed = {
        "scores": {"identity": {"r2": 0.68, "mcc": 0.46}},
        "models": {},
        "failed": "contrastive: The loss was not finite at step 812.",
    }
    append(table2, made_up(experiment, experiment.row("3"), 5, **failed))
    write(folder, "clica/figure2", seeds=3)
    return folder
