"""Pairs of a finite set of latents, as paper A had them for 3DIdent: exact draws, moved to the nearest rendered one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.types import Device

from identica._numbers import whole_number
from identica._randomness import Randomness
from identica.processes.anchors import FiniteAnchors, Observations
from identica.processes.nearest import SEARCHES, SearchName, make_search
from identica.processes.pair_process import PairProcess
from identica.processes.pairs import Pairs


class SnappedProcess:
    """Draws z and z̃ from ``process`` and moves both to the nearest of the ``latents: (N, d)`` that were observed.

    Where both are nearest to the same one, z̃ goes to the second nearest (the same point, where a set has it twice).
    That is what the authors of paper A did with 250,000 renders. In ten dimensions the nearest of so many is far: the
    pairs spread over 0.26 per coordinate where the conditional has 0.1, and any conditional becomes nearly Gaussian.
    What is learned is learned from those pairs.

    process: marginal, conditional and, unless ``observations`` are given, the mixing that observes the latents.
    observations: what was seen of the latents, a tensor ``(N, ...)`` or a function from indices ``(n,)`` to
        observations ``(n, ...)``, such as one that reads images.
    search: how the nearest is found, see :func:`identica.processes.nearest.make_search`.

    >>> from identica.distributions import BoxUniform, Conditional, TruncatedNormal
    >>> process = PairProcess(BoxUniform(1), Conditional(TruncatedNormal, scale=0.1))
    >>> few = torch.tensor([[0.1], [0.5], [0.9]])
    >>> pairs = SnappedProcess(process, few, search="exact").sample(4, generator=0)
    >>> bool(torch.isin(pairs.z, few).all()), bool((pairs.z == pairs.z_pos).any())
    (True, False)
    """

    def __init__(
        self,
        process: PairProcess,
        latents: Tensor,
        observations: Observations = None,
        *,
        search: SearchName = "auto",
    ) -> None:
        if not isinstance(process, PairProcess) or process.negatives_per_anchor or process.positives_per_anchor > 1:
            raise TypeError(
                "SnappedProcess takes a PairProcess with one positive for each anchor and no hard negatives."
            )
        if not isinstance(latents, Tensor):
            raise TypeError(f"latents of SnappedProcess are a tensor, not {type(latents).__name__}.")
        if latents.ndim != 2 or latents.shape[1] != process.dim or len(latents) < 2:
            raise ValueError(
                f"SnappedProcess takes at least two latents of the process, (N, {process.dim}), not of shape "
                f"{tuple(latents.shape)}."
            )
        if not bool(latents.isfinite().all()):
            row = int((~latents.isfinite()).any(dim=1).nonzero()[0])
            raise ValueError(f"SnappedProcess takes finite latents, but row {row} has NaN or infinity; leave it out.")
        if search not in SEARCHES:
            raise ValueError(f"search is one of {', '.join(SEARCHES)}, not {search!r}.")
        self.process, self.search = process, search
        self.device, self.dtype, self.dim = process.device, process.dtype, process.dim
        #: The observed latents themselves, one by one: what an encoder is trained on.
        self.anchors = FiniteAnchors(latents.to(self.device, self.dtype), observations, process.mixing)
        self._nearest: Callable[[Tensor], Tensor] | None = None

    @torch.no_grad()
    def sample(self, n: int, generator: Randomness) -> Pairs:
        """Draw ``n`` pairs of observed latents."""
        both = self.indices(whole_number(n, "n", least=0), generator)
        z, x = self.anchors.latents[both], self.anchors.observe(both)
        return Pairs(z[:n], z[n:], x[:n], x[n:])

    @torch.no_grad()
    def indices(self, n: int, generator: Randomness) -> Tensor:
        """Which latents: ``(2n,)``, the anchors' and then their positives'."""
        if self._nearest is None:
            self._nearest = make_search(self.anchors.latents, self.search)
        z, z_pos, _ = self.process._latents(n, self.process._generator(generator))
        found = self._nearest(torch.cat([z, z_pos]))
        anchors, positives = found[:n, 0], found[n:]
        partner = torch.where(positives[:, 0] == anchors, positives[:, 1], positives[:, 0])
        return torch.cat([anchors, partner])

    def to(self, device: Device = None, dtype: torch.dtype | None = None) -> SnappedProcess:
        """The same on another device or in another precision; a tensor of observations moves along."""
        moved = copy.copy(self)
        moved.process, moved.anchors = self.process.to(device, dtype), self.anchors.to(device, dtype)
        moved.device, moved.dtype, moved._nearest = moved.process.device, moved.process.dtype, None
        return moved

    def to_dict(self) -> dict[str, Any]:
        """The exact process, and a hash that tells one set of latents from another."""
        return {"process": "snapped", "of": self.process.to_dict(), "latents": self.anchors.to_dict()["latents"]}

    def __repr__(self) -> str:
        return f"SnappedProcess({self.process!r}, {len(self.anchors)} latents, search={self.search!r})"
