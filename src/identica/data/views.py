"""Two augmented views of the same image as a pair: what contrastive learning on real images is trained on."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.types import Device
from torch.utils import _pytree as pytree

from identica._numbers import whole_number
from identica._randomness import Randomness, as_generator
from identica.data.augmentation import Augmentation
from identica.data.tree import pytree_dataclass


@pytree_dataclass
@dataclass(frozen=True, eq=False)
class Views:
    """Pairs of views. There are no true latents: ``z`` is None, as is ``x_neg``.

    x, x_pos: two views of each image, ``(n, C, H, W)`` or ``(n, C·H·W)``.
    index: ``(n,)``, which image.
    parameters, parameters_pos: what the augmentation did to it for either view.
    """

    x: Tensor
    x_pos: Tensor
    index: Tensor
    parameters: Any
    parameters_pos: Any

    def __len__(self) -> int:
        return len(self.x)

    @property
    def z(self) -> None:
        """Nobody knows the latents."""
        return None

    @property
    def x_neg(self) -> None:
        """The other images are the negatives."""
        return None


class AugmentedViews:
    """Draws pairs like a process: random images, each augmented twice, independently.

    images: ``(N, C, H, W)``, bytes or floats in [0, 1]; bytes are kept as such and divided by 255 when drawn.
    augmentation: an :class:`Augmentation`, such as :func:`simclr_without_colour`.
    flatten: views are vectors ``(n, C·H·W)``, for encoders that take vectors.

    No image is drawn twice while others have not been drawn at all: up to N pairs are of different images, so
    that a negative is never another view of the anchor's own image.

    >>> from identica.data.augment import RandomResizedCrop
    >>> images = torch.rand(20, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> views = AugmentedViews(images, RandomResizedCrop()).sample(5, generator=0)
    >>> views.x.shape, len(views.index.unique()), views.parameters.applied.shape, views.z
    (torch.Size([5, 1, 8, 8]), 5, torch.Size([5]), None)
    """

    def __init__(self, images: Tensor, augmentation: Augmentation, *, flatten: bool = False) -> None:
        if not isinstance(augmentation, Augmentation):
            raise TypeError(
                "augmentation of AugmentedViews is an Augmentation, such as RandomResizedCrop(), not "
                f"{type(augmentation).__name__}."
            )
        if not isinstance(images, Tensor):
            raise TypeError(
                f"AugmentedViews takes the images themselves, such as digits.images, not {type(images).__name__}."
            )
        if images.ndim != 4 or len(images) == 0 or not (images.dtype == torch.uint8 or images.is_floating_point()):
            raise ValueError(
                "AugmentedViews takes at least one image, (N, channels, height, width), as bytes or floating-point "
                f"numbers, not {images.dtype} of shape {tuple(images.shape)}."
            )
        if images.is_floating_point() and not bool(((images >= 0) & (images <= 1)).all()):
            raise ValueError(
                "Images given as floating-point numbers lie in [0, 1]; these do not. Divide bytes by 255, or pass "
                "them as torch.uint8."
            )
        self.images, self.augmentation, self.flatten = images, augmentation, bool(flatten)
        self.dtype = images.dtype if images.is_floating_point() else torch.get_default_dtype()
        content = images.detach().cpu().contiguous()
        self._digest = hashlib.sha256(content.numpy().tobytes()).hexdigest()
        self.sample(2, 0)  # an augmentation that does not fit these images says so now

    @property
    def device(self) -> torch.device:
        """Where the images are."""
        return self.images.device

    @torch.no_grad()
    def sample(self, n: int, generator: Randomness) -> Views:
        """Two views each of ``n`` images. A number seeds a generator of its own on the images' device."""
        n, source = whole_number(n, "n"), as_generator(generator, self.device)
        index = self._different(n, source)
        chosen = self.images[index].to(self.dtype)
        if not self.images.is_floating_point():
            chosen = chosen / 255
        both, parameters = self.augmentation(torch.cat([chosen, chosen]), source)
        if self.flatten:
            both = both.flatten(start_dim=1)
        first, second = (pytree.tree_map(lambda part, rows=rows: part[rows], parameters) for rows in _halves(n))
        return Views(both[:n], both[n:], index, first, second)

    def _different(self, n: int, generator: torch.Generator) -> Tensor:
        """``n`` indices, all of them different as long as there are enough images."""
        rounds = -(-n // len(self.images))
        keys = torch.rand(rounds, len(self.images), generator=generator, device=generator.device)
        return keys.argsort(dim=1).flatten()[:n]

    def to(self, device: Device = None, dtype: torch.dtype | None = None) -> Self:
        """The same views with the images on another device, drawn in another precision."""
        moved = copy.copy(self)
        moved.dtype = dtype or self.dtype
        moved.images = self.images.to(device=device, dtype=moved.dtype if self.images.is_floating_point() else None)
        return moved

    def to_dict(self) -> dict[str, Any]:
        """The augmentation's settings, and a hash that tells one set of images from another."""
        return {
            "process": "augmented views",
            "augmentation": self.augmentation.to_dict(),
            "images": {"shape": list(self.images.shape), "sha256": self._digest},
            "flatten": self.flatten,
        }

    def __repr__(self) -> str:
        return f"AugmentedViews({tuple(self.images.shape)}, {self.augmentation!r}, flatten={self.flatten})"


def _halves(n: int) -> tuple[slice, slice]:
    return slice(0, n), slice(n, None)
