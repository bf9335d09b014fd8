"""Independent distributions side by side, for :class:`identica.spaces.Product`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Size, Tensor
from torch.distributions import Distribution, constraints
from torch.types import Device

from identica.distributions.base import LatentDistribution
from identica.distributions.foreign import sample_with


class ProductDistribution(LatentDistribution):
    """The concatenation of one independent draw from each distribution.

    ``ProductDistribution(SphereUniform(3), BoxUniform(2))`` draws vectors of length 5 that live in
    ``Product(Sphere(3), Box(2))``. Every part is a distribution over vectors: one of this package's, a product
    again, or any torch distribution with ``event_shape == (d,)``. Batch shapes broadcast.

    >>> from identica.distributions import BoxUniform, SphereUniform
    >>> both = ProductDistribution(SphereUniform(3), BoxUniform(2, high=2.0))
    >>> both.sample(4, generator=torch.Generator().manual_seed(0)).shape
    torch.Size([4, 5])
    >>> both.mean, both.entropy()
    (tensor([0., 0., 0., 1., 1.]), tensor(3.9173))
    """

    parts: tuple[Distribution, ...]

    def __init__(self, *distributions: Distribution, validate_args: bool | None = None) -> None:
        _check_parts(distributions)
        try:
            batch_shape = torch.broadcast_shapes(*(part.batch_shape for part in distributions))
        except RuntimeError:
            shapes = ", ".join(str(tuple(part.batch_shape)) for part in distributions)
            raise ValueError(f"The batch shapes of the parts of a product do not broadcast: {shapes}.") from None
        self.parts = tuple(p if p.batch_shape == batch_shape else p.expand(batch_shape) for p in distributions)
        super().__init__(batch_shape, sum(self.dims), validate_args)

    @property
    def dims(self) -> tuple[int, ...]:
        """The length of each part's vectors."""
        return tuple(part.event_shape[0] for part in self.parts)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether every part has gradients through its draws."""
        return all(part.has_rsample for part in self.parts)

    @property
    def support(self) -> constraints.Constraint:
        """Each part in its own support."""
        return _SideBySide([part.support or constraints.real for part in self.parts], self.dims)

    @property
    def dtype(self) -> torch.dtype:
        """The widest of the types of this package's parts; a foreign part does not tell its type."""
        types = [part.dtype for part in self.parts if isinstance(part, LatentDistribution)]
        widest = types[0] if types else torch.get_default_dtype()
        for other in types[1:]:
            widest = torch.promote_types(widest, other)
        return widest

    @property
    def device(self) -> torch.device:
        """Where the parts live: the first device that is not the CPU, if there is one."""
        devices = [part.device for part in self.parts if isinstance(part, LatentDistribution)]
        return next((device for device in devices if device.type != "cpu"), torch.device("cpu"))

    @property
    def mean(self) -> Tensor:
        """The parts' means, concatenated."""
        return self._concatenated(lambda part: part.mean)

    @property
    def mode(self) -> Tensor:
        """The parts' modes, concatenated."""
        return self._concatenated(lambda part: part.mode)

    @property
    def variance(self) -> Tensor:
        """The parts' variances, coordinate by coordinate, concatenated."""
        return self._concatenated(lambda part: part.variance)

    def _concatenated(self, of: Callable[[Distribution], Tensor]) -> Tensor:
        values = (of(part).expand((*self.batch_shape, d)) for part, d in zip(self.parts, self.dims, strict=True))
        return torch.cat([value.to(self.device) for value in values], dim=-1)

    def entropy(self) -> Tensor:
        """The sum of the parts' entropies; shape ``(*batch,)``."""
        return self._summed([part.entropy() for part in self.parts])

    def log_prob(self, value: Tensor) -> Tensor:
        """The sum of the parts' log densities: ``(..., d) -> (...)``."""
        self._check_value(value)
        pieces = torch.split(value, list(self.dims), dim=-1)
        return self._summed([part.log_prob(piece) for part, piece in zip(self.parts, pieces, strict=True)])

    @staticmethod
    def _summed(terms: list[Tensor]) -> Tensor:
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    def _draw(self, shape: Size, generator: torch.Generator | None) -> Tensor:
        """The parts in order, all from the same generator."""
        # Within sample() gradients are off, within rsample() on.
        gradients = torch.is_grad_enabled() and self.has_rsample
        draws = [sample_with(part, shape, generator, gradients=gradients) for part in self.parts]
        device = self._draw_device(generator)
        return torch.cat([draw.to(device) for draw in draws], dim=-1)

    def _place(self, generator: torch.Generator | None) -> Self:
        """This product itself: each part finds the generator's device when it is drawn."""
        return self

    def _why_no_rsample(self) -> str:
        part = next(part for part in self.parts if not part.has_rsample)
        name = type(part).__name__
        if not isinstance(part, LatentDistribution):
            return f"its part {name} has none. Use sample()."
        return f"its part {name} has none, because {part._why_no_rsample()}"

    def to(self, device: Device | torch.dtype = None, dtype: torch.dtype | None = None) -> Self:
        """The same product with its parts on another device or in another precision."""
        foreign = [type(part).__name__ for part in self.parts if not isinstance(part, LatentDistribution)]
        if foreign:
            raise ValueError(
                f"This product holds a {foreign[0]}, which does not know how to move; build it from tensors on "
                "the device and in the precision wanted. Drawing with a generator on a device needs no move."
            )
        moved = [part.to(device, dtype) for part in self.parts if isinstance(part, LatentDistribution)]
        return self._of(moved)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Self:
        """The same product with its batch shape broadcast to ``batch_shape``."""
        shape = self._expanded_shape(batch_shape)
        return self._of([part.expand(shape) for part in self.parts])

    def _of(self, parts: list[Any]) -> Self:
        return type(self)(*parts, validate_args=self._validate)

    def __repr__(self) -> str:
        return f"ProductDistribution({', '.join(map(repr, self.parts))})"


class _SideBySide(constraints.Constraint):
    """Vectors that are the concatenation of vectors under the given constraints."""

    event_dim = 1
    is_discrete = False

    def __init__(self, parts: list[constraints.Constraint], dims: tuple[int, ...]) -> None:
        self.parts, self.dims = parts, dims

    def check(self, value: Tensor) -> Tensor:
        """``(..., d) -> (...)`` bool."""
        pieces = torch.split(value, list(self.dims), dim=-1)
        inside = [part.check(piece) for part, piece in zip(self.parts, pieces, strict=True)]
        # A constraint on numbers, such as a foreign distribution may have, answers for each coordinate.
        each = [ok if part.event_dim else ok.all(dim=-1) for part, ok in zip(self.parts, inside, strict=True)]
        return torch.stack(torch.broadcast_tensors(*each)).all(dim=0)


def _check_parts(distributions: tuple[Any, ...]) -> None:
    """Looks at types and shapes only."""
    if not distributions:
        raise ValueError(
            "A product needs at least one part, as in ProductDistribution(SphereUniform(3), BoxUniform(2))."
        )
    for part in distributions:
        if not isinstance(part, Distribution):
            raise TypeError(f"Every part of a product must be a torch distribution, not {type(part).__name__}.")
        if len(part.event_shape) != 1:
            raise ValueError(
                f"Every part of a product must be a distribution over vectors, with event_shape (d,), but "
                f"{type(part).__name__} has event_shape {tuple(part.event_shape)}. A distribution over numbers "
                "with batch shape (..., d) becomes one with torch.distributions.Independent(distribution, 1)."
            )
