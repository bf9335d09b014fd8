"""The rows of paper B: pairs of some precision Λ, and several losses that are compared on them.

Nothing here imports torch; :mod:`identica.experiments.aninfonce.plan` makes the parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from identica.experiments.catalogue import DeviceKind, Entry, Experiment, Model
from identica.experiments.claims import Quantity
from identica.experiments.laws import Law

if TYPE_CHECKING:
    from identica.experiments.planning import BasePlan


@dataclass(frozen=True)
class Loss:
    """A loss and its settings.

    kind: "dot", InfoNCE with ⟨·,·⟩/τ; "anisotropic", InfoNCE with a trainable precision Λ̂, that is AnInfoNCE; or
        "tricl". Where a row has several kinds of pairs, each loss has one similarity for all of them.
    temperature, learned: the dot product's τ, and whether it is only where τ starts.
    own: for several kinds of pairs, a similarity for each of them: the ensemble.

    >>> Loss("dot", 0.2).label, Loss("dot", learned=True).label, Loss("anisotropic").label
    ('InfoNCE, τ = 0.2', 'InfoNCE, τ learned', 'AnInfoNCE')
    """

    kind: Literal["dot", "anisotropic", "tricl"]
    temperature: float = 1.0
    learned: bool = False
    own: bool = False

    @property
    def label(self) -> str:
        """In few letters."""
        if self.kind == "dot":
            return "InfoNCE, τ learned" if self.learned else f"InfoNCE, τ = {self.temperature:.3g}"
        return "TriCL" if self.kind == "tricl" else "Ensemble AnInfoNCE" if self.own else "AnInfoNCE"


@dataclass(frozen=True)
class LossRow(Entry):
    """A point of paper B: uniform anchors on the sphere, pairs of precision Λ, and losses.

    losses: by model.
    also: further kinds of pairs of the same world, as an ensemble has them.
    """

    losses: Mapping[Model, Loss]
    also: tuple[Law, ...] = ()

    @property
    def precisions(self) -> tuple[tuple[float, ...], ...]:
        """Λ of each kind of pairs."""
        return tuple(law.precision for law in (self.conditional, *self.also) if law.precision is not None)

    @property
    def optima(self) -> tuple[tuple[float, ...], ...]:
        """Where the Λ̂ of each kind of pairs ends: at its Λ, with uniform negatives."""
        return self.precisions

    @property
    def dim(self) -> int:
        """How many factors there are."""
        return len(self.precisions[0])

    @property
    def block_sizes(self) -> tuple[int, ...]:
        """How many factors have the same precision in all kinds of pairs: the theorem tells no two of them apart."""
        return tuple(Counter(zip(*self.precisions, strict=True)).values())

    @property
    def process_label(self) -> str:
        """``S⁹, Λ = 5 ×5, 25 ×5``."""
        superscript = str(self.dim - 1).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"S{superscript}, " + " and ".join(law.label for law in (self.conditional, *self.also))

    @property
    def model_label(self) -> str:
        """The losses: ``AnInfoNCE; InfoNCE, τ = 1``."""
        return "; ".join(loss.label for loss in self.losses.values())

    @property
    def setting(self) -> tuple[str, ...]:
        """The pairs with the first loss, then a line for each other loss."""
        first, *others = (loss.label for loss in self.losses.values())
        return f"{self.process_label} → {first}", *others

    @property
    def models(self) -> tuple[Model, ...]:
        """Those that have a loss here."""
        return tuple(self.losses)


@dataclass(frozen=True)
class Plot:
    """One panel: scores of models against one coordinate of the points, ``x``, on a logarithmic axis.

    lines: what each line is called and shows; a name that ends in "style" is drawn dashed, beside its content.
    y: the name of the vertical axis, logarithmic for anything but R² and accuracies.
    by: another coordinate; each of its values has lines of its own, and points without it are not shown.
    where: coordinates that points must have to be shown.
    groups: in place of ``by``, names of lines and the coordinates that their points have.
    against: another score to draw them against; then ``x`` is just its name.
    log: False for a linear horizontal axis, as that of a score always is.
    least: what is lower is drawn there, so that one wild value does not flatten all others.
    """

    title: str
    x: str
    lines: tuple[tuple[str, Quantity], ...]
    y: str = "R²"
    by: str | None = None
    where: Mapping[str, float] = field(default_factory=dict)
    groups: tuple[tuple[str, Mapping[str, float]], ...] = ()
    against: Quantity | None = None
    log: bool = True
    least: float | None = None

    def shows(self, x: Mapping[str, float]) -> bool:
        """Whether a point with these coordinates is on it."""
        needed = [name for name in (self.by, None if self.against is not None else self.x) if name is not None]
        if self.groups and self.group(x) is None:
            return False
        return all(name in x for name in needed) and _has(x, self.where)

    def group(self, x: Mapping[str, float]) -> str | None:
        """The name of the points that this one is drawn with; None where they have none."""
        if self.by is not None:
            return f"{self.by} {x[self.by]:g}"
        return next((name for name, coordinates in self.groups if _has(x, coordinates)), None)


def _has(x: Mapping[str, float], coordinates: Mapping[str, float]) -> bool:
    return all(x.get(name) == value for name, value in coordinates.items())


@dataclass(frozen=True)
class LossExperiment(Experiment):
    """A figure of paper B.

    plots: its panels.
    details: the rows of which curves over time are shown.
    columns: further columns of its table, headings and scores.
    """

    plots: tuple[Plot, ...] = ()
    details: tuple[str, ...] = ()
    columns: tuple[tuple[str, str], ...] = ()

    def plan(self, row: Entry, budget: str, device: DeviceKind) -> BasePlan:
        """What to train for a row."""
        from identica.experiments.aninfonce.budgets import RECIPES
        from identica.experiments.aninfonce.plan import SyntheticLossPlan

        if not isinstance(row, LossRow):
            raise TypeError(f"{self.id} has rows with losses, not a {type(row).__name__}.")
        return SyntheticLossPlan(self, row, budget, RECIPES.of(row, budget, device))
