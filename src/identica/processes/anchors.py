"""Observations of single latents, without partners, and processes that are scored on something else than they draw."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from typing import Any, Protocol, Self

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.types import Device

from identica._devices import usable_device
from identica._numbers import whole_number
from identica._randomness import Randomness, as_generator
from identica.distributions.foreign import sample_with
from identica.mixing import Mixing, MixingLike, as_mixing
from identica.processes.pairs import Pairs
from identica.processes.parts import check_mixing, checked_marginal, describe_marginal, moved_marginal, moved_mixing


class DrawsPairs(Protocol):
    """What the wrappers of this room take: a process that can be moved and described."""

    def sample(self, n: int, generator: torch.Generator) -> Any:
        """Draw ``n`` pairs."""

    def to(self, device: Device = None, dtype: torch.dtype | None = None) -> Any:
        """The same process elsewhere."""

    def to_dict(self) -> dict[str, Any]:
        """The process as plain data."""


class AnchorProcess:
    """Draws z and x = g(z) alone; the positives are the anchors themselves.

    For regression onto the latents and for scores, which look at anchors only: half the work of pairs where the
    mixing is expensive, as a renderer is.

    >>> from identica.distributions import BoxUniform
    >>> pairs = AnchorProcess(BoxUniform(2), torch.exp).sample(3, generator=0)
    >>> torch.equal(pairs.x, pairs.z.exp()), pairs.x_pos is pairs.x
    (True, True)
    """

    def __init__(self, marginal: Distribution, mixing: MixingLike = None) -> None:
        self.marginal, self.dim = checked_marginal(marginal)
        self.mixing: Mixing | None = as_mixing(mixing)
        drawn = sample_with(self.marginal, (4,), as_generator(0, getattr(self.marginal, "device", "cpu")))
        self.device, self.dtype = drawn.device, drawn.dtype
        if self.mixing is not None:
            check_mixing(self.mixing, drawn)

    @torch.no_grad()
    def sample(self, n: int, generator: Randomness) -> Pairs:
        """Draw ``n`` anchors."""
        source = as_generator(generator, self.device)
        z = sample_with(self.marginal, (whole_number(n, "n", least=0),), source).to(self.device, self.dtype)
        x = z if self.mixing is None else self.mixing(z)
        return Pairs(z, z, x, x)

    def to(self, device: Device = None, dtype: torch.dtype | None = None) -> Self:
        """The same on another device or in another precision."""
        moved = copy.copy(self)
        moved.device = self.device if device is None else usable_device(device)
        moved.dtype = dtype or self.dtype
        moved.marginal = moved_marginal(self.marginal, moved.device, moved.dtype)
        moved.mixing = moved_mixing(self.mixing, device, dtype)
        return moved

    def to_dict(self) -> dict[str, Any]:
        """``{"process": "anchors", ...}``."""
        mixing = None if self.mixing is None else self.mixing.to_dict()
        return {"process": "anchors", "marginal": describe_marginal(self.marginal), "mixing": mixing}


Observations = Tensor | Callable[[Tensor], Tensor] | None


class FiniteAnchors:
    """Draws from a finite set of latents and what is seen of them: all different as long as there are enough.

    latents: ``(N, d)``.
    observations: of each of them, a tensor ``(N, ...)`` or a function from indices ``(n,)`` to observations.
    mixing: what observes the latents where there are no observations; without either x is z.
    """

    def __init__(self, latents: Tensor, observations: Observations = None, mixing: Mixing | None = None) -> None:
        if latents.ndim != 2 or not len(latents) or not latents.is_floating_point():
            raise ValueError(f"A finite set of latents is at least one row of numbers, not {tuple(latents.shape)}.")
        if isinstance(observations, Tensor) and len(observations) != len(latents):
            raise ValueError(f"There are {len(latents)} latents and {len(observations)} observations: one for each.")
        self.latents, self.observations, self.mixing = latents, observations, mixing

    def __len__(self) -> int:
        return len(self.latents)

    @torch.no_grad()
    def sample(self, n: int, generator: Randomness) -> Pairs:
        """Draw ``n`` of them."""
        source = as_generator(generator, self.latents.device)
        index = different(whole_number(n, "n", least=0), len(self.latents), source)
        z, x = self.latents[index], self.observe(index)
        return Pairs(z, z, x, x)

    def observe(self, index: Tensor) -> Tensor:
        """What is seen of the latents with these numbers."""
        if isinstance(self.observations, Tensor):
            return self.observations[index]
        if self.observations is not None:
            return self.observations(index).to(index.device)
        return self.latents[index] if self.mixing is None else self.mixing(self.latents[index])

    def to(self, device: Device = None, dtype: torch.dtype | None = None) -> FiniteAnchors:
        """The same on another device or in another precision; observations in a tensor move along."""
        seen = self.observations
        if isinstance(seen, Tensor):
            seen = seen.to(device, dtype if seen.is_floating_point() else None)
        return FiniteAnchors(self.latents.to(device, dtype), seen, moved_mixing(self.mixing, device, dtype))

    def to_dict(self) -> dict[str, Any]:
        """The mixing, and a hash that tells one set of latents from another."""
        content = self.latents.detach().cpu().float().contiguous().numpy().tobytes()
        return {
            "process": "finite",
            "latents": {"shape": list(self.latents.shape), "sha256": hashlib.sha256(content).hexdigest()},
            "mixing": None if self.mixing is None else self.mixing.to_dict(),
        }


class EvaluatedOn:
    """A process that is trained on, with another one that scores are computed on.

    Where what is trained on is not what one wants to be judged by: augmented views, pairs of a finite set, or pairs of
    a pool that the encoder has seen before. :func:`identica.training.evaluate` and the loop look for
    ``evaluation_process``.
    """

    def __init__(self, process: DrawsPairs, evaluation_process: DrawsPairs) -> None:
        self.process, self.evaluation_process = process, evaluation_process

    def sample(self, n: int, generator: torch.Generator) -> Any:
        """What is trained on."""
        return self.process.sample(n, generator)

    @property
    def most(self) -> int | None:
        """How many can be drawn at once; None where there is no end."""
        return getattr(self.process, "most", None)

    def to(self, device: Device = None, dtype: torch.dtype | None = None) -> EvaluatedOn:
        """Both on another device or in another precision."""
        return EvaluatedOn(self.process.to(device, dtype), self.evaluation_process.to(device, dtype))

    def to_dict(self) -> dict[str, Any]:
        """What is trained on; what is looked at does not change what is learned."""
        return self.process.to_dict()

    def __repr__(self) -> str:
        return f"EvaluatedOn({self.process!r}, {self.evaluation_process!r})"


def different(n: int, among: int, generator: torch.Generator) -> Tensor:
    """``n`` random indices below ``among``, all different as long as there are enough; never waits for the device."""
    rounds = -(-n // among)
    keys = torch.rand(rounds, among, generator=generator, device=generator.device)
    return keys.argsort(dim=1).flatten()[:n]
