"""Augmentations of colour images: SimCLR's colour jitter and colour drop, batched and on their device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from identica._numbers import as_float
from identica.data.augment import RandomResizedCrop
from identica.data.augmentation import (
    Augmentation,
    Augmentations,
    Size,
    check_probability,
    chosen,
    uniform,
    where_applied,
)
from identica.data.tree import pytree_dataclass

#: How bright red, green and blue look (ITU-R BT.601).
LUMA = (0.299, 0.587, 0.114)


@pytree_dataclass
@dataclass(frozen=True, eq=False)
class Jittered:
    """The factors of each image, ``(n,)``, the shift of its hue in turns, and the order of the four.

    ``order: (n, 4)`` counts 0 brightness, 1 contrast, 2 saturation, 3 hue.
    """

    applied: Tensor
    brightness: Tensor
    contrast: Tensor
    saturation: Tensor
    hue: Tensor
    order: Tensor


@dataclass(frozen=True)
class ColourJitter(Augmentation):
    """Change brightness, contrast, saturation and hue by random amounts, in an order of each image's own.

    brightness, contrast, saturation: factors are uniform in [max(0, 1 − s), 1 + s].
    hue: shifts are uniform in [−s, s] turns of the colour wheel, s ≤ ½.
    probability: how often all four are applied; the other images stay as they are.

    The defaults are SimCLR's at full strength. Grey values lie in [0, 1] and are clipped to it after each change.
    """

    name = "colour"

    brightness: float = 0.8
    contrast: float = 0.8
    saturation: float = 0.8
    hue: float = 0.2
    probability: float = 0.8

    def __post_init__(self) -> None:
        check_probability(self.probability)
        for name in ("brightness", "contrast", "saturation", "hue"):
            value, most = getattr(self, name), 0.5 if name == "hue" else float("inf")
            if not 0 <= as_float(value) <= most or as_float(value) == float("inf"):
                limit = " and at most 0.5" if name == "hue" else ""
                raise ValueError(f"{name} of ColourJitter is a number of at least 0{limit}, not {value!r}.")

    def draw(self, n: int, size: Size, generator: torch.Generator) -> Jittered:
        """Factors, shift and order for each image."""
        applied = chosen(n, self.probability, generator)
        strengths = (self.brightness, self.contrast, self.saturation)
        brightness, contrast, saturation = (uniform(n, max(0.0, 1 - s), 1 + s, generator) for s in strengths)
        hue = uniform(n, -self.hue, self.hue, generator)
        order = torch.rand(n, 4, generator=generator, device=generator.device).argsort(dim=1)
        return Jittered(applied, brightness, contrast, saturation, hue, order)

    def apply(self, images: Tensor, parameters: Jittered) -> Tensor:
        """All four changes, at each turn that one of them which the image's order says."""
        check_colour(images)
        amounts = (parameters.brightness, parameters.contrast, parameters.saturation, parameters.hue)
        brightness, contrast, saturation, hue = (a[:, None, None, None].to(images.dtype) for a in amounts)
        row = torch.arange(len(images), device=images.device)
        changed = images
        for turn in range(4):
            grey = luminance(changed)
            options = torch.stack(
                [
                    (changed * brightness).clamp(0, 1),
                    blended(changed, grey.mean(dim=(1, 2, 3), keepdim=True), contrast),
                    blended(changed, grey, saturation),
                    with_hue_shifted(changed, hue),
                ]
            )
            changed = options[parameters.order[:, turn], row]
        return where_applied(parameters.applied, changed, images)


@pytree_dataclass
@dataclass(frozen=True, eq=False)
class Greyed:
    """Which images lost their colour."""

    applied: Tensor


@dataclass(frozen=True)
class Greyscale(Augmentation):
    """Drop the colour, with some probability; the three channels remain."""

    name = "grey"

    probability: float = 0.2

    def __post_init__(self) -> None:
        check_probability(self.probability)

    def draw(self, n: int, size: Size, generator: torch.Generator) -> Greyed:
        """Yes or no for each image."""
        return Greyed(chosen(n, self.probability, generator))

    def apply(self, images: Tensor, parameters: Greyed) -> Tensor:
        """The luminance in all channels, where applied."""
        check_colour(images)
        return where_applied(parameters.applied, luminance(images).expand_as(images), images)


def simclr_with_colour(
    strength: float = 1.0, *, crop: float = 1.0, jitter: float = 0.8, grey: float = 0.2
) -> Augmentations:
    """SimCLR's views of colour images as paper A uses them (Sec. 4.2): crop, colour jitter, colour drop.

    strength: of the jitter; 1 is SimCLR's, ½ what it uses for small images. The others are probabilities.

    >>> images = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> views, parameters = simclr_with_colour()(images, 0)
    >>> views.shape, sorted(parameters)
    (torch.Size([4, 3, 8, 8]), ['colour', 'crop', 'grey'])
    """
    if not 0 <= as_float(strength) <= 2.5:
        raise ValueError(f"strength of simclr_with_colour is a number between 0 and 2.5, not {strength!r}.")
    amounts = (0.8 * strength, 0.8 * strength, 0.8 * strength, 0.2 * strength)
    return Augmentations(
        RandomResizedCrop(probability=crop), ColourJitter(*amounts, probability=jitter), Greyscale(probability=grey)
    )


def luminance(images: Tensor) -> Tensor:
    """``(n, 3, H, W)`` to ``(n, 1, H, W)``."""
    red, green, blue = images.split(1, dim=1)
    return LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue


def blended(images: Tensor, base: Tensor, factor: Tensor) -> Tensor:
    """The sum base + factor · (image − base), clipped to [0, 1]."""
    return (base + factor * (images - base)).clamp(0, 1)


def with_hue_shifted(images: Tensor, turns: Tensor) -> Tensor:
    """Hue moved by so many turns of the colour wheel at equal saturation and value: ``(n, 3, H, W)``."""
    red, green, blue = images.split(1, dim=1)
    value, least = images.amax(dim=1, keepdim=True), images.amin(dim=1, keepdim=True)
    chroma = value - least
    # The hue in sixths of a turn, from the channel that is largest; without chroma it does not matter.
    safe = chroma.masked_fill(chroma == 0, 1.0)
    hue = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, (blue - red) / safe + 2, (red - green) / safe + 4),
    )
    shifted = hue + 6 * turns
    # Each channel is the value, less what a trapezoid around the opposite hue takes away.
    return torch.cat([value - chroma * _trapezoid((shifted + offset) % 6) for offset in (5, 3, 1)], dim=1)


def _trapezoid(sixths: Tensor) -> Tensor:
    """0 at 0, 1 between 1 and 3, 0 again from 4 to 6."""
    return torch.minimum(sixths, 4 - sixths).clamp(0, 1)


def check_colour(images: Tensor) -> None:
    """Three channels, or a sentence."""
    if images.shape[1] != 3:
        raise ValueError(f"Colours need images with 3 channels, (n, 3, height, width), not {tuple(images.shape)}.")
