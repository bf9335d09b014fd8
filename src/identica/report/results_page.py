"""The web page of results: every table beside the paper's, figures redrawn, learning curves, and what it took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from identica.experiments import RowResult, Verdict, ledger_path
from identica.experiments.catalogue import METRICS, PAPERS, Metric, Model
from identica.experiments.receipts.verdicts import COLLAPSED, FAR_OUT, HIGH, CurveResult
from identica.render import FACTORS
from identica.report.loss_table import WORDS, caption, headings, spread_of, table_rows
from identica.report.markdown import mass_to_move, ours, paper, trend_of
from identica.report.page import render
from identica.report.receipts import Point, learning_curve
from identica.report.results import Block, Results, authors_say, hours_text, seconds_text
from identica.report.results_charts import FigurePoint, Pair, Spent, comparison, figure, learning, spent_chart
from identica.report.results_losses import panels
from identica.report.results_three_d_ident import inversions
from identica.report.units import found_text

#: What every such page carries in its head, by which we know that it may be written over.
MARK = '<meta name="generator" content="identica report">'
#: A table of more rows, or so many pictures, is closed until someone opens it.
MANY = 12


def results_page(results: Results, notes: Sequence[str] = ()) -> str:
    """The page as HTML. ``notes``: sentences about what in the folder could not be read."""
    spent = [_spent(block) for section in results.sections for block in section.blocks if block.author_hours]
    inverted = inversions(results)
    cited = dict.fromkeys(section.experiment.paper.split(",")[0] for section in results.sections)
    return render(
        "results.html",
        title="Ours beside the papers'",
        mark=Markup(MARK),
        sections=results.sections,
        papers=[(name, PAPERS[name]) for name in cited if name in PAPERS],
        spent=[block for section in results.sections for block in section.blocks if block.author_hours],
        spent_chart=Markup(spent_chart(spent)) if spent else "",
        authors=authors_say(results),
        many=MANY,
        words=WORDS,
        left_out=[*notes, *results.left_out],
        metrics=METRICS,
        standing=standing,
        tone=tone,
        ours=ours,
        paper=paper,
        seconds=seconds_text,
        hours=hours_text,
        faster=faster,
        ledger=lambda block: str(ledger_path("", block.experiment.id)),
        described=(
            f"above {HIGH:g} while the marginal is at most {FAR_OUT:g} times as concentrated as the pairs, and below "
            f"{COLLAPSED:g} at the far end, beyond them"
        ),
        comparison=_comparison,
        curves=_curves,
        learning=_learning,
        originals=inverted.originals,
        inversion=inverted.of,
        factors=FACTORS,
        panels=lambda block: [(title, Markup(chart)) for title, chart in panels(block)],
        loss_headings=headings,
        loss_rows=lambda block: list(table_rows(block)),
        loss_caption=caption,
        spread=spread_of,
        found=found_text,
    )


# Words


def tone(verdict: Verdict | None) -> str:
    """The CSS class of a verdict."""
    if verdict is None or verdict.good is None:
        return "open"
    return "good" if verdict.good else "bad"


def standing(block: Block) -> tuple[int, int]:
    """How many verdicts are good, of those that could be bad."""
    judged = [verdict for verdict in block.verdicts if verdict.good is not None]
    return sum(verdict.good is True for verdict in judged), len(judged)


def faster(block: Block) -> str:
    """How many times less time than the authors at least: ``3,600``; two digits are all it is good for."""
    if block.author_hours is None or block.seconds <= 0:
        return "–"
    return f"{int(float(f'{3600 * block.author_hours[0] / block.seconds:.2g}')):,}"


# Pictures


def _spent(block: Block) -> Spent:
    low, high = block.author_hours or (0.0, 0.0)
    return Spent(f"{block.experiment.id}, {block.budget}", block.seconds, (3600 * low, 3600 * high))


def _scores(result: RowResult, model: Model, metric: Metric) -> list[float]:
    return [100 * receipt.scores[model][metric] for receipt in result.receipts if model in receipt.scores]


def _comparison(block: Block) -> Markup | None:
    """Ours and the paper's, row by row; None where the paper prints nothing."""
    pairs = []
    for result in block.shown:
        published = result.row.published.get("contrastive")
        figures = None if published is None else (published.mean, published.sd or 0.0)
        pairs.append(Pair(result.row.number, _scores(result, "contrastive", block.experiment.metric), figures))
    if not block.run or all(pair.published is None for pair in pairs):
        return None
    return Markup(comparison(pairs, METRICS[block.experiment.metric]))


@dataclass(frozen=True)
class _Figure:
    """One curve of a figure, as the template wants it; ``points``: (result, where, mass to move)."""

    curve: CurveResult
    trend: str
    chart: Markup
    x_name: str
    reference: float
    points: list[tuple[RowResult, float, float | None]]


def _curves(block: Block) -> list[_Figure]:
    metric = block.experiment.metric
    made = []
    for curve in block.curves:
        first = curve.points[0].row
        x_name = next(iter(first.x), "x")
        points = [
            (point, point.row.x.get(x_name, 1.0), mass_to_move(point, block.experiment.dim)) for point in curve.points
        ]
        chart = figure(
            [FigurePoint(x, mass, _scores(point, "contrastive", metric)) for point, x, mass in points],
            first.conditional.tightness,
            METRICS[metric],
            f"{x_name} of the marginal",
            described=bool(block.experiment.trend),
        )
        reference = first.conditional.tightness
        made.append(_Figure(curve, trend_of(curve), Markup(chart), x_name, reference, points))
    return made


@dataclass(frozen=True)
class _Learning:
    """How the contrastive model of one row got there: for each metric, the one that counts first, the seeds' curves."""

    result: RowResult
    curves: list[list[tuple[int, list[Point]]]]

    @property
    def best(self) -> float:
        """The highest score that it shows, in percent."""
        return max((100 * score for curves in self.curves for _, curve in curves for _, score in curve), default=0.0)


def _learning(block: Block) -> list[tuple[RowResult, Markup]]:
    """The learning curves of all rows that were run, drawn to the same scale."""
    first = block.experiment.metric
    both: tuple[Metric, ...] = ("r2", "mcc")
    metrics: list[Metric] = [first, *(name for name in both if name != first)]
    rows = []
    for result in block.run:
        found = [
            [(receipt.seed, learning_curve(receipt, "contrastive", metric)) for receipt in result.receipts]
            for metric in metrics
        ]
        rows.append(_Learning(result, [[(seed, curve) for seed, curve in curves if curve] for curves in found]))
    best, names = max((row.best for row in rows), default=0.0), [METRICS[name] for name in metrics]
    drawn = []
    for row in rows:
        published = row.result.row.published.get("contrastive")
        chart = learning(row.curves, names, published.mean if published else None, best)
        drawn.append((row.result, Markup(chart)))
    return drawn


# Files


def page_path(out: Path) -> Path:
    """``report.html`` in a folder, or the HTML file named."""
    return out if out.suffix.lower() in (".html", ".htm") and not out.is_dir() else out / "report.html"
