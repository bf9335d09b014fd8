"""The ledger: one JSON line per result, appended and never rewritten.

Safe against being killed and against several writers. A line is written whole, under a lock, and synced to
disk before the next. What a crash left half-written is moved to a file beside the ledger, with a warning,
and everything before it stays.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

from identica.experiments.receipts.receipt import Receipt


class LedgerWarning(UserWarning):
    """Something in a ledger could not be read; the rest was."""


def ledger_path(folder: str | os.PathLike[str], experiment_id: str) -> Path:
    """``results/clica-table1.jsonl`` for "clica/table1"."""
    return Path(folder) / f"{experiment_id.replace('/', '-')}.jsonl"


def set_aside_path(path: Path) -> Path:
    """Where half-written lines of a ledger go."""
    return path.with_suffix(".torn")


def append(path: Path, receipt: Receipt) -> None:
    """Add one line: locked against other writers, and on the disk when this returns."""
    line = (receipt.to_json() + "\n").encode()
    is_new = not path.exists()
    with open(path, "ab", buffering=0) as file, _locked(file.fileno(), fcntl.LOCK_EX):
        _mend(path, file.fileno())
        _write_all(file.fileno(), line)
        os.fsync(file.fileno())
    if is_new:
        _sync_folder(path.parent)


def read(path: Path) -> tuple[Receipt, ...]:
    """All receipts of one ledger, in the order they were written; none if there is no such file.

    Lines that cannot be read are left out with a warning. Nothing is changed: only :func:`append` mends.
    """
    try:
        with open(path, "rb") as file, _locked(file.fileno(), fcntl.LOCK_SH):
            content = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return ()
    receipts = []
    *lines, tail = content.split(b"\n")
    for number, line in enumerate([*lines, tail], start=1):
        if not line.strip():
            continue
        try:
            receipts.append(Receipt.from_json(line.decode()))
        except ValueError as error:
            torn = number == len(lines) + 1
            what = "is torn: whoever wrote it was stopped" if torn else f"cannot be read ({error})"
            warnings.warn(f"Line {number} of {path} {what}. It is left out.", LedgerWarning, stacklevel=2)
    return tuple(receipts)


def read_folder(folder: str | os.PathLike[str]) -> tuple[Receipt, ...]:
    """The receipts of every ledger in a folder; none if there is no such folder."""
    return tuple(receipt for path in sorted(Path(folder).glob("*.jsonl")) for receipt in read(path))


@contextlib.contextmanager
def _locked(descriptor: int, kind: int) -> Iterator[None]:
    fcntl.flock(descriptor, kind)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _mend(path: Path, descriptor: int) -> None:
    """If the last line has no end, finish it where it is whole, and set it aside where it is torn."""
    content = path.read_bytes()
    start = content.rfind(b"\n") + 1
    tail = content[start:]
    if not tail:
        return
    try:
        Receipt.from_json(tail.decode())
    except ValueError:
        aside = set_aside_path(path)
        with open(aside, "ab") as file:
            file.write(tail + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.ftruncate(descriptor, start)
        warnings.warn(
            f"The last line of {path} was torn: whoever wrote it was stopped. It was moved to {aside}.",
            LedgerWarning,
            stacklevel=3,
        )
    else:
        _write_all(descriptor, b"\n")


def _write_all(descriptor: int, content: bytes) -> None:
    while content:  # a disk that is almost full may take a part
        content = content[os.write(descriptor, content) :]


def _sync_folder(folder: Path) -> None:
    """The new name itself must survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
