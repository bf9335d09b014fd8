"""The nearest rows, by tiles of distances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

Distance = Literal["euclidean", "cosine"]

#: Distances held at once: 32 MiB in float64.
TILE = 2**22


def fit_neighbours(
    x: Tensor, labels: Tensor, classes: int, neighbours: int, distance: Distance
) -> Callable[[Tensor], Tensor]:
    """A function from rows ``(m, k)`` to the commonest class ``(m,)`` among their nearest rows of ``x: (n, k)``."""
    mean = x.mean(dim=0)

    def prepared(rows: Tensor) -> Tensor:
        # Centred, so that a large common offset costs no digits of the differences.
        return functional.normalize(rows, dim=1) if distance == "cosine" else rows - mean

    known = prepared(x)
    half_norms = 0.5 * known.square().sum(dim=1)

    def predict(rows: Tensor) -> Tensor:
        found = []
        for tile in prepared(rows).split(max(1, TILE // len(known))):
            # ‖a − b‖² up to a constant of the row and a factor of 2.
            nearness = torch.addmm(-half_norms, tile, known.T)
            nearest = labels[nearness.topk(neighbours, dim=1).indices]
            tally = torch.zeros(len(tile), classes, dtype=torch.int64, device=x.device)
            votes = tally.scatter_add_(1, nearest, torch.ones_like(nearest)).gather(1, nearest)
            # Of equals argmax takes the first, which is the nearest.
            found.append(nearest.gather(1, votes.argmax(dim=1, keepdim=True)).squeeze(1))
        return torch.cat(found) if found else labels[:0]

    return predict
