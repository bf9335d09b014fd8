"""The border of this room: two matrices with matching rows, in float64, or a sentence that says why not."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from identica._randomness import as_seed

#: A torch tensor, anything numpy understands, or nested lists: one row a sample, one column a dimension.
Matrix = Tensor | np.ndarray[Any, Any] | Sequence[Sequence[float]]

ROWS_PER_CODE = 5


def as_matrices(z: Matrix, h: Matrix, least_rows: int = 3) -> tuple[Tensor, Tensor]:
    """``z: (n, d)`` and ``h: (n, k)`` as float64 tensors on one device, without gradients.

    The device is that of the tensors; if only one of them is on an accelerator, the other one moves there.
    """
    device = _common_device(z, h)
    z, h = _as_matrix(z, "z", device), _as_matrix(h, "h", device)
    if len(z) != len(h):
        raise ValueError(
            f"z has {len(z)} rows and h has {len(h)}: row i of both must belong to the same sample, "
            "so pass as many rows of one as of the other."
        )
    if len(z) < least_rows:
        raise ValueError(f"z and h have {len(z)} rows, too few to score: pass at least {least_rows}.")
    constant = (z == z[0]).all(dim=0)
    if bool(constant.any()):
        column = int(constant.nonzero()[0])
        raise ValueError(
            f"z[:, {column}] is constant: a factor that does not vary cannot be recovered or missed. "
            f"Drop it from z ({int(constant.sum())} of {z.shape[1]} columns of z are constant)."
        )
    return z, h


def _common_device(z: Matrix, h: Matrix) -> torch.device:
    devices = [x.device for x in (h, z) if isinstance(x, Tensor)]
    # Apple's MPS has no float64, so scores of its tensors are computed on the CPU.
    return next((d for d in devices if d.type not in ("cpu", "mps")), torch.device("cpu"))


def _as_matrix(value: Matrix, name: str, device: torch.device) -> Tensor:
    matrix = _as_real_tensor(value, name)
    if matrix.ndim == 1:
        raise ValueError(
            f"{name} is one-dimensional, of shape ({len(matrix)},); expected (rows, dimensions). "
            f"If these are {len(matrix)} samples of one number, pass {name}[:, None]."
        )
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise ValueError(
            f"{name} has shape {tuple(matrix.shape)}; expected (rows, dimensions) with at least one "
            f"dimension. Flatten further axes with {name}.reshape(len({name}), -1)."
        )
    if matrix.device.type == "mps":
        matrix = matrix.cpu()
    matrix = matrix.to(device=device, dtype=torch.float64).contiguous()
    finite = torch.isfinite(matrix)
    if not bool(finite.all()):
        row, column = (~finite).nonzero()[0].tolist()
        raise ValueError(
            f"{name} holds {int((~finite).sum())} non-finite entries (NaN or infinite), the first in row "
            f"{row}, column {column}. Scores need finite numbers: look for the cause, or drop those rows "
            "from both z and h."
        )
    # No score depends on the unit of a whole matrix: a smaller one keeps sums over the rows from overflowing.
    return matrix * 2.0**-64 if matrix.numel() and bool(matrix.abs().amax() > 2.0**960) else matrix


def _as_real_tensor(value: Matrix, name: str) -> Tensor:
    if isinstance(value, Tensor):
        tensor = value.detach()
        if tensor.is_complex():
            raise TypeError(f"{name} is complex; pass its real and imaginary parts as separate columns.")
        return tensor
    try:
        array = np.asarray(value)
        if array.ndim == 0 or (array.dtype.kind not in "biuf" and array.dtype != object):
            raise TypeError
        # A copy, because torch neither takes read-only arrays nor negative strides.
        return torch.from_numpy(np.array(array, dtype=np.float64, order="C"))
    except (TypeError, ValueError):
        raise TypeError(
            f"{name} must be a torch tensor, a numpy array or equally long lists of real numbers, one row a "
            f"sample; this {type(value).__name__} cannot be read as a matrix of numbers."
        ) from None


def as_count(null: int) -> int:
    """``null`` as a number of permutations."""
    try:
        count = -1 if isinstance(null, bool) else operator.index(null)
    except TypeError:
        count = -1
    if count < 0:
        raise ValueError(
            f"null is the number of permutations of the null distribution, 0 for none, not {null!r}; "
            "200 is a good choice."
        )
    return count


def as_generator(seed: int) -> torch.Generator:
    """A generator on the CPU, so that one seed means the same folds and permutations on every device."""
    try:
        number = operator.index(seed)
    except TypeError:
        raise TypeError(f"seed must be a whole number, not {seed!r}.") from None
    return torch.Generator().manual_seed(as_seed(number))


def warn_if_few(rows: int, columns: int, *, unit: str, score: str, folds: int = 1, stacklevel: int = 3) -> None:
    """Warn when a regression has fewer than five rows in a fold for each of its columns."""
    if rows < ROWS_PER_CODE * columns:
        warnings.warn(
            f"{score} fits {columns} {unit} on {rows} rows, fewer than {ROWS_PER_CODE} rows for each, so the "
            f"score says more about the size of the sample than about the {unit}. Pass at least "
            f"{ROWS_PER_CODE * columns * folds} rows.",
            stacklevel=stacklevel,
        )
