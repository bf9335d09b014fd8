"""The numbers of figures that compare losses on pairs of a known precision, as the lines of a table."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from identica.experiments import Entry, RowResult, Verdict
from identica.experiments.aninfonce.hard import Continued
from identica.experiments.aninfonce.rows import LossExperiment, LossRow
from identica.experiments.catalogue import METRICS, Model, model_name
from identica.experiments.claims import Quantity
from identica.experiments.receipts.verdicts import Cell
from identica.metrics import rotation_mcc
from identica.report.receipts import is_number
from identica.report.results import NO_SCORE, NOT_RUN, Block, seconds_text
from identica.report.units import bare

#: Of a table; a verdict keeps its colour on the page.
Text = str | Verdict
#: The heads of columns that are set flush left.
WORDS = ("Row", "Pairs", "Loss", "Verdict", "Λ̂")
#: What columns are about, for those who read their heads.
_LEGEND = {
    "Λ̂": "Λ̂ as the range of each block of equal precision, averaged over seeds, with its standard error",
    "Off by": "how far its worst entry is off",
    "Above minimum": "the loss above its minimum in nats",
}
_BLOCKS = ("Content", "Style", "Within")


def headings(block: Block) -> tuple[str, ...]:
    """The heads of the columns that have an entry, the first four always."""
    return tuple(heading for heading, _ in _columns(block))


def table_rows(block: Block) -> Iterator[tuple[Text, ...]]:
    """A line for each row and loss, as the headings say; scores in percent, the loss in nats."""
    return zip(*(entries for _, entries in _columns(block)), strict=True)


def caption(block: Block) -> str:
    """What the table shows, in which units."""
    metric = METRICS[block.experiment.metric]
    scores = metric if metric == "R²" else f"{metric[:1].upper()}{metric[1:]}"
    said = [f"{scores}{' and MCC' if 'MCC' in headings(block) else ''} in percent, mean ± standard deviation (seeds)"]
    return "; ".join(said + [text for heading, text in _LEGEND.items() if heading in headings(block)])


def _columns(block: Block) -> list[tuple[str, list[Text]]]:
    """Heads and entries of what is shown: no column without any entry, and none on blocks where there is but one."""
    lines = [(result, cell) for result in block.shown for cell in result.cells]
    several = any(isinstance(row := result.row, LossRow) and len(row.block_sizes) > 1 for result in block.shown)
    columns: list[tuple[str, list[Text]]] = []
    for place, (heading, entry) in enumerate(_all_columns(block)):
        if heading in _BLOCKS and not several:
            continue
        entries = [entry(result, cell) for result, cell in lines]
        if place < 4 or any(entries):
            columns.append((heading, entries))
    return columns


def _all_columns(block: Block) -> Iterator[tuple[str, Callable[[RowResult, Cell], Text]]]:
    """Every column there may be: its head, and what it says of one loss of one row."""
    own = block.experiment.columns if isinstance(block.experiment, LossExperiment) else ()
    yield "Row", lambda result, cell: result.row.number
    yield "Pairs", lambda result, cell: result.row.process_label if _leads(result, cell) else ""
    yield "Loss", lambda result, cell: loss_label(result.row, cell.model)
    yield METRICS[block.experiment.metric], _ours
    if any(row.published for row in block.experiment.rows):
        yield "Paper", lambda result, cell: "" if cell.published is None else str(cell.published)
        yield "Verdict", lambda result, cell: _verdict(block, result, cell)
    for heading, score in (("Content", "content_r2"), ("Style", "style_r2"), ("Within", "within_r2"), ("MCC", "mcc")):
        yield heading, _score(score)
    yield "MCC promised", lambda result, cell: _promised(result.row) if result.receipts and cell.ours else ""
    yield "Λ̂", lambda result, cell: _learned(result, cell.model)
    yield "Off by", _score("precision_error", " %")
    yield "Above minimum", _score("excess_loss")
    for heading, score in own:
        yield heading, _score(score)
    yield "Seconds", lambda result, cell: _seconds(block, result) if _leads(result, cell) else ""


def _leads(result: RowResult, cell: Cell) -> bool:
    """Whether it is the first line of its row."""
    return cell is result.cells[0]


def _ours(result: RowResult, cell: Cell) -> str:
    if cell.ours is None:
        return NO_SCORE if result.receipts else NOT_RUN
    return f"{cell.ours} ({cell.ours.seeds})"


def _verdict(block: Block, result: RowResult, cell: Cell) -> Text:
    """The verdict, once for each model; of the same model in a later row, where to look."""
    earlier = block.repeats.get((result.row.number, cell.model))
    return f"as row {earlier}" if earlier is not None else cell.verdict or ""


def _seconds(block: Block, result: RowResult) -> str:
    return seconds_text(block.seconds_of(result)) if result.receipts else ""


def _score(score: str, unit: str = "") -> Callable[[RowResult, Cell], str]:
    """The mean over seeds, if there is one."""

    def entry(result: RowResult, cell: Cell) -> str:
        mean = Quantity(cell.model, score).mean(result.receipts)
        return "" if mean is None else f"{bare(score, mean)}{unit}"

    return entry


def spread_of(block: Block) -> str:
    """The lowest and the highest score of the table: ``R² from 55.02 to 99.98``; empty without any."""
    means = [cell.ours.mean for result in block.shown for cell in result.cells if cell.ours is not None]
    return f"{METRICS[block.experiment.metric]} from {min(means):.2f} to {max(means):.2f}" if means else ""


def loss_label(row: Entry, model: Model) -> str:
    """A loss of a row as people write it: ``InfoNCE, τ = 0.2``."""
    loss = row.losses.get(model) if isinstance(row, LossRow) else None
    return model_name(model) if loss is None else loss.label


def _promised(row: Entry) -> str:
    """The mean MCC, in percent, of codes that are right up to a random rotation of each block of equal precision."""
    sizes = row.block_sizes if isinstance(row, LossRow) else ()
    return f"{100 * sum(n * rotation_mcc(n).mean for n in sizes) / sum(sizes):.0f}" if sizes else ""


# Λ̂


def optima_of(row: Entry, model: Model) -> tuple[tuple[float, ...], ...]:
    """Where theory has the Λ̂ of each kind of pairs end; empty where it says nothing.

    That is with one similarity for several kinds of pairs, and where hard negatives are joined to others.
    """
    loss = row.losses.get(model) if isinstance(row, LossRow) else None
    if not isinstance(row, LossRow) or loss is None or (len(row.precisions) > 1 and not loss.own):
        return ()
    return () if isinstance(loss, Continued) and loss.joined else row.optima


def precisions(result: RowResult, model: Model, kind: int = 0) -> list[tuple[float, float]]:
    """(Λ, Λ̂) in the order of size, Λ̂ averaged over the seeds; empty where there is none, or no single truth."""
    optima = optima_of(result.row, model)
    if kind >= len(optima):
        return []
    name = "precision" if kind == 0 else f"precision {kind + 1}"
    truth = sorted(optima[kind])
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
    kinds = len(optima_of(result.row, model))
    said = []
    temperatures = _entries(result, model, "temperature")
    if temperatures:
        return f"τ = {statistics.fmean(temperatures):.4f}"
    if not kinds and (entries := _entries(result, model, "precision")):
        return _range(entries)  # of views, say, nobody knows Λ
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
