"""Log-partitions over all pairs of codes, and who computes them.

:func:`log_partition` is the one entrance. Implementations are functions of the same signature, listed in
``IMPLEMENTATIONS``; ``impl="auto"`` picks one by size and device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from identica._eager import eager
from identica._optional import has_triton
from identica._products import no_autocast
from identica.kernels.partition import Partition
from identica.kernels.reference import log_partition_dense, log_partition_reference
from identica.kernels.tiled import log_partition_tiled
from identica.similarities import Kernel

__all__ = ["IMPLEMENTATIONS", "Partition", "check_impl", "log_partition", "log_partition_dense"]


def _log_partition_triton(*codes: Any, **settings: Any) -> Partition:
    """The Triton kernels, imported when they are first used: the package works without triton."""
    if not has_triton():
        raise ValueError('impl="triton" needs the package triton, which is not installed: use impl="tiled" or "auto".')
    from identica.kernels.triton_partition import log_partition_triton

    return log_partition_triton(*codes, **settings)


#: Every implementation, by the name that ``impl`` accepts.
IMPLEMENTATIONS: dict[str, Callable[..., Partition]] = {
    "reference": log_partition_reference,
    "tiled": eager(log_partition_tiled),
    "triton": eager(_log_partition_triton),
}

#: Up to this many numbers in the B×M×d intermediate the dense version is the faster one, and its memory does
#: not matter. (On the CPU it is also what PyTorch does not split among threads.)
_DENSE_NUMBERS_CPU, _DENSE_NUMBERS_DEVICE = 1 << 15, 1 << 24


def log_partition(
    anchors: Tensor,
    candidates: Tensor,
    kernel: Kernel,
    *,
    exclude_diagonal: bool = False,
    mask: Tensor | None = None,
    impl: str = "auto",
) -> Partition:
    """Log Σⱼ exp kernel(anchorᵢ, candidateⱼ) for every anchor i, and the largest of the similarities.

    Parameters
    ----------
    anchors, candidates
        ``(B, d)`` and ``(M, d)``. The sums run over the candidates; both receive gradients. Passing one tensor
        as both saves up to half of the work.
    kernel
        The similarity, after rescaling (:meth:`identica.similarities.Similarity.rescale`).
    exclude_diagonal
        Leave out the candidate with the anchor's own index.
    mask
        ``(B, M)`` bool: True where the candidate may be used. An anchor without candidates gets −inf and no
        gradient.
    impl
        ``"reference"``: dense, twice differentiable. ``"tiled"``: memory O(B·d) plus tiles of fixed size, once
        differentiable. ``"triton"``: fused kernels for CUDA devices, float32 and half precision, memory O(B·d),
        once differentiable. ``"auto"``: on CUDA devices the fused kernels where they apply; otherwise the
        reference for small problems, else the tiles.

    Half-precision codes are computed with in float32, also under autocast, and the result is float32.

    >>> a = torch.tensor([[0.0], [1.0], [3.0]])
    >>> log_partition(a, a, Kernel("lp", 1.0), exclude_diagonal=True).largest
    tensor([-1., -1., -2.])
    """
    check_impl(impl)
    _check(anchors, candidates, mask)
    if impl == "auto":
        impl = _choose(anchors, candidates)
    if anchors.numel() == 0 or candidates.numel() == 0:
        impl = "reference"
    with no_autocast(anchors.device):  # sums of exponentials in half precision would lose all but the largest
        return IMPLEMENTATIONS[impl](anchors, candidates, kernel, exclude_diagonal=exclude_diagonal, mask=mask)


def _choose(anchors: Tensor, candidates: Tensor) -> str:
    if anchors.device.type == "cuda" and anchors.dtype != torch.float64 and has_triton():
        return "triton"
    return "reference" if _is_small(anchors, candidates) else "tiled"


def _is_small(anchors: Tensor, candidates: Tensor) -> bool:
    numbers = len(anchors) * len(candidates) * anchors.shape[1]
    return numbers <= (_DENSE_NUMBERS_CPU if anchors.device.type == "cpu" else _DENSE_NUMBERS_DEVICE)


def check_impl(impl: str) -> None:
    """Raise a sentence unless ``impl`` names an implementation."""
    if impl != "auto" and impl not in IMPLEMENTATIONS:
        names = ", ".join(map(repr, ["auto", *IMPLEMENTATIONS]))
        raise ValueError(f"Unknown implementation impl={impl!r} of the log-partition: expected one of {names}.")


def _check(anchors: Tensor, candidates: Tensor, mask: Tensor | None) -> None:
    if anchors.ndim != 2 or candidates.ndim != 2 or anchors.shape[1] != candidates.shape[1]:
        raise ValueError(
            "anchors and candidates must have the shapes (B, d) and (M, d) with one d, not "
            f"{tuple(anchors.shape)} and {tuple(candidates.shape)}."
        )
    if anchors.dtype != candidates.dtype or not anchors.dtype.is_floating_point:
        raise ValueError(
            f"anchors and candidates must share one floating-point type, not {anchors.dtype} and {candidates.dtype}."
        )
    if mask is not None and (mask.dtype != torch.bool or mask.shape != (len(anchors), len(candidates))):
        raise ValueError(
            f"mask must be a bool tensor of shape ({len(anchors)}, {len(candidates)}), True where a candidate "
            f"may be used, not {mask.dtype} of shape {tuple(mask.shape)}."
        )
