"""PNG files: what is written is read, whatever kind of PNG it is, and what cannot be read is named."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from identica.data import DataFileError
from identica.data.png import is_whole, read_png, write_png

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 4, 3), dtype=np.uint8)


def png(pixels: np.ndarray, kind: int) -> bytes:
    """A PNG by its specification: signature, header, unfiltered rows packed by zlib, end."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, kind, 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_png(tmp_path / "a.png", PIXELS)
    assert np.array_equal(read_png(tmp_path / "a.png"), PIXELS)
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_colours_with_alpha_and_grey_values_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(png(PIXELS, 2))
    assert np.array_equal(read_png(path), PIXELS)
    path.write_bytes(png(np.concatenate([PIXELS, PIXELS[..., :1]], axis=2), 6))
    assert np.array_equal(read_png(path), PIXELS)
    path.write_bytes(png(PIXELS[..., 0], 0))
    assert np.array_equal(read_png(path), np.repeat(PIXELS[..., :1], 3, axis=2))


@pytest.mark.parametrize("cut", [0, 7, 20, 60, -40])
def test_a_file_that_was_cut_short_is_named(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "half.png"
    path.write_bytes(png(PIXELS, 2)[:cut])
    assert not is_whole(path)
    with pytest.raises(DataFileError, match=r"half\.png cannot be read"):
        read_png(path)


def test_other_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("not an image")
    with pytest.raises(DataFileError, match=r"text\.png cannot be read"):
        read_png(tmp_path / "text.png")
    with pytest.raises(DataFileError, match=r"There is no image .*gone\.png"):
        read_png(tmp_path / "gone.png")
    assert not is_whole(tmp_path / "gone.png")
    (tmp_path / "whole.png").write_bytes(png(PIXELS, 2))
    assert is_whole(tmp_path / "whole.png")


def test_only_bytes_in_three_colours_are_written(tmp_path: Path) -> None:
    for pixels in (PIXELS[..., 0], PIXELS.astype(np.float32)):
        with pytest.raises(ValueError, match="write_png takes bytes"):
            write_png(tmp_path / "a.png", pixels)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
