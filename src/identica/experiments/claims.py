"""What a figure without printed numbers must show: sentences, each with the rule by which receipts bear it out.

A rule compares means over seeds, in the units of the receipt (fractions for scores, nats for losses, steps). Claims are
data of an experiment; :func:`identica.experiments.receipts.verdicts.claim_results` reads them against receipts.
"""

from __future__ import annotations

import abc
import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from identica.experiments.catalogue import Model
from identica.experiments.receipts.receipt import Receipt

#: The receipts of each row that has some, by its number.
Receipts = Mapping[str, Sequence[Receipt]]


@dataclass(frozen=True)
class Quantity:
    """One score of one model, as receipts hold it: ``Quantity("aninfonce", "style_r2")``."""

    model: Model
    score: str

    def of(self, receipts: Iterable[Receipt]) -> list[float]:
        """Of each seed that has it."""
        found = [receipt.scores.get(self.model, {}).get(self.score) for receipt in receipts]
        return [value for value in found if value is not None]

    def mean(self, receipts: Iterable[Receipt]) -> float | None:
        """Over the seeds whose model has scores; None unless all of those have it.

        A target that some never reached has no mean: those that did were the fastest.
        """
        scored = [receipt for receipt in receipts if self.model in receipt.scores]
        known = self.of(scored)
        return statistics.fmean(known) if known and len(known) == len(scored) else None

    def spread(self, receipts: Iterable[Receipt]) -> float | None:
        """Standard deviation over the seeds that have it; None for fewer than two."""
        known = self.of(receipts)
        return statistics.stdev(known) if len(known) > 1 else None


@dataclass(frozen=True)
class Found:
    """Whether a claim holds, and the number that decided it."""

    holds: bool
    value: float


@dataclass(frozen=True)
class Claim(abc.ABC):
    """``says``: the sentence. ``rows``: the numbers of those it is about, in the order of the figure."""

    says: str
    rows: tuple[str, ...]

    @abc.abstractmethod
    def found(self, receipts: Receipts) -> Found | None:
        """None while a row it is about has no result."""

    def _means(self, quantity: Quantity, receipts: Receipts) -> list[float] | None:
        means = [quantity.mean(receipts.get(number, ())) for number in self.rows]
        known = [mean for mean in means if mean is not None]
        return known if len(known) == len(means) else None


@dataclass(frozen=True)
class AtLeast(Claim):
    """In every row the quantity is at least ``bound``; found is the smallest."""

    quantity: Quantity
    bound: float

    def found(self, receipts: Receipts) -> Found | None:
        """The smallest of the rows' means."""
        means = self._means(self.quantity, receipts)
        return None if means is None else Found(min(means) >= self.bound, min(means))


@dataclass(frozen=True)
class AtMost(Claim):
    """In every row the quantity is at most ``bound``; found is the largest."""

    quantity: Quantity
    bound: float

    def found(self, receipts: Receipts) -> Found | None:
        """The largest of the rows' means."""
        means = self._means(self.quantity, receipts)
        return None if means is None else Found(max(means) <= self.bound, max(means))


@dataclass(frozen=True)
class Above(Claim):
    """In every row the quantity exceeds ``other`` by at least ``margin``, and by more than the noise of the seeds.

    The lead is the mean over the seeds that have both quantities, and the noise its standard error; a single seed has
    none. A negative margin only asks that it be no farther behind. Found is the smallest lead.
    """

    quantity: Quantity
    other: Quantity
    margin: float = 0.0

    def found(self, receipts: Receipts) -> Found | None:
        """The smallest of the rows' leads."""
        holds, leads = [], []
        for number in self.rows:
            models = {self.quantity.model, self.other.model}
            both = [receipt for receipt in receipts.get(number, ()) if models <= receipt.scores.keys()]
            if self.quantity.mean(both) is None or self.other.mean(both) is None:
                return None
            differences = [a - b for a, b in zip(self.quantity.of(both), self.other.of(both), strict=True)]
            noise = statistics.stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else 0.0
            leads.append(statistics.fmean(differences))
            holds.append(leads[-1] >= self.margin and (self.margin < 0 or leads[-1] > noise))
        return Found(all(holds), min(leads))


@dataclass(frozen=True)
class Steadier(Claim):
    """In every row the quantity spreads less over the seeds than ``other``; found is the smallest difference.

    Spread is the standard deviation; a single seed has none.
    """

    quantity: Quantity
    other: Quantity

    def found(self, receipts: Receipts) -> Found | None:
        """How much more the other spreads, in the row where that is least."""
        leads = []
        for number in self.rows:
            ours, theirs = (one.spread(receipts.get(number, ())) for one in (self.quantity, self.other))
            if ours is None or theirs is None:
                return None
            leads.append(theirs - ours)
        return Found(min(leads) > 0, min(leads))


@dataclass(frozen=True)
class Rises(Claim):
    """From row to row the quantity does not fall by more than ``slack``, and it ends above where it starts.

    Found is the smallest rise from one row to the next.
    """

    quantity: Quantity
    slack: float = 0.0

    def found(self, receipts: Receipts) -> Found | None:
        """The smallest step from one row's mean to the next."""
        means = self._means(self.quantity, receipts)
        if means is None or len(means) < 2:
            return None
        smallest = min(b - a for a, b in itertools.pairwise(means))
        return Found(smallest >= -self.slack and means[-1] > means[0], smallest)


@dataclass(frozen=True)
class Near(Claim):
    """In every row the quantity is within ``tolerance`` of ``target``, relatively; found is the one farthest off.

    With ``error``, the standard error of each seed's value, the distance is counted in standard errors of the mean over
    the seeds instead, and ``tolerance`` says how many.
    """

    quantity: Quantity
    target: float
    tolerance: float
    error: Quantity | None = None

    def found(self, receipts: Receipts) -> Found | None:
        """The relative distance of the mean that is farthest from the target, or its standard errors."""
        distances = []
        for number in self.rows:
            mean = self.quantity.mean(receipts.get(number, ()))
            errors = [] if self.error is None else self.error.of(receipts.get(number, ()))
            if mean is None or (self.error is not None and not errors):
                return None
            unit = sum(error**2 for error in errors) ** 0.5 / len(errors) if errors else abs(self.target)
            distances.append(abs(mean - self.target) / unit)
        return Found(max(distances) <= self.tolerance, max(distances))


@dataclass(frozen=True)
class Anticorrelated(Claim):
    """Over the rows the two quantities are ordered oppositely: Spearman's correlation of the means is below ``bound``.

    Found is that correlation.
    """

    quantity: Quantity
    other: Quantity
    bound: float

    def found(self, receipts: Receipts) -> Found | None:
        """Spearman's correlation, by Pearson's of the ranks."""
        ours, theirs = self._means(self.quantity, receipts), self._means(self.other, receipts)
        if ours is None or theirs is None or len(ours) < 2:
            return None
        try:
            value = statistics.correlation(_ranks(ours), _ranks(theirs))
        except statistics.StatisticsError:  # one of them is the same everywhere
            value = 0.0
        return Found(value < self.bound, value)


def _ranks(values: Sequence[float]) -> list[float]:
    """From 1 on; equal values share the mean of their ranks.

    >>> _ranks([0.3, 0.1, 0.3])
    [2.5, 1.0, 2.5]
    """
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) + 1) / 2 for value in values]
