"""InfoNCE with Python lists and loops, one term at a time: what the vectorised losses are compared with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Vector = Sequence[float]


def info_nce_items(
    u: Callable[[Vector, Vector], float],
    h: Sequence[Vector],
    h_pos: Sequence[Sequence[Vector]],
    h_neg: Sequence[Vector] | Sequence[Sequence[Vector]] | None = None,
    *,
    negatives: str = "anchors",
    include_positive: bool = True,
    self_negatives: bool = False,
    in_batch: bool = False,
    mask: Sequence[Sequence[bool]] | None = None,
    shared: bool = True,
) -> list[dict[str, float]]:
    """For each anchor its loss, alignment, log-denominator, accuracy and number of terms in the denominator."""
    items = []
    for i, anchor in enumerate(h):
        pool: list[tuple[Vector, int]] = []  # (code, column of the mask)
        from_batch = h_neg is None or in_batch
        if from_batch:
            for j in range(len(h)):
                if j == i and not self_negatives:
                    continue
                if negatives in ("anchors", "both"):
                    pool.append((h[j], j))
                if negatives in ("positives", "both"):
                    pool.extend((positive, j) for positive in h_pos[j])
        if h_neg is not None:
            offset = len(h) if from_batch else 0
            own = h_neg if shared else h_neg[i]
            pool.extend((code, offset + k) for k, code in enumerate(own))  # type: ignore[arg-type]
        scores = [u(anchor, code) for code, column in pool if mask is None or mask[i][column]]
        rows = []
        for positive in h_pos[i]:
            aligned = u(anchor, positive)
            denominator = scores + ([aligned] if include_positive else [])
            if not denominator:
                rows.append((0.0, aligned, -math.inf, 0.0))
                continue
            top = max(denominator)
            log_denominator = top + math.log(math.fsum(math.exp(s - top) for s in denominator))
            correct = float(all(aligned > s for s in scores))
            rows.append((log_denominator - aligned, aligned, log_denominator, correct))
        names = ("loss", "alignment", "log_partition", "accuracy")
        item = {name: math.fsum(r[k] for r in rows) / len(rows) for k, name in enumerate(names)}
        items.append(item | {"count": len(scores) + include_positive})
    return items
