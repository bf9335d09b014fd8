"""What the implementations of the log-partition share: what they return, and their precision."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Partition(NamedTuple):
    """The log-partition of each anchor over its candidates, and the best candidate's similarity.

    ``log_partition: (B,)`` is log Σⱼ exp u(anchorᵢ, candidateⱼ) over the allowed candidates;
    ``largest: (B,)`` is maxⱼ u(anchorᵢ, candidateⱼ), without gradient. Both are −inf for an anchor without
    an allowed candidate.
    """

    log_partition: Tensor
    largest: Tensor
