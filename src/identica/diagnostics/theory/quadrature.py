"""Exact expectations of known maps, by quadrature in float64: what the losses are compared with.

Nothing here uses the package's samplers, densities, similarities or losses. Densities are written down without
their normaliser and normalised by the same quadrature.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

Map = Callable[[Tensor], Tensor]


def unit_rule(nodes: int) -> tuple[Tensor, Tensor]:
    """Gauss-Legendre on [0, 1]: nodes ``(n,)`` and weights ``(n,)``, which sum to 1."""
    x, w = np.polynomial.legendre.leggauss(nodes)
    return torch.from_numpy((x + 1) / 2), torch.from_numpy(w / 2)


def split_rule(z: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """Gauss-Legendre on [0, z] and on [z, 1], for integrands with a kink at z: ``(k,) -> (k, 2n), (k, 2n)``."""
    x, w = unit_rule(nodes)
    z = z[:, None]
    return torch.cat([z * x, z + (1 - z) * x], dim=1), torch.cat([z * w, (1 - z) * w], dim=1)


def sphere_rule(nodes: int) -> tuple[Tensor, Tensor]:
    """Nodes ``(2n², 3)`` on the unit sphere and weights ``(2n²,)``, which sum to 4π.

    Gauss-Legendre in the height, equal steps in the longitude: exact for polynomials of degree 2n − 1.
    """
    x, w = unit_rule(nodes)
    height, longitude = 2 * x - 1, torch.arange(2 * nodes, dtype=torch.float64) * (math.pi / nodes)
    radius = (1 - height.square()).sqrt()
    points = torch.stack(
        [
            torch.outer(radius, longitude.cos()),
            torch.outer(radius, longitude.sin()),
            height[:, None].expand(-1, 2 * nodes),
        ],
        dim=-1,
    )
    weights = (2 * w * math.pi / nodes)[:, None].expand(-1, 2 * nodes)
    return points.reshape(-1, 3), weights.reshape(-1)


@dataclass(frozen=True)
class Population:
    """Expectations of one map h under one process, z uniform on Z, z⁻ as z, z̃ ~ p(·|z), u = u(h(z), h(·)).

    alignment: E u(h(z), h(z̃)); log_mean: E_z log E_z⁻ e^u (A, Eq. 13 and 57: minus L_align, and L_uni).
    positive_weight: E e^u(z,z̃) / E_z⁻ e^u; second_moment: E_z E_z⁻ e^2u / (E_z⁻ e^u)².
    entropy: E_z H(p(·|z)), which no cross-entropy is below. log_volume: log |Z|.
    """

    alignment: float
    log_mean: float
    positive_weight: float
    second_moment: float
    entropy: float
    log_volume: float

    @property
    def cross_entropy(self) -> float:
        """E_z H(p(·|z), q_h(·|z)) (A, Eq. 29 and 76)."""
        return self.log_mean + self.log_volume - self.alignment

    @property
    def excess(self) -> float:
        """How far the cross-entropy is above the entropy: E_z KL(p(·|z) ‖ q_h(·|z))."""
        return self.cross_entropy - self.entropy

    @property
    def first_order(self) -> float:
        """The c of loss − log M + log|Z| = cross-entropy + c/M + O(1/M²).

        The positive adds one term to the M of the denominator, and the logarithm of a mean of M is too small by
        half its relative variance.
        """
        return self.positive_weight - (self.second_moment - 1) / 2

    def copies(self, dims: int) -> Population:
        """The same in ``dims`` independent coordinates, whose similarities add up."""
        return Population(
            dims * self.alignment,
            dims * self.log_mean,
            self.positive_weight**dims,
            self.second_moment**dims,
            dims * self.entropy,
            dims * self.log_volume,
        )


def population(log_p: Tensor, u: Tensor, outer: Tensor, inner: Tensor) -> Population:
    """Expectations from values on nodes: ``log_p`` and ``u`` ``(n, m)``, the former up to a term per row.

    ``outer: (n,)`` sums to 1; ``inner``, ``(m,)`` or ``(n, m)``, sums to |Z|.
    """
    log_inner = inner.log().expand_as(u)
    log_volume = log_inner.logsumexp(dim=1)
    log_p = log_p - (log_p + log_inner).logsumexp(dim=1, keepdim=True)
    p = (log_p + log_inner).exp()
    log_mean = (u + log_inner).logsumexp(dim=1) - log_volume
    log_square = (2 * u + log_inner).logsumexp(dim=1) - log_volume

    def mean(rows: Tensor) -> float:
        return float(outer @ rows)

    return Population(
        alignment=mean((p * u).sum(dim=1)),
        log_mean=mean(log_mean),
        positive_weight=mean((p * (u - log_mean[:, None]).exp()).sum(dim=1)),
        second_moment=mean((log_square - 2 * log_mean).exp()),
        entropy=-mean((p * log_p).sum(dim=1)),
        log_volume=mean(log_volume),
    )


def on_sphere(h: Map, *, concentration: float, temperature: float, nodes: int) -> Population:
    """Von Mises-Fisher pairs on the sphere in R³, u = ⟨h, h̃⟩/τ."""
    z, weights = sphere_rule(nodes)
    codes = h(z)
    u = codes @ codes.T / temperature
    return population(concentration * z @ z.T, u, weights / weights.sum(), weights)


def on_interval(h: Map, *, scale: float, temperature: float, power: float, nodes: int) -> Population:
    """Pairs ∝ exp(−|(z−z̃)/scale|^p) on [0, 1], u = −|h − h̃|^p/τ; ``h`` maps numbers to numbers."""
    z, outer = unit_rule(nodes)
    candidates, inner = split_rule(z, nodes)
    log_p = -(((candidates - z[:, None]).abs() / scale) ** power)
    u = -((h(candidates) - h(z)[:, None]).abs() ** power) / temperature
    return population(log_p, u, outer, inner)
