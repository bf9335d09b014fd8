"""The two nearest of a finite set of points, by three searches with one answer (the last one nearly)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

SearchName = Literal["auto", "exact", "tree", "faiss"]
SEARCHES: tuple[SearchName, ...] = ("auto", "exact", "tree", "faiss")

#: Inverted lists that faiss looks into at least; with a single one there might be no two points in it.
_LEAST_LISTS = 8
#: Distances that the exhaustive search holds at once: a GiB in single precision.
_AT_ONCE = 2**28


class Search(Protocol):
    """From queries ``(n, d)`` to the indices of the nearest and the second nearest point, ``(n, 2)``."""

    def __call__(self, queries: Tensor) -> Tensor:
        """The answer, on the queries' device."""


def make_search(points: Tensor, name: SearchName = "auto", *, threads: int | None = None) -> Search:
    """A search among ``points: (N, d)``, at least two.

    name: "exact" compares with all points, on their device, without ever waiting for it; "tree" is scipy's cKDTree on
        the host, as exact; "faiss" an approximate index (inverted lists over an HNSW graph) that needs the package
        faiss; "auto" takes "exact" on a GPU, "tree" elsewhere.
    threads: of a search on the host; all cores unless given.
    """
    if name not in SEARCHES:
        raise ValueError(f"search is one of {', '.join(SEARCHES)}, not {name!r}.")
    if points.ndim != 2 or len(points) < 2 or not points.is_floating_point():
        raise ValueError(f"A search needs at least two points, (N, d), not {points.dtype} of {tuple(points.shape)}.")
    if name == "auto":
        name = "exact" if points.device.type == "cuda" else "tree"
    if name == "exact":
        return _Exhaustive(points)
    return _Tree(points, threads) if name == "tree" else _Faiss(points, threads)


class _Exhaustive:
    """Squared distances to all points, less what does not depend on the point: ‖p‖² − 2⟨q, p⟩.

    The product alone could pick a wrong neighbour when two are nearly as near, the more so in TF32; the eight best are
    compared again by differences.
    """

    def __init__(self, points: Tensor) -> None:
        self.points, self.squares = points, points.square().sum(dim=1)

    def __call__(self, queries: Tensor) -> Tensor:
        rows = max(1, _AT_ONCE // len(self.points))
        return torch.cat([self._some(part) for part in queries.to(self.points.dtype).split(rows)])

    def _some(self, queries: Tensor) -> Tensor:
        scores = torch.addmm(self.squares, queries, self.points.T, alpha=-2.0)
        few = scores.topk(min(8, len(self.points)), dim=1, largest=False).indices
        distances = (self.points[few] - queries[:, None]).square().sum(dim=2)
        return few.gather(1, distances.argsort(dim=1)[:, :2])


class _Tree:
    """scipy's k-d tree."""

    def __init__(self, points: Tensor, threads: int | None) -> None:
        from scipy.spatial import cKDTree

        self.tree, self.threads = cKDTree(points.detach().cpu().numpy()), threads or os.cpu_count() or 1

    def __call__(self, queries: Tensor) -> Tensor:
        _, index = self.tree.query(queries.detach().cpu().numpy(), k=2, workers=self.threads)
        return torch.from_numpy(np.asarray(index, dtype=np.int64)).to(queries.device)


class _Faiss:
    """Inverted lists whose centres are found through a graph; a sixteenth of the lists is searched, at least eight."""

    def __init__(self, points: Tensor, threads: int | None) -> None:
        try:
            import faiss
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                'search="faiss" needs the package faiss: install it with pip install "identica[images]", or choose '
                'search="tree".',
                name="faiss",
            ) from error
        rows = np.ascontiguousarray(points.detach().cpu().float().numpy())
        lists = max(1, min(int(4 * len(rows) ** 0.5), len(rows) // 40))
        self.index: Any = faiss.index_factory(rows.shape[1], f"IVF{lists}_HNSW32,Flat")
        self.index.cp.min_points_per_centroid = 1  # no warnings about small sets, whose single list has all points
        self.faiss, self.threads = faiss, threads
        with self._limited():
            self.index.train(rows)
            self.index.add(rows)
        self.index.nprobe = min(lists, max(_LEAST_LISTS, lists // 16))
        self.points = torch.from_numpy(rows)

    def __call__(self, queries: Tensor) -> Tensor:
        asked = queries.detach().cpu().float().contiguous()
        with self._limited():
            _, index = self.index.search(asked.numpy(), 2)
        found = torch.from_numpy(np.asarray(index, dtype=np.int64))
        return with_none_missing(found, asked, self.points).to(queries.device)

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """The library has one number of threads for all; other searches keep theirs."""
        before = self.faiss.omp_get_max_threads()
        self.faiss.omp_set_num_threads(self.threads or before)
        try:
            yield
        finally:
            self.faiss.omp_set_num_threads(before)


def with_none_missing(found: Tensor, queries: Tensor, points: Tensor) -> Tensor:
    """The indices ``found: (n, 2)``; where some are −1, because lists held too few points, by comparing with all."""
    lacking = (found < 0).any(dim=1)
    if not bool(lacking.any()):
        return found
    return found.masked_scatter(lacking[:, None], _Exhaustive(points)(queries[lacking]))
