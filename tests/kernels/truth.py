"""The log-partition and its gradients by a double loop over pairs, in float64 and from the formulas alone."""

from __future__ import annotations

import math

import numpy as np
import torch

from identica.similarities import Kernel


def pair(kernel: Kernel, a: np.ndarray, b: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """u(a, b), ∂u/∂a and ∂u/∂b of one pair of vectors."""
    if kernel.p is None:
        return float(a @ b), b, a
    t, p = a - b, kernel.p
    size = np.abs(t)
    total = math.fsum(size**p)
    slope = np.zeros_like(t)
    slope[size > 0] = -p * np.sign(t[size > 0]) * size[size > 0] ** (p - 1)
    if kernel.name == "lp":
        return -total, slope, -slope
    outer = 0.0 if total == 0 else total ** (1 / p - 1) / p
    return -(total ** (1 / p)), slope * outer, -slope * outer


def log_partition(
    anchors: torch.Tensor,
    candidates: torch.Tensor,
    kernel: Kernel,
    upstream: torch.Tensor,
    *,
    exclude_diagonal: bool = False,
    mask: torch.Tensor | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Log-partition, largest, and the gradients of Σᵢ upstreamᵢ·log_partitionᵢ for anchors and candidates."""
    a, b, g = (x.detach().double().numpy() for x in (anchors, candidates, upstream))
    value, largest = np.full(len(a), -np.inf), np.full(len(a), -np.inf)
    grad_a, grad_b = np.zeros_like(a), np.zeros_like(b)
    for i in range(len(a)):
        allowed = [j for j in range(len(b)) if not (exclude_diagonal and i == j) and (mask is None or bool(mask[i, j]))]
        if not allowed:
            continue
        pairs = [pair(kernel, a[i], b[j]) for j in allowed]
        u = np.array([row[0] for row in pairs])
        largest[i] = u.max()
        value[i] = u.max() + math.log(math.fsum(np.exp(u - u.max())))
        for j, u_j, (_, into_a, into_b) in zip(allowed, u, pairs, strict=True):
            weight = g[i] * math.exp(u_j - value[i])
            grad_a[i] += weight * into_a
            grad_b[j] += weight * into_b
    return value, largest, grad_a, grad_b
