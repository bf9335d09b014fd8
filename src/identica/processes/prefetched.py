"""Batches drawn on a thread while the encoder learns from the one before."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch.types import Device
from torch.utils import _pytree as pytree

from identica._devices import usable_device
from identica._numbers import whole_number
from identica._randomness import Randomness, as_generator
from identica.processes.anchors import DrawsPairs

#: One number of this range seeds the generator of each batch.
_SEEDS = 2**62


class Prefetched:
    """Draws the next batches of a process on a thread, for processes that search or read on the host.

    process: drawn from on the CPU, such as a :class:`SnappedProcess` that searches a tree or reads images.
    ahead: how many batches are drawn in advance.

    Each batch has a generator of its own, seeded by one number of the caller's. Which numbers those will be is found
    out in advance from a copy of the caller's generator: batches do not depend on the prefetching, and a run that is
    resumed goes on with the batches it would have had.
    """

    def __init__(self, process: DrawsPairs, ahead: int = 4) -> None:
        self.process, self.ahead = process, whole_number(ahead, "ahead, the batches drawn in advance,")
        self.device: torch.device = torch.device("cpu")
        self._queue: deque[tuple[int, Future[Any]]] = deque()
        #: Whose batches are in the queue, and who asked last: a generator and a size.
        self._owner: tuple[int, int] | None = None
        self._last: tuple[int, int] | None = None
        self._pool: ThreadPoolExecutor | None = None

    def sample(self, n: int, generator: Randomness) -> Any:
        """The batch of the generator's next number, from the queue if it is there; a seed has but one batch."""
        n, alone = whole_number(n, "n", least=0), not isinstance(generator, torch.Generator)
        generator = as_generator(generator)
        seed = _next_seed(generator)
        if alone:
            return self._placed(self._draw(n, seed))
        caller = (id(generator), n)
        batch = self._take(seed) if caller == self._owner else None
        if caller in (self._owner, self._last):  # asked twice: a loop, and not an evaluation between two steps
            self._look_ahead(caller, generator)
        self._last = caller
        return self._placed(self._draw(n, seed) if batch is None else batch.result())

    def _placed(self, pairs: Any) -> Any:
        return pytree.tree_map(lambda part: part.to(self.device, non_blocking=True), pairs)

    def _take(self, seed: int) -> Future[Any] | None:
        """The next batch, unless the generator was set to another state: then the queue is of no use."""
        if self._queue and self._queue[0][0] == seed:
            return self._queue.popleft()[1]
        self._queue.clear()
        return None

    def _look_ahead(self, caller: tuple[int, int], generator: torch.Generator) -> None:
        """Start the batches that this generator will ask for next."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="pairs")
        if caller != self._owner:
            self._queue.clear()
            self._owner = caller
        copy = torch.Generator(generator.device)
        copy.set_state(generator.get_state())
        wanted = [_next_seed(copy) for _ in range(self.ahead)]
        for seed in wanted[len(self._queue) :]:
            self._queue.append((seed, self._pool.submit(self._draw, caller[1], seed)))

    def _draw(self, n: int, seed: int) -> Any:
        return self.process.sample(n, torch.Generator().manual_seed(seed))

    def to(self, device: Device = None, dtype: torch.dtype | None = None) -> Prefetched:
        """The same with its batches brought to another device; the process itself stays on the CPU."""
        moved = Prefetched(self.process.to("cpu", dtype), self.ahead)
        moved.device = self.device if device is None else usable_device(device)
        return moved

    def to_dict(self) -> dict[str, Any]:
        """The process: prefetching does not change what is drawn."""
        return {"process": "prefetched", "of": self.process.to_dict()}


def _next_seed(generator: torch.Generator) -> int:
    return int(torch.randint(_SEEDS, (), generator=generator, device=generator.device))
