"""Paper B, Figure 10: hard negatives, drawn around their anchor with a precision Λ⁻ below that of the positives, Λ⁺.

A. With hard negatives alone the log of the density ratio p⁺/p⁻ is −½ dᵀ(Λ⁺−Λ⁻)d exactly, the normalisers being
   functions of the anchor, so that the loss at the true latents is smallest at Λ̂ = Λ⁺ − Λ⁻ (Cor. B.1). Here Λ⁺ = 150,
   Λ⁻ = 100 as in the paper, eight hard negatives per anchor, and no training: see
   :mod:`identica.experiments.aninfonce.hard_scan`.
B. An encoder is trained with InfoNCE at the matching temperature, and trained on in several ways from the same weights,
   for the same number of steps: as before, and with AnInfoNCE and three hard negatives per anchor joined to the other
   N = B − 1 anchors. The density ratio is then that to the mixture (K = 3, p₀ = 1/|S|),

       log p⁺(z̃|z) − log(K p⁻(z̃|z) + N p₀),

   −½ dᵀ(Λ⁺−Λ⁻)d near the anchor and −½ dᵀΛ⁺d far from it. No quadratic form is both, so no theorem says what is
   learned. Λ̂ starts at Λ⁺ − Λ⁻; at the true latents the loss is smallest somewhere between that and Λ⁺.

The paper gives neither Λ nor Λ⁻ for B, nor the length of either part. Λ⁺ = 150 as in A, with the 1000 or so anchors per
batch of the authors' code: the others are then so much farther than the positive that the loss at the true latents is
1e-5, and InfoNCE hardly learns any more once an encoder is roughly right. Three Λ⁻ are tried, and Λ⁻ = 0: three more
uniform negatives per anchor, to tell what hard ones do from what learning Λ̂ does.

A step with three hard negatives encodes five observations per anchor where one without encodes two. So InfoNCE is also
continued with batches 2.5 times as large, which encodes as many and has more negatives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from identica.experiments.aninfonce.rows import Loss, LossExperiment, LossRow, Plot
from identica.experiments.catalogue import DeviceKind, Entry, Model
from identica.experiments.claims import Above, Near, Quantity, Rises
from identica.experiments.laws import UNIFORM, Law, fisher_bingham

if TYPE_CHECKING:
    from identica.experiments.planning import BasePlan

DIM = 20
#: Where the loss of A is computed, and how many hard negatives each anchor has there.
SCANNED = tuple(float(value) for value in range(10, 151, 5))
SCAN_NEGATIVES = 8
#: Λ⁺ and the Λ⁻ of B, and how many hard negatives join the other anchors.
TUNED, HARD = 150.0, (0.0, 15.0, 45.0, 100.0)
JOINED = 3


@dataclass(frozen=True)
class HardRow(LossRow):
    """A point with hard negatives: ``hard`` is their law around the anchor, of a precision below that of the pairs."""

    hard: Law = field(kw_only=True)

    @property
    def optima(self) -> tuple[tuple[float, ...], ...]:
        """Λ⁺ − Λ⁻, where Λ̂ ends with hard negatives alone (Cor. B.1)."""
        assert self.hard.precision is not None
        return (tuple(p - n for p, n in zip(self.precisions[0], self.hard.precision, strict=True)),)

    @property
    def process_label(self) -> str:
        """``S¹⁹, Λ⁺ = 150 ×20, Λ⁻ = 100 ×20``."""
        return f"{super().process_label.replace('Λ', 'Λ⁺')}, {self.hard.label.replace('Λ', 'Λ⁻')}"


@dataclass(frozen=True)
class AtTruth(Loss):
    """A loss that is computed at the true latents, without training."""

    @property
    def label(self) -> str:
        """In few letters."""
        return f"{super().label} at the true latents"


@dataclass(frozen=True)
class Continued(Loss):
    """A loss that an encoder is trained on with.

    starts_from: the model whose trained encoder it starts with.
    joined: how many hard negatives per anchor join the others.
    larger: how many times as large its batches are.

    >>> Continued("anisotropic", starts_from="infonce", joined=3).label
    'then AnInfoNCE, 3 hard negatives'
    """

    starts_from: Model = field(kw_only=True)
    joined: int = field(default=0, kw_only=True)
    larger: float = field(default=1.0, kw_only=True)

    @property
    def label(self) -> str:
        """In few letters."""
        hard = f", {self.joined} hard negatives" if self.joined else ""
        larger = f", batches × {self.larger:g}" if self.larger != 1 else ""
        return f"then {super().label}{hard}{larger}"


@dataclass(frozen=True)
class HardExperiment(LossExperiment):
    """A figure about hard negatives."""

    def plan(self, row: Entry, budget: str, device: DeviceKind) -> BasePlan:
        """What to compute or train for a row."""
        from identica.experiments.aninfonce.hard_plan import plan_of

        if not isinstance(row, HardRow):
            raise TypeError(f"{self.id} has rows with hard negatives, not a {type(row).__name__}.")
        return plan_of(self, row, budget, device)


def scanned(positive: float = 150.0, negative: float = 100.0, dim: int = DIM) -> HardRow:
    """The loss over Λ̂ (A)."""
    return HardRow(
        "scan",
        "sphere",
        UNIFORM,
        fisher_bingham(*[positive] * dim),
        {"scan": AtTruth("anisotropic")},
        hard=fisher_bingham(*[negative] * dim),
        theory="promises",
        note=f"{SCAN_NEGATIVES} hard negatives per anchor and no others; nothing is trained",
    )


def tuned(negative: float, positive: float = TUNED, dim: int = DIM) -> HardRow:
    """An encoder that InfoNCE has trained, trained on with and without hard negatives of one precision (B)."""
    before = Loss("dot", 1.0 / positive)
    losses: Mapping[Model, Loss] = {
        "infonce": before,
        "continued": Continued("dot", 1.0 / positive, starts_from="infonce"),
        "larger": Continued("dot", 1.0 / positive, starts_from="infonce", larger=(2 + JOINED) / 2),
        "hard": Continued("anisotropic", starts_from="infonce", joined=JOINED),
    }
    return HardRow(
        f"hard-{negative:g}",
        "sphere",
        UNIFORM,
        fisher_bingham(*[positive] * dim),
        losses,
        hard=fisher_bingham(*[negative] * dim),
        x={"Λ⁻": negative},
        recipes={
            "fast": {"batch_size": 1024, "steps": 30_000, "candidates": 2500},
            "smoke": {"candidates": 500},
        },
        note="per anchor hard negatives and larger batches encode 5 observations a step, the others 2",
    )


_MINIMUM = Quantity("scan", "minimum")
_R2 = {model: Quantity(model, "r2") for model in ("infonce", "continued", "larger", "hard")}
_MIDDLE = HARD[2]
_BEST = f"hard-{_MIDDLE:g}"

FIGURE10 = HardExperiment(
    id="aninfonce/figure10",
    title="Hard negatives: where the loss is smallest, and fine-tuning with them",
    paper="B, Figure 10",
    metric="r2",
    rows=(scanned(), *(tuned(negative) for negative in HARD)),
    models=("infonce", "continued", "larger", "hard"),
    seeds=3,
    dim=DIM,
    trend="the loss is smallest at Λ⁺ − Λ⁻ = 50, and fine-tuning with hard negatives beats continued training",
    claims=(
        Near(
            "With hard negatives alone the loss is smallest within 2 % of Λ⁺ − Λ⁻ = 50", ("scan",), _MINIMUM, 50.0, 0.02
        ),
        Near(
            "That it is not exactly there is sampling error: at most 3 standard errors",
            ("scan",),
            _MINIMUM,
            50.0,
            3.0,
            Quantity("scan", "minimum_error"),
        ),
        Above(
            "As many steps as fine-tuning takes bring InfoNCE no more than 0.02",
            (_BEST,),
            _R2["infonce"],
            _R2["continued"],
            -0.02,
        ),
        Above(
            f"Fine-tuning with hard negatives of Λ⁻ = {_MIDDLE:g} beats as many steps without, by 0.01",
            (_BEST,),
            _R2["hard"],
            _R2["continued"],
            0.01,
        ),
        Above(
            f"Fine-tuning with hard negatives of Λ⁻ = {_MIDDLE:g} gains on what it starts from, by 0.01",
            (_BEST,),
            _R2["hard"],
            _R2["infonce"],
            0.01,
        ),
        Rises(
            f"They are what helps: hard negatives of Λ⁻ = {_MIDDLE:g} recover more than uniform ones (Λ⁻ = 0)",
            (f"hard-{HARD[0]:g}", _BEST),
            _R2["hard"],
        ),
    ),
    plots=(
        Plot(
            f"Trained on from the same encoder, Λ⁺ = {TUNED:g}",
            "Λ⁻",
            (
                ("InfoNCE, before", _R2["infonce"]),
                ("InfoNCE, continued", _R2["continued"]),
                ("InfoNCE, larger batches", _R2["larger"]),
                ("with hard negatives", _R2["hard"]),
            ),
            log=False,
        ),
    ),
    details=(_BEST,),
)

EXPERIMENTS = (FIGURE10,)
