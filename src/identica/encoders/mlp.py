"""The papers' encoder: a plain multilayer perceptron."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from identica._numbers import whole_number
from identica._randomness import Randomness
from identica.encoders.base import Encoder, make_linear, weight_generator
from identica.encoders.fused import perceptron, product_dtype
from identica.spaces import Space

#: Hidden widths in units of the number of latents (A, Sec. A.3).
PAPER_WIDTHS = (10, 50, 50, 50, 50, 10)


class MLPEncoder(Encoder):
    """Linear layers with leaky ReLUs between them, then the head of ``space`` (A, Sec. A.3).

    hidden: widths of the hidden layers; by default the paper's, N·[10, 50, 50, 50, 50, 10] with
        N = ``space.dim``.
    negative_slope: of the leaky ReLUs.
    whiten: put a :class:`Whiten` in front, a number being its power. The paper did not; it trains faster with it.
    learn_bound, learn_radius: see :func:`identica.encoders.heads.make_head`.
    seed: a number or a generator for the initial weights; torch's default law.

    >>> import torch
    >>> from identica.spaces import Sphere
    >>> encoder = MLPEncoder(10, Sphere(10))
    >>> encoder.hidden
    (100, 500, 500, 500, 500, 100)
    >>> encoder(torch.ones(4, 10)).norm(dim=-1).allclose(torch.ones(4))
    True
    """

    def __init__(
        self,
        dim_in: int,
        space: Space,
        hidden: Sequence[int] | None = None,
        negative_slope: float = 0.01,
        *,
        whiten: bool | float = False,
        learn_radius: bool = False,
        learn_bound: bool = True,
        seed: Randomness = 0,
    ) -> None:
        super().__init__(dim_in, space, whiten=whiten, learn_radius=learn_radius, learn_bound=learn_bound)
        widths = [factor * space.dim for factor in PAPER_WIDTHS] if hidden is None else hidden
        self.hidden = tuple(whole_number(width, "hidden, the widths of the hidden layers: each") for width in widths)
        self.negative_slope = float(negative_slope)
        generator = weight_generator(seed)
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise([self.dim_in, *self.hidden, space.dim]):
            layers += [make_linear(before, after, generator), nn.LeakyReLU(self.negative_slope)]
        self.network = nn.Sequential(*layers[:-1])

    def body(self, x: Tensor) -> Tensor:
        """The perceptron."""
        dtype = product_dtype(x)
        if dtype is None:
            return self.network(x)
        linears = [layer for layer in self.network if isinstance(layer, nn.Linear)]
        weights, biases = [layer.weight for layer in linears], [layer.bias for layer in linears]
        return perceptron(x, weights, biases, self.negative_slope, dtype)

    def last_layers(self) -> tuple[nn.Linear, ...]:
        """The last one."""
        last = self.network[-1]
        assert isinstance(last, nn.Linear)
        return (last,)

    def to_dict(self) -> dict[str, Any]:
        """``{"encoder": "mlp", ...}``."""
        if type(self) is not MLPEncoder:
            return super().to_dict()
        own = {"hidden": list(self.hidden), "negative_slope": self.negative_slope}
        return {"encoder": "mlp", **self._settings(), **own}
