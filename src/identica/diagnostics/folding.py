"""Whether an encoder has folded the sphere: seen from the codes alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import stats
from torch import Tensor

#: How often codes that are not folded may be called so.
FALSE_ALARM = 1e-6


@dataclass(frozen=True)
class Folding:
    """The mean of codes on a sphere beside what it would be by chance and after one fold.

    size: ‖E h‖ in units of the radius. axis: its direction, as long as the codes have coordinates.
    by_chance: what ‖E h‖ exceeds once in 1/:data:`FALSE_ALARM` samples of uniform codes.
    one_fold: ‖E h‖ of uniform codes of which one coordinate has lost its sign.
    """

    size: float
    axis: tuple[float, ...]
    by_chance: float
    one_fold: float

    @property
    def folded(self) -> bool:
        """More than chance allows, and at least half of what one fold makes."""
        return self.size > max(self.by_chance, 0.5 * self.one_fold)

    @property
    def sentence(self) -> str:
        """In plain words."""
        if not self.folded:
            return (
                f"No fold is seen: the mean code has length {self.size:.3f}, and one fold makes it {self.one_fold:.2f}."
            )
        return (
            f"Folded: the mean code has length {self.size:.3f}, of which chance explains {self.by_chance:.3f} at most "
            f"and one fold {self.one_fold:.2f}. A direction of the latents has lost its sign: train longer, with "
            "larger batches or a higher temperature."
        )


def folding(codes: Tensor) -> Folding:
    """Look for a fold in ``codes: (n, d)`` of uniform latents on a sphere.

    Uniform codes have mean 0 and covariance I/d, so n·d·‖mean‖² is χ² with d degrees of freedom. Codes that have kept
    nine coordinates of ten and the size of the tenth, but not its sign, cover half of the sphere, and their mean is
    E|z₁| = Γ(d/2) / (√π Γ((d+1)/2)) along the lost axis. The loss leaves such a state slowly, because few negatives
    of a batch meet where the halves lie on each other (docs/folds.md). A mean of 0 does not prove that there is no
    fold, and if the latents are not uniform, neither does another mean prove one.

    >>> import torch
    >>> from torch.nn.functional import normalize
    >>> z = normalize(torch.randn(4000, 10, generator=torch.Generator().manual_seed(0)), dim=1)
    >>> folding(z).folded, folding(torch.cat([z[:, :9], z[:, 9:].abs()], dim=1)).folded
    (False, True)
    """
    if codes.ndim != 2 or codes.shape[0] < 2 or codes.shape[1] < 2:
        raise ValueError(f"folding needs codes (n, d) with n and d at least 2, not {tuple(codes.shape)}.")
    codes = codes.detach().double()
    radii = codes.norm(dim=1)
    if not bool(radii.isfinite().all()) or float(radii.max() - radii.min()) > 1e-3 * float(radii.max()):
        raise ValueError(
            f"folding needs codes on a sphere, but their norms go from {radii.min():.4g} to {radii.max():.4g}: a fold "
            "shows in the mean of codes only where uniform codes have none."
        )
    n, dim = codes.shape
    mean = codes.mean(dim=0) / radii.mean()
    size = float(mean.norm())
    axis = mean / size if size > 0 else mean
    by_chance = math.sqrt(float(stats.chi2.isf(FALSE_ALARM, dim)) / (n * dim))
    one_fold = math.exp(math.lgamma(dim / 2) - math.lgamma((dim + 1) / 2)) / math.sqrt(math.pi)
    return Folding(size, tuple(axis.tolist()), by_chance, one_fold)
