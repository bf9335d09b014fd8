"""Receipts gathered for a report: one section for each experiment, one block for each budget it was run with.

:mod:`identica.report.markdown` and :mod:`identica.report.results_page` turn the same sections into text and web page.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from identica.experiments import (
    Experiment,
    Receipt,
    RowResult,
    Verdict,
    catalogue,
    claim_results,
    curve_results,
    results,
)
from identica.experiments.aninfonce.rows import LossExperiment, LossRow
from identica.experiments.budgets import BUDGETS
from identica.experiments.catalogue import MODELS, DeviceKind
from identica.experiments.receipts.verdicts import ClaimResult, CurveResult
from identica.report.receipts import usable

#: Budgets in the order of a report; others follow by name.
ORDER = ("fast", "paper", "smoke")
#: Verdicts as they are said of several.
PLURALS = {
    "stays low as predicted": "stay low as predicted",
    "does not stay low": "do not stay low",
    "trend holds": "trends hold",
    "trend does not hold": "trends do not hold",
    "as it falls": "as they fall",
}
NOT_RUN = "not run"
#: In a section of more rows than the first number, more than the second that share a commit or the like are counted.
_MANY, _FEW = 20, 3
#: Of a model that was trained and has nothing to show, such as one that diverged.
NO_SCORE = "no score"
#: Of the columns on blocks of factors with equal precision, which pairs do not tell apart (B, Thm 3.1).
PROMISED = (
    "Within: R² of each block of equal precision from as many codes of its own. MCC promised: of codes that are right "
    "up to a rotation of each block, on average; 100 where no two precisions are equal."
)


@dataclass(frozen=True)
class Block:
    """One experiment under one budget. Without any receipts the budget is empty.

    rows: all of the experiment, in its order.
    complete: whether rows that were not run are shown too. The first block of a section does that for all.
    other: for rows that also have receipts with other settings under this budget, how many.
    former: the numbers of rows whose receipts were made by a recipe that is no longer this budget's.
    """

    experiment: Experiment
    budget: str
    rows: tuple[RowResult, ...]
    complete: bool
    other: dict[str, int]
    former: tuple[str, ...] = ()

    @property
    def run(self) -> tuple[RowResult, ...]:
        """The rows that have receipts."""
        return tuple(result for result in self.rows if result.receipts)

    @property
    def shown(self) -> tuple[RowResult, ...]:
        """The rows to show."""
        return self.rows if self.complete else self.run

    @property
    def missing(self) -> tuple[str, ...]:
        """The numbers of the rows without receipts."""
        return tuple(result.row.number for result in self.rows if not result.receipts)

    @property
    def curves(self) -> tuple[CurveResult, ...]:
        """For a figure, its curves."""
        return curve_results(self.experiment, self.rows)

    @property
    def is_table(self) -> bool:
        """Whether its rows stand beside the paper's, one by one, as those of a table do; else they are points."""
        return not self.experiment.curves and not isinstance(self.experiment, LossExperiment)

    @property
    def claims(self) -> tuple[ClaimResult, ...]:
        """What the experiment must show besides."""
        return claim_results(self.experiment, self.rows)

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """Those that the numbers come from: one for each run, that is, row and seed."""
        return tuple(receipt for result in self.rows for receipt in result.receipts)

    @property
    def seconds(self) -> float:
        """What all of it took."""
        return sum(result.seconds for result in self.rows)

    @property
    def author_hours(self) -> tuple[float, float] | None:
        """What as many runs took the authors, from … to …, in hours on one GPU.

        None where they do not say, and for the smoke budget, which buys nothing that could be compared.
        """
        cost, runs = self.experiment.cost, len(self.receipts)
        if cost is None or not runs or self.budget == "smoke":
            return None
        return runs * cost.hours[0], runs * cost.hours[1]

    @property
    def purpose(self) -> str:
        """What the budget is for."""
        return BUDGETS[self.budget].purpose if self.budget in BUDGETS else ""

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """What is said of the contrastive models: for each row of a table, each curve and each claim of a figure."""
        if self.experiment.curves:
            found = [curve.verdict for curve in self.curves]
        else:
            judged = {"contrastive", *(model for model in self.experiment.models if model not in MODELS)}
            found = [cell.verdict for result in self.rows for cell in result.cells if cell.model in judged]
        found += [claim.verdict for claim in self.claims]
        return tuple(verdict for verdict in found if verdict is not None)

    @property
    def tally(self) -> str:
        """The verdicts counted: ``12 reproduced, 2 short``; what was not run comes last."""
        ordered = sorted(self.verdicts, key=lambda verdict: (True, False, None).index(verdict.good))
        counts = Counter(kind(verdict) for verdict in ordered)
        said = [f"{count} {text if count == 1 else PLURALS.get(text, text)}" for text, count in counts.items()]
        if self.complete and self.missing:
            said.append(f"{len(self.missing)} {f'point{_s(self.missing)} ' if self.experiment.curves else ''}{NOT_RUN}")
        return ", ".join(said) or "nothing to judge"

    def spread(self, value: Callable[[Receipt], str]) -> str:
        """What the receipts say of one thing; where they differ, which rows say what, or among many rows how many."""
        found: dict[str, dict[str, None]] = {}
        for result in self.rows:
            for receipt in result.receipts:
                found.setdefault(value(receipt), {})[result.row.number] = None
        if len(found) <= 1:
            return next(iter(found), "–")
        many = len(self.run) > _MANY
        return "; ".join(
            f"{text} ({f'{len(numbers)} rows' if many and len(numbers) > _FEW else rows_named(list(numbers))})"
            for text, numbers in found.items()
        )

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Where the numbers come from: machine, settings, versions, commits."""
        return [
            ("Device", self.spread(lambda receipt: receipt.device or "not recorded")),
            ("Training", self.spread(_training)),
            ("Precision", self.spread(lambda receipt: receipt.precision or "not recorded")),
            ("torch", self.spread(lambda receipt: str(receipt.versions.get("torch", "not recorded")))),
            ("Commit", self.spread(lambda receipt: commit_name(receipt.commit))),
        ]

    @property
    def remarks(self) -> list[str]:
        """What a reader must know to compare, one sentence each."""
        said = [f"Row {result.row.number}, {failure}" for result in self.shown for failure in result.failures]
        for note in dict.fromkeys(result.row.note for result in self.shown if result.row.note):
            numbers = [result.row.number for result in self.shown if result.row.note == note]
            said.append(f"R{rows_named(numbers)[1:]}: {note}.")  # names of rows keep their letters
        if any(isinstance(result.row, LossRow) and result.row.precisions for result in self.run):
            said.append(PROMISED)
        if self.missing and not self.complete:
            said.append(f"Not run with this budget: {rows_named(self.missing)}.")
        if self.other:
            counts = ", ".join(f"{count} of row {number}" for number, count in self.other.items())
            said.append(f"Receipts with other settings are in the ledger too and not averaged with these: {counts}.")
        if self.former:
            said.append(
                "Of a former recipe, though losses are named as in the present one, and notes above are on the present "
                f"one: {rows_named(self.former)}."
            )
        if self.budget == "smoke":
            said.append(
                "The smoke budget shows that everything runs; it is far too short to reach the paper's figures."
            )
        return said


@dataclass(frozen=True)
class Section:
    """One experiment: its blocks, the main one first. There is always one."""

    experiment: Experiment
    blocks: tuple[Block, ...]

    @property
    def main(self) -> Block:
        """The block that speaks for the experiment."""
        return self.blocks[0]

    @property
    def anchor(self) -> str:
        """Its name in links."""
        return re.sub(r"[^a-z0-9]+", "-", self.experiment.id.lower())


@dataclass(frozen=True)
class Results:
    """Everything a report shows. ``left_out``: sentences about receipts that are not in it."""

    sections: tuple[Section, ...]
    left_out: tuple[str, ...] = ()


def gather(receipts: Iterable[Receipt], experiments: Sequence[Experiment] | None = None) -> Results:
    """Sort receipts into sections, one for each experiment of the catalogue, run or not."""
    experiments = catalogue() if experiments is None else experiments
    kept, left_out = usable(receipts, {experiment.id: experiment for experiment in experiments})
    return Results(tuple(_section(experiment, kept) for experiment in experiments), left_out)


def _section(experiment: Experiment, receipts: Sequence[Receipt]) -> Section:
    mine = [receipt for receipt in receipts if receipt.experiment == experiment.id]
    budgets = sorted({receipt.budget for receipt in mine}, key=_order) or [""]
    blocks = (_block(experiment, mine, budget, first=budget == budgets[0]) for budget in budgets)
    return Section(experiment, tuple(blocks))


def _block(experiment: Experiment, receipts: Sequence[Receipt], budget: str, *, first: bool) -> Block:
    rows = results(experiment, receipts, budget)
    there = Counter((receipt.row, receipt.config_hash) for receipt in receipts if receipt.budget == budget)
    taken = {(receipt.row, receipt.config_hash) for result in rows for receipt in result.receipts}
    other = Counter[str]()
    for (row, settings), count in there.items():
        if (row, settings) not in taken:
            other[row] += count
    former = tuple(result.row.number for result in rows if result.receipts and _is_former(experiment, result, budget))
    return Block(experiment, budget, rows, first, dict(other), former)


def _is_former(experiment: Experiment, result: RowResult, budget: str) -> bool:
    """Whether the budget has other settings now than when the row was run, on whatever kind of device that was."""
    if budget not in BUDGETS:
        return False
    kinds: tuple[DeviceKind, ...] = ("cpu", "cuda")
    present = {experiment.plan(result.row, budget, kind).config_hash for kind in kinds}
    return result.receipts[0].config_hash not in present


def _order(budget: str) -> tuple[int, str]:
    return ORDER.index(budget) if budget in ORDER else len(ORDER), budget


# Words


def kind(verdict: Verdict) -> str:
    """A verdict without its numbers.

    >>> kind(Verdict("short by 0.31", False))
    'short'
    """
    return re.sub(r"( by [\d.]+|: .*)$", "", verdict.text)


def rows_named(numbers: Sequence[str]) -> str:
    """``row 3`` or ``rows 1, 2, 11b``."""
    return f"row{_s(numbers)} {', '.join(numbers)}"


def _training(receipt: Receipt) -> str:
    return f"{receipt.steps:,} steps of {receipt.batch:,} pairs" if receipt.steps else "none"


def _s(things: Sequence[object]) -> str:
    return "" if len(things) == 1 else "s"


def commit_name(commit: str | None) -> str:
    """A commit as people write it.

    >>> commit_name("0123456789abcdef0123456789abcdef01234567-dirty")
    '0123456789 with changes'
    """
    if not commit:
        return "not recorded"
    name, dirty, _ = commit.partition("-dirty")
    return (name[:10] if re.fullmatch(r"[0-9a-f]{40}", name) else name) + (" with changes" if dirty else "")


def seconds_text(seconds: float) -> str:
    """``4.6`` or ``1,204``: tenths only where they matter."""
    return f"{seconds:,.1f}" if seconds < 100 else f"{seconds:,.0f}"


def hours_text(hours: tuple[float, float]) -> str:
    """``350 to 700``.

    >>> hours_text((350.0, 700.0))
    '350 to 700'
    """
    return f"{hours[0]:,.6g}" if hours[0] == hours[1] else f"{hours[0]:,.6g} to {hours[1]:,.6g}"
