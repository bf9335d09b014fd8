"""The log-partition with the whole pair matrix in memory: plain autograd, any dtype, any similarity.

It is what the other implementations are tested against, what small batches use, and the only one with
second derivatives.
"""

from __future__ import annotations

import torch
from torch import Tensor

from identica.kernels.partition import Partition
from identica.similarities import Kernel


def log_partition_dense(
    similarities: Tensor, *, exclude_diagonal: bool = False, mask: Tensor | None = None
) -> Partition:
    """Log-partition of each row of a pair matrix ``similarities: (B, M)``, over the allowed columns."""
    rows, columns = similarities.shape
    if columns == 0:
        empty = similarities.sum(dim=1) - torch.inf
        return Partition(empty, empty.detach())
    if exclude_diagonal:
        device = similarities.device
        others = torch.arange(rows, device=device)[:, None] != torch.arange(columns, device=device)
        mask = others if mask is None else mask & others
    if mask is None:
        return Partition(torch.logsumexp(similarities, dim=1), similarities.detach().amax(dim=1))
    allowed = torch.where(mask, similarities, -torch.inf)
    # A row of −inf has no defined slope: give it finite entries, and its −inf back at the end.
    some = mask.any(dim=1)
    finite = torch.where(some[:, None], allowed, 0.0)
    total = torch.where(some, torch.logsumexp(finite, dim=1), -torch.inf)
    return Partition(total, allowed.detach().amax(dim=1))


def log_partition_reference(
    anchors: Tensor,
    candidates: Tensor,
    kernel: Kernel,
    *,
    exclude_diagonal: bool = False,
    mask: Tensor | None = None,
) -> Partition:
    """Log-partition through the dense pair matrix (and, for the Lp kernels, a B×M×d intermediate)."""
    if anchors.dtype in (torch.float16, torch.bfloat16):
        anchors, candidates = anchors.float(), candidates.float()
    return log_partition_dense(kernel.pairwise(anchors, candidates), exclude_diagonal=exclude_diagonal, mask=mask)
