"""What several tests of processes need: conditionals, a generator, InfoNCE by its definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from identica.distributions.conditional import Conditional
from identica.distributions.truncated_laplace import TruncatedLaplace
from identica.distributions.von_mises_fisher import VonMisesFisher

LAPLACE = Conditional(TruncatedLaplace, scale=0.05)


def vmf(concentration: float = 10.0) -> Conditional:
    return Conditional(VonMisesFisher, concentration=concentration)


def make(n_seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(n_seed)


def double_loop(
    z: np.ndarray,
    z_pos: np.ndarray,
    u: Any,
    z_neg: np.ndarray | None = None,
    include_positive: bool = True,
    self_negatives: bool = False,
) -> np.ndarray:
    """InfoNCE by its definition: u(anchor, candidate) one pair at a time."""
    losses = []
    for i in range(len(z)):
        others = range(len(z)) if self_negatives else (j for j in range(len(z)) if j != i)
        negatives = [u(z[i], z[j]) for j in others] if z_neg is None else [u(z[i], c) for c in z_neg[i]]
        positives = np.atleast_2d(z_pos[i])
        per_positive = []
        for positive in positives:
            terms = [*negatives, u(z[i], positive)] if include_positive else negatives
            per_positive.append(np.logaddexp.reduce(np.array(terms)) - u(z[i], positive))
        losses.append(np.mean(per_positive))
    return np.array(losses)
