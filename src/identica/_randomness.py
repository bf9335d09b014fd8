"""One rule for randomness everywhere: an explicit ``torch.Generator``, or a whole number that seeds one."""

from __future__ import annotations

import torch

Randomness = torch.Generator | int


def as_generator(randomness: Randomness, device: torch.device | str = "cpu") -> torch.Generator:
    """The generator itself, or a new one on ``device`` seeded with the number.

    >>> a, b = as_generator(3), as_generator(torch.Generator().manual_seed(3))
    >>> torch.equal(torch.rand(2, generator=a), torch.rand(2, generator=b))
    True
    """
    if isinstance(randomness, torch.Generator):
        return randomness
    return torch.Generator(device).manual_seed(as_seed(randomness))


def as_seed(seed: int) -> int:
    """A seed must be a whole number; returns it."""
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise TypeError(
            f"Randomness is a torch.Generator or a whole number used as its seed, not {seed!r}; "
            "pass for example torch.Generator().manual_seed(0), or 0."
        )
    return seed
