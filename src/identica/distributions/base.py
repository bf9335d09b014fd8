"""What all families share: shapes, devices, explicit randomness, and errors that are sentences.

The conventions, once:

- An event is a vector. ``event_shape == (d,)``, ``log_prob`` is summed over coordinates and has the
  batch shape, ``sample(shape, generator)`` returns ``(*shape, *batch_shape, d)``.
- ``loc`` is ``(..., d)``; every other parameter is a number or broadcasts against ``loc``. A parameter
  that is one per row, such as vMF's concentration, has a last axis of length one.
- Randomness is a ``torch.Generator``, or a whole number that seeds one on the parameters' device; without
  either, torch's global random state. Draws live on the generator's device, else on the parameters', else on
  the CPU.
- Parameters are float32 or float64. Whole numbers become torch's default type.
- With ``validate_args=False`` neither construction nor sampling waits for the device, so both can be
  captured in a CUDA graph.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Size, Tensor
from torch.distributions import Distribution, constraints
from torch.types import Device

from identica._randomness import Randomness, as_generator
from identica.distributions.fused import MOST_FUSED_NUMBERS, fused_kernels_apply
from identica.similarities import Similarity

Parameter = float | Tensor


class LatentDistribution(Distribution):
    """Base of all families in this package: a distribution over vectors with explicit randomness.

    A subclass lists its constructor's parameters in ``parameters``, stores each as an attribute of the
    same name (a tensor, or a plain number where the number carries no device), and implements
    ``_draw`` and ``log_prob``; where a Triton kernel draws the same, also ``_draw_fused``.
    """

    #: Names of the constructor arguments, in order; ``to`` and ``expand`` rebuild the object from them.
    parameters: ClassVar[tuple[str, ...]] = ()
    #: Which of them are plain settings (``dim``), not numbers that have a device and a batch shape.
    settings: ClassVar[tuple[str, ...]] = ()
    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}

    _validate: bool

    def __init__(self, batch_shape: Size, dim: int, validate_args: bool | None) -> None:
        self._validate = Distribution._validate_args if validate_args is None else validate_args
        # torch's own validation speaks in constraint objects; ours (in the subclasses) in sentences.
        super().__init__(batch_shape, Size((dim,)), validate_args=False)

    @property
    def dim(self) -> int:
        """Length of the vectors drawn."""
        return int(self.event_shape[0])

    @property
    def dtype(self) -> torch.dtype:
        """Floating-point type of the parameters and of the draws."""
        return next((v.dtype for v in self._tensors().values()), torch.get_default_dtype())

    @property
    def device(self) -> torch.device:
        """Where the parameters live."""
        return next((v.device for v in self._tensors().values()), torch.device("cpu"))

    def _tensors(self) -> dict[str, Tensor]:
        values = {name: getattr(self, name) for name in self.parameters}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def _rebuilt(self, replaced: Mapping[str, Any]) -> Self:
        arguments = {name: getattr(self, name) for name in self.parameters} | dict(replaced)
        copy = type(self)(**arguments, validate_args=False)
        copy._validate = self._validate
        return copy

    def to(self, device: Device | torch.dtype = None, dtype: torch.dtype | None = None) -> Self:
        """The same distribution with its parameters on another device or in another precision.

        As with tensors, a precision alone may come first: ``to(torch.float64)``.
        """
        if isinstance(device, torch.dtype):
            device, dtype = None, device
        return self._rebuilt({k: v.to(device=device, dtype=dtype) for k, v in self._tensors().items()})

    def expand(self, batch_shape: Any, _instance: Any = None) -> Self:
        """The same distribution with its batch shape broadcast to ``batch_shape``, which may be a number."""
        shape = self._expanded_shape(batch_shape)
        tensors = self._tensors()
        # A number broadcasts by itself, unless there are only numbers to carry the batch shape.
        rows = {k: v for k, v in tensors.items() if v.ndim} or {k: v[None] for k, v in tensors.items()}
        return self._rebuilt({k: v.expand(*shape, v.shape[-1]) for k, v in rows.items()})

    def _expanded_shape(self, batch_shape: Any) -> Size:
        shape = as_size(batch_shape)
        try:
            fits = torch.broadcast_shapes(self.batch_shape, shape) == shape
        except RuntimeError:
            fits = False
        if not fits:
            raise ValueError(
                f"{type(self).__name__} has batch shape {tuple(self.batch_shape)}, which does not expand to "
                f"{tuple(shape)}: only axes of length 1 can grow, and new ones come first."
            )
        return shape

    @classmethod
    def prepare_tables(cls, device: Device, dtype: torch.dtype, **parameters: Parameter) -> Any:
        """Whatever sampling needs that depends on the parameters other than ``loc``; built once, reused.

        The result is handed to the constructor as ``tables``. Most families need none.
        """
        return None

    @classmethod
    def matching_similarity(cls, **parameters: Parameter) -> Similarity:
        """The similarity u with density ∝ exp(u(loc, x)), given the parameters other than ``loc``."""
        raise ValueError(
            f"{cls.__name__} has no similarity that matches it exactly. Families that do: VonMisesFisher, "
            "FisherBingham, GeneralizedNormal and the truncated families."
        )

    def sample(self, shape: Any = (), generator: Randomness | None = None) -> Tensor:
        """Draw ``(*shape, *batch_shape, d)`` independent vectors, without gradients.

        ``shape`` may be a number. Equal generators, or equal seeds, give equal draws.
        """
        with torch.no_grad():
            return self._drawn(shape, generator)

    def rsample(self, shape: Any = (), generator: Randomness | None = None) -> Tensor:
        """Like :meth:`sample`, with gradients to the parameters, for the families that allow it."""
        if not self.has_rsample:
            raise NotImplementedError(f"{type(self).__name__} has no reparameterised sampler: {self._why_no_rsample()}")
        return self._drawn(shape, generator)

    def _drawn(self, shape: Any, randomness: Randomness | None) -> Tensor:
        generator = None if randomness is None else as_generator(randomness, self.device)
        return self._place(generator)._picked(as_size(shape), generator)

    def _picked(self, shape: Size, generator: torch.Generator | None) -> Tensor:
        """Draw by the family's fused kernel where there is one and it applies, else by torch's operations."""
        size = shape.numel() * self.batch_shape.numel() * self.dim
        device, parameters = self._draw_device(generator), self._tensors().values()
        if 0 < size <= MOST_FUSED_NUMBERS and fused_kernels_apply(device, self.dtype, *parameters):
            drawn = self._draw_fused(shape, generator)
            if drawn is not None:
                return drawn
        return self._draw(shape, generator)

    def _why_no_rsample(self) -> str:
        """Why there are no gradients through the draws, and what to do instead."""
        return "its draws come from rejection. Use sample(), and log_prob() for score-function gradients."

    @property
    def mean(self) -> Tensor:
        """The mean, where a family has it in closed form; shape ``(*batch, d)``."""
        raise self._not_offered("mean")

    @property
    def mode(self) -> Tensor:
        """The point of highest density, where a family has it in closed form; shape ``(*batch, d)``."""
        raise self._not_offered("mode")

    @property
    def variance(self) -> Tensor:
        """Of each coordinate, where a family has it in closed form; shape ``(*batch, d)``."""
        raise self._not_offered("variance")

    def entropy(self) -> Tensor:
        """−E log p(x), where a family has it in closed form; shape ``(*batch,)``."""
        raise self._not_offered("entropy")

    def cdf(self, value: Tensor) -> Tensor:
        """P(xᵢ ≤ valueᵢ), coordinate by coordinate, where a family has it in closed form."""
        raise self._not_offered("cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """The quantiles of each coordinate, where a family has them in closed form."""
        raise self._not_offered("icdf")

    def _not_offered(self, what: str) -> NotImplementedError:
        return NotImplementedError(
            f"{type(self).__name__} has no closed-form {what}; estimate what you need from draws of sample()."
        )

    def _place(self, generator: torch.Generator | None) -> Self:
        """This distribution on the generator's device."""
        if generator is None or self.device == generator.device:
            return self
        if generator.device.type == self.device.type and generator.device.index in (None, self.device.index):
            return self
        return self.to(device=generator.device)

    def _draw(self, shape: Size, generator: torch.Generator | None) -> Tensor:
        """Draw on the generator's device; parameters are already there."""
        raise NotImplementedError

    def _draw_fused(self, shape: Size, generator: torch.Generator | None) -> Tensor | None:
        """The same law in one launch of a Triton kernel, in float32; None where there is no kernel for it."""
        return None

    def _draw_device(self, generator: torch.Generator | None) -> torch.device:
        return self.device if generator is None else generator.device

    def _uniform(self, shape: Any, generator: torch.Generator | None) -> Tensor:
        """Uniform numbers in [0, 1) in the distribution's dtype."""
        device = self._draw_device(generator)
        if device.type == "cpu" and self.dtype == torch.float32:
            return _uniform_float32(Size(shape), generator)
        return torch.rand(Size(shape), generator=generator, device=device, dtype=self.dtype)

    def _normal(self, shape: Any, generator: torch.Generator | None) -> Tensor:
        """Standard normal numbers in the distribution's dtype."""
        return torch.randn(Size(shape), generator=generator, device=self._draw_device(generator), dtype=self.dtype)

    def _check_value(self, value: Tensor) -> None:
        """A value to be scored must be vectors of the right length. Looks at shapes only."""
        if not isinstance(value, Tensor):
            raise TypeError(f"log_prob needs a tensor, not {type(value).__name__}.")
        if value.ndim == 0 or value.shape[-1] != self.dim:
            raise ValueError(
                f"{type(self).__name__} is over vectors of length {self.dim}, but the value has shape "
                f"{tuple(value.shape)}; its last axis must be {self.dim}."
            )
        try:
            torch.broadcast_shapes(value.shape[:-1], self.batch_shape)
        except RuntimeError:
            raise ValueError(
                f"A value of shape {tuple(value.shape)} does not broadcast with the batch shape "
                f"{tuple(self.batch_shape)} of this {type(self).__name__}."
            ) from None

    def _check_probability(self, value: Tensor) -> None:
        """A value for icdf must also be probabilities (looks at them only when validating)."""
        self._check_value(value)
        if self._validate:
            require((value >= 0) & (value <= 1), "icdf needs probabilities between 0 and 1.")

    def __repr__(self) -> str:
        parts = []
        for name in self.parameters:
            value = getattr(self, name)
            if isinstance(value, Tensor):
                value = f"{value.item():g}" if value.numel() == 1 else f"tensor{tuple(value.shape)}"
            parts.append(f"{name}={value}")
        return f"{type(self).__name__}({', '.join(parts)})"


def _uniform_float32(shape: Size, generator: torch.Generator | None) -> Tensor:
    """``torch.rand(shape)`` on the CPU, faster: 24 random bits from each half of a 63-bit random integer."""
    count = math.prod(shape)
    halves = torch.empty((count + 1) // 2, dtype=torch.int64).random_(generator=generator).view(torch.int32)
    return halves[:count].bitwise_and_(0xFFFFFF).to(torch.float32).mul_(2.0**-24).view(shape)


def as_size(shape: Any) -> Size:
    """A shape from a whole number or several, none of them negative, or a sentence why it cannot be."""
    try:
        size = Size((operator.index(shape),)) if np.ndim(shape) == 0 else Size(map(operator.index, shape))
    except (TypeError, ValueError):
        raise TypeError(f"A shape is a whole number or a tuple of whole numbers, not {shape!r}.") from None
    if any(length < 0 for length in size):
        raise ValueError(f"A shape holds no negative numbers, but {shape!r} does.")
    return size


def as_numbers(value: Any, name: str, family: str, like: Tensor | None = None) -> Tensor:
    """A parameter as a float32 or float64 tensor, or a sentence why it cannot be one.

    With ``like`` it takes over that tensor's type and device.
    """
    dtype, device = (None, None) if like is None else (like.dtype, like.device)
    try:
        # What has a type of its own is looked at before it is converted.
        tensor = torch.as_tensor(value, dtype=None if isinstance(value, Tensor | np.ndarray) else dtype)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} of {family} must be a number or a tensor of numbers, not {value!r}.") from None
    if tensor.is_complex():
        raise TypeError(f"{name} of {family} must be real, not {tensor.dtype}; pass its real part, {name}.real.")
    if not tensor.is_floating_point():
        tensor = tensor.to(torch.get_default_dtype())
    require_supported(tensor.dtype, name, family)
    return tensor.to(device=device, dtype=dtype)


def require_supported(dtype: torch.dtype, name: str, family: str) -> None:
    """All families compute in float32 and float64; half precision has too few digits for them."""
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"{family} works in float32 and float64, not {dtype}; convert {name} first: {name}.float().")


def as_loc(loc: Any, family: str) -> Tensor:
    """``loc`` as a floating-point tensor of shape ``(..., d)``, or a sentence why it cannot be."""
    loc = as_numbers(loc, "loc", family)
    if loc.ndim == 0 or loc.shape[-1] == 0:
        raise ValueError(
            f"{family} is multivariate: loc must have shape (..., d), one vector per row, not {tuple(loc.shape)}."
        )
    return loc


def as_parameter(value: Any, loc: Tensor, name: str, family: str, *, per_row: bool = False) -> Tensor:
    """A parameter as a tensor like ``loc``: a number, or broadcastable to ``loc``.

    With ``per_row`` the parameter is one number per vector, so its last axis must have length one.
    """
    if isinstance(value, (int, float)):  # filled in on the device: an upload would wait for it
        return torch.full((), value, dtype=loc.dtype, device=loc.device)
    value = as_numbers(value, name, family, like=loc)
    wanted = "(..., 1)" if per_row else "(..., d)"
    if per_row and value.ndim and value.shape[-1] != 1:
        raise ValueError(
            f"{name} of {family} is one number per row: pass a number, or a tensor of shape (..., 1), "
            f"not {tuple(value.shape)}. For one per row use {name}[:, None]."
        )
    try:
        torch.broadcast_shapes(value.shape, loc.shape)
    except RuntimeError:
        raise ValueError(
            f"{name} of {family} has shape {tuple(value.shape)}, which does not broadcast with loc of shape "
            f"{tuple(loc.shape)}; pass a number or a tensor of shape {wanted}."
        ) from None
    return value


def batch_shape_of(*values: Tensor) -> Size:
    """The batch shape of parameters whose last axis is the event."""
    return torch.broadcast_shapes(*(v.shape[:-1] for v in values))


def require(condition: Tensor, message: str) -> None:
    """Raise ``ValueError(message)`` unless the condition holds everywhere (waits for the device)."""
    if not bool(condition.all()):
        raise ValueError(message)


def require_each(value: Tensor, valid: Tensor, message: str, advice: str = "") -> None:
    """Raise the message and one of the entries that are not valid, unless all are (waits for the device)."""
    if not bool(valid.all()):
        entry = f"{value[~valid].flatten()[0].item():g}"
        raise ValueError(
            f"{message}, not {entry if value.numel() == 1 else f'a tensor with an entry {entry}'}.{advice}"
        )


def require_positive(value: Tensor, name: str, family: str) -> None:
    """The parameter must be positive and finite everywhere (waits for the device)."""
    require_each(value, torch.isfinite(value) & (value > 0), f"{name} of {family} must be positive and finite")


def require_finite(value: Tensor, name: str, family: str) -> None:
    """The parameter must be finite everywhere (waits for the device)."""
    require(torch.isfinite(value), f"{name} of {family} must be finite; it holds NaN or infinite entries.")
