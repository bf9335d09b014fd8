"""One rule for randomness everywhere: an explicit ``torch.Generator``, or a whole number that seeds one."""

from __future__ import annotations

import operator

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
    """The seed as a plain ``int``, if it is a whole number (numpy's count too) that torch can be seeded with."""
    try:
        number = None if isinstance(seed, bool) else operator.index(seed)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(
            f"Randomness is a torch.Generator or a whole number used as its seed, not {seed!r}; "
            "pass for example torch.Generator().manual_seed(0), or 0."
        )
    if not -(2**63) <= number < 2**64:
        raise ValueError(f"A seed lies between -2**63 and 2**64 - 1, which {number} does not; use a smaller one.")
    return number
