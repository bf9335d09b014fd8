"""The idx format of MNIST and its relatives: a short header, then bytes.

Header, big-endian: two zero bytes, a type (8: unsigned bytes), the number of axes, then four bytes for each axis.
"""

from __future__ import annotations

import gzip
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import torch
from torch import Tensor

UNSIGNED_BYTES = 8
_MAGIC_BYTES = 4
_CHUNK = 1 << 20


class DataFileError(ValueError):
    """A data file that is missing, damaged or another one; the message says what was expected and what to do."""


@dataclass(frozen=True)
class IdxFile:
    """What a file holds: ``values`` as unsigned bytes in the shape of its header, and its bytes, unpacked."""

    values: Tensor
    content: bytes


def read_idx(path: Path, axes: int) -> IdxFile:
    """Read ``path``, packed by gzip or not, which must hold unsigned bytes along that many ``axes``."""
    try:
        with _opened(path) as file:
            return _read(path, file, axes)
    except EOFError as error:
        raise DataFileError(f"{path} ends early: it was not copied completely. Copy or download it again.") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataFileError(f"{path} is damaged ({error}). Copy or download it again.") from error
    except OSError as error:
        raise DataFileError(f"{path} cannot be read: {error.strerror or error}.") from error


def _opened(path: Path) -> BinaryIO:
    """The unpacked bytes of a file; whether it is packed is read from its first two bytes, not from its name."""
    with path.open("rb") as file:
        is_packed = file.read(2) == b"\x1f\x8b"
    return cast(BinaryIO, gzip.open(path, "rb")) if is_packed else path.open("rb")


def _read(path: Path, file: BinaryIO, axes: int) -> IdxFile:
    magic = file.read(_MAGIC_BYTES)
    if magic != bytes((0, 0, UNSIGNED_BYTES, axes)):
        raise DataFileError(
            f"{path} does not start like an idx file of unsigned bytes along {axes} axes: its first bytes are "
            f"{magic.hex(' ') or 'missing'}, expected 00 00 08 {axes:02x}. It is another file under this name."
        )
    header = file.read(4 * axes)
    if len(header) < 4 * axes:
        raise EOFError
    shape = [int.from_bytes(header[4 * i : 4 * i + 4], "big") for i in range(axes)]
    expected = math.prod(shape)
    body = _read_up_to(file, expected + 1)  # never more than the header promises, whatever a packed file unpacks to
    if len(body) < expected:
        raise DataFileError(
            f"{path} ends early: its header promises {' × '.join(map(str, shape))} bytes, but only {len(body)} follow. "
            "Copy or download it again."
        )
    if len(body) > expected:
        raise DataFileError(
            f"{path} is longer than the {' × '.join(map(str, shape))} bytes that its header promises: it is damaged. "
            "Copy or download it again."
        )
    values = torch.from_numpy(np.frombuffer(bytearray(body), dtype=np.uint8).reshape(shape))
    return IdxFile(values, magic + header + body)


def _read_up_to(file: BinaryIO, count: int) -> bytes:
    """``count`` bytes, or as many as there are: a damaged header may promise more than fits into the memory."""
    chunks: list[bytes] = []
    while count > 0 and (chunk := file.read(min(count, _CHUNK))):
        chunks.append(chunk)
        count -= len(chunk)
    return b"".join(chunks)
