"""One kind of pairs: marginal, conditional, hard negatives and mixing put together."""

from __future__ import annotations

import copy
from typing import Any, Self

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.types import Device

from identica._devices import usable_device
from identica._numbers import whole_number
from identica._randomness import Randomness, as_generator
from identica.distributions.conditional import Conditional
from identica.distributions.foreign import sample_with
from identica.mixing import Mixing, MixingLike, as_mixing
from identica.processes.optimal_loss import OptimalLoss, loss_at_truth
from identica.processes.pairs import Pairs
from identica.processes.parts import (
    ConditionalLike,
    as_vectors,
    check_conditional,
    check_mixing,
    checked_counts,
    checked_marginal,
    describe_conditional,
    describe_marginal,
    moved_marginal,
    moved_mixing,
    space_of,
    warn_of_close_negatives,
)
from identica.spaces import Space

#: Anchors drawn once, when a process is made, to find out whether its parts fit together.
_DRY_RUN = 64


class PairProcess:
    """Draws pairs: anchors from ``marginal``, positives from ``conditional``, both through ``mixing``.

    marginal: a distribution over vectors, ours or torch's.
    conditional: a :class:`Conditional`, or any function from anchors ``(n, d)`` to a distribution.
    mixing: a :class:`Mixing`, a module or function from latents to observations, or None: x is z.
    negative_conditional, negatives_per_anchor: where hard negatives come from, and how many (B, Sec. B.2).
    positives_per_anchor: how many positives share an anchor.

    Whether the parts fit together is found out once, by a dry run when the process is made or moved;
    sampling itself checks nothing and, with this package's families, never waits for the device.

    >>> from identica.distributions import BoxUniform
    >>> from identica.distributions.truncated_laplace import TruncatedLaplace
    >>> process = PairProcess(BoxUniform(2), Conditional(TruncatedLaplace, scale=0.05))
    >>> pairs = process.sample(100, generator=torch.Generator().manual_seed(0))
    >>> pairs.z_pos.shape, pairs.x is pairs.z
    (torch.Size([100, 2]), True)
    """

    def __init__(
        self,
        marginal: Distribution,
        conditional: ConditionalLike,
        mixing: MixingLike = None,
        negative_conditional: ConditionalLike | None = None,
        negatives_per_anchor: int = 0,
        positives_per_anchor: int = 1,
    ) -> None:
        counts = checked_counts(negative_conditional, negatives_per_anchor, positives_per_anchor)
        self.negatives_per_anchor, self.positives_per_anchor = counts
        self.marginal, self.dim = checked_marginal(marginal)
        self.conditional, self.negative_conditional = conditional, negative_conditional
        self.mixing: Mixing | None = as_mixing(mixing)
        drawn = sample_with(self.marginal, (1,), as_generator(0, getattr(self.marginal, "device", "cpu")))
        self.device, self.dtype = drawn.device, drawn.dtype
        self._dry_run()
        warn_of_close_negatives(self.conditional, self.negative_conditional, self.dim)

    # -- sampling

    @torch.no_grad()
    def sample(self, n: int, generator: Randomness) -> Pairs:
        """Draw ``n`` anchors with their positives (and negatives). A number seeds a generator of its own.

        Equal generators give equal pairs. The generator lives on the process's device.
        """
        z, z_pos, z_neg = self._latents(whole_number(n, "n", least=0), self._generator(generator))
        if self.mixing is None:
            return Pairs(z, z_pos, z, z_pos, z_neg, z_neg)
        views = [view for view in (z, z_pos, z_neg) if view is not None]
        x = self.mixing(torch.cat([view.reshape(-1, self.dim) for view in views]))
        seen = [
            part.reshape(*view.shape[:-1], *x.shape[1:])
            for part, view in zip(x.split([view.numel() // self.dim for view in views]), views, strict=True)
        ]
        return Pairs(z, z_pos, seen[0], seen[1], z_neg, None if z_neg is None else seen[2])

    def _latents(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor | None]:
        z = self._place(sample_with(self.marginal, (n,), generator))
        several = self.positives_per_anchor > 1
        z_pos = self._around(self.conditional, z, self.positives_per_anchor if several else None, generator)
        if self.negative_conditional is None:
            return z, z_pos, None
        return z, z_pos, self._around(self.negative_conditional, z, self.negatives_per_anchor, generator)

    def _around(self, conditional: ConditionalLike, z: Tensor, count: int | None, generator: torch.Generator) -> Tensor:
        """One draw per anchor, ``(n, d)``, or several, ``(n, count, d)``."""
        if isinstance(conditional, Conditional):
            distribution: Distribution = conditional.unchecked(z)
        else:
            distribution = as_vectors(conditional(z))
        if count is None:
            return self._place(sample_with(distribution, (), generator))
        return self._place(sample_with(distribution, (count,), generator)).transpose(0, 1).contiguous()

    def _place(self, draws: Tensor) -> Tensor:
        """Foreign distributions draw where they like; ours already draw here."""
        return draws.to(device=self.device, dtype=self.dtype)

    def _generator(self, randomness: Randomness) -> torch.Generator:
        generator = as_generator(randomness, self.device)
        if torch.empty(0, device=generator.device).device != self.device:
            raise ValueError(
                f"The generator lives on {generator.device}, the process on {self.device}; move the process "
                f"with process.to({str(generator.device)!r}), or use torch.Generator({str(self.device)!r})."
            )
        return generator

    # -- moving and describing

    def to(self, device: Device = None, dtype: torch.dtype | None = None) -> Self:
        """The same process with marginal, tables and mixing on another device or in another precision.

        Functions of the user's stay as they are and must cope with anchors from there.
        """
        return self._moved(device, dtype, moved_mixing(self.mixing, device, dtype))

    def _moved(self, device: Device, dtype: torch.dtype | None, mixing: Mixing | None) -> Self:
        moved = copy.copy(self)
        moved.device = self.device if device is None else usable_device(device)
        moved.dtype, moved.mixing = dtype or self.dtype, mixing
        moved.marginal = moved_marginal(self.marginal, moved.device, moved.dtype)
        moved._dry_run()
        return moved

    @property
    def space(self) -> Space | None:
        """Where the anchors live, if the marginal says so in a way known here (waits for the device)."""
        return space_of(self.marginal)

    def to_dict(self) -> dict[str, Any]:
        """Plain data as far as there is any; functions of the user's appear as "user function"."""
        return {
            "process": "pairs",
            "marginal": describe_marginal(self.marginal),
            "conditional": describe_conditional(self.conditional),
            "mixing": None if self.mixing is None else self.mixing.to_dict(),
            "negative_conditional": describe_conditional(self.negative_conditional),
            "negatives_per_anchor": self.negatives_per_anchor,
            "positives_per_anchor": self.positives_per_anchor,
        }

    def __repr__(self) -> str:
        parts = [repr(self.marginal), repr(self.conditional), f"mixing={self.mixing!r}"]
        if self.negative_conditional is not None:
            parts.append(f"{self.negative_conditional!r}, negatives_per_anchor={self.negatives_per_anchor}")
        if self.positives_per_anchor > 1:
            parts.append(f"positives_per_anchor={self.positives_per_anchor}")
        return f"PairProcess({', '.join(parts)})"

    # -- the floor of the loss

    def optimal_loss(
        self,
        n: int,
        batches: int = 16,
        *,
        generator: Randomness = 0,
        include_positive: bool = True,
        self_negatives: bool = False,
    ) -> OptimalLoss:
        """InfoNCE at the true latents with the true density ratio, which no encoder can beat in expectation.

        The similarity is u(z, z̃) = log p⁺(z̃|z) − log p⁻(z̃|z) (B, Thm C.1), p⁻ being the marginal, or the
        negative conditional where there is one. The negatives are the other anchors of a batch of ``n``, or
        the hard negatives. Everything is computed in float64, from ``batches`` batches: those that
        ``process.to(dtype=torch.float64).sample`` draws one after the other.

        ``include_positive`` and ``self_negatives`` mean what they mean to InfoNCE. Away from their defaults
        the value is the loss of the truth, but no longer a bound: the theorem is about denominators that hold
        the positive and true negatives, nothing else. Leaving the positive out matters less the larger n is.
        """
        n, batches = whole_number(n, "n"), whole_number(batches, "batches")
        exact = self._moved(None, torch.float64, None)
        source = exact._generator(generator)
        per_batch = [
            exact._loss_at(exact._latents(n, source), include_positive, self_negatives).mean().item()
            for _ in range(batches)
        ]
        return OptimalLoss.of(per_batch, n)

    def loss_at_truth(self, pairs: Pairs, *, include_positive: bool = True, self_negatives: bool = False) -> Tensor:
        """The same loss on given pairs, item by item: ``(n,)`` in float64. See :meth:`optimal_loss`.

        An encoder's loss on these pairs minus this one has far less noise than either.
        """
        return self._loss_at((pairs.z, pairs.z_pos, pairs.z_neg), include_positive, self_negatives)

    def _loss_at(
        self, latents: tuple[Tensor, Tensor, Tensor | None], include_positive: bool, self_negatives: bool
    ) -> Tensor:
        return loss_at_truth(
            latents,
            self.marginal,
            self.conditional,
            self.negative_conditional,
            include_positive=include_positive,
            self_negatives=self_negatives,
        )

    # -- does it fit together?

    @torch.no_grad()
    def _dry_run(self) -> None:
        """Draw a few pairs with all checks on; raise a sentence if the parts do not fit."""
        generator = as_generator(0, self.device)
        z = self._place(sample_with(self.marginal, (_DRY_RUN,), generator))
        if not bool(torch.isfinite(z).all()):
            raise ValueError(f"The marginal {self.marginal!r} draws NaN or infinite latents.")
        for name in ("conditional", "negative_conditional"):
            conditional = getattr(self, name)
            if isinstance(conditional, Conditional):
                conditional.prepare(self.device, self.dtype)
            if name == "conditional" or conditional is not None:
                check_conditional(conditional, name, z, self.marginal, generator)
        if self.mixing is not None:
            check_mixing(self.mixing, z[:4])
