"""u(a, b): how similar two codes are.

Every similarity here is a rescaling of the codes followed by a kernel without parameters:
``u(a, b) = kernel(a', b')`` with ``a', b' = rescale(a, b)``. Whatever computes with all pairs of codes
(:mod:`identica.kernels`) therefore only ever meets a handful of kernels, and temperatures and precisions
get their gradients through the rescaling.

At its population optimum a contrastive loss makes exp(u) proportional to the density of the positive pairs
(B, Thm C.1), so each similarity stands for a family of pairs:

====================================  =============================
pairs                                 similarity
====================================  =============================
von Mises-Fisher, concentration κ     ``DotProduct(1 / κ)``
normal, standard deviation σ          ``LpSimilarity(2, 2σ²)``
Laplace, scale λ                      ``LpSimilarity(1, λ)``
generalised normal, scale λ, power β  ``LpSimilarity(β, λ**β)``
Fisher-Bingham, precision Λ           ``Anisotropic(d, Λ)``
====================================  =============================
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from identica._numbers import as_float, whole_number
from identica.gradual import Gradual

_SMALLEST_RAW = -80.0  # softplus(-80) is still a normal float32, so that its root has a finite slope


@dataclass(frozen=True)
class Kernel:
    """A similarity without parameters, the common language of similarities and of the all-pairs kernels.

    ``name`` is ``"dot"`` (⟨a, b⟩), ``"lp"`` (−Σ|aᵢ−bᵢ|^p) or ``"lp_norm"`` (−(Σ|aᵢ−bᵢ|^p)^(1/p)).

    >>> Kernel("lp", p=3.0)(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 0.0]))
    tensor(-9.)
    """

    name: Literal["dot", "lp", "lp_norm"]
    p: float | None = None

    def __post_init__(self) -> None:
        if self.name not in ("dot", "lp", "lp_norm"):
            raise ValueError(f"Unknown kernel {self.name!r}: expected dot, lp or lp_norm.")
        if (self.p is None) != (self.name == "dot"):
            raise ValueError("The lp kernels need a power p, and the dot kernel has none.")

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """``(..., d), (..., d) -> (...)``, broadcasting; gradients at coinciding coordinates are 0."""
        if self.p is None:
            return (a * b).sum(dim=-1)
        total = _magnitude_power(a - b, self.p).sum(dim=-1)
        return -(total if self.name == "lp" else _safe_power(total, 1.0 / self.p))

    def pairwise(self, a: Tensor, b: Tensor) -> Tensor:
        """``(B, d), (M, d) -> (B, M)``."""
        return a @ b.T if self.name == "dot" else self(a[:, None, :], b[None, :, :])


def _safe_power(magnitude: Tensor, exponent: float) -> Tensor:
    """``magnitude**exponent`` for magnitudes ≥ 0 whose derivatives at 0 are 0, not infinite or NaN."""
    if exponent == 1.0:
        return magnitude
    zero = magnitude == 0
    powered = torch.where(zero, 1.0, magnitude) ** exponent
    return torch.where(zero, 0.0, powered)


def _magnitude_power(t: Tensor, p: float) -> Tensor:
    """|t|^p, elementwise, with derivative 0 at 0 for every p > 0."""
    if p == 2.0:
        return t * t
    return _safe_power(t.abs(), p)


class Similarity(nn.Module):
    """Base of all similarities.

    One of your own implements ``forward``, and that is enough: it then works with every objective through
    the dense :meth:`pairwise`. If it is a rescaling followed by a :class:`Kernel`, implement ``rescale`` and
    ``kernel`` instead, and it also gets the all-pairs kernels that never build the pair matrix.
    """

    @property
    def kernel(self) -> Kernel | None:
        """The kernel that follows the rescaling, or None if there is none."""
        return None

    def rescale(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Codes ``(..., d)`` → codes ``(..., d)`` such that ``u(a, b) = kernel(a', b')``.

        All kernels are symmetric: given one tensor twice, our similarities return one tensor twice, from
        which the all-pairs kernels see that half of the pairs are enough. Half-precision codes come back in
        float32: dividing by a small temperature would overflow them.
        """
        raise NotImplementedError(f"{type(self).__name__} is not a rescaling followed by a kernel.")

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """u(a, b), broadcasting: ``(..., d), (..., d) -> (...)``."""
        if self.kernel is None:
            raise NotImplementedError(f"{type(self).__name__} must implement forward(a, b).")
        return self.kernel(*self.rescale(a, b))

    def pairwise(self, a: Tensor, b: Tensor) -> Tensor:
        """All pairs, dense: ``(B, d), (M, d) -> (B, M)``."""
        if self.kernel is None:
            return self(a[:, None, :], b[None, :, :])
        return self.kernel.pairwise(*self.rescale(a, b))

    def to_dict(self) -> dict[str, Any]:
        """Plain data that :func:`similarity_from_dict` turns back into the similarity."""
        return {"similarity": "user", "name": type(self).__name__}

    def _check(self, a: Tensor, b: Tensor, dim: int | None = None) -> None:
        expected = dim if dim is not None else (a.shape[-1] if a.ndim else 0)
        if a.ndim == 0 or b.ndim == 0 or a.shape[-1] != expected or b.shape[-1] != expected:
            length = f"length {dim}" if dim is not None else "one length"
            raise ValueError(
                f"{type(self).__name__} compares codes of {length} along the last axis, but got the shapes "
                f"{tuple(a.shape)} and {tuple(b.shape)}."
            )


class _Tempered(Similarity):
    """A similarity divided by a temperature, which is a plain number or, on request, learned."""

    def __init__(self, temperature: float | Tensor, trainable: bool) -> None:
        super().__init__()
        value = as_float(temperature)
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"The temperature must be positive and finite, not {temperature!r}.")
        self.trainable = bool(trainable)
        self._temperature = value
        if trainable:  # the logarithm is what is learned, so that the temperature cannot turn negative
            self.log_temperature = nn.Parameter(torch.tensor(math.log(value)))

    @property
    def temperature(self) -> float | Tensor:
        """The temperature: a number, or a 0-d tensor with a gradient if it is trainable."""
        return self.log_temperature.exp() if self.trainable else self._temperature

    def _inverse_temperature(self, power: float) -> float | Tensor:
        """``temperature ** (-power)``."""
        if self.trainable:
            return (-power * self.log_temperature).exp()
        return self._temperature ** (-power)

    def _settings(self) -> dict[str, Any]:
        return {"temperature": self._temperature_now(), "trainable": self.trainable}

    def _temperature_now(self) -> float:
        return float(self.log_temperature.detach().exp()) if self.trainable else self._temperature

    def extra_repr(self) -> str:
        """What goes between the brackets of ``repr``."""
        shown = f"temperature={self._temperature_now():.6g}"
        return shown + (", trainable=True" if self.trainable else "")


class DotProduct(_Tempered):
    """u(a, b) = ⟨a, b⟩ / τ (A, Eq. 1); matches von Mises-Fisher pairs of concentration 1/τ on the unit sphere.

    >>> DotProduct(temperature=0.5)(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
    tensor(22.)
    """

    def __init__(self, temperature: float | Tensor = 1.0, trainable: bool = False) -> None:
        super().__init__(temperature, trainable)

    @property
    def kernel(self) -> Kernel:
        """The inner product."""
        return Kernel("dot")

    def rescale(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """(a/τ, b); one tensor given twice becomes a/√τ twice."""
        self._check(a, b)
        if a is b:
            return _scaled(a, b, self._inverse_temperature(0.5))
        return _times(a, self._inverse_temperature(1.0)), at_least_float32(b)

    def to_dict(self) -> dict[str, Any]:
        """``{"similarity": "dot", "temperature": ..., "trainable": ...}``."""
        return {"similarity": "dot", **self._settings()}


class LpSimilarity(_Tempered):
    """u(a, b) = −‖a−b‖_p^p / τ, or −‖a−b‖_p / τ with ``power=False``, for any p > 0 (A, Eq. 6).

    Matches (generalised) normal and Laplace pairs, see the table at the top of the module. The derivative at
    coinciding coordinates is taken as 0 for every p.

    >>> LpSimilarity(1, temperature=0.5)(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0]))
    tensor(-10.)
    """

    def __init__(
        self, p: float, temperature: float | Tensor = 1.0, power: bool = True, trainable: bool = False
    ) -> None:
        super().__init__(temperature, trainable)
        self.p, self.power = as_float(p), bool(power)
        if not (math.isfinite(self.p) and self.p > 0):
            raise ValueError(f"LpSimilarity needs a positive, finite p, not {p!r}.")

    @property
    def kernel(self) -> Kernel:
        """The p-th power of the Lp distance, or the distance itself, with a minus sign."""
        return Kernel("lp" if self.power else "lp_norm", self.p)

    def rescale(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Both codes times τ^(−1/p), or τ^(−1) with ``power=False``."""
        self._check(a, b)
        power = 1.0 / self.p if self.power else 1.0
        return _scaled(a, b, self._inverse_temperature(power))

    def to_dict(self) -> dict[str, Any]:
        """``{"similarity": "lp", "p": ..., "power": ..., "temperature": ..., "trainable": ...}``."""
        return {"similarity": "lp", "p": self.p, "power": self.power, **self._settings()}

    def extra_repr(self) -> str:
        """What goes between the brackets of ``repr``."""
        return f"{self.p:g}, {super().extra_repr()}" + ("" if self.power else ", power=False")


class Anisotropic(Similarity):
    """u(a, b) = −½ (a−b)ᵀ Λ (a−b) with a diagonal Λ, learned by default (B, Eq. 3).

    Λ is a precision: pairs with density ∝ exp(−½ dᵀΛd) are matched by the same Λ. (B prints the density
    without the ½ and ran its experiments with it; the figures are the same.)

    ``init`` is one number or one per dimension. A trainable Λ is positive by construction: ``link="log"``
    learns log Λ, which takes the same number of steps at every scale; ``link="softplus"`` learns the
    argument of a softplus, as the authors of B did. A fixed Λ may have entries of 0, which ignore their
    coordinate.

    >>> u = Anisotropic(2, init=torch.tensor([1.0, 4.0]), trainable=False)
    >>> u(torch.zeros(2), torch.ones(2)), u.precision
    (tensor(-2.5000), tensor([1., 4.]))
    """

    def __init__(
        self,
        dim: int,
        init: float | Tensor = 1.0,
        trainable: bool = True,
        link: Literal["log", "softplus"] = "log",
    ) -> None:
        super().__init__()
        if link not in ("log", "softplus"):
            raise ValueError(f'link must be "log" or "softplus", not {link!r}.')
        self.dim, self.trainable, self.link = whole_number(dim, "dim"), bool(trainable), link
        precision = _checked_precision(self.dim, init, trainable)
        if trainable and link == "log":
            self.log_precision = nn.Parameter(precision.log())
        elif trainable:  # the inverse of softplus, exact for large and small values alike
            self.raw_precision = nn.Parameter(precision + torch.log(-torch.expm1(-precision)))
        else:
            self.register_buffer("fixed_precision", precision)

    @property
    def precision(self) -> Tensor:
        """The diagonal of Λ: ``(dim,)``."""
        if not self.trainable:
            return self.get_buffer("fixed_precision")
        if self.link == "log":
            return self.log_precision.exp()
        return softplus(self.raw_precision.clamp_min(_SMALLEST_RAW))

    @property
    def kernel(self) -> Kernel:
        """Minus the squared Euclidean distance."""
        return Kernel("lp", 2.0)

    def rescale(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Both codes times √(Λ/2)."""
        self._check(a, b, self.dim)
        # In logs the root has a finite slope however small Λ becomes.
        log_link = self.trainable and self.link == "log"
        root = (0.5 * self.log_precision).exp() if log_link else self.precision.sqrt()
        return _scaled(a, b, root * math.sqrt(0.5))

    def to_dict(self) -> dict[str, Any]:
        """``{"similarity": "anisotropic", "dim", "precision", "trainable", "link"}``."""
        precision = self.precision.detach()
        if self.trainable:  # a logarithm that has fallen so far that its exponential is 0 is still of a positive Λ
            precision = precision.clamp_min(torch.finfo(precision.dtype).tiny)
        return {
            "similarity": "anisotropic",
            "dim": self.dim,
            "precision": precision.double().tolist(),
            "trainable": self.trainable,
            "link": self.link,
        }

    def extra_repr(self) -> str:
        """What goes between the brackets of ``repr``."""
        values = self.precision.detach().tolist()
        equal = min(values) == max(values)
        shown = f"{values[0]:.4g}" if equal else "[" + ", ".join(f"{v:.4g}" for v in values) + "]"
        return f"{self.dim}, precision={shown}" + ("" if self.trainable else ", trainable=False")


class Annealed(Similarity):
    """A similarity whose temperature falls during training: u(a, b) / factor, with a factor from ``start`` to ``end``.

    Narrow pairs among few negatives leave the loss nothing to do: no negative comes near an anchor, the loss is 0
    and so is its gradient, long before the codes are right. A wide kernel sees neighbours everywhere but pulls
    the codes towards the edges of their space. So one starts wide and ends narrow: the factor falls geometrically over
    the first ``until`` of the steps and keeps its last value from then on. ``end=1`` ends at the similarity itself.

    It changes something only where the codes have a size of their own (a sphere, or a box of fixed bounds): codes
    that may grow follow the temperature.

    >>> similarity = Annealed(LpSimilarity(2, temperature=0.1), start=100.0, until=0.5)
    >>> a, b = torch.zeros(1), torch.ones(1)
    >>> similarity(a, b)
    tensor(-0.1000)
    >>> round(similarity.factor.value_at(0.25), 6)  # halfway down, on a logarithmic scale
    10.0
    """

    def __init__(self, similarity: Similarity, start: float, end: float = 1.0, until: float = 0.8) -> None:
        super().__init__()
        if similarity.kernel is None:
            raise ValueError(f"Annealed needs a similarity with a kernel, which {similarity!r} does not have.")
        self.similarity = similarity
        self.factor = Gradual(start, end, until)

    @property
    def kernel(self) -> Kernel | None:
        """That of the similarity."""
        return self.similarity.kernel

    def rescale(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """As the similarity does, and both codes by the same number more."""
        a, b = self.similarity.rescale(a, b)
        assert self.kernel is not None
        degree = {"dot": 2.0, "lp": self.kernel.p or 1.0, "lp_norm": 1.0}[self.kernel.name]
        return _scaled(a, b, self.factor.value.to(a.dtype) ** (-1.0 / degree))

    def to_dict(self) -> dict[str, Any]:
        """``{"similarity": "annealed", "of": {...}, "start": ..., "end": ..., "until": ...}``."""
        return {"similarity": "annealed", "of": self.similarity.to_dict(), **self.factor.to_dict()}


def _checked_precision(dim: int, init: float | Tensor, trainable: bool) -> Tensor:
    try:
        value = torch.as_tensor(init).detach()
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"The precision of Anisotropic({dim}) is one number or {dim} of them, not {init!r}.") from None
    if value.is_complex():
        raise TypeError(f"The precision of Anisotropic({dim}) is of real numbers, not {init!r}.")
    if not value.is_floating_point() or not isinstance(init, Tensor):
        value = value.to(torch.get_default_dtype())
    if value.ndim > 1 or (value.ndim == 1 and value.shape[0] not in (1, dim)):
        raise ValueError(
            f"The precision of Anisotropic({dim}) is one number or {dim} of them, not a tensor of shape "
            f"{tuple(value.shape)}."
        )
    allowed = (value > 0) if trainable else (value >= 0)
    if not bool((allowed & value.isfinite()).all()):
        least = "positive" if trainable else "at least 0"
        raise ValueError(f"Every entry of the precision must be {least} and finite, not {value.tolist()}.")
    return value.expand(dim).clone()


def at_least_float32(x: Tensor) -> Tensor:
    """``x``, in float32 if it was in half precision."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _times(x: Tensor, scale: float | Tensor) -> Tensor:
    x = at_least_float32(x)
    if isinstance(scale, float) and scale == 1.0:
        return x
    return x * (scale.to(x.dtype) if isinstance(scale, Tensor) else scale)


def _scaled(a: Tensor, b: Tensor, scale: float | Tensor) -> tuple[Tensor, Tensor]:
    scaled = _times(a, scale)
    return scaled, (scaled if a is b else _times(b, scale))


def can_be_rebuilt(similarity: Similarity) -> bool:
    """Whether :func:`similarity_from_dict` can make this similarity from plain data: one of ours can."""
    if type(similarity) is Annealed:
        return can_be_rebuilt(similarity.similarity)
    return type(similarity) in (DotProduct, LpSimilarity, Anisotropic)


def similarity_from_dict(data: dict[str, Any]) -> Similarity:
    """The inverse of ``to_dict``."""
    kind = data.get("similarity")
    if kind == "dot":
        return DotProduct(data["temperature"], data["trainable"])
    if kind == "lp":
        return LpSimilarity(data["p"], data["temperature"], data["power"], data["trainable"])
    if kind == "anisotropic":
        return Anisotropic(data["dim"], torch.tensor(data["precision"]), data["trainable"], data["link"])
    if kind == "annealed":
        return Annealed(similarity_from_dict(data["of"]), data["start"], data["end"], data["until"])
    if kind == "user":
        raise ValueError(
            f"The similarity {data.get('name')!r} is not one of identica's: rebuild it yourself and load its "
            "parameters with load_state_dict."
        )
    raise ValueError(f"Unknown similarity {kind!r}: expected dot, lp, anisotropic or annealed.")
