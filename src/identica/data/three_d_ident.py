"""3DIdent (A, Sec. 4.2): renders of a teapot with ten known factors, in the layout its authors published.

A folder holds ``images/000000.png`` and so on, ``raw_latents.npy`` with the factors in [−1, 1] and
``latents.npy`` with the same in physical units. ``identica render 3dident`` writes such a folder.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.types import Device

from identica.data.idx import DataFileError
from identica.data.png import read_png
from identica.render import FACTORS

#: Physical units for each unit of a raw latent: lengths in [−3, 3], angles in [−π/2, π/2].
PHYSICAL = (3.0, 3.0, 3.0, *[math.pi / 2] * 7)
#: Factors are saved in single precision and may leave their range by rounding.
_ROUNDING = 1e-5
_WHERE = "'identica render 3dident' makes such a folder"


class ThreeDIdent:
    """The images and factors in one folder of the published layout. Nothing is downloaded, nothing unpickled.

    root: the folder with ``images``, ``latents.npy`` and ``raw_latents.npy``; with ``split``, the folder above it,
        as in ``ThreeDIdent("3dident", split="train")``.

    There must be as many images as rows of factors, numbered from 0 without gaps, every factor in its range, and both
    files of factors must say the same.
    Images are read when they are asked for; one that cannot be read is named. Errors are :class:`DataFileError`,
    a ``ValueError``.

    raw_latents: ``(n, 10)`` in [−1, 1], in the order of :data:`identica.render.FACTORS`.
    latents: the same in physical units, ``(n, 10)``.
    """

    def __init__(self, root: str | os.PathLike[str], split: str | None = None) -> None:
        self.root = Path(root).expanduser() / (split or "")
        if not self.root.is_dir():
            raise DataFileError(f"There is no folder {self.root}; {_WHERE}.")
        ones = np.ones(len(FACTORS))
        self.raw_latents = torch.from_numpy(_read_latents(self.root / "raw_latents.npy", ones))
        self.latents = torch.from_numpy(_read_latents(self.root / "latents.npy", np.array(PHYSICAL)))
        self._paths = _numbered_images(self.root / "images")
        counts = {
            "images": len(self._paths),
            "raw_latents.npy": len(self.raw_latents),
            "latents.npy": len(self.latents),
        }
        if len(set(counts.values())) > 1:
            said = ", ".join(
                f"{count} {'' if name == 'images' else 'rows of '}{name}" for name, count in counts.items()
            )
            raise DataFileError(
                f"{self.root} holds {said}; expected as many of each. It is incomplete: copy it again, or let "
                "'identica render 3dident' finish what it was writing."
            )
        _require_one_meaning(self.root, self.raw_latents, self.latents)
        self.size: tuple[int, int] = read_png(self._paths[0]).shape[:2]

    def __len__(self) -> int:
        return len(self._paths)

    def __repr__(self) -> str:
        return f"ThreeDIdent({str(self.root)!r}): {len(self)} images of {self.size[0]}×{self.size[1]}"

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """One image, bytes ``(3, H, W)``, and its raw latents ``(10,)``."""
        if not isinstance(index, int | np.integer):
            raise TypeError(f"data[i] is one image: for several, data.images([0, 1]), not data[{index!r}].")
        if not -len(self) <= index < len(self):
            raise IndexError(f"There are {len(self)} images, and none with the number {index}.")
        return self.images([index % len(self)])[0], self.raw_latents[index]

    def image(self, index: int) -> npt.NDArray[np.uint8]:
        """One image as it is in its file: ``(H, W, 3)``."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"There are {len(self)} images, and none with the number {index}.")
        pixels = read_png(self._paths[index])
        if pixels.shape[:2] != self.size:
            raise DataFileError(
                f"The image {self._paths[index]} has {pixels.shape[0]}×{pixels.shape[1]} pixels, others have "
                f"{self.size[0]}×{self.size[1]}: it belongs to another data set. Replace it."
            )
        return pixels

    def images(self, indices: Sequence[int] | None = None, *, device: Device = "cpu", threads: int = 4) -> Tensor:
        """Those images, or all of them: bytes ``(n, 3, H, W)``, read by several threads at once."""
        indices = range(len(self)) if indices is None else indices
        images = torch.empty(len(indices), *self.size, 3, dtype=torch.uint8)

        def read(place: int) -> None:
            images[place] = torch.from_numpy(self.image(indices[place]))

        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(read, range(len(indices))):
                pass
        return images.permute(0, 3, 1, 2).to(device)

    @cached_property
    def normalisation(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of red, green and blue over all images, with values in [0, 1].

        Computed from the images: for the 250,000 of the published set that takes some minutes.
        """
        total = squares = np.zeros(3)
        for start in range(0, len(self), 1024):
            pixels = (
                self.images(range(start, min(start + 1024, len(self)))).permute(1, 0, 2, 3).flatten(1).double() / 255
            )
            total, squares = total + pixels.sum(1).numpy(), squares + pixels.square().sum(1).numpy()
        count = len(self) * self.size[0] * self.size[1]
        mean = total / count
        return tuple(mean.tolist()), tuple(np.sqrt(squares / count - mean**2).tolist())


def physical(raw: Tensor) -> Tensor:
    """Raw latents ``(..., 10)`` in [−1, 1] in physical units: lengths, and angles in radians."""
    return raw * torch.tensor(PHYSICAL, dtype=raw.dtype, device=raw.device)


def read_array(path: Path) -> npt.NDArray[Any]:
    """The array of an .npy file; a pickle, an archive or a damaged file is a ValueError."""
    with path.open("rb") as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _read_latents(path: Path, most: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """``(n, 10)`` numbers, column j between −most[j] and most[j]."""
    try:
        values = read_array(path)
    except FileNotFoundError:
        raise DataFileError(f"{path.parent} holds no {path.name}; {_WHERE}.") from None
    except (OSError, ValueError) as error:
        raise DataFileError(f"{path} cannot be read as an array of numbers ({error}): replace it.") from error
    if values.ndim != 2 or values.shape[1] != len(FACTORS) or not len(values):
        raise DataFileError(
            f"{path} holds {values.shape}, expected at least one row of {len(FACTORS)} factors, (n, 10)."
        )
    if values.dtype.kind not in "fiu":
        raise DataFileError(f"{path} holds {values.dtype}, expected numbers.")
    outside = ~(np.abs(values) <= most * (1 + _ROUNDING))  # NaN is outside too
    if outside.any():
        row, column = map(int, np.argwhere(outside)[0])
        raise DataFileError(
            f"{path}: the {FACTORS[column]} of image {row} is {values[row, column]}, expected a number between "
            f"{-most[column]:g} and {most[column]:g}. The file is damaged or of another data set."
        )
    return np.clip(values, -most, most).astype(np.float32)


def _require_one_meaning(root: Path, raw: Tensor, latents: Tensor) -> None:
    """Both files hold the same factors, up to rounding: of other sets, or in another order, they would not."""
    apart = (physical(raw.double()) - latents).abs() > _ROUNDING * torch.tensor(PHYSICAL, dtype=torch.float64)
    if bool(apart.any()):
        row, column = apart.nonzero()[0].tolist()
        unit, here, there = PHYSICAL[column], float(raw[row, column]), float(latents[row, column])
        raise DataFileError(
            f"{root}: the {FACTORS[column]} of image {row} is {there:g} in latents.npy, expected {here * unit:g}: "
            f"{unit:g} times the {here:g} in raw_latents.npy. The two belong to different data sets: copy both again."
        )


def _numbered_images(folder: Path) -> list[Path]:
    """The images in the order of their numbers, which start at 0 and have no gaps."""
    if not folder.is_dir():
        raise DataFileError(f"There is no folder {folder}; {_WHERE}.")
    numbered: dict[int, Path] = {}
    for path in sorted(path for path in folder.iterdir() if re.fullmatch(r"\d+\.png", path.name)):
        if (other := numbered.setdefault(int(path.stem), path)) != path:
            raise DataFileError(f"{folder} holds {other.name} and {path.name}, one number for two images.")
    missing = next((number for number in range(len(numbered)) if number not in numbered), None)
    if missing is not None:
        raise DataFileError(f"{folder} holds {len(numbered)} images, but none with the number {missing}.")
    return [numbered[number] for number in range(len(numbered))]
