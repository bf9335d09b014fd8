"""Where unfinished runs are kept, and who is working on which: ``OUT/.runs/<hash>``.

Several processes may work on one table in one folder. Each claims a run by a lock that the system drops when
the process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


class RunFolders:
    """The folders of unfinished runs below one output folder."""

    def __init__(self, out: Path) -> None:
        self.root = out / ".runs"

    def folder(self, name: str) -> Path:
        """Where the run of that name keeps its checkpoints, a folder for each set of seeds."""
        return self.root / name

    def forget(self, name: str) -> None:
        """The run is finished and its results are written, or it cannot be continued."""
        shutil.rmtree(self.folder(name), ignore_errors=True)

    @contextlib.contextmanager
    def claim(self, name: str, *, wait: bool) -> Iterator[bool]:
        """Whether the run is ours while the context lasts; without ``wait`` False if another process has it."""
        self.root.mkdir(parents=True, exist_ok=True)
        descriptor = _lock(self.root / f"{name}.lock", wait)
        if descriptor is None:
            yield False
            return
        try:
            yield True
        finally:
            (self.root / f"{name}.lock").unlink(missing_ok=True)  # while it is still ours
            os.close(descriptor)
            with contextlib.suppress(OSError):
                self.root.rmdir()  # once nothing is left in it


def _lock(path: Path, wait: bool) -> int | None:
    """A locked descriptor of the file that is at ``path`` now, or None if another process has it."""
    while True:
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
        except FileNotFoundError:  # another process has just tidied the folder away
            path.parent.mkdir(parents=True, exist_ok=True)
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            # Whoever had it before removed the file: then this lock is on a file that nobody else can find.
            if path.exists() and os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
