"""Several cores at work on pieces of their own, instead of together on every small operation.

PyTorch splits each operation among its threads and waits for all of them before the next. For thousands of
operations on tiles that fit a cache, that wait costs more than the work, and on a machine that is not idle a
hundred times more. So each piece runs on a thread of its own, whose operations are not split any further; the
interpreter's lock is free while they run. Only the CPU needs this.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Result = TypeVar("Result")

#: Beyond this many threads the interpreter's lock would be the bottleneck.
MOST_WORKERS = 8

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_pool_size = 0


def available_workers() -> int:
    """How many pieces can run at once: as many as PyTorch may use threads (``torch.set_num_threads``)."""
    return min(torch.get_num_threads(), MOST_WORKERS)


def run(pieces: Sequence[Callable[[], Result]]) -> list[Result]:
    """The results of all pieces, in order, computed without gradients by up to as many threads."""
    if torch.get_num_threads() == 1:  # nothing would be split, so nothing is gained elsewhere
        return [_without_gradients(piece) for piece in pieces]
    return list(_started(min(len(pieces), MOST_WORKERS)).map(_without_gradients, pieces))


def _without_gradients(piece: Callable[[], Result]) -> Result:
    with torch.no_grad():
        return piece()


def _started(count: int) -> ThreadPoolExecutor:
    """At least ``count`` workers, all set up alike, so that it does not matter which of them does what."""
    global _pool, _pool_size
    with _lock:
        if _pool is None or _pool_size < count:
            count = max(count, available_workers())
            threads = torch.get_num_threads()
            pool, all_there = ThreadPoolExecutor(count, "identica"), threading.Barrier(count)

            def one_thread(_: int) -> None:
                torch.get_num_threads()  # sets a new thread up to the default; what follows must come after
                torch.set_num_threads(1)
                all_there.wait()

            list(pool.map(one_thread, range(count)))
            torch.set_num_threads(threads)  # the setting is each thread's own, its default for new threads is not
            _pool, _pool_size = pool, count
        return _pool


def _forget() -> None:
    """A forked child has the pool, but not its threads."""
    global _lock, _pool, _pool_size
    _lock, _pool, _pool_size = threading.Lock(), None, 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
