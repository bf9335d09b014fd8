"""p(z̃ | z): a family of distributions waiting for its location."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.types import Device

from identica.distributions.base import LatentDistribution, as_loc
from identica.names import no_such
from identica.similarities import Similarity

Number = float | tuple[Any, ...]
#: What a parameter is kept as: numbers, or a word where a family has a setting that is one.
Plain = Number | str


@dataclass(frozen=True, init=False, repr=False)
class Conditional:
    """How positives differ from their anchors: ``Conditional(family, **parameters)(anchors)``.

    Frozen, comparable and hashable; plain data through ``to_dict``. The parameters are those of the
    family without ``loc``: numbers, or one number per coordinate. A setting may be a word (``method="shell"``).

    >>> from identica.distributions import VonMisesFisher
    >>> conditional = Conditional(VonMisesFisher, concentration=10.0)
    >>> anchors = torch.nn.functional.normalize(torch.ones(4, 3), dim=-1)
    >>> conditional(anchors).sample(generator=torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3])
    >>> conditional
    Conditional(VonMisesFisher, concentration=10.0)
    """

    family: type[LatentDistribution]
    items: tuple[tuple[str, Plain], ...]
    _prepared: dict[tuple[torch.device, torch.dtype], dict[str, Any]] = field(compare=False)

    def __init__(self, family: type[LatentDistribution], **parameters: Any) -> None:
        object.__setattr__(self, "family", _location_family(family))
        _check_names(family, parameters)
        ordered = [name for name in family.parameters if name in parameters]
        plain = tuple((name, _frozen(parameters[name], name, words=name in _in_words(family))) for name in ordered)
        object.__setattr__(self, "items", plain)
        object.__setattr__(self, "_prepared", {})

    @property
    def parameters(self) -> dict[str, Plain]:
        """The parameters by name, as numbers, tuples of numbers and words."""
        return dict(self.items)

    def __call__(self, anchors: Tensor) -> LatentDistribution:
        """p(· | anchors) with all arguments checked: ``anchors: (..., d)`` become the locations."""
        anchors = as_loc(anchors, self.family.__name__)
        return self._build(anchors, **self._arguments(anchors))

    def unchecked(self, anchors: Tensor) -> LatentDistribution:
        """The same without looking at values: never waits for the device. For the training step."""
        anchors = as_loc(anchors, self.family.__name__)
        return self._build(anchors, **self._arguments(anchors), validate_args=False)

    @property
    def _build(self) -> Callable[..., LatentDistribution]:
        return self.family

    def prepare(self, device: Device = "cpu", dtype: torch.dtype | None = None) -> Conditional:
        """Place the parameters and build the family's tables once for this device and precision."""
        like = torch.empty(0, device=device, dtype=dtype or torch.get_default_dtype())
        self._arguments(like)
        return self

    def _arguments(self, like: Tensor) -> dict[str, Any]:
        key = (like.device, like.dtype)
        if key not in self._prepared:
            with torch.inference_mode(False):  # what is kept outlives the caller's inference mode
                self._prepared[key] = self._placed(like)
        return self._prepared[key]

    def _placed(self, like: Tensor) -> dict[str, Any]:
        parameters: dict[str, Any] = {
            name: value if name in self.family.settings else torch.tensor(value, device=like.device, dtype=like.dtype)
            for name, value in self.items
        }
        tables = self.family.prepare_tables(like.device, like.dtype, **parameters)
        return parameters | ({} if tables is None else {"tables": tables})

    def similarity(self) -> Similarity:
        """The similarity that matches: density ∝ exp(u(anchor, x))."""
        return self.family.matching_similarity(**self._tensors())

    def _tensors(self) -> dict[str, Any]:
        return {
            name: torch.tensor(value, dtype=torch.float64) if isinstance(value, tuple) else value
            for name, value in self.items
        }

    def to_dict(self) -> dict[str, Any]:
        """``{"family": name, "parameters": {...}}``, ready for JSON."""
        return {"family": self.family.__name__, "parameters": self.parameters}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Conditional:
        """The inverse of :meth:`to_dict`."""
        return cls(_family_named(data["family"]), **data["parameters"])

    def __repr__(self) -> str:
        return f"Conditional({', '.join([self.family.__name__, *(f'{k}={v!r}' for k, v in self.items)])})"


def _location_family(family: Any) -> type[LatentDistribution]:
    if not (inspect.isclass(family) and issubclass(family, LatentDistribution) and "loc" in family.parameters):
        raise TypeError(
            f"Conditional needs one of this package's families with a loc, such as VonMisesFisher, not {family!r}. "
            "Any other function from anchors to a distribution can be used directly in its place."
        )
    return family


def _check_names(family: type[LatentDistribution], parameters: Mapping[str, Any]) -> None:
    known = [name for name in family.parameters if name != "loc"]
    if "loc" in parameters:
        raise TypeError("The location of a Conditional is the anchor it is called with: leave loc out.")
    unknown = [name for name in parameters if name not in known]
    if unknown:
        raise TypeError(
            f"{family.__name__} has no parameter {unknown[0]!r} besides its loc; it has {', '.join(known)}."
        )
    signature = inspect.signature(family)
    missing = [n for n in known if n not in parameters and signature.parameters[n].default is inspect.Parameter.empty]
    if missing:
        raise TypeError(f"{family.__name__} also needs {', '.join(missing)}.")


def _in_words(family: type[LatentDistribution]) -> list[str]:
    """The settings of a family that are words: their defaults are."""
    signature = inspect.signature(family)
    return [name for name in family.settings if isinstance(signature.parameters[name].default, str)]


def _frozen(value: Any, name: str, words: bool) -> Plain:
    """A number, or nested tuples of numbers, from a number, sequence, array or tensor; or a word where one belongs."""
    if words:
        if not isinstance(value, str):
            raise TypeError(f"{name} must be a word, not {value!r}.")
        return value
    if isinstance(value, int | float):
        return float(value)
    try:
        numbers = torch.as_tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} must be a number or numbers, not {value!r}.") from None
    if numbers.numel() == 0:
        raise ValueError(f"{name} must be a number or one number per coordinate, not {value!r}, which has none.")
    return _as_tuples(numbers.tolist())


def _as_tuples(value: Any) -> Number:
    return tuple(_as_tuples(v) for v in value) if isinstance(value, list) else value


def _family_named(name: str) -> type[LatentDistribution]:
    families = {family.__name__: family for family in _subclasses(LatentDistribution) if "loc" in family.parameters}
    if name not in families:
        raise ValueError(no_such("family", name, sorted(families)))
    return families[name]


def _subclasses(parent: type[LatentDistribution]) -> list[type[LatentDistribution]]:
    return [c for child in parent.__subclasses__() for c in (child, *_subclasses(child))]
