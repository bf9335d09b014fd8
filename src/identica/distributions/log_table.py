"""Functions of the size of a number as piecewise polynomials on a logarithmic grid.

The bits of a floating-point number, read as an integer, are a piecewise linear logarithm: the leading bits
say which octave and which of 2^m equal parts of it the number is in, the trailing bits how far along. So
the cell and the place within it cost a shift and a mask, with no logarithm, no search and no host
synchronisation, and the relative width of a cell is the same from 1e-15 to 1e15.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.types import Device

Function = Callable[[np.ndarray], np.ndarray]

# Floating-point type: integer types of the same width, numpy's name for it, bits of the mantissa.
_LAYOUT: dict[torch.dtype, tuple[torch.dtype, type[np.signedinteger], type[np.floating], int]] = {
    torch.float32: (torch.int32, np.int32, np.float32, 23),
    torch.float64: (torch.int64, np.int64, np.float64, 52),
}


@dataclass(frozen=True)
class LogTable:
    """One or two functions ("sheets") on one grid over [lowest, highest], constant beyond it on either side.

    ``coefficients[k]: (sheets * cells,)`` multiply the 2k-th power of the trailing bits with their real part
    and the next power with their imaginary part: two coefficients for the price of one look-up.
    """

    coefficients: tuple[Tensor, ...]
    first: int
    last: int
    shift: int

    @property
    def cells(self) -> int:
        """Number of cells of the grid."""
        return ((self.last - self.first) >> self.shift) + 1

    @property
    def highest(self) -> float:
        """The largest number on the grid."""
        _, integer, floating, _ = _LAYOUT[self.coefficients[0].real.dtype]
        return float(np.array(self.last, dtype=integer).view(floating))

    def __call__(self, x: Tensor, side: Tensor | None = None) -> Tensor:
        """The function at ``|x|``, any shape; the second where ``side``, of the same shape, is negative."""
        integer = _LAYOUT[x.dtype][0]
        # Clamping the bits, not x, keeps the index in range for NaN too.
        bits = x.reshape(-1).view(integer) & torch.iinfo(integer).max  # without the sign
        bits.clamp_(self.first, self.last).sub_(self.first)
        cell = bits >> self.shift
        if side is not None:
            sign = side.reshape(-1).view(integer) >> (8 * side.element_size() - 1)  # −1 if negative, else 0
            cell.sub_(sign, alpha=self.cells)
        place = bits.bitwise_and_((1 << self.shift) - 1).to(x.dtype)
        *lower, last = self.coefficients
        pair = last.index_select(0, cell)
        value = torch.addcmul(pair.real, pair.imag, place)
        for column in reversed(lower):
            pair = column.index_select(0, cell)
            slope = torch.addcmul(pair.imag, value, place)
            value = torch.addcmul(pair.real, slope, place)
        return value.view(x.shape)


def build_log_table(
    sheets: Sequence[Function],
    lowest: float,
    highest: float,
    *,
    parts: int,
    pairs: int,
    device: Device,
    dtype: torch.dtype,
) -> LogTable:
    """Interpolate each function by a polynomial of degree 2·pairs − 1 at the Chebyshev points of every cell.

    An octave has ``parts`` cells, rounded up to a power of 2.
    """
    if dtype not in _LAYOUT:
        raise ValueError(f"Tables exist in float32 and float64, not in {dtype}; convert the parameters first.")
    _, integer, floating, mantissa = _LAYOUT[dtype]
    shift = mantissa - (parts - 1).bit_length()
    ends = np.array([lowest, highest], dtype=floating).view(integer) >> shift
    cell_starts = np.arange(ends[0], ends[1] + 2, dtype=integer) << shift
    edges = cell_starts.view(floating).astype(np.float64)
    powers = np.arange(2 * pairs)
    nodes = 0.5 - 0.5 * np.cos(np.pi * (powers + 0.5) / len(powers))
    points = edges[:-1, None] + np.diff(edges)[:, None] * nodes
    values = np.concatenate([function(points) for function in sheets])
    columns = np.linalg.solve(np.vander(nodes, increasing=True), values.T)
    columns *= np.exp2(-float(shift) * powers)[:, None]
    real, imaginary = torch.tensor(columns, dtype=dtype, device=device).view(pairs, 2, -1).unbind(1)
    return LogTable(
        torch.complex(real, imaginary).unbind(),
        first=int(cell_starts[0]),
        last=int(cell_starts[-1]) - 1,
        shift=shift,
    )
