"""Augmented views of what a process draws: pairs of which the true latents are known."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from torch.types import Device

from identica._numbers import whole_number
from identica._randomness import Randomness, as_generator
from identica.data.augmentation import Augmentation
from identica.processes.anchors import DrawsPairs
from identica.processes.pairs import Pairs
from identica.processes.pool import PairPool


class AugmentedProcess:
    """Draws one image for each anchor and augments it twice: x and x̃ show the same z (A, Table 4, "Augm.").

    anchors: an :class:`AnchorProcess`, or a pool of one, whose observations are images, bytes or numbers in [0, 1].
    augmentation: such as :func:`simclr_with_colour`.

    z̃ is z. Views are floating-point images in [0, 1].
    """

    def __init__(self, anchors: DrawsPairs, augmentation: Augmentation) -> None:
        if not isinstance(augmentation, Augmentation):
            raise TypeError(
                "augmentation of AugmentedProcess is an Augmentation, such as simclr_with_colour(), not "
                f"{type(augmentation).__name__}."
            )
        self.anchors, self.augmentation = anchors, augmentation
        self.evaluation_process.sample(2, 0)  # an augmentation that does not fit the observations says so now

    @property
    def device(self) -> torch.device:
        """Where the images are."""
        return getattr(self.anchors, "device", torch.device("cpu"))

    @torch.no_grad()
    def sample(self, n: int, generator: Randomness) -> Pairs:
        """Two views each of ``n`` images."""
        n, source = whole_number(n, "n", least=0), as_generator(generator, self.device)
        drawn = self.anchors.sample(n, source)
        images = as_floats(drawn.x, drawn.z.dtype)
        views = self.augmentation(torch.cat([images, images]), source).images
        return Pairs(drawn.z, drawn.z, views[:n], views[n:])

    @property
    def most(self) -> int | None:
        """How many can be drawn at once; None where there is no end."""
        return getattr(self.anchors, "most", None)

    @property
    def evaluation_process(self) -> AugmentedProcess:
        """Views of fresh images where the anchors are a pool, which a look must neither fill nor change."""
        return self._of(self.anchors.process) if isinstance(self.anchors, PairPool) else self

    def to(self, device: Device = None, dtype: torch.dtype | None = None) -> AugmentedProcess:
        """The same on another device or in another precision."""
        return self._of(self.anchors.to(device, dtype))

    def _of(self, anchors: DrawsPairs) -> AugmentedProcess:
        other = copy.copy(self)
        other.anchors = anchors
        return other

    def to_dict(self) -> dict[str, Any]:
        """The anchors and the augmentation's settings."""
        return {
            "process": "augmented",
            "of": self.anchors.to_dict(),
            "augmentation": self.augmentation.to_dict(),
        }

    def __repr__(self) -> str:
        return f"AugmentedProcess({self.anchors!r}, {self.augmentation!r})"


def as_floats(images: Tensor, dtype: torch.dtype) -> Tensor:
    """Images with values in [0, 1], from bytes or from what they are."""
    return images.to(dtype) if images.is_floating_point() else images.to(dtype) / 255
