"""What chance alone scores: shuffle the rows of z against those of h and score again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from identica.metrics.score import Null

#: Numbers held at once while shuffling: large enough for efficient matrix products, small enough for caches.
CHUNK = 2**18


def shuffled_scores(
    per_dimension: Callable[[Tensor], Tensor],
    z: Tensor,
    folds: Sequence[Tensor],
    permutations: int,
    generator: torch.Generator,
) -> Tensor:
    """Per-dimension scores of ``z: (n, d)`` with its rows shuffled: ``(permutations, d)``, on the CPU.

    ``per_dimension`` scores many targets at once, ``(n, m, d) -> (m, d)``. Rows are shuffled within each of
    the ``folds`` (index tensors that together hold every row), so each fold keeps its mean and variance. If
    rows are exchangeable and z is independent of h, every shuffle is as likely as what was observed.
    """
    at_once = max(1, CHUNK // z.numel())
    scores = []
    for start in range(0, permutations, at_once):
        count = min(at_once, permutations - start)
        index = torch.empty(len(z), count, dtype=torch.long)
        for fold in folds:
            orders = [torch.randperm(len(fold), generator=generator) for _ in range(count)]
            index[fold.cpu()] = fold.cpu()[torch.stack(orders, dim=1)]
        scores.append(per_dimension(z[index.to(z.device)]).cpu())
    return torch.cat(scores)


def summarise(shuffled: Tensor, observed: float) -> Null:
    """Mean, 95 % quantile and p-value of ``observed`` among the scores ``shuffled: (permutations,)``."""
    # Shuffles that equal the observed score up to rounding count against it.
    slack = 1e-12 * max(1.0, abs(observed))
    at_least = int((shuffled >= observed - slack).sum())
    return Null(
        mean=shuffled.mean().item(),
        q95=torch.quantile(shuffled, 0.95).item(),
        p_value=(1 + at_least) / (1 + len(shuffled)),
        permutations=len(shuffled),
    )
