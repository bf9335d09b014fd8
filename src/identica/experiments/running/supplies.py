"""What some experiments need besides their settings: data sets that the user has, and VAEs trained on them once.

Nothing is downloaded. A folder of data sets is named by ``--data`` or by the environment variable IDENTICA_DATA.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from identica.data import Augmentations, LabelledImages, load_mnist, simclr_without_colour
from identica.data.mnist import CHECKSUMS
from identica.encoders import VAE
from identica.experiments.mnist.rows import PROBABILITIES, VaeSettings, ViewsName
from identica.experiments.planning import hash_of
from identica.experiments.running.folders import RunFolders
from identica.training import derive_seed
from identica.training.vae import train_vae

VARIABLE = "IDENTICA_DATA"


def data_folder(given: str | os.PathLike[str] | None) -> Path | None:
    """The folder of data sets: the one given, else the one that the environment names, else None."""
    named = given or os.environ.get(VARIABLE)
    return Path(named).expanduser() if named else None


def mnist_identity() -> str:
    """A hash of the checksums that the files must have, which stands for the data in a configuration."""
    return hashlib.sha256("".join(CHECKSUMS.values()).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Digits:
    """MNIST as bytes, ``(n, 1, 28, 28)`` with labels, on one device."""

    train: LabelledImages
    test: LabelledImages


@dataclass(frozen=True)
class Supplies:
    """Data and VAEs of one call of ``reproduce``; each is loaded or trained when first asked for, and kept.

    data: the folder of data sets, with MNIST's four files in it or in a folder ``mnist`` below it.
    out: the folder of the results. VAEs are kept in ``out/.runs``, so that every row, a later call and other processes
        find them; whoever wants them trained again removes them there.
    """

    data: Path | None
    out: Path
    device: torch.device
    _vaes: dict[tuple[VaeSettings, int], VAE] = field(default_factory=dict, repr=False, compare=False)
    _seconds: dict[int, float] = field(default_factory=dict, repr=False, compare=False)

    @functools.cached_property
    def digits(self) -> Digits:
        """MNIST, compared with its official checksums; a sentence if it is not there or not whole."""
        if self.data is None:
            raise ValueError(
                "This experiment needs MNIST, and no folder was named: put its four official files into a folder and "
                f"say which with --data DIR, or set {VARIABLE}."
            )
        train, test = (load_mnist(self.data, split, dtype=torch.uint8).to(self.device) for split in ("train", "test"))
        return Digits(train, test)

    def vae(self, settings: VaeSettings, seed: int) -> VAE:
        """The VAE of these settings and seed, on the CPU: from its file, where it is trained into first.

        What was just trained is read back, too, so that whoever trains it has what all others have, bit by bit.
        """
        if (settings, seed) not in self._vaes:
            name = f"vae-{hash_of({**dataclasses.asdict(settings), 'mnist': mnist_identity()})}-{seed}"
            folders = RunFolders(self.out)
            path = folders.folder(name) / "vae.safetensors"
            with folders.claim(name, wait=True):  # of several processes one trains, the others wait
                self._vaes[settings, seed] = self._kept(path) or self._trained(settings, seed, path)
        return self._vaes[settings, seed]

    @staticmethod
    def _kept(path: Path) -> VAE | None:
        """That of an earlier call; None, with a warning, for a file that cannot be read."""
        if not path.exists():
            return None
        try:
            return VAE.load(path)
        except ValueError as error:
            warnings.warn(f"{error} It is trained again.", stacklevel=5)
            return None

    def _trained(self, settings: VaeSettings, seed: int, path: Path) -> VAE:
        began = time.monotonic()
        images = self.digits.train.images[: settings.images]
        vae = VAE(
            tuple(images.shape[1:]), settings.dim, settings.hidden, beta=settings.beta, seed=derive_seed(seed, "vae")
        )
        vae, _ = train_vae(
            images,
            vae,
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            lr=settings.lr,
            augment=augment(settings),
            seed=derive_seed(seed, "vae training"),
            device=self.device,
            quiet=True,
        )
        vae.save(path)
        self._seconds[seed] = self._seconds.get(seed, 0.0) + time.monotonic() - began
        return VAE.load(path)

    def take_seconds(self, seed: int) -> float:
        """What training VAEs of this seed took since the last call: counted once, by the first model that used them."""
        return self._seconds.pop(seed, 0.0)


def views_of(name: ViewsName) -> Augmentations:
    """The augmentation that makes these views."""
    return simclr_without_colour(**PROBABILITIES[name])


def augment(settings: VaeSettings) -> Callable[[Tensor, torch.Generator], Tensor] | None:
    """What a VAE's training images go through; None for plain ones."""
    if settings.views == "plain":
        return None
    views = views_of(settings.views)
    return lambda images, generator: views(images, generator).images
