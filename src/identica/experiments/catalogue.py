"""What an experiment is: a table or figure of a paper, row by row, as data.

Nothing here imports torch: a catalogue can be listed, and results read and judged, at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from identica.experiments.laws import Law
from identica.names import no_such

if TYPE_CHECKING:
    from identica.experiments.claims import Claim
    from identica.experiments.planning import BasePlan

SpaceName = Literal["sphere", "box", "unbounded"]
Theory = Literal["promises", "forbids", "silent"]
Metric = Literal["r2", "mcc", "share", "r2_train"]
DeviceKind = Literal["cpu", "cuda"]
Model = Literal[
    "identity",
    "supervised",
    "contrastive",
    "aninfonce",
    "infonce",
    "ensemble",
    "tricl",
    "continued",
    "larger",
    "hard",
    "scan",
    "vae",
    "classifier",
]

#: The columns of the papers' tables, in their order. Identity scores the observations themselves.
MODELS: tuple[Model, ...] = ("identity", "supervised", "contrastive")
METRICS: dict[Metric, str] = {"r2": "R²", "mcc": "MCC", "share": "share", "r2_train": "R² on training images"}
#: Models whose names are not just capitalised.
_NAMES: dict[Model, str] = {
    "aninfonce": "AnInfoNCE",
    "infonce": "InfoNCE",
    "tricl": "TriCL",
    "scan": "True latents",
    "vae": "VAE",
}
PAPERS = {
    "A": "Zimmermann et al., Contrastive Learning Inverts the Data Generating Process (ICML 2021)",
    "W": "its workshop version",
    "B": "Rusak et al., InfoNCE: Identifying the Gap Between Theory and Practice (2025)",
}


@dataclass(frozen=True)
class Published:
    """A figure as the paper prints it, in percent: mean ± standard deviation over so many seeds.

    >>> str(Published(99.42, 0.05)), str(Published(99.7, seeds=1))
    ('99.42 ± 0.05', '99.70')
    """

    mean: float
    sd: float | None = None
    seeds: int = 5

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if self.sd is None else f" ± {self.sd:.2f}")


@dataclass(frozen=True)
class Cost:
    """What one run (one row, one seed) took the authors: from so many to so many GPU-hours."""

    hours: tuple[float, float]
    gpu: str


@dataclass(frozen=True)
class Entry:
    """One line of a table, or one point of a figure, as far as readers need it; subclasses say what is trained.

    number: as the table is numbered; a letter after it marks another reading of the same line ("11b").
    space, marginal, conditional: where the latents live, p(z) and p(z̃|z).
    theory: whether recovery is promised, forbidden, or neither.
    published: the paper's figures by model; empty where it prints none.
    curve, x: for a point of a figure, which curve it is on and where.
    note: what a reader must know to compare.
    recipes: by budget, the settings of its recipe that this row changes, such as the batch size.
    same_identity: whether the observations themselves are scored as the paper scores them.
    """

    number: str
    space: SpaceName
    marginal: Law
    conditional: Law
    _: KW_ONLY
    theory: Theory = "silent"
    published: Mapping[Model, Published] = field(default_factory=dict)
    curve: str | None = None
    x: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    recipes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    same_identity: bool = True

    @property
    def label(self) -> str:
        """The setting in one line."""
        return f"{self.process_label} → {self.model_label}"

    @property
    def process_label(self) -> str:
        """Where the pairs come from: ``Box, Uniform, Laplace 0.05``."""
        return f"{self.space.capitalize()}, {self.marginal.label}, {self.pairs_label}"

    @property
    def pairs_label(self) -> str:
        """What pairs are alone: ``Laplace 0.05``."""
        return self.conditional.label

    @property
    def model_label(self) -> str:
        """What the model assumes."""
        raise NotImplementedError

    @property
    def setting(self) -> tuple[str, ...]:
        """The same in several short lines."""
        return (
            f"{self.space.capitalize()}, {self.marginal.label}",
            f"pairs {self.pairs_label}",
            f"model {self.model_label}",
        )

    @property
    def models(self) -> tuple[Model, ...] | None:
        """The models of this row alone; None where all rows of the table have the same."""
        return None


@dataclass(frozen=True)
class Row(Entry):
    """A line of paper A: codes in some space, compared by the law that they are assumed to follow.

    model_space, model: the space of the codes, and the conditional q that the similarity stands for.
    match: whether the setting meets every assumption of the theorem, as the paper marks it.
    alpha: with a number, the objective is L_AU(alpha, p) in place of InfoNCE (W, Eq. 70).
    """

    model_space: SpaceName
    model: Law
    match: bool = False
    alpha: float | None = None

    @property
    def model_label(self) -> str:
        """What the model assumes: ``Unbounded, Laplace``."""
        return f"{self.model_space.capitalize()}, {self.model.label}"


@dataclass(frozen=True)
class Experiment:
    """A table or figure: its rows, what is scored, and which models are compared.

    seeds: how many the paper averaged over, which is how many we train unless asked otherwise.
    trend: what the paper says of a figure whose numbers it does not print.
    claims: the same as sentences that receipts bear out or not, each with its rule.
    cost: what the authors say a run took them.
    """

    id: str
    title: str
    paper: str
    metric: Metric
    rows: tuple[Entry, ...]
    models: tuple[Model, ...] = MODELS
    seeds: int = 5
    dim: int = 10
    trend: str = ""
    claims: tuple[Claim, ...] = ()
    cost: Cost | None = None

    def __post_init__(self) -> None:
        numbers = [row.number for row in self.rows]
        twice = sorted({number for number in numbers if numbers.count(number) > 1})
        if twice:
            raise ValueError(f"{self.id} has more than one row {twice[0]}.")

    def row(self, number: str) -> Entry:
        """The row of that number; a sentence if there is none."""
        for row in self.rows:
            if row.number == number:
                return row
        known = ", ".join(row.number for row in self.rows)
        raise ValueError(f"{self.id} has no row '{number}'. Its rows are {known}.")

    def select(self, numbers: Iterable[str] | None) -> tuple[Entry, ...]:
        """The rows of those numbers in the table's order; all without numbers."""
        if numbers is None:
            return self.rows
        numbers = tuple(numbers)
        if not numbers:
            raise ValueError(f"No row of {self.id} is named: leave the rows out for all, or name some, such as 1,2.")
        wanted = {self.row(number).number for number in numbers}
        return tuple(row for row in self.rows if row.number in wanted)

    def models_of(self, row: Entry) -> tuple[Model, ...]:
        """The models that are compared in one row."""
        return self.models if row.models is None else row.models

    def plan(self, row: Entry, budget: str, device: DeviceKind) -> BasePlan:
        """What to train for a row. Needs torch; experiments of another kind of row have their own."""
        from identica.experiments.clica.budgets import RECIPES
        from identica.experiments.clica.plan import Plan

        if not isinstance(row, Row):
            raise TypeError(f"{self.id} does not say how {type(row).__name__} {row.number} is trained.")
        return Plan(self, row, budget, RECIPES.of(row, budget, device))

    @property
    def curves(self) -> tuple[str, ...]:
        """The names of a figure's curves, in order."""
        return tuple(dict.fromkeys(row.curve for row in self.rows if row.curve is not None))


def find(experiment_id: str, among: Iterable[Experiment] | None = None) -> Experiment:
    """The experiment of that id; for a mistyped one the error names the nearest."""
    known = {experiment.id: experiment for experiment in (catalogue() if among is None else among)}
    if experiment_id not in known:
        raise ValueError(no_such("experiment", experiment_id, known) + " 'identica catalog' lists them all.")
    return known[experiment_id]


def find_all(names: Iterable[str]) -> tuple[Experiment, ...]:
    """The experiments of those names, each once: ids, papers such as ``aninfonce``, or ``all``.

    Of a paper those with more seeds come first: others take their models over.
    """
    every = sorted(catalogue(), key=lambda experiment: -experiment.seeds)
    groups = {"all": every}
    for experiment in every:
        groups.setdefault(experiment.id.partition("/")[0], []).append(experiment)
    groups |= {experiment.id: [experiment] for experiment in every}
    found: dict[str, Experiment] = {}
    for name in names:
        if name not in groups:
            raise ValueError(no_such("experiment", name, groups) + " 'identica catalog' lists them all.")
        found |= {experiment.id: experiment for experiment in groups[name]}
    return tuple(found.values())


def catalogue() -> tuple[Experiment, ...]:
    """Every experiment there is, in the papers' order."""
    from identica.experiments.aninfonce import figures, hard, scaling, shift
    from identica.experiments.clica import tables, workshop
    from identica.experiments.mnist import figures as digits
    from identica.experiments.three_d_ident import tables as scenes

    first = (*tables.EXPERIMENTS, *scenes.EXPERIMENTS, *workshop.EXPERIMENTS)
    second = (figures, digits, scaling, shift, hard)
    return (*first, *sorted((one for file in second for one in file.EXPERIMENTS), key=_figure))


def _figure(experiment: Experiment) -> float:
    """The number of the figure; what is none comes last."""
    number = experiment.id.rpartition("figure")[2]
    return int(number) if number.isdigit() else math.inf


def model_name(model: Model) -> str:
    """As people write it.

    >>> model_name("aninfonce"), model_name("supervised")
    ('AnInfoNCE', 'Supervised')
    """
    return _NAMES.get(model, model.capitalize())
