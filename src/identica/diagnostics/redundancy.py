"""Whether a code repeats others: seen from the codes alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy import stats
from torch import Tensor

#: How often independent codes may be called redundant.
FALSE_ALARM = 1e-6
#: From this share of its variance on a code is called a repetition.
_MUCH = 0.5
#: Keeps a correlation matrix invertible in float64.
_RIDGE = 1e-12


@dataclass(frozen=True)
class Redundancy:
    """How much of each code the other codes know.

    shares: for each code, R² of its best linear prediction by all others; 1 for a code that does not vary.
    by_chance: what the largest share exceeds once in 1/:data:`FALSE_ALARM` samples of independent codes.
    """

    shares: tuple[float, ...]
    by_chance: float

    @property
    def largest(self) -> float:
        """The share of the code that the others know best."""
        return max(self.shares)

    @property
    def redundant(self) -> bool:
        """More than chance allows, and more than half of a code."""
        return self.largest > max(self.by_chance, _MUCH)

    @property
    def sentence(self) -> str:
        """In plain words."""
        worst = self.shares.index(self.largest)
        if not self.redundant:
            return f"No code repeats the others: they know at most R² {self.largest:.3f} of one (code {worst})."
        return (
            f"Redundant: the other codes know R² {self.largest:.3f} of code {worst}, of which chance explains "
            f"{self.by_chance:.3f} at most. If the latents are independent, a factor is missing: train with "
            "InfoNCE(..., decorrelation=0.1), longer or with larger batches."
        )


def redundancy(codes: Tensor) -> Redundancy:
    """Look for repetitions in ``codes: (n, d)`` of independent latents.

    With C the correlation matrix, the other codes predict code k with R² = 1 − 1/(C⁻¹)ₖₖ, which for n independent draws
    of normal codes has the law Beta((d−1)/2, (n−d)/2). Encoders repeat themselves where one factor is hard to see and
    others are not: a second code for an easy factor helps the loss at once, one for the hard factor does not yet
    (docs/3dident.md). Small shares do not prove that all factors are there, and if the latents are correlated, large
    ones do not prove that one is missing.

    >>> z = torch.rand(4000, 3, generator=torch.Generator().manual_seed(0))
    >>> repeated = torch.cat([z, z[:, :1] + z[:, 1:2]], dim=1)
    >>> redundancy(z).redundant, redundancy(repeated).redundant
    (False, True)
    """
    if codes.ndim != 2 or codes.shape[1] < 2 or codes.shape[0] < codes.shape[1] + 2:
        raise ValueError(
            f"redundancy needs codes (n, d) with d at least 2 and n at least d + 2, not {tuple(codes.shape)}."
        )
    codes = codes.detach().double()
    if not bool(codes.isfinite().all()):
        raise ValueError("redundancy needs finite codes, and some are not.")
    n, dim = codes.shape
    centred = codes - codes.mean(dim=0)
    size = centred.norm(dim=0)
    varies = size > 1e-12 * codes.abs().amax(dim=0)
    unit = torch.where(varies, centred / size.clamp(min=torch.finfo(size.dtype).tiny), 0.0)
    correlations = unit.T @ unit + torch.diag(1.0 - varies.double()) + _RIDGE * torch.eye(dim).to(codes)
    known = 1.0 - 1.0 / torch.linalg.inv(correlations).diagonal()
    shares = torch.where(varies, known.clamp(0.0, 1.0), 1.0)
    by_chance = float(stats.beta.isf(FALSE_ALARM / dim, (dim - 1) / 2, (n - dim) / 2))
    return Redundancy(tuple(shares.tolist()), by_chance)
