"""Augmentations that need no colour: crop, blur and mirror images, batched and on their device."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from identica.data.augmentation import (
    Augmentation,
    Augmentations,
    Size,
    check_probability,
    check_range,
    chosen,
    uniform,
    where_applied,
)
from identica.data.tree import pytree_dataclass

#: Boxes drawn for each image; the first that fits into it is taken.
TRIES = 10


@pytree_dataclass
@dataclass(frozen=True, eq=False)
class Cropped:
    """The box cut out of each image, in whole pixels: ``top, left, height, width: (n,)``."""

    applied: Tensor
    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor


@dataclass(frozen=True)
class RandomResizedCrop(Augmentation):
    """Cut out a random box and stretch it to the size of the image, by bilinear interpolation.

    area: the box's share of the image, uniform in this range before boxes that do not fit are refused.
    aspect: its width over its height, log-uniform in this range.
    probability: how often; the other images stay as they are.

    The defaults are those of SimCLR. Area and aspect are drawn ten times, rounded to whole pixels, and the first
    box that fits is placed uniformly. If none of them fits, which needs a long and narrow image, the largest box with
    an aspect in the range is taken. Interpolation looks at pixels of the box alone, as if it had been cut out first.

    >>> images = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> cropped, box = RandomResizedCrop()(images, 0)
    >>> cropped.shape, bool((box.top + box.height <= 8).all())
    (torch.Size([4, 1, 8, 8]), True)
    """

    name = "crop"

    area: tuple[float, float] = (0.08, 1.0)
    aspect: tuple[float, float] = (3 / 4, 4 / 3)
    probability: float = 1.0

    def __post_init__(self) -> None:
        check_range(self.area, "area, the share of the image that is kept,", 0, 1)
        check_range(self.aspect, "aspect, width over height,", 0, math.inf)
        check_probability(self.probability)

    def draw(self, n: int, size: Size, generator: torch.Generator) -> Cropped:
        """A box for each image; the whole image where nothing is applied."""
        applied = chosen(n, self.probability, generator)
        height, width = self._boxes(n, size, generator)
        height, width = height.masked_fill(~applied, size[0]), width.masked_fill(~applied, size[1])
        place = torch.rand(2, n, generator=generator, device=generator.device)
        # A draw just below 1 times the number of places may round up to that number.
        top = torch.minimum((place[0] * (size[0] - height + 1)).floor(), size[0] - height)
        left = torch.minimum((place[1] * (size[1] - width + 1)).floor(), size[1] - width)
        return Cropped(applied, top, left, height, width)

    def _boxes(self, n: int, size: Size, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Heights and widths, ``(n,)`` each: of ten draws the first that fits."""
        area = uniform((TRIES, n), *self.area, generator) * (size[0] * size[1])
        aspect = uniform((TRIES, n), math.log(self.aspect[0]), math.log(self.aspect[1]), generator).exp()
        heights, widths = (area / aspect).sqrt().round(), (area * aspect).sqrt().round()
        fits = (heights >= 1) & (heights <= size[0]) & (widths >= 1) & (widths <= size[1])
        rank = torch.arange(TRIES, device=fits.device)[:, None].expand(-1, n)
        first = rank.masked_fill(~fits, TRIES).amin(dim=0)
        index, none_fits = first.clamp(max=TRIES - 1)[None], first == TRIES
        height, width = (sides.gather(0, index)[0] for sides in (heights, widths))
        most = self._largest(size)
        return height.masked_fill(none_fits, most[0]), width.masked_fill(none_fits, most[1])

    def _largest(self, size: Size) -> Size:
        """Height and width of the largest box whose aspect lies in the range."""
        aspect = min(max(size[1] / size[0], self.aspect[0]), self.aspect[1])
        return min(size[0], max(1, round(size[1] / aspect))), min(size[1], max(1, round(size[0] * aspect)))

    def apply(self, images: Tensor, parameters: Cropped) -> Tensor:
        """The boxes, stretched."""
        height, width = images.shape[-2:]
        y = _normalised(parameters.top, parameters.height, height, images.dtype)
        x = _normalised(parameters.left, parameters.width, width, images.dtype)
        grid = torch.stack([x[:, None, :].expand(-1, height, -1), y[:, :, None].expand(-1, -1, width)], dim=-1)
        stretched = functional.grid_sample(images, grid, padding_mode="border", align_corners=False)
        return where_applied(parameters.applied, stretched, images)


def _normalised(start: Tensor, length: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    """Where the centres of the ``size`` output pixels lie along one axis of the image, which spans −1 to 1.

    ``(n,)`` starts and lengths in pixels to ``(n, size)``. Beyond the centres of the box's first and last pixel
    the position stays there, so that no neighbour of the box is ever looked at.
    """
    start, length = start[:, None].to(dtype), length[:, None].to(dtype)
    centre = (torch.arange(size, device=start.device, dtype=dtype) + 0.5) * (length / size) - 0.5
    centre = torch.minimum(centre.clamp(min=0), length - 1) + start
    return (2 * centre + 1) / size - 1


@pytree_dataclass
@dataclass(frozen=True, eq=False)
class Blurred:
    """The width of each image's Gaussian in pixels, ``sigma: (n,)``; drawn also where it was not applied."""

    applied: Tensor
    sigma: Tensor


@dataclass(frozen=True)
class GaussianBlur(Augmentation):
    """Blur with a Gaussian whose width differs from image to image.

    sigma: its standard deviation in pixels, uniform in this range.
    radius: the Gaussian is cut off that many pixels from its centre and normalised; by default SimCLR's, a
        twentieth of the shorter side (11 of 224 pixels), at least 1.
    probability: how often; the other images stay as they are.

    Images are continued beyond their edges by reflection.
    """

    name = "blur"

    sigma: tuple[float, float] = (0.1, 2.0)
    radius: int | None = None
    probability: float = 0.5

    def __post_init__(self) -> None:
        check_range(self.sigma, "sigma, the width of the blur in pixels,", 0, math.inf)
        check_probability(self.probability)
        if self.radius is not None and (not isinstance(self.radius, int) or self.radius < 1):
            raise ValueError(f"radius of GaussianBlur is a whole number of at least 1, or None, not {self.radius!r}.")

    def draw(self, n: int, size: Size, generator: torch.Generator) -> Blurred:
        """A width for each image."""
        return Blurred(chosen(n, self.probability, generator), uniform(n, *self.sigma, generator))

    def apply(self, images: Tensor, parameters: Blurred) -> Tensor:
        """Blur along the rows, then along the columns."""
        radius = self.radius or max(1, min(images.shape[-2:]) // 20)
        if radius >= min(images.shape[-2:]):
            raise ValueError(
                f"A blur of radius {radius} reaches beyond the reflection of images of shape "
                f"{tuple(images.shape[-2:])}: the radius must be smaller than both sides."
            )
        offsets = torch.arange(-radius, radius + 1, device=images.device, dtype=images.dtype)
        weights = (-0.5 * (offsets / parameters.sigma[:, None].to(images.dtype)).square()).exp()
        weights = weights / weights.sum(dim=1, keepdim=True)
        blurred = _weighted_shifts(_weighted_shifts(images, weights).mT, weights).mT
        return where_applied(parameters.applied, blurred, images)


def _weighted_shifts(images: Tensor, weights: Tensor) -> Tensor:
    """Correlate the last axis of each image with its own row of ``weights: (n, 2·radius + 1)``."""
    radius = weights.shape[1] // 2
    padded = functional.pad(images, (radius, radius, 0, 0), mode="reflect")
    length = images.shape[-1]
    result = torch.zeros_like(images)
    for k, weight in enumerate(weights.T[:, :, None, None, None]):
        result = torch.addcmul(result, weight, padded[..., k : k + length])
    return result


@pytree_dataclass
@dataclass(frozen=True, eq=False)
class Flipped:
    """Which images were mirrored."""

    applied: Tensor


@dataclass(frozen=True)
class HorizontalFlip(Augmentation):
    """Mirror left and right, with some probability."""

    name = "flip"

    probability: float = 0.5

    def __post_init__(self) -> None:
        check_probability(self.probability)

    def draw(self, n: int, size: Size, generator: torch.Generator) -> Flipped:
        """Yes or no for each image."""
        return Flipped(chosen(n, self.probability, generator))

    def apply(self, images: Tensor, parameters: Flipped) -> Tensor:
        """Mirror where applied."""
        return where_applied(parameters.applied, images.flip(-1), images)


def simclr_without_colour(*, crop: float = 1.0, blur: float = 0.5, flip: float = 0.0) -> Augmentations:
    """SimCLR's views of grey images (B, Sec. G): a random resized crop, then a blur; each with its probability.

    Digits have no mirror image, so flips are off; B, Sec. H.1 used crops and flips: ``blur=0, flip=0.5``.
    """
    return Augmentations(
        RandomResizedCrop(probability=crop), HorizontalFlip(probability=flip), GaussianBlur(probability=blur)
    )
