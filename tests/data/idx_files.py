"""Small files in the format of MNIST."""

from __future__ import annotations

import gzip
from pathlib import Path

from torch import Tensor


def idx_bytes(values: Tensor) -> bytes:
    header = bytes((0, 0, 8, values.ndim)) + b"".join(side.to_bytes(4, "big") for side in values.shape)
    return header + bytes(values.flatten().tolist())


def write_split(folder: Path, prefix: str, images: Tensor, labels: Tensor, *, packed: bool = True) -> None:
    for name, values in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
        content = idx_bytes(values)
        path = folder / f"{prefix}-{name}{'.gz' if packed else ''}"
        path.write_bytes(gzip.compress(content) if packed else content)
