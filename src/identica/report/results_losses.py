"""Figures that compare losses on pairs of a known precision: their panels as SVG. Their table is in ``loss_table``."""

from __future__ import annotations

import math

from identica.diagnostics.theory import Curve, Line, Matrix
from identica.experiments import RowResult
from identica.experiments.aninfonce.rows import LossExperiment, LossRow, Plot
from identica.experiments.catalogue import model_name
from identica.report.loss_table import headings, precisions, table_rows
from identica.report.receipts import is_number
from identica.report.results import Block
from identica.report.results_mnist import digits
from identica.report.results_over_time import over_time, similarities
from identica.report.results_scans import scans
from identica.report.theory_charts import picture

__all__ = ["headings", "panels", "precisions", "table_rows"]

#: Coordinates of points as axes and legends name them; others have the name that they have in the catalogue.
_AXES = {"temperature": "temperature τ", "concentration": "concentration κ", "batch": "batch size"}
_LEGENDS = {"precision": "Λ = {:g}", "dimension": "{:g} dimensions"}


def panels(block: Block) -> list[tuple[str, str]]:
    """Captions and pictures: the experiment's plots, how far Λ̂ is off, and the detail over time."""
    experiment = block.experiment
    if not isinstance(experiment, LossExperiment) or not block.run:
        return []
    drawn = [(plot.title, _plot(block, plot)) for plot in experiment.plots]
    curves: list[tuple[str, Curve | Matrix]] = [(title, curve) for title, curve in drawn if curve is not None]
    curves += [(curve.title, curve) for curve in (_precision_errors(block), _kinds_scatter(block)) if curve is not None]
    for result in block.run:
        curves += [(curve.title, curve) for curve in (*scans(result), *digits(result))]
        if result.row.number in experiment.details:
            curves += [(curve.title, curve) for curve in (*over_time(result), *similarities(result))]
    return [(title, picture(curve)) for title, curve in curves]


def _plot(block: Block, plot: Plot) -> Curve | None:
    rows = [result for result in block.run if plot.shows(result.row.x)]
    if plot.by is not None:
        rows.sort(key=lambda result: result.row.x[plot.by or ""])
    groups: dict[str | None, list[RowResult]] = {}
    for result in rows:
        groups.setdefault(_group(plot, result), []).append(result)
    lines = []
    for title, group in groups.items():
        for name, quantity in plot.lines:
            points = [(_where(plot, result), quantity.mean(result.receipts)) for result in group]
            least = -math.inf if plot.least is None else plot.least
            known = sorted((x, max(y, least)) for x, y in points if x is not None and y is not None)
            if known:
                parts = [title, name if title is None or len(plot.lines) > 1 else None]
                label = ", ".join(part for part in parts if part is not None)
                lines.append(Line(label, tuple(known), "dashed" if name.endswith("style") else "line"))
    log_x, log_y = plot.log and plot.against is None, not plot.y.startswith(("R²", "accuracy"))
    return Curve(plot.title, _axis(plot, rows), plot.y, tuple(lines), log_x=log_x, log_y=log_y) if lines else None


def _group(plot: Plot, result: RowResult) -> str | None:
    """What the legend calls the points that a point is drawn with; None where they have no name."""
    named = _LEGENDS.get(plot.by or "")
    return plot.group(result.row.x) if named is None else named.format(result.row.x[plot.by or ""])


def _axis(plot: Plot, rows: list[RowResult]) -> str:
    """The name of the horizontal axis: a precision is that of the second block, or of all factors."""
    if plot.x != "precision":
        return _AXES.get(plot.x, plot.x)
    return "Λ₂" if any(isinstance(one.row, LossRow) and len(set(one.row.precisions[0])) > 1 for one in rows) else "Λ"


def _where(plot: Plot, result: RowResult) -> float | None:
    return result.row.x[plot.x] if plot.against is None else plot.against.mean(result.receipts)


def _precision_errors(block: Block) -> Curve | None:
    """By how many percent each Λ̂, averaged over the seeds, is off its Λ."""
    lines, everything = [], []
    for model in block.experiment.models:
        pairs = [
            pair
            for result in block.run
            for kind in range(len(result.row.precisions) if isinstance(result.row, LossRow) else 0)
            if model in (result.row.models or ())
            for pair in precisions(result, model, kind)
            if pair[0] > 0
        ]
        if pairs:
            everything += [truth for truth, _ in pairs]
            errors = tuple((truth, 100.0 * (found / truth - 1.0)) for truth, found in pairs)
            lines.append(Line(model_name(model), errors, "dots"))
    if not lines:
        return None
    truth = Line("the truth", ((min(everything), 0.0), (max(everything), 0.0)), "dashed")
    axes = "Λ", "Λ̂ off by, percent, mean over seeds"
    return Curve("How far Λ̂ is off", *axes, (truth, *lines), log_x=True)


def _kinds_scatter(block: Block) -> Curve | None:
    """Each code's Λ̂ for the second kind of pairs against that for the first, of an ensemble; all seeds."""
    lines = []
    for model in block.experiment.models:
        entries = [receipt.per_dimension.get(model, {}) for result in block.run for receipt in result.receipts]
        points = [
            (first, second)
            for values in entries
            for first, second in zip(values.get("precision", []), values.get("precision 2", []), strict=False)
            if first is not None and second is not None and is_number(first) and is_number(second)
        ]
        if points:
            lines.append(Line(model_name(model), tuple(points), "dots"))
    if not lines:
        return None
    axes = "Λ̂ for the first kind of pairs", "Λ̂ for the second"
    return Curve("Two Λ̂ of one encoder, code by code", *axes, tuple(lines), log_x=True, log_y=True)
