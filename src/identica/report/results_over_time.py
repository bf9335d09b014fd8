"""What happens to one row of a figure that compares losses while it trains: scores, the loss, and Λ̂, of one seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from identica.diagnostics.theory import Curve, Line
from identica.experiments import Receipt, RowResult
from identica.experiments.aninfonce.hard import Continued, HardRow
from identica.experiments.aninfonce.rows import LossRow
from identica.experiments.catalogue import Model
from identica.report.loss_table import loss_label, optima_of
from identica.report.receipts import Point, batch_of, is_number, learning_curve, settings_of, steps_before

_Group = tuple[str, str, Literal["line", "dashed"]]
#: What is drawn over time: name, score, kind of line. Without blocks there is neither content nor style.
_GROUPS: tuple[_Group, ...] = (("content", "content_r2", "line"), ("style", "style_r2", "dashed"))
_WHOLE: tuple[_Group, ...] = (("", "r2", "line"),)


def over_time(result: RowResult) -> list[Curve]:
    """Content and style, the loss with its minimum, and Λ̂ with Λ, of the first seed, by step."""
    if not result.receipts:
        return []
    receipt = result.receipts[0]
    found = (_scores(result, receipt), _losses(result, receipt), _precisions(result, receipt))
    return [curve for curve in found if curve.lines]


def _where(result: RowResult, receipt: Receipt, *more: str) -> str:
    """What a picture is of, and which negatives there were: ``S¹⁹, Λ⁺ = 150 ×20, Λ⁻ = 45 ×20, seed 0``."""
    return ", ".join((result.row.process_label, *more, f"seed {receipt.seed}"))


def _scores(result: RowResult, receipt: Receipt) -> Curve:
    lines = []
    for model in result.row.models or ():
        for group, score, kind in _GROUPS if _has_blocks(result) else _WHOLE:
            if points := learning_curve(receipt, model, score):
                name = f"{loss_label(result.row, model)}, {group}".removesuffix(", ")
                lines.append(Line(name, tuple(points), kind))
    return Curve(f"R² over time, {_where(result, receipt)}", "step", "R²", tuple(lines))


def _losses(result: RowResult, receipt: Receipt) -> Curve:
    """Of the first loss, with its minimum, and of those that tell the positive from as many others of the same kind."""
    lines: list[Line] = []
    known = [model for model in result.row.models or () if learning_curve(receipt, model, "loss")]
    for model in known:
        if _candidates(result, receipt, model) != _candidates(result, receipt, known[0]):
            continue
        points = learning_curve(receipt, model, "loss")
        lines.append(Line(loss_label(result.row, model), tuple(points)))
        floor: Any = receipt.models[model].get("minimal_loss")
        if is_number(floor) and len(lines) == 1:
            lines.append(Line("minimum", ((points[0][0], floor), (points[-1][0], floor)), "dashed"))
    batch = f"batches of {_candidates(result, receipt, known[0])[1]:,}" if known else ""
    return Curve(f"The loss over time, {_where(result, receipt, batch)}", "step", "loss in nats", tuple(lines))


def _candidates(result: RowResult, receipt: Receipt, model: Model) -> tuple[str, int, int]:
    """What a loss picks the positive from: losses that differ in it are no more comparable than their minima.

    The kind of loss (one that is no cross-entropy stands alone), the size of its batches, and how many hard negatives
    join them.
    """
    loss = result.row.losses.get(model) if isinstance(result.row, LossRow) else None
    batch = batch_of(receipt, model)
    if not settings_of(receipt, model) and isinstance(loss, Continued):
        batch = round(batch * loss.larger)
    kind = "tricl" if loss is not None and loss.kind == "tricl" else "cross-entropy"
    return kind, batch, loss.joined if isinstance(loss, Continued) else 0


def _precisions(result: RowResult, receipt: Receipt) -> Curve:
    """Each code's Λ̂, and before them, as levels to reach, the Λ that theory promises."""
    entries: list[Line] = []
    drawn = [model for model in result.row.models or () if _entries_by_step(receipt, model, "precision")]
    for model in drawn:
        kinds = ("precision", "precision 2") if _entries_by_step(receipt, model, "precision 2") else ("precision",)
        for which, kind in enumerate(kinds):
            name = loss_label(result.row, model) if len(drawn) > 1 else ""
            if len(kinds) > 1:
                name = f"{name}, {('first', 'second')[which]} kind of pairs".removeprefix(", ")
            for k, points in enumerate(_entries_by_step(receipt, model, kind)):
                entries.append(Line(name if k == 0 else "", points, "dashed" if which else "line"))
        entries += _turned(receipt, model, entries)
    title = f"Λ̂ over time, {_where(result, receipt, *(loss_label(result.row, model) for model in drawn))}"
    return Curve(title, "step", "Λ̂, a line for each code", (*_levels(result, drawn, entries), *entries))


def _levels(result: RowResult, models: Sequence[Model], entries: Sequence[Line]) -> list[Line]:
    """Each Λ that is promised; not where there are two kinds of pairs, whose Λ̂ are crowded enough."""
    promised = {optima_of(result.row, model) for model in models}
    (optima,) = promised if len(promised) == 1 else ((),)
    if not entries or len(optima) != 1:
        return []
    ends = min(line.points[0][0] for line in entries), max(line.points[-1][0] for line in entries)
    name = "Λ⁺ − Λ⁻" if isinstance(result.row, HardRow) else "Λ"
    levels = sorted(set(optima[0]))
    return [Line(name if k == 0 else "", ((ends[0], v), (ends[1], v)), "dashed") for k, v in enumerate(levels)]


def _turned(receipt: Receipt, model: Model, entries: Sequence[Line]) -> list[Line]:
    """The Λ̂ of codes that were turned after the training, at its end, where lines stop at those before the turn."""
    if not entries or not settings_of(receipt, model).get("turned"):
        return []
    end = max(line.points[-1][0] for line in entries)
    values = receipt.per_dimension.get(model, {}).get("precision", [])
    found = tuple((end, value) for value in values if value is not None and is_number(value))
    return [Line("turned to their axes", found, "dots")] if found else []


def _has_blocks(result: RowResult) -> bool:
    return isinstance(result.row, LossRow) and any(len(set(precision)) > 1 for precision in result.row.precisions)


def similarities(result: RowResult) -> list[Curve]:
    """Densities of the cosines of positives and negatives at the end, of the first seed."""
    receipt, lines = result.receipts[0], []
    for model in result.row.models or ():
        info: Any = receipt.models.get(model, {}).get("similarities")
        for name, kind in (("positives", "line"), ("negatives", "dashed")):
            density = info.get(name) if isinstance(info, dict) else None
            if isinstance(density, list) and density and all(map(is_number, density)):
                middles = [-1.0 + (2.0 * k + 1.0) / len(density) for k in range(len(density))]
                points = tuple(zip(middles, density, strict=True))
                label = f"{loss_label(result.row, model)}, {name}"
                lines.append(Line(label, points, "dashed" if kind == "dashed" else "line"))
    title = f"Similarities of codes, {_where(result, receipt)}"
    return [Curve(title, "cosine", "density", tuple(lines))] if lines else []


def _entries_by_step(receipt: Receipt, model: Model, name: str) -> list[tuple[Point, ...]]:
    """(step, entry) for each entry of a Λ̂; empty if the receipt has none."""
    info: Any = receipt.models.get(model)
    curve: Any = info.get("curve") if isinstance(info, dict) else None
    steps, rows = (curve.get("step"), curve.get(name)) if isinstance(curve, dict) else (None, None)
    if not (isinstance(steps, list) and isinstance(rows, list)):
        return []
    known = [(step, row) for step, row in zip(steps, rows, strict=False) if is_number(step) and isinstance(row, list)]
    count = min((len(row) for _, row in known), default=0)
    before = steps_before(info)
    lines = (tuple((before + step, row[k]) for step, row in known if is_number(row[k])) for k in range(count))
    return [line for line in lines if line]
