"""MNIST from its official files (LeCun, Cortes and Burges), which the user has put into a folder."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.types import Device

from identica.data.idx import DataFileError, IdxFile, read_idx

Split = Literal["train", "test"]

#: SHA-256 of the official files, unpacked, so that it does not matter how a copy was packed. The packed ones
#: have the published MD5 sums f68b3c2d…, d53e105e…, 9fb629c4… and ec29112d….
CHECKSUMS = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
_PREFIX = {"train": "train", "test": "t10k"}
_WHERE = (
    "MNIST is published at yann.lecun.com/exdb/mnist and mirrored at ossci-datasets.s3.amazonaws.com/mnist; it "
    "consists of train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz and "
    "t10k-labels-idx1-ubyte.gz"
)


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """``images: (n, channels, height, width)`` and the class of each, ``labels: (n,)`` in int64."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.images)

    def to(self, device: Device) -> LabelledImages:
        """The same on another device."""
        return LabelledImages(self.images.to(device), self.labels.to(device))


def load_mnist(
    folder: str | os.PathLike[str],
    split: Split = "train",
    *,
    dtype: torch.dtype = torch.float32,
    verify: bool = True,
) -> LabelledImages:
    """The 60,000 training images ("train") or the 10,000 test images ("test"), 28×28 with one channel.

    folder: where the official files are, packed (``.gz``) or not, or a folder with a folder ``mnist`` of them. Nothing
        is ever downloaded.
    dtype: grey values are floats in [0, 1]; ``torch.uint8`` keeps the bytes, a quarter of the memory.
    verify: compare with the official checksums. Without it any images and labels in MNIST's format are read, such as
        Fashion-MNIST's.

    A file that is missing, cut short, damaged or another one raises :class:`DataFileError`, a ``ValueError``.
    """
    if split not in get_args(Split):
        raise ValueError(f"split of load_mnist is 'train' or 'test', not {split!r}.")
    if not (dtype == torch.uint8 or dtype.is_floating_point):
        raise ValueError(f"dtype of load_mnist is a floating-point type, or torch.uint8 for bytes, not {dtype}.")
    path = Path(folder).expanduser()
    path = path / "mnist" if (path / "mnist").is_dir() else path
    images = _verified(path, f"{_PREFIX[split]}-images-idx3-ubyte", 3, verify).values
    labels = _verified(path, f"{_PREFIX[split]}-labels-idx1-ubyte", 1, verify).values
    if len(images) != len(labels):
        raise DataFileError(
            f"{path} holds {len(images)} images and {len(labels)} labels of the split {split!r}; expected as many of "
            "one as of the other. The two files belong to different data sets."
        )
    images = images[:, None]
    return LabelledImages(images if dtype == torch.uint8 else images.to(dtype) / 255, labels.long())


def _verified(folder: Path, name: str, axes: int, verify: bool) -> IdxFile:
    path = _found(folder, name)
    file = read_idx(path, axes)
    found = hashlib.sha256(file.content).hexdigest() if verify else CHECKSUMS[name]
    if found != CHECKSUMS[name]:
        raise DataFileError(
            f"{path} has MNIST's format, but not its contents: the SHA-256 of the unpacked file is {found}, expected "
            f"{CHECKSUMS[name]}. It is damaged, or belongs to a data set with the same file names, such as "
            "Fashion-MNIST. Replace it. (In Python load_mnist(..., verify=False) reads it as it is.)"
        )
    return file


def _found(folder: Path, name: str) -> Path:
    """The file, packed or not; some copies write a dot before idx."""
    if not folder.is_dir():
        raise DataFileError(f"There is no folder {folder}. {_WHERE}: put them into a folder and name it here.")
    plain = (name, name.replace("-idx", ".idx"))
    for candidate in (f"{stem}{suffix}" for stem in plain for suffix in (".gz", "")):
        if (folder / candidate).is_file():
            return folder / candidate
    raise DataFileError(f"{folder} holds neither {name}.gz nor {name}. {_WHERE}: put them there.")
