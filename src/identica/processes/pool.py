"""Pairs drawn in advance and used more than once, for observations that cost more to draw than to learn from."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.types import Device
from torch.utils import _pytree as pytree

from identica._numbers import whole_number
from identica._randomness import Randomness, as_generator
from identica.processes.anchors import DrawsPairs, different


class PairPool:
    """Keeps ``size`` pairs of a process in memory; every draw first replaces the ``refresh`` oldest by new ones.

    process: where pairs come from, such as a :class:`PairProcess` with a renderer as its mixing.
    size: pairs in memory. ``sample(n)`` takes n different ones, so size must be at least n.
    refresh: how many are new at every draw. With batches of n a pair is seen n / refresh times on average; 0 keeps the
        first ones for ever, n renews as many as are used.
    chunk: how many are drawn at once while the pool is filled.

    Every pair is an exact draw, only not always a fresh one. The pool is filled by the first draw, with its generator.
    It is not part of a checkpoint: a run that is resumed fills it with other pairs of the same law and
    goes on from there, so it ends as well as without an interruption, but not bit by bit the same.

    From the second draw on, nothing waits for the device and shapes stay equal: a step can be captured as one graph.

    >>> from identica.distributions import BoxUniform, Conditional, TruncatedNormal
    >>> from identica.processes.pair_process import PairProcess
    >>> process = PairProcess(BoxUniform(2), Conditional(TruncatedNormal, scale=0.1))
    >>> pool = PairPool(process, size=100, refresh=10)
    >>> pool.sample(50, torch.Generator().manual_seed(0)).x_pos.shape
    torch.Size([50, 2])
    """

    def __init__(self, process: DrawsPairs, size: int, refresh: int, *, chunk: int = 1024) -> None:
        self.process = process
        self.size = whole_number(size, "size, the pairs that a pool keeps,")
        self.refresh = whole_number(refresh, "refresh, the pairs that a pool renews at every draw,", least=0)
        self.chunk = whole_number(chunk, "chunk, the pairs that a pool draws at once,")
        if self.refresh > self.size:
            raise ValueError(f"A pool of {self.size} pairs cannot renew {self.refresh} at every draw: refresh ≤ size.")
        self._kept: list[Tensor] | None = None
        self._layout: Any = None
        self._places: list[int] = []
        self._oldest: Tensor | None = None

    @torch.no_grad()
    def sample(self, n: int, generator: Randomness) -> Any:
        """``n`` different pairs of the pool, after its oldest have been replaced."""
        n = whole_number(n, "n", least=0)
        if n > self.size:
            raise ValueError(f"A pool of {self.size} pairs has no {n} different ones: make it larger.")
        source = as_generator(generator, self.device)
        if self._kept is None:
            self._fill(source)
        else:
            self._renew(source)
        assert self._kept is not None
        index = different(n, self.size, source)
        drawn = [part[index] for part in self._kept]
        return pytree.tree_unflatten([drawn[place] for place in self._places], self._layout)

    def _fill(self, generator: torch.Generator) -> None:
        """Part by part into memory that is allocated once; interrupted, the pool is as empty as before."""
        filled: list[Tensor] = []
        for start in range(0, self.size, self.chunk):
            leaves = self._drawn(min(self.chunk, self.size - start), generator)
            filled = filled or [leaf.new_empty(self.size, *leaf.shape[1:]) for leaf in leaves]
            for kept, leaf in zip(filled, leaves, strict=True):
                kept[start : start + len(leaf)] = leaf
        self._kept, self._oldest = filled, torch.zeros((), dtype=torch.int64, device=filled[0].device)

    def _drawn(self, n: int, generator: torch.Generator) -> list[Tensor]:
        """The tensors of new pairs; one that stands in several places, as x without a partner does, is kept once."""
        leaves, self._layout = pytree.tree_flatten(self.process.sample(n, generator))
        different_ones = list({id(leaf): leaf for leaf in leaves}.values())
        self._places = [next(k for k, one in enumerate(different_ones) if one is leaf) for leaf in leaves]
        return different_ones

    def _renew(self, generator: torch.Generator) -> None:
        """The place of the oldest pair is a number on the device, so that a captured step moves it."""
        assert self._kept is not None and self._oldest is not None
        if self.refresh == 0:
            return
        places = (self._oldest + torch.arange(self.refresh, device=self._oldest.device)) % self.size
        for kept, leaf in zip(self._kept, self._drawn(self.refresh, generator), strict=True):
            kept.index_copy_(0, places, leaf)
        self._oldest.copy_((self._oldest + self.refresh) % self.size)

    @property
    def most(self) -> int:
        """How many can be drawn at once."""
        return self.size

    @property
    def device(self) -> torch.device:
        """Where the process draws."""
        return getattr(self.process, "device", torch.device("cpu"))

    @property
    def evaluation_process(self) -> DrawsPairs:
        """Scores are computed on fresh pairs, which also leaves the pool alone."""
        return self.process

    def to(self, device: Device = None, dtype: torch.dtype | None = None) -> PairPool:
        """An empty pool of the moved process."""
        return PairPool(self.process.to(device, dtype), self.size, self.refresh, chunk=self.chunk)

    def to_dict(self) -> dict[str, Any]:
        """The process and the pool's settings."""
        return {"process": "pool", "of": self.process.to_dict(), "size": self.size, "refresh": self.refresh}

    def __repr__(self) -> str:
        return f"PairPool({self.process!r}, size={self.size}, refresh={self.refresh})"
