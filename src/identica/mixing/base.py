"""What a mixing is: a fixed function from latents z to observations x."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Mixing(nn.Module):
    """The generative map g of x = g(z), row by row: ``(n, dim) -> (n, ...)``.

    A subclass implements ``forward``; where the map can be undone, ``inverse``; where plain data
    describes it, ``to_dict``. Decoders, whose observations are images, are mixings too.
    """

    #: Length of the latent vectors, or None where any length will do.
    dim: int | None = None

    def forward(self, z: Tensor) -> Tensor:
        """``z: (..., dim)`` to its observation."""
        raise NotImplementedError(f"{type(self).__name__} must implement forward(z).")

    def inverse(self, x: Tensor) -> Tensor:
        """The latents of observations ``x``."""
        raise NotImplementedError(
            f"{type(self).__name__} has no inverse written down. InvertibleMLP is a mixing that has one."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data that describes the mixing; a map without a description is a "user function"."""
        return {"mixing": "user function"}


#: What can be given as a mixing; None means that the observation is the latent itself.
MixingLike = Mixing | Callable[[Tensor], Tensor] | None


class FunctionMixing(Mixing):
    """A function or module of the user's as a mixing.

    >>> FunctionMixing(torch.exp)(torch.zeros(2, 3)).shape
    torch.Size([2, 3])
    """

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, z: Tensor) -> Tensor:
        """The function's value."""
        return self.function(z)


def as_mixing(mixing: MixingLike) -> Mixing | None:
    """A mixing from a mixing, a module or a function; None stays None."""
    if mixing is None or isinstance(mixing, Mixing):
        return mixing
    if not callable(mixing):
        raise TypeError(
            f"A mixing is a Mixing, a module or function from latents (n, d) to observations, or None, not {mixing!r}."
        )
    return FunctionMixing(mixing)


def same_mixing(a: Mixing | None, b: Mixing | None) -> bool:
    """Whether two mixings are one object, or two copies of one map (waits for the device)."""
    if a is b:
        return True
    if a is None or b is None or type(a) is not type(b):
        return False
    if isinstance(a, FunctionMixing) and isinstance(b, FunctionMixing) and a.function != b.function:
        return False
    one, other = a.state_dict(), b.state_dict()
    return (
        a.to_dict() == b.to_dict()
        and one.keys() == other.keys()
        and all(torch.equal(value.cpu(), other[name].cpu()) for name, value in one.items())
    )
