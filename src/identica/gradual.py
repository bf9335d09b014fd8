"""A number that changes in the course of training."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from identica._numbers import as_float


class Gradual(nn.Module):
    """A positive number that goes from ``start`` to ``end`` over the first ``until`` of the steps, and then stays.

    It moves geometrically: by the same factor in every step, once the part ``after`` of the steps is done. ``value`` is
    the number now, a tensor on the device, which training sets from :meth:`value_at` before every step; it is saved
    with the model.

    >>> round(Gradual(100.0, 1.0, until=0.5).value_at(0.25), 6)
    10.0
    """

    value: Tensor

    def __init__(self, start: float, end: float, until: float = 0.8, after: float = 0.0) -> None:
        super().__init__()
        self.start, self.end, self.until, self.after = (as_float(number) for number in (start, end, until, after))
        for name in ("start", "end", "until"):
            number = getattr(self, name)
            if not (math.isfinite(number) and number > 0):
                raise ValueError(f"{name} must be positive and finite, not {number!r}.")
        if self.until > 1:
            raise ValueError(f"until is a part of all steps, so at most 1, not {self.until!r}.")
        if not 0 <= self.after < self.until:
            raise ValueError(f"after is a part of all steps before until = {self.until:g}, not {self.after!r}.")
        self.register_buffer("value", torch.tensor(self.start))

    def value_at(self, fraction: float) -> float:
        """The number at the moment at which ``fraction`` of all steps is done."""
        done = (fraction - self.after) / (self.until - self.after)
        return self.start * (self.end / self.start) ** min(max(done, 0.0), 1.0)

    def to_dict(self) -> dict[str, float]:
        """The arguments of the constructor; without ``after`` where it is 0."""
        given = {"start": self.start, "end": self.end, "until": self.until}
        return {**given, "after": self.after} if self.after else given

    def extra_repr(self) -> str:
        """The arguments, for printing."""
        return ", ".join(f"{name}={number:g}" for name, number in self.to_dict().items())
