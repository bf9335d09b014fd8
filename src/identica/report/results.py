"""Receipts gathered for a report: one section for each experiment, one block for each budget it was run with.

:mod:`identica.report.markdown` and :mod:`identica.report.results_page` turn the same sections into text and web page.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

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
from identica.experiments.catalogue import MODELS, Cost, DeviceKind, Model, model_name
from identica.experiments.receipts.verdicts import UNJUDGED, Cell, ClaimResult, CurveResult
from identica.report.accounts import Run, costs_of, sources_of
from identica.report.receipts import hash_of, training_of, usable

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
#: Of a claim about the steps to a score.
NOT_REACHED = "not reached in every run"
#: In a section of more rows than the first number, more than the second that share a commit or the like are counted.
_MANY, _FEW = 20, 3
#: Of a model that was trained and has nothing to show, such as one that diverged.
NO_SCORE = "no score"
#: Of the columns on blocks of factors with equal precision, which pairs do not tell apart (B, Thm 3.1).
WITHIN = "Within: R² of each block of equal precision from as many codes of its own."
PROMISED = (
    "MCC promised: of codes that are right up to a rotation of each block of equal precision, on average; 100 where no "
    "two precisions are equal."
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

    @cached_property
    def _costs(self) -> dict[Run, float]:
        return costs_of(self.experiment.id, self.receipts)

    def seconds_of(self, result: RowResult) -> float:
        """What one row took."""
        return sum(self._costs[receipt.row, receipt.seed] for receipt in result.receipts)

    @property
    def seconds(self) -> float:
        """What all of it took."""
        return sum(self._costs.values())

    @property
    def runs(self) -> int:
        """How many runs took any time: not those whose models are those of other runs."""
        return sum(cost > 0 for cost in self._costs.values())

    @property
    def author_hours(self) -> tuple[float, float] | None:
        """What as many runs took the authors, from … to …, in hours on one GPU.

        None where they do not say, where ours took nothing, and for the smoke budget, which buys nothing that could be
        compared.
        """
        cost = self.experiment.cost
        if cost is None or not self.runs or self.budget == "smoke":
            return None
        return self.runs * cost.hours[0], self.runs * cost.hours[1]

    @property
    def purpose(self) -> str:
        """What the budget is for."""
        return BUDGETS[self.budget].purpose if self.budget in BUDGETS else ""

    @property
    def judged(self) -> tuple[Model, ...]:
        """The models that the verdicts are about: all but what tables compare the contrastive one with."""
        return tuple(model for model in self.experiment.models if model == "contrastive" or model not in MODELS)

    @cached_property
    def repeats(self) -> dict[tuple[str, Model], str]:
        """Verdicts on models that an earlier row has, too, by row and model: that row, where they count."""
        first: dict[object, str] = {}
        found = {}
        for result, cell in self._cells:
            models = tuple((receipt.seed, hash_of(receipt.models.get(cell.model))) for receipt in result.receipts)
            known = (cell.model, cell.verdict, models)
            if all(name for _, name in models) and known in first:
                found[result.row.number, cell.model] = first[known]
            first.setdefault(known, result.row.number)
        return found

    @property
    def _cells(self) -> list[tuple[RowResult, Cell]]:
        """Those of a table that have a verdict."""
        rows = () if self.experiment.curves else self.rows
        return [(result, cell) for result in rows for cell in result.cells if cell.verdict is not None]

    def _once(self, judged: bool) -> list[tuple[str, Verdict]]:
        """Each model once, by row and name: those that the verdicts are about, or those they are compared with."""
        cells = [(result.row.number, cell) for result, cell in self._cells if (cell.model in self.judged) == judged]
        plain = judged and len(self.judged) == 1
        return [
            (f"Row {number}" + ("" if plain else f", {model_name(cell.model)}"), cell.verdict)
            for number, cell in cells
            if cell.verdict is not None and (number, cell.model) not in self.repeats
        ]

    @property
    def judgements(self) -> list[tuple[str, Verdict]]:
        """What was judged, and how: for each model of each row of a table once, each curve and each claim."""
        found = [(curve.name, curve.verdict) for curve in (self.curves if self.experiment.curves else ())]
        found += [(claim.claim.says, claim.verdict) for claim in self.claims]
        return self._once(True) + [(what, verdict) for what, verdict in found if verdict is not None]

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """What is said of the contrastive models."""
        return tuple(verdict for _, verdict in self.judgements)

    @property
    def misses(self) -> list[tuple[str, str]]:
        """What did not come out, baselines included: where, and how it stands."""
        every = self.judgements + self._once(False)
        found = [(what, verdict.text) for what, verdict in every if verdict.good is False]
        return found + [(one.claim.says, NOT_REACHED) for one in self.claims if self.unjudged(one) == NOT_REACHED]

    def unjudged(self, one: ClaimResult) -> str:
        """Why a claim has no verdict."""
        if not self.run:
            return NOT_RUN
        if self.budget in UNJUDGED or one.found is not None:
            return "not judged"
        quantity = getattr(one.claim, "quantity", None)
        steps = quantity is not None and quantity.score.startswith("steps_to_")
        return NOT_REACHED if steps and not set(one.claim.rows) & set(self.missing) else "not enough results"

    @property
    def tally(self) -> str:
        """The verdicts counted: ``12 reproduced, 2 short``; what was not run comes last."""
        said = counted(self.verdicts)
        if self.complete and self.missing:
            said.append(f"{len(self.missing)} {f'point{_s(self.missing)} ' if self.experiment.curves else ''}{NOT_RUN}")
        return ", ".join(said) or "nothing to judge"

    @property
    def tally_of_rows(self) -> str:
        """The same without curves and claims; empty where rows have no verdicts."""
        return ", ".join(counted([verdict for _, verdict in self._once(True)]))

    def spread(self, value: Callable[[Receipt], str]) -> str:
        """What the receipts say of one thing; where they differ, which rows say what, or among many rows how many."""
        found: dict[str, dict[str, None]] = {}
        for result in self.rows:
            for receipt in result.receipts:
                found.setdefault(value(receipt), {})[result.row.number] = None
        if len(found) <= 1:
            return next(iter(found), "–")
        return "; ".join(f"{text} ({self._named(list(numbers))})" for text, numbers in found.items())

    def _named(self, numbers: Sequence[str]) -> str:
        """Rows by their numbers, or how many they are where that would be long."""
        return f"{len(numbers)} rows" if len(self.run) > _MANY and len(numbers) > _FEW else rows_named(numbers)

    def _training(self, receipt: Receipt) -> str:
        """How long its models were trained; where they differ, each by its name."""
        named: dict[str, list[str]] = {}
        for model in self.experiment.models_of(self.experiment.row(receipt.row)):
            if model == "contrastive" or model not in MODELS:
                named.setdefault(training_of(receipt, model), []).append(model_name(model))
        if len(named) == 1:
            return next(iter(named))
        return ", ".join(f"{' and '.join(names)} {text}" for text, names in named.items())

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Where the numbers come from: machine, settings, versions, commits."""
        return [
            ("Device", self.spread(lambda receipt: receipt.device or "not recorded")),
            ("Training", self.spread(self._training)),
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
        known = [result.row for result in self.run if isinstance(result.row, LossRow) and result.row.precisions]
        said += [WITHIN] if any(len(row.block_sizes) > 1 for row in known) else []
        said += [PROMISED] if known else []
        for source, numbers in sources_of(self.experiment.id, self.run, self._costs).items():
            said.append(f"At no further cost, with models of {source}: {self._named(numbers)}.")
        if self.missing and not self.complete:
            said.append(f"Not run with this budget: {rows_named(self.missing)}.")
        if self.other:
            counts = ", ".join(f"{count} of row {number}" for number, count in self.other.items())
            said.append(f"Receipts with other settings are in the ledger too and not averaged with these: {counts}.")
        if self.former:
            said.append(f"Made with an earlier recipe: {self._named(self.former)}.")
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


def counted(verdicts: Sequence[Verdict]) -> list[str]:
    """How many there are of each kind, good ones first.

    >>> counted([Verdict("short by 0.31", False), Verdict("reproduced", True), Verdict("reproduced", True)])
    ['2 reproduced', '1 short']
    """
    ordered = sorted(verdicts, key=lambda verdict: (True, False, None).index(verdict.good))
    counts = Counter(kind(verdict) for verdict in ordered)
    return [f"{count} {text if count == 1 else PLURALS.get(text, text)}" for text, count in counts.items()]


def rows_named(numbers: Sequence[str]) -> str:
    """``row 3`` or ``rows 1, 2, 11b``."""
    return f"row{_s(numbers)} {', '.join(numbers)}"


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


def authors_say(results: Results) -> list[str]:
    """What a run took the authors, as sentences that begin with the experiments whose cost is compared."""
    named: dict[Cost, dict[str, None]] = {}
    for block in (block for section in results.sections for block in section.blocks):
        if block.experiment.cost is not None and block.author_hours is not None:
            named.setdefault(block.experiment.cost, {})[block.experiment.id] = None
    said = []
    for cost, ids in named.items():
        gpu = "on which GPU is not said" if "not said" in cost.gpu else cost.gpu
        said.append(f"{', '.join(ids)}: The authors report {hours_text(cost.hours)} GPU-hours for a run ({gpu}).")
    return said
