"""A small data set in the format of MNIST, in place of the real one."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch
from torch import Tensor

from identica.data.mnist import CHECKSUMS
from tests.data.idx_files import idx_bytes, write_split

TRAIN, TEST = 300, 120


def drawn(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A bright square in the place of its class, 0 to 9, a pixel or so off, on a grey ground: ``(n, 28, 28)`` bytes."""
    labels = torch.arange(n) % 10
    images = torch.randint(0, 60, (n, 28, 28), generator=generator)
    shift = torch.randint(-1, 2, (n, 2), generator=generator)
    for image, label, (down, right) in zip(images, labels.tolist(), shift.tolist(), strict=True):
        top, left = 3 + 8 * (label // 4) + down, 2 + 6 * (label % 4) + right
        image[top : top + 6, left : left + 5] = 230
    return images.to(torch.uint8), labels.to(torch.uint8)


def write_digits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write both splits, and let their checksums count as the official ones."""
    generator = torch.Generator().manual_seed(7)
    folder.mkdir(parents=True, exist_ok=True)
    for prefix, n in (("train", TRAIN), ("t10k", TEST)):
        images, labels = drawn(n, generator)
        write_split(folder, prefix, images, labels)
        for kind, values in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
            monkeypatch.setitem(CHECKSUMS, f"{prefix}-{kind}", hashlib.sha256(idx_bytes(values)).hexdigest())
    return folder
