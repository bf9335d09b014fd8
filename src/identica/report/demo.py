"""The demo's page: what was recovered, how training went, and what it means."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

import torch
from markupsafe import Markup

from identica._version import __version__
from identica.diagnostics import identification
from identica.diagnostics.identification import Level
from identica.experiments.demo import SCALE, Demo, DemoRow
from identica.metrics import correlations, mcc
from identica.report.charts import Series, heatmap, line_chart, scatter
from identica.report.page import render
from identica.training.checkpoint import write_atomically

#: Dots in a scatter plot: enough to see the shape, few enough to keep the page small.
DOTS = 350

#: What theory says of each objective, in terms of the factors found.
THEORY = {
    "matched": (
        "The pairs differ by Laplace noise, and the similarity is that noise's log-density. The loss is then smallest "
        "exactly for codes that keep every L1 distance of the true factors, and the only maps of the box that do so "
        "reorder, flip and rescale the axes (A, Theorem 6)."
    ),
    "mismatched": (
        "A squared Euclidean distance does not change when the code is rotated, so the loss cannot prefer the true "
        "axes over any rotation of them (A, Theorem 5)."
    ),
}
#: How far the theory lets each objective get.
PROMISED: dict[str, Level] = {"matched": "permutation", "mismatched": "affine"}


def explain(name: str, found: Level, step: int, excess: float) -> str:
    """Why the run ``name`` found what it found: theory, and whether training got as far as theory goes."""
    if found == "none" or (found, PROMISED[name]) == ("affine", "permutation"):
        wanted = "each factor in a code of its own" if name == "matched" else "every factor, up to a linear map"
        outcome = (
            f"Training has not got there yet: after {step} steps the loss is still {excess:.3f} nats above the "
            f"smallest possible, and theory speaks of the smallest. A longer run should find {wanted}."
        )
    elif found == PROMISED[name] == "affine":
        outcome = (
            "A linear map still finds every factor; no single code is one. This is not a failure of training: it is "
            "what this objective promises."
        )
    elif found != PROMISED[name]:
        outcome = (
            "That the axes agree here is luck: nothing in the objective asks for it, and another seed may lose it."
        )
    else:
        outcome = "That is what this encoder found."
    return f"{THEORY[name]} {outcome}"


@dataclass(frozen=True)
class _Section:
    """One contrastive run as the template wants it."""

    title: str
    level: str
    sentence: str
    explanation: str
    floor_note: str
    r2: float
    mcc: float
    loss_chart: Markup
    score_chart: Markup
    heatmap: Markup
    scatters: Markup


def write_demo_report(demo: Demo, path: Path) -> Path:
    """Write the page to ``path`` and return it."""
    sections = [_section(demo, demo[name]) for name in THEORY]
    null = mcc(demo["matched"].evaluation.z, demo["matched"].evaluation.h, null=100).null
    page = render(
        "demo.html",
        title="Recovering the factors of a nonlinear mixture",
        lead=(
            f"{demo.process.dim} hidden factors went through a nonlinear network. An encoder saw only pairs of its "
            "outputs and was asked to tell which belong together. Whether it finds the factors depends on one choice."
        ),
        sections=sections,
        rows=[_table_row(row) for row in demo.rows],
        samples=demo["matched"].evaluation.r2.n,
        chance=null.q95 if null else float("nan"),
        facts=_facts(demo),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page.encode("utf-8"))
    return path


def _table_row(row: DemoRow) -> dict[str, object]:
    return {
        "title": row.title,
        "sees": row.sees,
        "r2": row.evaluation.r2.score,
        "mcc": row.evaluation.mcc.score,
        "seconds": row.run.seconds if row.run else None,
    }


def _section(demo: Demo, row: DemoRow) -> _Section:
    assert row.run is not None and row.excess is not None
    evaluation, history = row.evaluation, row.run.history
    found = identification(evaluation.r2, evaluation.mcc)
    losses = [(r.step, r.terms["loss"]) for r in history if "loss" in r.terms]
    scores = [
        Series("R²", [(r.step, r.scores["r2"]) for r in history], "c1"),
        Series("MCC", [(r.step, r.scores["mcc"]) for r in history], "c2"),
    ]
    return _Section(
        title=row.title,
        level=found.level,
        sentence=found.sentence,
        explanation=explain(row.name, found.level, row.run.step, row.excess.mean),
        floor_note=(
            f"No encoder can go below {demo.floor.mean:.3f} ± {demo.floor.standard_error:.3f} nats, the loss of the "
            f"true factors with the true density ratio. On the same pairs this encoder is {row.excess.mean:.4f} ± "
            f"{row.excess.standard_error:.4f} above it."
        ),
        r2=evaluation.r2.score,
        mcc=evaluation.mcc.score,
        loss_chart=Markup(
            line_chart(
                [Series("training loss", losses)],
                x_label="step",
                y_label="loss [nats]",
                reference=(demo.floor.mean, "smallest possible"),
            )
        ),
        score_chart=Markup(line_chart(scores, x_label="step", y_label="score", y_range=(0.0, 1.02))),
        heatmap=_heatmap(row),
        scatters=_scatters(row),
    )


def _matched(row: DemoRow) -> list[int]:
    """The code matched to each factor; the demo's models have one for each."""
    return [code for code in row.evaluation.mcc.assignment if code is not None]


def _heatmap(row: DemoRow) -> Markup:
    z, h, order = row.evaluation.z, row.evaluation.h, _matched(row)
    matrix = correlations(z, h).abs()[:, order].tolist()
    names = [f"z{i + 1}" for i in range(z.shape[1])]
    return Markup(
        heatmap(
            matrix,
            rows=names,
            columns=[f"h{j + 1}" for j in order],
            title="absolute correlations of the true factors with the codes",
        )
    )


def _scatters(row: DemoRow) -> Markup:
    z, h = row.evaluation.z[:DOTS].tolist(), row.evaluation.h[:DOTS].tolist()
    charts = []
    for i, j in enumerate(_matched(row)):
        charts.append(
            scatter(
                [(a[i], b[j]) for a, b in zip(z, h, strict=True)],
                x_label=f"true z{i + 1}",
                y_label=f"code h{j + 1}",
                note=f"|r| = {row.evaluation.mcc.per_dimension[i]:.3f}",
            )
        )
    return Markup("".join(charts))


def _facts(demo: Demo) -> list[tuple[str, str]]:
    config = demo["matched"].run.config if demo["matched"].run else None
    assert config is not None
    threads = torch.get_num_threads()
    return [
        ("Factors", f"uniform on [0, 1]^{demo.process.dim}"),
        ("Pairs", f"truncated Laplace noise, scale {SCALE}"),
        ("Mixing", "invertible network, 3 layers, leaky ReLU 0.2"),
        (
            "Training",
            f"{config.steps} steps of {config.batch_size} pairs each, Adam, {config.schedule} from {config.lr:g}",
        ),
        ("Seed", str(demo.seed)),
        ("Training time", f"{demo.seconds:.0f} s for all models, {threads} CPU thread{'' if threads == 1 else 's'}"),
        ("Versions", f"identica {__version__}, torch {torch.__version__}, Python {platform.python_version()}"),
    ]
