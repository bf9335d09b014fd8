"""The rows of paper B that need MNIST: digits that a VAE makes of known latents, and views of real ones.

Nothing here imports torch; :mod:`identica.experiments.mnist.plan` and its neighbours make the parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from identica.experiments.aninfonce.rows import LossExperiment, LossRow
from identica.experiments.catalogue import DeviceKind, Entry, Model

if TYPE_CHECKING:
    from identica.experiments.planning import BasePlan

#: The codes and the VAE's latents (B, Sec. H.5).
DIM = 10

#: What makes the views: "crops and blurs" in B, Sec. G; "crops and flips" in Sec. H.1; nothing on "plain" images.
ViewsName = Literal["plain", "crops and blurs", "crops and flips"]
#: How often each augmentation is applied: SimCLR's, without colour.
PROBABILITIES: dict[ViewsName, dict[str, float]] = {
    "plain": {"crop": 0.0, "blur": 0.0, "flip": 0.0},
    "crops and blurs": {"crop": 1.0, "blur": 0.5, "flip": 0.0},
    "crops and flips": {"crop": 1.0, "blur": 0.0, "flip": 0.5},
}


@dataclass(frozen=True)
class VaeSettings:
    """A VAE of MNIST and its training (B, Sec. H.5; widths, batch and learning rate are not given there).

    views: what it is trained on.
    images: how many of the training images; None for all.
    """

    views: ViewsName = "plain"
    dim: int = DIM
    hidden: tuple[int, ...] = (512, 256)
    beta: float = 1.0
    epochs: int = 50
    batch_size: int = 128
    lr: float = 1e-3
    images: int | None = None


@dataclass(frozen=True)
class ViewsRow(LossRow):
    """Losses on pairs of augmented views of real digits.

    table: the paper's scores by model and name, as fractions, where it prints more than one.
    """

    views: ViewsName = "crops and blurs"
    table: Mapping[Model, Mapping[str, float]] = field(default_factory=dict)

    @property
    def dim(self) -> int:
        """That of the codes; how many factors there are nobody knows."""
        return DIM

    @property
    def process_label(self) -> str:
        """``MNIST, views by crops and blurs``."""
        return f"{self.marginal.label}, {self.conditional.label} by {self.views}"


@dataclass(frozen=True)
class ComputedRow(ViewsRow):
    """Something measured of views without any contrastive model; ``measured`` names it by model, in place of losses."""

    measured: Mapping[Model, str] = field(default_factory=dict)

    @property
    def model_label(self) -> str:
        """What is measured."""
        return "; ".join(self.measured.values())

    @property
    def setting(self) -> tuple[str, ...]:
        """In one line."""
        return (self.label,)

    @property
    def models(self) -> tuple[Model, ...]:
        """Those that are measured."""
        return tuple(self.measured)


@dataclass(frozen=True)
class MnistExperiment(LossExperiment):
    """A figure of paper B for which MNIST must be there."""

    def plan(self, row: Entry, budget: str, device: DeviceKind) -> BasePlan:
        """What to train for a row."""
        from identica.experiments.mnist.budgets import recipes_of
        from identica.experiments.mnist.latents import ComputedPlan
        from identica.experiments.mnist.plan import DecoderPlan
        from identica.experiments.mnist.views import ViewsPlan

        if not isinstance(row, LossRow):
            raise TypeError(f"{self.id} has rows with losses, not a {type(row).__name__}.")
        recipe = recipes_of(row).of(row, budget, device)
        if isinstance(row, ComputedRow):
            return ComputedPlan(self, row, budget, recipe)
        if isinstance(row, ViewsRow):
            return ViewsPlan(self, row, budget, recipe)
        return DecoderPlan(self, row, budget, recipe)
