"""What an augmentation is: parameters drawn for every image, then a function of image and parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from identica._numbers import as_float
from identica._randomness import Randomness, as_generator

Size = tuple[int, int]


class Augmented(NamedTuple):
    """The augmented ``images: (n, C, H, W)`` and the parameters of each, all ``(n, ...)``."""

    images: Tensor
    parameters: Any


class Augmentation:
    """A random change of images ``(n, C, H, W)``, drawn anew for every image, all images at once.

    A subclass is a frozen dataclass of settings with ``draw`` and ``apply``. Its parameters are a dataclass of
    tensors; among them ``applied: (n,)``, whether the image was changed on purpose. Nothing waits for the device and
    no shape depends on data, so a training step that augments can be captured as one graph.
    """

    #: Under which the parameters are found when several augmentations follow each other.
    name: ClassVar[str]

    def draw(self, n: int, size: Size, generator: torch.Generator) -> Any:
        """Parameters for ``n`` images of ``size`` (height, width), on the generator's device."""
        raise NotImplementedError(f"{type(self).__name__} must implement draw(n, size, generator).")

    def apply(self, images: Tensor, parameters: Any) -> Tensor:
        """The images ``(n, C, H, W)`` changed as the parameters say."""
        raise NotImplementedError(f"{type(self).__name__} must implement apply(images, parameters).")

    @torch.no_grad()
    def __call__(self, images: Tensor, generator: Randomness) -> Augmented:
        """Draw and apply. The generator, or the seed of one, lives where the images are."""
        check_images(images)
        source = as_generator(generator, images.device)
        parameters = self.draw(len(images), (images.shape[-2], images.shape[-1]), source)
        return Augmented(self.apply(images, parameters), parameters)

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain data, with the name."""
        settings: dict[str, Any] = dataclasses.asdict(self) if dataclasses.is_dataclass(self) else {}
        return {"augmentation": self.name, **settings}


class Augmentations(Augmentation):
    """Several augmentations one after the other; the parameters are those of each, by name.

    >>> from identica.data.augment import GaussianBlur, HorizontalFlip
    >>> both = Augmentations(HorizontalFlip(), GaussianBlur())
    >>> images, parameters = both(torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0)), 0)
    >>> sorted(parameters), parameters["blur"].applied.shape
    (['blur', 'flip'], torch.Size([5]))
    """

    name = "sequence"

    def __init__(self, *steps: Augmentation) -> None:
        wrong = [step for step in steps if not isinstance(step, Augmentation)]
        if wrong or not steps:
            raise TypeError(
                "Augmentations takes augmentations, as in Augmentations(RandomResizedCrop(), GaussianBlur()), not "
                f"{repr(wrong[0]) if wrong else 'nothing'}."
            )
        names = [step.name for step in steps]
        if len(set(names)) < len(names):
            raise ValueError(f"Each kind of augmentation can be used once in a sequence, but these are {names}.")
        self.steps = steps

    def draw(self, n: int, size: Size, generator: torch.Generator) -> dict[str, Any]:
        """The parameters of each step by its name."""
        return {step.name: step.draw(n, size, generator) for step in self.steps}

    def apply(self, images: Tensor, parameters: Mapping[str, Any]) -> Tensor:
        """All steps, first to last."""
        for step in self.steps:
            images = step.apply(images, parameters[step.name])
        return images

    def to_dict(self) -> dict[str, Any]:
        """The settings of all steps."""
        return {"augmentation": self.name, "steps": [step.to_dict() for step in self.steps]}

    def __repr__(self) -> str:
        return f"Augmentations({', '.join(map(repr, self.steps))})"


def check_images(images: Tensor) -> None:
    """Floating-point images along four axes, or a sentence."""
    if images.ndim != 4 or not images.is_floating_point():
        raise ValueError(
            f"Augmentations take floating-point images (n, channels, height, width), not {images.dtype} of shape "
            f"{tuple(images.shape)}."
        )


def chosen(n: int, probability: float, generator: torch.Generator) -> Tensor:
    """``(n,)`` independent yes or no: a 0 is never, a 1 always."""
    return torch.rand(n, generator=generator, device=generator.device) < probability


def uniform(shape: int | tuple[int, ...], low: float, high: float, generator: torch.Generator) -> Tensor:
    """Uniform draws between two numbers."""
    shape = (shape,) if isinstance(shape, int) else shape
    return low + (high - low) * torch.rand(shape, generator=generator, device=generator.device)


def where_applied(applied: Tensor, changed: Tensor, images: Tensor) -> Tensor:
    """The changed image where ``applied: (n,)``, else the image itself, bit by bit."""
    return torch.where(applied[:, None, None, None], changed, images)


def check_probability(value: float) -> None:
    """A number between 0 and 1, or a sentence."""
    if not 0 <= as_float(value) <= 1:
        raise ValueError(f"probability, how often an augmentation is applied, lies between 0 and 1, not {value!r}.")


def check_range(value: tuple[float, float], what: str, low: float, high: float) -> None:
    """Two numbers in order, above ``low`` and up to ``high``, or a sentence."""
    try:
        first, last = (as_float(number) for number in value)
    except (TypeError, ValueError):
        first = last = float("nan")
    if not low < first <= last <= high:
        limit = "" if high == float("inf") else f" and at most {high:g}"
        raise ValueError(f"{what} is a pair (smallest, largest) of numbers above {low:g}{limit}, not {value!r}.")
