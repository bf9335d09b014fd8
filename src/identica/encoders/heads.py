"""The last layer of an encoder: from any vector to a point of the assumed space.

Heads compute and answer in float32 at least: in half precision a code would keep three digits, and the
loss would be computed from differences of such codes. On CUDA devices spheres and boxes are one fused kernel
each way (:mod:`identica.encoders.triton_heads`).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from identica._optional import has_triton
from identica.similarities import at_least_float32
from identica.spaces import Box, Euclidean, Product, Space, Sphere

_FUSED_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_MOST_FUSED = 4096  # coordinates: the fused kernels hold a row in one tile


class SphereHead(nn.Module):
    """x ↦ radius · x / ‖x‖.

    No epsilon is added to the norm: each row is first divided by its largest entry, so tiny and huge
    rows give unit vectors too, and the zero row goes to the first basis vector with gradient zero.

    >>> SphereHead(Sphere(2, radius=5.0))(torch.tensor([[3e-30, 4e-30]])).round(decimals=3)
    tensor([[3., 4.]])
    """

    log_radius: Tensor

    def __init__(self, space: Sphere, learn_radius: bool = False) -> None:
        super().__init__()
        self._unit = Sphere(space.dim)
        self.learn_radius = learn_radius
        _learned_or_fixed(self, "log_radius", torch.tensor(math.log(space.radius)), learn_radius)

    @property
    def radius(self) -> Tensor:
        """The radius, positive however it is learned; a 0-d tensor."""
        return at_least_float32(self.log_radius).exp()

    def forward(self, x: Tensor) -> Tensor:
        """``(..., dim) -> (..., dim)``."""
        if _is_fused(x, self._unit.dim, self.log_radius):
            from identica.encoders.triton_heads import fused_head

            return fused_head(x, self.log_radius, None)
        return self.radius * self._unit.project(at_least_float32(x))


class BoxHead(nn.Module):
    """x ↦ low + bound · sigmoid(x), with one bound per dimension.

    The bound starts at high − low. Learned (the default, as in paper A), the box keeps its lower corner
    and finds its own size; the logarithm is what is learned, so that the bound stays positive.

    >>> BoxHead(Box(2, low=-1.0))(torch.zeros(1, 2))
    tensor([[0., 0.]], grad_fn=<AddBackward0>)
    """

    low: Tensor
    log_bound: Tensor

    def __init__(self, space: Box, learn_bound: bool = True) -> None:
        super().__init__()
        low, high = space.edges(torch.empty(0, dtype=torch.get_default_dtype()))
        self.learn_bound = learn_bound
        self.register_buffer("low", low)
        _learned_or_fixed(self, "log_bound", (high - low).log(), learn_bound)

    @property
    def bound(self) -> Tensor:
        """The length of each side: ``(dim,)``."""
        return at_least_float32(self.log_bound).exp()

    def forward(self, x: Tensor) -> Tensor:
        """``(..., dim) -> (..., dim)``."""
        if _is_fused(x, len(self.low), self.low, self.log_bound):
            from identica.encoders.triton_heads import fused_head

            return fused_head(x, self.log_bound, self.low)
        return self.low + self.bound * torch.sigmoid(at_least_float32(x))


class EuclideanHead(nn.Module):
    """x ↦ x: every vector is a code."""

    def forward(self, x: Tensor) -> Tensor:
        """The input, in float32 at least."""
        return at_least_float32(x)


class ProductHead(nn.Module):
    """Each part of a product of spaces through its own head."""

    def __init__(self, space: Product, *, learn_radius: bool = False, learn_bound: bool = True) -> None:
        super().__init__()
        self._space = space
        self.parts = nn.ModuleList(
            make_head(part, learn_radius=learn_radius, learn_bound=learn_bound) for part in space.spaces
        )

    def forward(self, x: Tensor) -> Tensor:
        """``(..., dim) -> (..., dim)``, dim being the sum of the parts' dimensions."""
        return torch.cat([head(part) for head, part in zip(self.parts, self._space.split(x), strict=True)], dim=-1)


def make_head(space: Space, *, learn_radius: bool = False, learn_bound: bool = True) -> nn.Module:
    """The head that ends in ``space``.

    ``learn_radius``: spheres learn their radius, starting from the space's. ``learn_bound``: boxes learn
    the length of their sides, starting from the space's.
    """
    if isinstance(space, Sphere):
        return SphereHead(space, learn_radius)
    if isinstance(space, Box):
        return BoxHead(space, learn_bound)
    if isinstance(space, Euclidean):
        return EuclideanHead()
    if isinstance(space, Product):
        return ProductHead(space, learn_radius=learn_radius, learn_bound=learn_bound)
    raise TypeError(f"An encoder ends in a Sphere, Box, Euclidean or Product space, not in {space!r}.")


def _learned_or_fixed(module: nn.Module, name: str, value: Tensor, learned: bool) -> None:
    if learned:
        module.register_parameter(name, nn.Parameter(value))
    else:
        module.register_buffer(name, value)


def _is_fused(x: Tensor, dim: int, *parameters: Tensor) -> bool:
    """Whether the fused kernels take this input: on a CUDA device, in float32 or half precision."""
    if x.device.type != "cuda" or x.numel() == 0 or x.shape[-1] != dim or dim > _MOST_FUSED or not has_triton():
        return False
    same_device = all(parameter.device == x.device for parameter in parameters)
    return same_device and all(tensor.dtype in _FUSED_DTYPES for tensor in (x, *parameters))
