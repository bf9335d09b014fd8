"""Further codes that help an encoder to find its way and are gone when it has."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from identica._numbers import as_float, whole_number
from identica._randomness import Randomness
from identica.encoders.base import make_linear, weight_generator
from identica.gradual import Gradual
from identica.similarities import at_least_float32

#: Further codes have faded after this part of the steps, unless one says otherwise.
FADED = 0.6


def fading(until: float = FADED) -> Gradual:
    """1 over the first fifth of the steps, or half of those before ``until``; from ``until`` on 1/1000."""
    if not 0.0 < as_float(until) <= 1.0:
        raise ValueError(f"scaffold_until is a part of the steps, above 0 and at most 1, not {until!r}.")
    return Gradual(1.0, 1e-3, until=until, after=min(0.2, until / 2))


class Scaffold(nn.Module):
    """√w · tanh(A φ + b): so many codes beside those that count, from the same features φ, of a weight w that fades.

    An encoder with as many codes as latents can get stuck in a map that is right nearly everywhere, but folded: to
    unfold it, codes would have to pass through each other. With a few dimensions to spare they need not. For a
    similarity −‖a − b‖²/τ codes in more dimensions have the same optimum, the latents, flat in some directions of the
    larger space; as w falls, what the further codes know moves over to those that count, and in the end they
    are worth nothing. Meant for boxes and unbounded codes.

    count: of the further codes. features: the length of φ.
    fade: w, 1 over the first fifth of the steps, and 1/1000 after three fifths. Where further training follows that
        has no scaffold, it may fade later.
    """

    def __init__(self, features: int, count: int, *, fade: Gradual | None = None, seed: Randomness = 0) -> None:
        super().__init__()
        self.count = whole_number(count, "count of a Scaffold")
        self.layer = make_linear(features, self.count, weight_generator(seed))
        self.fade = fading() if fade is None else fade

    def forward(self, features: Tensor) -> Tensor:
        """``(n, features) -> (n, count)``."""
        codes = torch.tanh(at_least_float32(self.layer(features)))
        return codes * self.fade.value.sqrt()
