"""Colour images as PNG files: eight bits in each of red, green and blue.

Reading and writing is Pillow's, which matplotlib brings along.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import numpy as np
import numpy.typing as npt

from identica.data.idx import DataFileError

Pixels = npt.NDArray[np.uint8]

#: The chunk that ends every whole PNG file.
_END = b"IEND\xaeB`\x82"


def read_png(path: Path) -> Pixels:
    """The image at ``path``: ``(height, width, 3)``; an alpha channel is left out, grey values stand for all colours.

    A file that cannot be read raises :class:`DataFileError`, which names it.
    """
    from PIL import Image

    try:
        with Image.open(path, formats=("PNG",)) as image:
            return np.array(image.convert("RGB"), dtype=np.uint8)
    except FileNotFoundError:
        raise DataFileError(f"There is no image {path}.") from None
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        raise DataFileError(
            f"The image {path} cannot be read ({error}): it was cut short or is no PNG file. Replace it."
        ) from error


def write_png(path: Path, pixels: Pixels) -> None:
    """Write ``pixels: (height, width, 3)``, whole or not at all: under a name of its own first, then renamed."""
    from PIL import Image

    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8:
        raise ValueError(f"write_png takes bytes (height, width, 3), not {pixels.dtype} of shape {pixels.shape}.")
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        Image.fromarray(pixels).save(beside, format="PNG", compress_level=6)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def is_whole(path: Path) -> bool:
    """Whether there is a PNG file that was written to its end, without reading more than that end."""
    try:
        with path.open("rb") as file:
            file.seek(-len(_END), os.SEEK_END)
            return file.read() == _END
    except OSError:
        return False
