"""Real data sets from the files their authors published, augmentations, and pairs of augmented views.

Images are ``(n, channels, height, width)``. Nothing here downloads anything.
"""

from identica.data.augment import (
    Blurred,
    Cropped,
    Flipped,
    GaussianBlur,
    HorizontalFlip,
    RandomResizedCrop,
    simclr_without_colour,
)
from identica.data.augmentation import Augmentation, Augmentations, Augmented
from identica.data.colour import ColourJitter, Greyed, Greyscale, Jittered
from identica.data.idx import DataFileError
from identica.data.mnist import LabelledImages, load_mnist
from identica.data.views import AugmentedViews, Views

__all__ = [
    "Augmentation",
    "Augmentations",
    "Augmented",
    "AugmentedViews",
    "Blurred",
    "ColourJitter",
    "Cropped",
    "DataFileError",
    "Flipped",
    "GaussianBlur",
    "Greyed",
    "Greyscale",
    "HorizontalFlip",
    "Jittered",
    "LabelledImages",
    "RandomResizedCrop",
    "Views",
    "load_mnist",
    "simclr_without_colour",
]
