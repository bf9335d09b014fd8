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
from identica.data.augmented_process import AugmentedProcess
from identica.data.colour import ColourJitter, Greyed, Greyscale, Jittered, simclr_with_colour
from identica.data.idx import DataFileError
from identica.data.mnist import LabelledImages, load_mnist
from identica.data.three_d_ident import ThreeDIdent
from identica.data.three_d_ident_writer import write_three_d_ident
from identica.data.views import AugmentedViews, Views

__all__ = [
    "Augmentation",
    "Augmentations",
    "Augmented",
    "AugmentedProcess",
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
    "ThreeDIdent",
    "Views",
    "load_mnist",
    "simclr_with_colour",
    "simclr_without_colour",
    "write_three_d_ident",
]
