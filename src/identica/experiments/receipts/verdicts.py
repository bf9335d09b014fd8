"""Ours beside the paper's, and what follows. This file is the rule; docs/experiments.md says it in words.

Verdicts are computed from receipts when someone looks, and stored nowhere.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from identica.experiments.catalogue import Entry, Experiment, Model, Published
from identica.experiments.claims import Claim, Found
from identica.experiments.receipts.receipt import Receipt

#: A mean this far below the paper's figure still reproduces it; in points, like everything here.
TOLERANCE = 0.1
#: What theory says cannot be recovered stays below this.
LOW = 70.0
#: What theory promises and no paper has measured must reach this.
RECOVERED = 95.0
#: How many pooled standard deviations apart two means may be and still agree.
DEVIATIONS = 2.0
#: Figure 2: scores stay above ``HIGH`` while the marginal is at most ``FAR_OUT`` times as concentrated as the
#: pairs, and are below ``COLLAPSED`` at the figure's far end. The figure itself marks the bands above 99 and 95.
HIGH, FAR_OUT, COLLAPSED = 99.0, 0.25, 95.0
#: Budgets that show that everything runs, and nothing else: what they reach is not judged.
UNJUDGED = frozenset({"smoke"})
#: Room for rounding in a comparison of percentages.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Stat:
    """Mean and standard deviation over seeds, in percent; no deviation from a single seed."""

    mean: float
    sd: float | None
    seeds: int

    @classmethod
    def of(cls, fractions: Sequence[float]) -> Stat:
        """From scores as fractions, at least one."""
        percent = [100.0 * value for value in fractions]
        return cls(statistics.fmean(percent), statistics.stdev(percent) if len(percent) > 1 else None, len(percent))

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if self.sd is None else f" ± {self.sd:.2f}")


@dataclass(frozen=True)
class Verdict:
    """What a comparison says: ``good`` is None where nothing is claimed."""

    text: str
    good: bool | None


@dataclass(frozen=True)
class Cell:
    """One model of one row: ours, the paper's, the verdict. Any of them may be missing."""

    model: Model
    ours: Stat | None
    published: Published | None
    verdict: Verdict | None


@dataclass(frozen=True)
class RowResult:
    """One row under one budget: its cells, and the receipts they come from (one for each seed)."""

    row: Entry
    budget: str
    cells: tuple[Cell, ...]
    receipts: tuple[Receipt, ...]

    def __getitem__(self, model: Model) -> Cell:
        return next(cell for cell in self.cells if cell.model == model)

    @property
    def failures(self) -> tuple[str, ...]:
        """One sentence for each seed of which something diverged."""
        return tuple(f"seed {receipt.seed}: {receipt.failed}" for receipt in self.receipts if receipt.failed)

    @property
    def seconds(self) -> float:
        """What all its seeds cost together."""
        return sum(receipt.seconds for receipt in self.receipts)


@dataclass(frozen=True)
class CurveResult:
    """One curve of a figure: its points' results in the order of the figure, and whether the trend holds."""

    name: str
    points: tuple[RowResult, ...]
    verdict: Verdict | None


@dataclass(frozen=True)
class ClaimResult:
    """One sentence about a figure, the number that decided it, and whether it holds; None without results."""

    claim: Claim
    found: Found | None
    verdict: Verdict | None


# The rule


def judge(row: Entry, model: Model, ours: Stat | None) -> Verdict | None:
    """The verdict of one cell of a table; None without a result or without anything to compare it with."""
    published = row.published.get(model)
    if ours is None:
        return None
    if model == "contrastive" and row.theory == "forbids":
        low = ours.mean < LOW
        return Verdict("stays low as predicted" if low else "does not stay low", low)
    if published is None:
        return _unpublished(row, model, ours)
    if model == "identity":
        return _agreement(ours, published) if row.same_identity else None
    nobody_did = model == "contrastive" and row.theory == "silent" and published.mean < LOW
    # Beside what B proposes in its place InfoNCE is a baseline: more is no merit, less no fault.
    baseline = model == "infonce" and (row.models is None or len(row.models) > 1)
    if nobody_did or baseline:
        return Verdict("as it falls", None)
    if ours.mean >= published.mean - TOLERANCE - _ROUNDING:
        return Verdict("reproduced", True)
    return Verdict(f"short by {published.mean - ours.mean:.2f}", False)


def _unpublished(row: Entry, model: Model, ours: Stat) -> Verdict | None:
    """Without a published figure only a promise of the theory can be kept or broken."""
    if model != "contrastive" or row.curve is not None:
        return None
    if row.theory == "promises":
        return _trend(ours.mean >= RECOVERED)
    return Verdict("as it falls", None)


def _agreement(ours: Stat, published: Published) -> Verdict:
    agrees = abs(ours.mean - published.mean) <= DEVIATIONS * pooled_deviation(ours, published) + _ROUNDING
    return Verdict("agrees" if agrees else "differs", agrees)


def pooled_deviation(ours: Stat, published: Published) -> float:
    """√(((n−1)s² + (n'−1)s'²) / (n + n' − 2)); with a single seed of ours it is the paper's own.

    >>> pooled_deviation(Stat(50.0, 3.0, 5), Published(51.0, 4.0, 5))
    3.5355339059327378
    """
    sd, theirs = ours.sd or 0.0, published.sd or 0.0
    freedom = ours.seeds - 1 + published.seeds - 1
    if freedom == 0:
        return theirs
    return math.sqrt(((ours.seeds - 1) * sd**2 + (published.seeds - 1) * theirs**2) / freedom)


def judge_curve(points: Sequence[tuple[float, float]], reference: float) -> Verdict | None:
    """Whether scores stay high far out and collapse once the marginal is narrower than the pairs.

    ``points``: (concentration, mean score in percent). None unless there is a point on either side.
    """
    ordered = sorted(points)
    far_out = [score for concentration, score in ordered if concentration <= FAR_OUT * reference]
    if not far_out or ordered[-1][0] <= reference:
        return None
    stays, collapses = min(far_out) >= HIGH, ordered[-1][1] < COLLAPSED
    if stays and collapses:
        return _trend(True)
    why = [] if stays else [f"{min(far_out):.2f} where it should stay above {HIGH:g}"]
    why += [] if collapses else [f"still {ordered[-1][1]:.2f} at the far end"]
    return Verdict(f"trend does not hold: {', '.join(why)}", False)


# From receipts to results


def row_result(experiment: Experiment, row: Entry, receipts: Iterable[Receipt], budget: str) -> RowResult:
    """What the receipts say about one row under one budget; see :func:`comparable` for which are taken."""
    chosen = comparable(experiment.id, row.number, receipts, budget)
    cells = []
    for model in experiment.models_of(row):
        scores = [receipt.scores.get(model, {}).get(experiment.metric) for receipt in chosen]
        values = [score for score in scores if score is not None]
        ours = Stat.of(values) if values else None
        verdict = None if budget in UNJUDGED else judge(row, model, ours)
        cells.append(Cell(model, ours, row.published.get(model), verdict))
    return RowResult(row, budget, tuple(cells), chosen)


def results(experiment: Experiment, receipts: Iterable[Receipt], budget: str) -> tuple[RowResult, ...]:
    """All rows of an experiment in their order, also those without any receipt."""
    receipts = tuple(receipts)
    return tuple(row_result(experiment, row, receipts, budget) for row in experiment.rows)


def curve_results(experiment: Experiment, rows: Iterable[RowResult]) -> tuple[CurveResult, ...]:
    """The results of a figure gathered by curve."""
    rows = tuple(rows)
    curves = []
    for name in experiment.curves:
        points = tuple(result for result in rows if result.row.curve == name)
        known = [
            (result.row.marginal.tightness, cell.ours.mean)
            for result in points
            for cell in result.cells
            if cell.model == "contrastive" and cell.ours is not None
        ]
        verdict = judge_curve(known, points[0].row.conditional.tightness) if known and _is_judged(points) else None
        curves.append(CurveResult(name, points, verdict))
    return tuple(curves)


def claim_results(experiment: Experiment, rows: Iterable[RowResult]) -> tuple[ClaimResult, ...]:
    """What an experiment claims, read against the results."""
    rows = tuple(rows)
    receipts = {result.row.number: result.receipts for result in rows}
    judged = []
    for claim in experiment.claims:
        found = claim.found(receipts)
        verdict = None if found is None or not _is_judged(rows) else _trend(found.holds)
        judged.append(ClaimResult(claim, found, verdict))
    return tuple(judged)


def _is_judged(rows: Iterable[RowResult]) -> bool:
    return not any(result.budget in UNJUDGED for result in rows)


def _trend(holds: bool) -> Verdict:
    return Verdict("trend holds" if holds else "trend does not hold", holds)


def comparable(experiment_id: str, number: str, receipts: Iterable[Receipt], budget: str) -> tuple[Receipt, ...]:
    """The receipts of one row and budget that belong together, one for each seed, in the order of seeds.

    Settings may have changed between two runs of the same budget, and a GPU's batch differs from a CPU's. Only
    equal settings are averaged: those with the most seeds, and among equals the latest. Of a seed
    computed twice the last receipt counts.
    """
    groups: dict[str, dict[int, Receipt]] = {}
    for receipt in receipts:
        if (receipt.experiment, receipt.row, receipt.budget) == (experiment_id, number, budget):
            group = groups.pop(receipt.config_hash, {})
            groups[receipt.config_hash] = {**group, receipt.seed: receipt}  # last in the order: the latest
    if not groups:
        return ()
    best = max(reversed(groups.values()), key=len)
    return tuple(best[seed] for seed in sorted(best))
