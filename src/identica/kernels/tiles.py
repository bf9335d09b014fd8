"""One tile of the pair matrix: its similarities, and the gradients that flow back through it.

Codes come transposed, ``(d, n)``, so that each coordinate is contiguous. The tile is filled coordinate by
coordinate into buffers that are reused, so nothing of size rows × columns × d ever exists. Differences are
formed directly, but for squared distances in float64 (:class:`SquareTiles`): expanding ‖a−b‖² into
‖a‖² + ‖b‖² − 2⟨a, b⟩ cancels for close codes, and float64 alone has the digits for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from identica.similarities import Kernel

LOG2_E = 1.4426950408889634


class Workspace:
    """Buffers for tiles of up to ``size`` entries, allocated once and reused by every tile."""

    def __init__(self, size: int, like: Tensor) -> None:
        self._flat: dict[str, Tensor] = {}
        self._size, self._like = size, like

    def get(self, name: str, rows: int, columns: int) -> Tensor:
        """The buffer of that name as a contiguous ``(rows, columns)``; its content is arbitrary."""
        if name not in self._flat:
            self._flat[name] = self._like.new_empty(self._size)
        return self._flat[name][: rows * columns].view(rows, columns)


class Tiles(Protocol):
    """A kernel, tile by tile."""

    def similarity(self, a: Tensor, b: Tensor, work: Workspace) -> Tensor:
        """u·log2(e) of all pairs of ``a: (d, R)`` and ``b: (d, C)``, in the workspace: ``(R, C)``.

        In units of log 2 because exp2 is several times faster than exp.
        """

    def pull_back(
        self, weight: Tensor, a: Tensor, b: Tensor, grad_a: Tensor, grad_b: Tensor | None, work: Workspace
    ) -> None:
        """Add Σⱼ weightᵢⱼ ∂uᵢⱼ/∂aᵢ to ``grad_a: (d, R)``, and the same over i to ``grad_b: (d, C)``.

        ``weight: (R, C)`` may be overwritten. Called right after :meth:`similarity` on the same tile.
        """


def tiles_for(kernel: Kernel, dtype: torch.dtype) -> Tiles:
    """The tile routines of a kernel, for codes of that type."""
    if kernel.p is None:
        return DotTiles()
    if kernel == Kernel("lp", 2.0) and dtype == torch.float64:
        return SquareTiles()
    return LpTiles(kernel.p, norm=kernel.name == "lp_norm")


def _coordinates(a: Tensor, b: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Each coordinate of ``a: (d, R)`` as a column ``(R, 1)`` and of ``b: (d, C)`` as a row ``(C,)``."""
    return zip(a.unsqueeze(2).unbind(), b.unbind(), strict=True)


class DotTiles:
    """u = ⟨a, b⟩: matrix products."""

    def similarity(self, a: Tensor, b: Tensor, work: Workspace) -> Tensor:
        """See :class:`Tiles`."""
        u = work.get("u", a.shape[1], b.shape[1])
        return torch.addmm(u, a.T, b, beta=0.0, alpha=LOG2_E, out=u)

    def pull_back(
        self, weight: Tensor, a: Tensor, b: Tensor, grad_a: Tensor, grad_b: Tensor | None, work: Workspace
    ) -> None:
        """∂u/∂a = b and ∂u/∂b = a."""
        grad_a += b @ weight.T
        if grad_b is not None:
            grad_b += a @ weight


class SquareTiles:
    """u = −‖a−b‖² = 2⟨a, b⟩ − ‖a‖² − ‖b‖²: one matrix product with two more coordinates, never above 0.

    The error of a pair is a few roundings of its ‖a‖² + ‖b‖². Codes come centred (:func:`centred`).
    """

    def similarity(self, a: Tensor, b: Tensor, work: Workspace) -> Tensor:
        """See :class:`Tiles`."""
        u = work.get("u", a.shape[1], b.shape[1])
        left = torch.cat([2.0 * a, _minus_squared_norms(a), torch.ones_like(a[:1])])
        right = torch.cat([b, torch.ones_like(b[:1]), _minus_squared_norms(b)])
        return torch.addmm(u, left.T, right, beta=0.0, alpha=LOG2_E, out=u).clamp_(max=0.0)

    def pull_back(
        self, weight: Tensor, a: Tensor, b: Tensor, grad_a: Tensor, grad_b: Tensor | None, work: Workspace
    ) -> None:
        """∂u/∂a = 2(b − a) and ∂u/∂b = −∂u/∂a."""
        _pull_back_squares(weight.mul_(2.0), a, b, grad_a, grad_b)


def _minus_squared_norms(x: Tensor) -> Tensor:
    """``(d, n) -> (1, n)``."""
    return (x * x).sum(dim=0, keepdim=True).neg_()


def centred(a: Tensor, b: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Codes less the median of the candidates, which no difference notices: ``(d, B), (d, M)``; b is None for a itself.

    The median, by sorting, as one candidate that is far away, or NaN and masked, must not move all others.
    """
    candidates = a if b is None else b
    centre = candidates.sort(dim=1).values[:, candidates.shape[1] // 2].unsqueeze(1)
    return a - centre, None if b is None else b - centre


def _pull_back_squares(weight: Tensor, a: Tensor, b: Tensor, grad_a: Tensor, grad_b: Tensor | None) -> None:
    """Σⱼ wᵢⱼ(bⱼ − aᵢ) as a matrix product, whose error is that of rounding the codes themselves.

    Only where products are carried out in full precision: TF32, which CUDA may use for float32, would ruin it.
    """
    grad_a += b @ weight.T - a * weight.sum(dim=1)
    if grad_b is not None:
        grad_b += a @ weight - b * weight.sum(dim=0)


class LpTiles:
    """u = −Σ|aₖ−bₖ|^p or its p-th root: loops over the coordinates k."""

    def __init__(self, p: float, norm: bool) -> None:
        self.p = p
        self.norm = norm and p != 1.0

    def similarity(self, a: Tensor, b: Tensor, work: Workspace) -> Tensor:
        """See :class:`Tiles`."""
        rows, columns = a.shape[1], b.shape[1]
        u, t = work.get("u", rows, columns), work.get("t", rows, columns)
        u.zero_()
        for a_k, b_k in _coordinates(a, b):
            torch.sub(b_k, a_k, out=t)
            self._add_power(u, t)
        if self.norm:
            torch.pow(u, 1.0 / self.p, out=u)
            work.get("norm", rows, columns).copy_(u)
        return u.mul_(-LOG2_E)

    def pull_back(
        self, weight: Tensor, a: Tensor, b: Tensor, grad_a: Tensor, grad_b: Tensor | None, work: Workspace
    ) -> None:
        """∂u/∂a = p sign(t)|t|^(p−1) with t = b − a, and ∂u/∂b = −∂u/∂a; times norm^(1−p)/p for the norm."""
        rows, columns = weight.shape
        t, s = work.get("t", rows, columns), work.get("s", rows, columns)
        if self.norm:
            slope = work.get("norm", rows, columns)
            zero = slope == 0
            weight *= slope.pow_(1.0 - self.p).masked_fill_(zero, 0.0)
        else:
            weight *= self.p
        if self.p == 2.0 and (weight.device.type == "cpu" or weight.dtype == torch.float64):
            return _pull_back_squares(weight, a, b, grad_a, grad_b)
        by_row, by_column = torch.empty_like(a), torch.empty_like(b)
        sums = zip(by_row.unbind(), by_column.unbind(), strict=True)
        for (a_k, b_k), (row_sum, column_sum) in zip(_coordinates(a, b), sums, strict=True):
            torch.sub(b_k, a_k, out=t)
            self._to_slope(t, s)
            t.mul_(weight)
            torch.sum(t, 1, out=row_sum)
            if grad_b is not None:
                torch.sum(t, 0, out=column_sum)
        grad_a += by_row
        if grad_b is not None:
            grad_b -= by_column

    def _add_power(self, total: Tensor, t: Tensor) -> None:
        """``total += |t|^p``; overwrites ``t``."""
        if self.p == 2.0:
            total.addcmul_(t, t)
        elif self.p == 4.0:
            total.add_(t.pow_(2).pow_(2))
        elif self.p == 1.0:
            total.add_(t.abs_())
        else:
            total.add_(t.abs_().pow_(self.p))  # torch has a fast way for the powers 3 and ½

    def _to_slope(self, t: Tensor, s: Tensor) -> None:
        """``t`` → sign(t)|t|^(p−1), in place, with 0 at t = 0; overwrites ``s``."""
        if self.p == 1.0:
            t.sign_()
        elif self.p == 3.0:
            t.mul_(torch.abs(t, out=s))
        elif self.p == 4.0:
            t.mul_(torch.mul(t, t, out=s))
        elif self.p != 2.0:
            torch.abs(t, out=s)
            if self.p < 1.0:  # |0|^(p−1) is infinite, and infinity times the sign 0 would be NaN
                s.masked_fill_(s == 0, 1.0)
            t.sign_()
            t.mul_(s.pow_(self.p - 1.0))
