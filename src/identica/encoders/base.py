"""What an encoder is, and how its weights are drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from identica._numbers import whole_number
from identica._randomness import Randomness, as_generator
from identica.encoders.heads import make_head
from identica.encoders.whiten import Whiten
from identica.spaces import Euclidean, Space, Sphere


class Encoder(nn.Module):
    """f: observations to codes, ``(..., dim_in) -> (..., space.dim)``, ending in ``space``.

    A subclass implements ``body``, from (whitened) inputs to the head's input. With a
    learned bound or radius the codes live in a box or sphere of the learned size rather than of ``space``'s.
    """

    def __init__(
        self, dim_in: int, space: Space, *, whiten: bool | float, learn_radius: bool = False, learn_bound: bool = True
    ) -> None:
        super().__init__()
        self.dim_in, self.space = whole_number(dim_in, "dim_in, the length of the observations,"), space
        self.learn_radius, self.learn_bound = bool(learn_radius), bool(learn_bound)
        self.head = make_head(space, learn_radius=self.learn_radius, learn_bound=self.learn_bound)
        self.whiten = Whiten(self.dim_in, power=float(whiten)) if whiten else None

    def body(self, x: Tensor) -> Tensor:
        """The network between whitening and head: ``(..., dim_in) -> (..., space.dim)``."""
        raise NotImplementedError(f"{type(self).__name__} must implement body(x).")

    def forward(self, x: Tensor) -> Tensor:
        """The codes of ``x: (..., dim_in)``."""
        self._check_input(x)
        x = self.seen(x)
        return self.head(self.body(x if self.whiten is None else self.whiten(x)))

    def seen(self, x: Tensor) -> Tensor:
        """What is whitened: the input, unless a subclass sees it in another way; ``(..., dim_in) -> (..., dim_in)``."""
        return x

    def prepare(self, x: Tensor) -> None:
        """Fit the whitening on a sample ``x: (n, dim_in)``, once: a second call changes nothing."""
        self._check_input(x)
        if self.whiten is not None and not self.whiten.is_fitted:
            self.whiten.fit(self.seen(x))

    def turn(self, rotation: Tensor) -> None:
        """Turn all codes, h ↦ rotation · h, by turning the linear layers before the head: ``(dim, dim)``, orthogonal.

        Only in spaces that look alike from all sides, spheres and all of ℝ^d: a box would be left.

        >>> from identica.encoders import MLPEncoder
        >>> from identica.spaces import Sphere
        >>> encoder, x = MLPEncoder(2, Sphere(2)), torch.ones(1, 2)
        >>> before = encoder(x)
        >>> encoder.turn(torch.tensor([[0.0, -1.0], [1.0, 0.0]]))
        >>> torch.allclose(encoder(x), torch.stack([-before[:, 1], before[:, 0]], dim=1))
        True
        """
        turn_layers(self.last_layers(), rotation, self.space)

    def stretch(self, matrix: Tensor) -> None:
        """Map all codes, h ↦ matrix · h brought back onto their sphere, as :meth:`turn` does: any invertible matrix.

        >>> from identica.encoders import MLPEncoder
        >>> from identica.spaces import Sphere
        >>> encoder, x = MLPEncoder(2, Sphere(2)), torch.ones(1, 2)
        >>> before = encoder(x) * torch.tensor([2.0, 1.0])
        >>> encoder.stretch(torch.diag(torch.tensor([2.0, 1.0])))
        >>> torch.allclose(encoder(x), before / before.norm())
        True
        """
        stretch_layers(self.last_layers(), matrix, self.space)

    def last_layers(self) -> tuple[nn.Linear, ...]:
        """The linear layers whose sum the head sees."""
        raise NotImplementedError(f"{type(self).__name__} must implement last_layers() to be turned.")

    def to_dict(self) -> dict[str, Any]:
        """The architecture as plain data; the weights are in ``state_dict``.

        An encoder of your own class, which cannot be rebuilt from plain data, has ``{"class": ...}`` alone.
        """
        return {"class": type(self).__qualname__}

    def _settings(self) -> dict[str, Any]:
        """What all encoders have in common, as plain data."""
        return {
            "dim_in": self.dim_in,
            "space": self.space.to_dict(),
            "learn_radius": self.learn_radius,
            "learn_bound": self.learn_bound,
            "whiten": False if self.whiten is None else True if self.whiten.power == 1.0 else self.whiten.power,
        }

    def _check_input(self, x: Tensor) -> None:
        if x.ndim == 0 or x.shape[-1] != self.dim_in:
            raise ValueError(
                f"This encoder takes observations of length {self.dim_in}, but the input has shape "
                f"{tuple(x.shape)}; its last axis must be {self.dim_in}."
            )


@torch.no_grad()
def turn_layers(layers: Sequence[nn.Linear], rotation: Tensor, space: Space) -> None:
    """Multiply weights and biases of layers that end in ``space`` by a rotation, in float64."""
    if not isinstance(space, Sphere | Euclidean):
        raise ValueError(f"Codes in {space!r} cannot be turned: they would leave it. Spheres and Euclidean spaces can.")
    rotation = rotation.detach().double()
    unit = torch.eye(space.dim, dtype=torch.float64, device=rotation.device)
    if rotation.shape != unit.shape or not torch.allclose(rotation @ rotation.T, unit, atol=1e-5):
        raise ValueError(f"A rotation of these codes is an orthogonal matrix of shape {tuple(unit.shape)}.")
    _map_layers(layers, rotation)


@torch.no_grad()
def stretch_layers(layers: Sequence[nn.Linear], matrix: Tensor, space: Space) -> None:
    """Multiply weights and biases of layers that end on a sphere by an invertible matrix, in float64."""
    if not isinstance(space, Sphere):
        raise ValueError(f"Codes in {space!r} cannot be stretched: nothing brings them back. Those on a Sphere can.")
    matrix = matrix.detach().double()
    fits = matrix.shape == (space.dim, space.dim) and bool(matrix.isfinite().all())
    if not fits or int(torch.linalg.matrix_rank(matrix)) < space.dim:
        raise ValueError(f"These codes are stretched by an invertible matrix of shape {(space.dim, space.dim)}.")
    _map_layers(layers, matrix)


def _map_layers(layers: Sequence[nn.Linear], matrix: Tensor) -> None:
    for layer in layers:
        there = matrix.to(layer.weight.device)
        layer.weight.copy_(there @ layer.weight.double())
        if layer.bias is not None:
            layer.bias.copy_(there @ layer.bias.double())


def make_linear(dim_in: int, dim_out: int, generator: torch.Generator, *, gain: float = 1.0) -> nn.Linear:
    """A linear layer with weights and biases uniform on ±gain/√dim_in, drawn from ``generator`` alone.

    With ``gain=1`` this is the law of torch's own default, without touching the global random state.
    """
    layer = torch.nn.utils.skip_init(nn.Linear, dim_in, dim_out, device="cpu")
    assert isinstance(layer, nn.Linear)
    limit = gain / math.sqrt(dim_in)
    with torch.no_grad():
        for parameter in (layer.weight, layer.bias):
            drawn = torch.rand(parameter.shape, generator=generator, device=generator.device, dtype=torch.float64)
            parameter.copy_((2 * drawn - 1) * limit)
    return layer


def weight_generator(seed: Randomness) -> torch.Generator:
    """The source of an encoder's initial weights."""
    return as_generator(seed, "cpu")
