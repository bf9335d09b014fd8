"""Figures that compare losses on pairs of a known precision: their numbers as a table, and their panels as SVG."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

from identica.diagnostics.theory import Curve, Line, Matrix
from identica.experiments import Entry, Receipt, RowResult
from identica.experiments.aninfonce.rows import LossExperiment, LossRow, Plot
from identica.experiments.catalogue import METRICS, Model, model_name
from identica.experiments.claims import Quantity
from identica.metrics import rotation_mcc
from identica.report.receipts import Point, is_number, learning_curve, steps_before
from identica.report.results import NO_SCORE, NOT_RUN, Block, seconds_text
from identica.report.results_mnist import digits
from identica.report.results_scans import scans
from identica.report.theory_charts import picture

HEADINGS = (
    *("Row", "Pairs", "Loss", "R²", "Paper", "Content", "Style", "Within", "MCC", "MCC promised"),
    *("Λ̂", "Off by", "Above minimum", "Seconds"),
)
_Group = tuple[str, str, Literal["line", "dashed"]]
#: What is drawn over time: name, score, kind of line. Without blocks there is neither content nor style.
_GROUPS: tuple[_Group, ...] = (("content", "content_r2", "line"), ("style", "style_r2", "dashed"))
_WHOLE: tuple[_Group, ...] = (("all factors", "r2", "line"),)


def headings(block: Block) -> tuple[str, ...]:
    """Of the columns of the table: those of all such figures and the experiment's own, less those without any entry."""
    own = [heading for heading, _ in _own_columns(block)]
    every = (*HEADINGS[:3], METRICS[block.experiment.metric], *HEADINGS[4:-1], *own, HEADINGS[-1])
    return tuple(every[k] for k in _filled(block))


def table_rows(block: Block) -> Iterator[tuple[str, ...]]:
    """A line for each row and loss, as the headings say; scores in percent, the loss in nats."""
    columns = _filled(block)
    for line in _lines(block):
        yield tuple(line[k] for k in columns)


def _own_columns(block: Block) -> tuple[tuple[str, str], ...]:
    return block.experiment.columns if isinstance(block.experiment, LossExperiment) else ()


def _filled(block: Block) -> list[int]:
    """Which columns are shown: all, or for an experiment with columns of its own those that have an entry."""
    count, own = len(HEADINGS), len(_own_columns(block))
    if not own:
        return list(range(count))
    lines = list(_lines(block))
    return [k for k in range(count + own) if k < 5 or k == count + own - 1 or any(line[k] for line in lines)]


def _lines(block: Block) -> Iterator[tuple[str, ...]]:
    """All columns of all lines."""
    for result in block.shown:
        for place, cell in enumerate(result.cells):
            row, receipts = result.row, result.receipts
            none = NO_SCORE if receipts else NOT_RUN
            yield (
                row.number if place == 0 else "",
                _pairs(result) if place == 0 else "",
                _loss_label(row, cell.model),
                none if cell.ours is None else f"{cell.ours} ({cell.ours.seeds})",
                "" if cell.published is None else str(cell.published),
                *(_percent(receipts, cell.model, score) for score in ("content_r2", "style_r2", "within_r2", "mcc")),
                _promised(row) if receipts and cell.ours is not None else "",
                _learned(result, cell.model),
                _percent(receipts, cell.model, "precision_error", " %"),
                _mean(receipts, cell.model, "excess_loss", ".4f"),
                *(_percent(receipts, cell.model, score) for _, score in _own_columns(block)),
                seconds_text(result.seconds) if place == 0 and receipts else "",
            )


def found_text(value: float) -> str:
    """The number that decided a claim: ``0.99714``.

    >>> found_text(0.997141), found_text(1234.4)
    ('0.99714', '1234')
    """
    return f"{value:.5f}" if abs(value) < 10 else f"{value:.0f}"


def unjudged(block: Block) -> str:
    """Why a sentence has no verdict."""
    return "not enough results" if block.run else NOT_RUN


def _loss_label(row: Entry, model: Model) -> str:
    loss = row.losses.get(model) if isinstance(row, LossRow) else None
    return model_name(model) if loss is None else loss.label


def _promised(row: Entry) -> str:
    """The mean MCC, in percent, of codes that are right up to a random rotation of each block of equal precision."""
    sizes = row.block_sizes if isinstance(row, LossRow) else ()
    return f"{100 * sum(n * rotation_mcc(n).mean for n in sizes) / sum(sizes):.0f}" if sizes else ""


def _pairs(result: RowResult) -> str:
    return result.row.process_label


def _mean(receipts: Sequence[Receipt], model: Model, score: str, form: str) -> str:
    mean = Quantity(model, score).mean(receipts)
    return "" if mean is None else f"{mean:{form}}"


def _percent(receipts: Sequence[Receipt], model: Model, score: str, unit: str = "") -> str:
    mean = Quantity(model, score).mean(receipts)
    return "" if mean is None else f"{100 * mean:.2f}{unit}"


# Λ̂


def precisions(result: RowResult, model: Model, kind: int = 0) -> list[tuple[float, float]]:
    """(Λ, Λ̂) in the order of size, Λ̂ averaged over the seeds; empty where there is none, or no single truth."""
    row = result.row
    if not isinstance(row, LossRow) or (len(row.precisions) > 1 and not row.losses[model].own):
        return []
    name = "precision" if kind == 0 else f"precision {kind + 1}"
    truth = sorted(row.optima[kind])
    found = []
    for receipt in result.receipts:
        values = receipt.per_dimension.get(model, {}).get(name, [])
        known = sorted(value for value in values if value is not None and is_number(value))
        if len(known) == len(truth):
            found.append(known)
    return list(zip(truth, map(statistics.fmean, zip(*found, strict=True)), strict=True)) if found else []


def _learned(result: RowResult, model: Model) -> str:
    """``4.98 … 4.99, 25.02 … 25.13 (± 0.02)``: the range of each block of equal precision, and the standard error.

    The error is the mean over entries and seeds. For a learned temperature, that.
    """
    kinds = len(result.row.precisions) if isinstance(result.row, LossRow) else 0
    said = []
    temperatures = _entries(result, model, "temperature")
    if temperatures:
        return f"τ = {statistics.fmean(temperatures):.4f}"
    if not kinds and (entries := _entries(result, model, "precision")):
        return _range(entries)  # learned from views, of which nobody knows Λ
    for kind in range(kinds):
        blocks = groupby(precisions(result, model, kind), key=lambda pair: pair[0])
        ranges = [[value for _, value in block] for _, block in blocks]
        if len(ranges) > 3:
            ranges = [[value for values in ranges for value in values]]
        errors = _entries(result, model, "precision_standard_error" + ("" if kind == 0 else f" {kind + 1}"))
        error = f" (± {statistics.fmean(errors):.2g})" if errors and ranges else ""
        said.append(", ".join(_range(values) for values in ranges) + error)
    return "; ".join(text for text in said if text)


def _entries(result: RowResult, model: Model, name: str) -> list[float]:
    """The numbers of that name of all dimensions and seeds."""
    lists = [receipt.per_dimension.get(model, {}).get(name, []) for receipt in result.receipts]
    return [value for values in lists for value in values if value is not None and is_number(value)]


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} … {high}"


# Pictures


def panels(block: Block) -> list[tuple[str, str]]:
    """Captions and pictures: the experiment's plots, Λ̂ against Λ, and the detail over time."""
    experiment = block.experiment
    if not isinstance(experiment, LossExperiment) or not block.run:
        return []
    drawn = [(plot.title, _plot(block, plot)) for plot in experiment.plots]
    curves: list[tuple[str, Curve | Matrix]] = [(title, curve) for title, curve in drawn if curve is not None]
    curves += [
        (curve.title, curve) for curve in (_precision_scatter(block), _kinds_scatter(block)) if curve is not None
    ]
    for result in block.run:
        curves += [(curve.title, curve) for curve in (*scans(result), *digits(result))]
        if result.row.number in experiment.details:
            curves += [(curve.title, curve) for curve in (*_over_time(result), *_similarities(result))]
    return [(title, picture(curve)) for title, curve in curves]


def _plot(block: Block, plot: Plot) -> Curve | None:
    rows = [result for result in block.run if plot.shows(result.row.x)]
    groups: dict[str | None, list[RowResult]] = {}
    for result in rows:
        groups.setdefault(plot.group(result.row.x), []).append(result)
    lines = []
    for title, group in groups.items():
        prefix = "" if title is None else f"{title}, "
        for name, quantity in plot.lines:
            points = [(_where(plot, result), quantity.mean(result.receipts)) for result in group]
            least = -math.inf if plot.least is None else plot.least
            known = sorted((x, max(y, least)) for x, y in points if x is not None and y is not None)
            if known:
                lines.append(Line(f"{prefix}{name}", tuple(known), "dashed" if name.endswith("style") else "line"))
    log_x, log_y = plot.log and plot.against is None, not plot.y.startswith(("R²", "accuracy"))
    return Curve(plot.title, plot.x, plot.y, tuple(lines), log_x=log_x, log_y=log_y) if lines else None


def _where(plot: Plot, result: RowResult) -> float | None:
    return result.row.x[plot.x] if plot.against is None else plot.against.mean(result.receipts)


def _precision_scatter(block: Block) -> Curve | None:
    lines, everything = [], []
    for model in block.experiment.models:
        pairs = [
            pair
            for result in block.run
            for kind in range(len(result.row.precisions) if isinstance(result.row, LossRow) else 0)
            if model in (result.row.models or ())
            for pair in precisions(result, model, kind)
        ]
        if pairs:
            everything += [value for pair in pairs for value in pair if value > 0]
            lines.append(Line(model_name(model), tuple(pairs), "dots"))
    if not lines:
        return None
    ends = min(everything), max(everything)
    truth = Line("the truth", ((ends[0], ends[0]), (ends[1], ends[1])), "dashed")
    return Curve("Λ̂ against Λ", "Λ", "Λ̂, mean over seeds", (*lines, truth), log_x=True, log_y=True)


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


def _over_time(result: RowResult) -> list[Curve]:
    """Content and style, the loss with its minimum, and Λ̂ with Λ, of the first seed, by step."""
    if not result.receipts:
        return []
    receipt, where = result.receipts[0], f"{result.row.conditional.label}, seed {result.receipts[0].seed}"
    scores, losses, entries = [], [], []
    for model in result.row.models or ():
        name = model_name(model)
        for group, score, kind in _GROUPS if _has_blocks(result) else _WHOLE:
            if points := learning_curve(receipt, model, score):
                scores.append(Line(f"{name}, {group}", tuple(points), kind))
        if points := learning_curve(receipt, model, "loss"):
            losses.append(Line(name, tuple(points)))
            floor: Any = receipt.models[model].get("minimal_loss")
            if is_number(floor) and len(losses) == 1:
                losses.append(Line("minimum", ((points[0][0], floor), (points[-1][0], floor)), "dashed"))
        for name, kind in (("precision", "line"), ("precision 2", "dashed")):
            entries += [Line("", line, kind) for line in _entries_by_step(receipt, model, name)]
        entries += _turned_precisions(receipt, model, entries)
    entries += _true_precisions(result.row, entries)
    found = (
        Curve(f"R² over time, {where}", "step", "R²", tuple(scores)),
        Curve(f"The loss over time, {where}", "step", "loss in nats", tuple(losses)),
        Curve(f"Λ̂ over time, {where}", "step", "Λ̂", tuple(entries)),
    )
    return [curve for curve in found if curve.lines]


def _true_precisions(row: Entry, entries: Sequence[Line]) -> list[Line]:
    """Each Λ as a level for the Λ̂ to reach; not where there are two kinds of pairs, whose Λ̂ are crowded enough."""
    if not entries or not isinstance(row, LossRow) or len(row.optima) != 1:
        return []
    ends = min(line.points[0][0] for line in entries), max(line.points[-1][0] for line in entries)
    levels = sorted(set(row.optima[0]))
    return [Line("Λ" if k == 0 else "", ((ends[0], v), (ends[1], v)), "dashed") for k, v in enumerate(levels)]


def _turned_precisions(receipt: Receipt, model: Model, entries: Sequence[Line]) -> list[Line]:
    """The Λ̂ of codes that were turned after the training, at its end, where lines stop at those before the turn."""
    settings: Any = receipt.config.get(model)
    if not entries or not isinstance(settings, Mapping) or not settings.get("turned"):
        return []
    end = max(line.points[-1][0] for line in entries)
    values = receipt.per_dimension.get(model, {}).get("precision", [])
    found = tuple((end, value) for value in values if value is not None and is_number(value))
    return [Line("turned to their axes", found, "dots")] if found else []


def _has_blocks(result: RowResult) -> bool:
    return isinstance(result.row, LossRow) and any(len(set(precision)) > 1 for precision in result.row.precisions)


def _similarities(result: RowResult) -> list[Curve]:
    """Densities of the cosines of positives and negatives at the end, of the first seed."""
    receipt, lines = result.receipts[0], []
    for model in result.row.models or ():
        info: Any = receipt.models.get(model, {}).get("similarities")
        for name, kind in (("positives", "line"), ("negatives", "dashed")):
            density = info.get(name) if isinstance(info, Mapping) else None
            if isinstance(density, list) and density and all(map(is_number, density)):
                middles = [-1.0 + (2.0 * k + 1.0) / len(density) for k in range(len(density))]
                points = tuple(zip(middles, density, strict=True))
                lines.append(Line(f"{model_name(model)}, {name}", points, "dashed" if kind == "dashed" else "line"))
    where = f"{result.row.conditional.label}, seed {receipt.seed}"
    return [Curve(f"Similarities of codes, {where}", "cosine", "density", tuple(lines))] if lines else []


def _entries_by_step(receipt: Receipt, model: Model, name: str) -> list[tuple[Point, ...]]:
    """(step, entry) for each entry of a Λ̂; empty if the receipt has none."""
    info: Any = receipt.models.get(model)
    curve: Any = info.get("curve") if isinstance(info, Mapping) else None
    steps, rows = (curve.get("step"), curve.get(name)) if isinstance(curve, Mapping) else (None, None)
    if not (isinstance(steps, list) and isinstance(rows, list)):
        return []
    known = [(step, row) for step, row in zip(steps, rows, strict=False) if is_number(step) and isinstance(row, list)]
    count = min((len(row) for _, row in known), default=0)
    before = steps_before(info)
    return [tuple((before + step, row[k]) for step, row in known if is_number(row[k])) for k in range(count)]
