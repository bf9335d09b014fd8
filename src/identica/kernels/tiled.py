"""The log-partition tile by tile: nothing of the size of the pair matrix exists, forward or backward.

The forward pass folds each tile into a running maximum and a running sum; the backward pass computes the
tiles again. Memory is O(B·d) for the codes and their gradients plus a few tiles of fixed size.

When the candidates are the anchors themselves and the kernel is symmetric, a tile above the diagonal also
stands for its mirror image below, and only half of the tiles are computed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from identica._products import no_autocast
from identica.kernels.partition import Partition
from identica.kernels.tiles import LOG2_E, SquareTiles, Tiles, Workspace, centred, tiles_for
from identica.kernels.workers import Result, available_workers, run
from identica.similarities import Kernel

#: Rows and columns of a tile: on the CPU small enough for a core's caches, on an accelerator large enough to
#: hide the launches: a batch of the usual size is one, with two to five buffers of 128 MiB in float64.
TILE_CPU, TILE_CPU_LARGE, TILE_DEVICE = (256, 256), (512, 512), (4096, 4096)
#: On the CPU: from how many pairs on it pays to leave this thread, and to use several (see workers.py).
_PAIRS_FOR_A_WORKER, _PAIRS_FOR_SEVERAL = 1 << 15, 1 << 21


def log_partition_tiled(
    anchors: Tensor,
    candidates: Tensor,
    kernel: Kernel,
    *,
    exclude_diagonal: bool = False,
    mask: Tensor | None = None,
    tile: tuple[int, int] | None = None,
    workers: int | None = None,
) -> Partition:
    """Log-partition without the pair matrix; see :func:`identica.kernels.log_partition`.

    ``tile`` and ``workers`` override how many rows and columns are computed at a time, and by how many threads.
    Differentiable once. Equal calls give equal bits, as long as the number of threads is the same.
    """
    mirrored = anchors is candidates and mask is None
    plan = _Plan.of(anchors.device, len(anchors) * len(candidates), tile, workers)
    arguments = (kernel, exclude_diagonal, mask, plan)
    return Partition(*_LogPartition.apply(anchors, None if mirrored else candidates, *arguments))


@dataclass(frozen=True)
class _Plan:
    tile: tuple[int, int]
    workers: int  # 0: this thread

    @classmethod
    def of(cls, device: torch.device, pairs: int, tile: tuple[int, int] | None, workers: int | None) -> _Plan:
        if device.type != "cpu":
            return cls(tile or TILE_DEVICE, 0)
        several = pairs >= _PAIRS_FOR_SEVERAL
        if workers is None:
            workers = available_workers() if several else int(pairs >= _PAIRS_FOR_A_WORKER)
        return cls(tile or (TILE_CPU_LARGE if several else TILE_CPU), workers)

    def run(self, pieces: Sequence[Callable[[], Result]]) -> list[Result]:
        """The results of the pieces, by this thread or by workers."""
        return run(pieces) if self.workers else [piece() for piece in pieces]


class _Tile(NamedTuple):
    rows: slice
    columns: slice
    mirrored: bool  # whether the tile also stands for its mirror image across the diagonal


def _all_tiles(rows: int, columns: int, tile: tuple[int, int]) -> Iterator[_Tile]:
    for i in range(0, rows, tile[0]):
        for j in range(0, columns, tile[1]):
            yield _Tile(slice(i, min(i + tile[0], rows)), slice(j, min(j + tile[1], columns)), False)


def _upper_tiles(size: int, tile: tuple[int, int]) -> Iterator[_Tile]:
    """A square block on the diagonal per strip of rows, then mirrored tiles to the right of it."""
    for i in range(0, size, tile[0]):
        end = min(i + tile[0], size)
        yield _Tile(slice(i, end), slice(i, end), False)
        for j in range(end, size, tile[1]):
            yield _Tile(slice(i, end), slice(j, min(j + tile[1], size)), True)


class _Pairs:
    """All pairs of anchors ``a: (d, B)`` with candidates ``b: (d, M)``, or with themselves if b is None."""

    def __init__(
        self,
        a: Tensor,
        b: Tensor | None,
        kernel: Kernel,
        exclude_diagonal: bool,
        mask: Tensor | None,
        plan: _Plan,
    ) -> None:
        self.tiles: Tiles = tiles_for(kernel, a.dtype)
        if isinstance(self.tiles, SquareTiles):
            a, b = centred(a, b)
        self.a, self.b, self.itself = a, a if b is None else b, b is None
        self.exclude_diagonal, self.mask, self.plan = exclude_diagonal, mask, plan

    def shares(self) -> list[list[_Tile]]:
        """All tiles, dealt out to the workers like cards, so that each gets as much of the triangle."""
        rows, columns = self.a.shape[1], self.b.shape[1]
        tile = self.plan.tile
        tiles = list(_upper_tiles(rows, tile) if self.itself else _all_tiles(rows, columns, tile))
        count = max(1, min(self.plan.workers, len(tiles)))
        return [tiles[i::count] for i in range(count)]

    def workspace(self) -> Workspace:
        """Buffers for one worker."""
        tile = self.plan.tile
        return Workspace(min(tile[0], self.a.shape[1]) * min(max(tile), self.b.shape[1]), self.a)

    def similarity(self, tile: _Tile, work: Workspace) -> Tensor:
        """u·log2(e) of one tile, −inf where a pair is not allowed."""
        u = self.tiles.similarity(self.a[:, tile.rows], self.b[:, tile.columns], work)
        if self.mask is not None:
            u.masked_fill_(~self.mask[tile.rows, tile.columns], -torch.inf)
        if self.exclude_diagonal and not tile.mirrored:
            first = max(tile.rows.start, tile.columns.start)
            if first < min(tile.rows.stop, tile.columns.stop):
                block = u[first - tile.rows.start :, first - tile.columns.start :]
                block.diagonal().fill_(-torch.inf)
        return u


def _forward(pairs: _Pairs) -> tuple[Tensor, Tensor]:
    """Log-partition and largest similarity of each anchor, both in units of log 2."""
    parts = pairs.plan.run([partial(_forward_share, pairs, share) for share in pairs.shares()])
    largest = torch.stack([part[0] for part in parts]).amax(dim=0)
    shift = _finite(largest)
    total = torch.stack([of_part * (top - shift).exp2() for top, of_part in parts]).sum(dim=0)
    return shift + total.log2(), largest


def _forward_share(pairs: _Pairs, share: list[_Tile]) -> tuple[Tensor, Tensor]:
    """The largest similarity of each anchor in these tiles, and the sum of exp2(u − largest)."""
    work = pairs.workspace()
    largest = pairs.a.new_full((pairs.a.shape[1],), -torch.inf)
    total = torch.zeros_like(largest)
    for tile in share:
        u = pairs.similarity(tile, work)
        _fold(u, 1, largest[tile.rows], total[tile.rows], work)
        if tile.mirrored:
            _fold(u, 0, largest[tile.columns], total[tile.columns], work)
    return largest, total


def _fold(u: Tensor, dim: int, largest: Tensor, total: Tensor, work: Workspace) -> None:
    """Fold a tile into the running maximum and the running sum of exp2(u − maximum), in place."""
    new_largest = torch.maximum(largest, u.amax(dim=dim))
    shift = _finite(new_largest)
    exponentials = _exp2_(torch.sub(u, shift.unsqueeze(dim), out=work.get("s", *u.shape)))
    total.mul_((largest - shift).exp2_()).add_(exponentials.sum(dim=dim))
    largest.copy_(new_largest)


def _exp2_(x: Tensor) -> Tensor:
    """2^x in place, with 0 for what is too small to matter: denormal numbers slow some processors down tenfold."""
    return torch.threshold_(x, -100.0 if x.dtype == torch.float32 else -1000.0, -torch.inf).exp2_()


def _finite(x: Tensor) -> Tensor:
    """``x`` with 0 for −inf: the shift of a row without candidates, for which −inf − (−inf) would be NaN."""
    return torch.where(x == -torch.inf, 0.0, x)


def _backward(pairs: _Pairs, log2_partition: Tensor, slope: Tensor, both: bool) -> tuple[Tensor, Tensor | None]:
    """Gradients of Σᵢ slopeᵢ·log_partitionᵢ for the anchors and, if ``both``, the candidates: ``(d, n)``."""
    shift = _finite(log2_partition)
    shares = [partial(_backward_share, pairs, share, shift, slope, both) for share in pairs.shares()]
    grads_a, grads_b = zip(*pairs.plan.run(shares), strict=True)
    grad_a = functools.reduce(torch.add, grads_a)
    return grad_a, (None if grads_b[0] is None else functools.reduce(torch.add, grads_b))


def _backward_share(
    pairs: _Pairs, share: list[_Tile], shift: Tensor, slope: Tensor, both: bool
) -> tuple[Tensor, Tensor | None]:
    work = pairs.workspace()
    grad_a = torch.zeros_like(pairs.a)
    grad_b = grad_a if pairs.itself else (torch.zeros_like(pairs.b) if both else None)
    for tile in share:
        u = pairs.similarity(tile, work)
        rows, columns = tile.rows, tile.columns
        weight = _exp2_(torch.sub(u, shift[rows, None], out=work.get("weight", *u.shape)))
        weight *= slope[rows, None]
        if tile.mirrored:
            weight.addcmul_(_exp2_(u.sub_(shift[columns])), slope[columns].expand_as(u))
        a, b = pairs.a[:, rows], pairs.b[:, columns]
        into_b = None if grad_b is None else grad_b[:, columns]
        pairs.tiles.pull_back(weight, a, b, grad_a[:, rows], into_b, work)
    return grad_a, (None if pairs.itself else grad_b)


class _LogPartition(torch.autograd.Function):
    """(anchors (B, d), candidates (M, d) or None for the anchors themselves) → log-partition, largest: (B,)."""

    @staticmethod
    def forward(
        anchors: Tensor,
        candidates: Tensor | None,
        kernel: Kernel,
        exclude_diagonal: bool,
        mask: Tensor | None,
        plan: _Plan,
    ) -> tuple[Tensor, Tensor]:
        with no_autocast(anchors.device):
            a, b = _columns(anchors), None if candidates is None else _columns(candidates)
            log2_partition, largest = _forward(_Pairs(a, b, kernel, exclude_diagonal, mask, plan))
        return log2_partition.div_(LOG2_E), largest.div_(LOG2_E)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        anchors, candidates, ctx.kernel, ctx.exclude_diagonal, mask, ctx.plan = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(anchors, candidates, mask, output[0])

    @staticmethod
    def backward(ctx: Any, slope: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        anchors, candidates, mask, log_partition = ctx.saved_tensors
        with torch.no_grad(), no_autocast(anchors.device):
            a, b = _columns(anchors), None if candidates is None else _columns(candidates)
            pairs = _Pairs(a, b, ctx.kernel, ctx.exclude_diagonal, mask, ctx.plan)
            grad_a, grad_b = _backward(pairs, log_partition * LOG2_E, slope, ctx.needs_input_grad[1])
        into_anchors = grad_a.T.to(anchors.dtype)
        into_candidates = None if grad_b is None else grad_b.T.to(candidates.dtype)
        if torch.is_grad_enabled():  # somebody may differentiate again: not silently as if this were constant
            into_anchors = _OnlyOnce.apply(into_anchors, slope, anchors, candidates)
            into_candidates = _OnlyOnce.apply(into_candidates, slope, anchors, candidates)
        return into_anchors, into_candidates, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        """One seed after the other, each exactly as it would be computed alone: the cores are busy either way."""

        def of_seed(seed: int) -> list[Any]:
            return [x if axis is None else x.select(axis, seed) for x, axis in zip(inputs, in_dims, strict=True)]

        results = [_LogPartition.apply(*of_seed(seed)) for seed in range(info.batch_size)]
        return tuple(torch.stack(parts) for parts in zip(*results, strict=True)), (0, 0)


class _OnlyOnce(torch.autograd.Function):
    """A gradient that depends on ``sources`` but does not know how: differentiating it is an error."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor | None, *sources: Tensor | None) -> Tensor | None:
        return gradient

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> None:
        raise RuntimeError(
            'The tiled log-partition can be differentiated once. For second derivatives use impl="reference".'
        )


def _columns(codes: Tensor) -> Tensor:
    """``(n, d) -> (d, n)`` with contiguous coordinates, in float32 at least."""
    dtype = torch.float32 if codes.dtype in (torch.float16, torch.bfloat16) else codes.dtype
    return codes.detach().T.to(dtype, memory_format=torch.contiguous_format).contiguous()
