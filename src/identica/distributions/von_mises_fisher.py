"""The von Mises-Fisher distribution: the normal distribution's counterpart on the sphere."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Size, Tensor
from torch.distributions import constraints

from identica.distributions.base import (
    LatentDistribution,
    Parameter,
    as_loc,
    as_parameter,
    batch_shape_of,
    require,
    require_each,
    require_finite,
)
from identica.distributions.bessel import bessel_ratio, bessel_ratio_over_x, log_bessel_reduced
from identica.distributions.fused import MOST_FUSED_DIMENSIONS
from identica.distributions.supports import OnSphere, row_norm
from identica.similarities import DotProduct, Similarity

#: Leaves less than 5e-10 of the rows, see :class:`VonMisesFisher`.
TRIES = 20


class VonMisesFisher(LatentDistribution):
    """Density ∝ exp(κ ⟨loc, x⟩ / ‖loc‖²) on the sphere of radius ‖loc‖ (A, Eq. 2, unit radius).

    The cosine of the angle θ between x and loc is weighted with exp(κ cos θ), whatever the radius.
    ``loc: (..., d)`` with d ≥ 2 sets direction and radius; ``concentration`` κ ≥ 0 is a number or
    ``(..., 1)``. κ = 0 is the uniform distribution.

    **Sampling** is exact, by rejection on θ (Ulrich's and Wood's envelope in a form without cancellation).
    Take a uniform point of the sphere at the angle θ₀ from loc and move it towards loc by the stereographic
    map tan(θ/2) = √b tan(θ₀/2), with b = (d−1) / (2κ + √(4κ² + (d−1)²)). With y = (κ / (d−1)) (x₀ − cos θ)
    and x₀ = (1−b)/(1+b), the point is accepted with probability ((1+y) e^(−y))^(d−1).
    Accepted are at least √(e/2π) = 0.6577 of the points, the limit for d = 2 and κ → ∞, so twenty tries
    leave less than 5e-10 of the rows, which keep one of their proposals. On the CPU further tries are made
    only where they are needed; on other devices nothing waits for the device: in float32 a fused kernel tries in
    a loop (:mod:`.triton_sphere`), else all tries are made at once.

    >>> loc = torch.tensor([0.0, 0.0, 2.0])
    >>> x = VonMisesFisher(loc, 50.0).sample(1000, generator=torch.Generator().manual_seed(0))
    >>> x.norm(dim=-1).allclose(torch.tensor(2.0)), x.shape
    (True, torch.Size([1000, 3]))
    >>> VonMisesFisher(loc, 50.0).mean
    tensor([0.0000, 0.0000, 1.9600])
    """

    parameters = ("loc", "concentration")
    arg_constraints = {"loc": constraints.real_vector, "concentration": constraints.nonnegative}
    has_rsample = False

    def __init__(
        self, loc: Tensor, concentration: Parameter, *, validate_args: bool | None = None, tables: Any = None
    ) -> None:
        # ``tables`` is there because every family takes it; this one has nothing worth preparing.
        self.loc = as_loc(loc, "VonMisesFisher")
        if self.loc.shape[-1] < 2:
            raise ValueError(
                "VonMisesFisher lives on a sphere in at least two dimensions, but loc has shape "
                f"{tuple(self.loc.shape)}; its last axis must be 2 or more."
            )
        self.concentration = as_parameter(concentration, self.loc, "concentration", "VonMisesFisher", per_row=True)
        super().__init__(batch_shape_of(self.loc, self.concentration), self.loc.shape[-1], validate_args)
        if self._validate:
            require_finite(self.loc, "loc", "VonMisesFisher")
            require(
                self.radius > 0,
                "loc of VonMisesFisher must not be zero: its direction is the mode and its norm the radius. "
                "Project it first, for example with Sphere(dim).project(loc).",
            )
            require_each(
                self.concentration,
                torch.isfinite(self.concentration) & (self.concentration >= 0),
                "concentration of VonMisesFisher must be finite and not negative",
                " For a pull away from a point use loc = −point.",
            )

    @classmethod
    def matching_similarity(cls, **parameters: Parameter) -> Similarity:
        """DotProduct(1/κ), as κ ⟨loc, x⟩ is the log density on the unit sphere, up to a constant.

        On a sphere of radius R it is κ ⟨loc, x⟩ / R²: there DotProduct(R²/κ) matches.
        """
        concentration = torch.as_tensor(parameters["concentration"])
        if concentration.numel() != 1 or not concentration.item() > 0:
            raise ValueError(
                "VonMisesFisher matches DotProduct(temperature=1/concentration) when the concentration is one "
                f"positive number, not {concentration.tolist()}."
            )
        return DotProduct(temperature=1.0 / concentration.item())

    @property
    def support(self) -> constraints.Constraint:
        """The sphere of radius ‖loc‖."""
        return OnSphere(self.radius)

    @property
    def radius(self) -> Tensor:
        """‖loc‖, the radius of the sphere; shape ``(..., 1)``."""
        return row_norm(self.loc)

    @property
    def _order(self) -> float:
        return 0.5 * self.dim - 1.0

    def _full(self, value: Tensor) -> Tensor:
        return value.expand((*self.batch_shape, self.dim))

    def _per_row(self, value: Tensor) -> Tensor:
        """A parameter of shape () or (..., 1) without its last axis, broadcast to the batch shape."""
        return (value[..., 0] if value.ndim else value).expand(self.batch_shape)

    @property
    def mean(self) -> Tensor:
        """A_d(κ) loc with A_d = I_{d/2} / I_{d/2−1}; shape ``(*batch, d)``."""
        return self._full(bessel_ratio(self._order, self.concentration) * self.loc)

    @property
    def mode(self) -> Tensor:
        """``loc``; shape ``(*batch, d)``."""
        return self._full(self.loc)

    @property
    def variance(self) -> Tensor:
        """Of each coordinate, the diagonal of (A/κ)(R² − loc locᵀ) + A' loc locᵀ; shape ``(*batch, d)``."""
        concentration = self.concentration.double()
        length = bessel_ratio(self._order, concentration)
        tangential = bessel_ratio_over_x(self._order, concentration)
        radial = 1.0 - length**2 - (self.dim - 1) * tangential  # the derivative of A_d
        squared = self.loc.double() ** 2
        total = squared.sum(dim=-1, keepdim=True)
        return self._full((tangential * (total - squared) + radial * squared).to(self.dtype))

    def log_normalizer(self) -> Tensor:
        """The log of ∫ exp(κ cos θ) over the surface, (2π)^(d/2) I_{d/2−1}(κ) κ^(1−d/2) R^(d−1).

        Shape ``(*batch,)``; the log surface area at κ = 0.
        """
        return self._log_normalizer_at_mode() + self._per_row(self.concentration)

    def _log_normalizer_at_mode(self) -> Tensor:
        """The log of ∫ exp(κ (cos θ − 1)), which has no large terms to cancel."""
        unit = 0.5 * self.dim * math.log(2 * math.pi) + log_bessel_reduced(self._order, self.concentration)
        return self._per_row(unit) + (self.dim - 1) * self._per_row(self.radius.log())

    def entropy(self) -> Tensor:
        """The log normaliser minus κ A_d(κ); shape ``(*batch,)``."""
        shortfall = 1.0 - bessel_ratio(self._order, self.concentration.double())
        return self._log_normalizer_at_mode() + self._per_row((self.concentration * shortfall).to(self.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density with respect to the surface of the sphere: ``(..., d) -> (...)``.

        It depends on the value's direction only, so its gradient in the value is tangential.
        """
        self._check_value(value)
        if self._validate:
            OnSphere(self.radius).require(value, "VonMisesFisher")
        direction = value / row_norm(value)
        # cos θ − 1 as a squared distance: the difference itself has no digits left near the mode.
        gap = -0.5 * (direction - self.loc / self.radius).square().sum(dim=-1)
        return self._per_row(self.concentration) * gap - self._log_normalizer_at_mode()

    def _draw(self, shape: Size, generator: torch.Generator | None) -> Tensor:
        return self._draw_with(shape, generator, wait=self._draw_device(generator).type == "cpu")

    def _draw_fused(self, shape: Size, generator: torch.Generator | None) -> Tensor | None:
        if self.dim > MOST_FUSED_DIMENSIONS:
            return None
        from identica.distributions.triton_sphere import draw_von_mises_fisher

        return draw_von_mises_fisher(shape, self.batch_shape, self.loc, self.concentration, TRIES, generator)

    def _draw_with(self, shape: Size, generator: torch.Generator | None, *, wait: bool) -> Tensor:
        """Draw. With ``wait`` only rejected rows are tried again; without, all tries are made at once."""
        rows = Size((*shape, *self.batch_shape))
        envelope = self._envelope(rows)
        if not wait:
            odds, _ = self._try(envelope, rows.numel(), TRIES, generator)
        elif envelope.ndim == 1:
            odds = self._draw_shared(envelope, rows.numel(), generator)
        else:
            odds = self._draw_by_row(envelope, rows.numel(), generator)
        normal = self._normal((*rows, self.dim - 1), generator)
        return _leave_pole(self.loc, odds.reshape((*rows, 1)), normal)

    def _draw_shared(self, envelope: Tensor, rows: int, generator: torch.Generator | None) -> Tensor:
        """tan²(θ/2) for rows that share one concentration: accepted proposals, in the order they come.

        One round proposes more than enough, as at least 0.6577 are accepted; a second is rare.
        """
        found: list[Tensor] = []
        for _ in range(TRIES):
            odds, accepted = self._try(envelope, int(1.6 * rows) + 32, 1, generator)
            found.append(odds[accepted][:rows])
            rows -= len(found[-1])
            if rows == 0:
                break
        return torch.cat([*found, odds[:rows]])

    def _draw_by_row(self, envelope: Tensor, rows: int, generator: torch.Generator | None) -> Tensor:
        """tan²(θ/2) for rows that each have their own concentration: later tries for rejected rows only."""
        odds, accepted = self._try(envelope, rows, 1, generator)
        for tries in (4, TRIES - 5):
            rejected = torch.nonzero(~accepted)[:, 0]
            if len(rejected):
                odds[rejected], accepted[rejected] = self._try(envelope[:, rejected], len(rejected), tries, generator)
        return odds

    def _envelope(self, rows: Size) -> Tensor:
        """b, and the factor of (tan²(θ/2) − b) cos²(θ/2) in y: ``(2, n)``, or ``(2,)`` if all rows share it."""
        concentration = self.concentration
        if concentration.numel() == 1:
            concentration = concentration.reshape(())
        else:
            concentration = concentration[..., 0].expand(rows).reshape(-1)
        slope = concentration * (2.0 / (self.dim - 1))
        shrink = 1.0 / (slope + torch.hypot(slope, torch.ones_like(slope)))
        return torch.stack([shrink, slope / (1.0 + shrink)])

    def _try(self, envelope: Tensor, rows: int, tries: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """The first accepted of ``tries`` proposals for tan²(θ/2), and if there is one: ``(rows,)`` each."""
        shrink, factor = envelope.unbind()
        u, v, level = self._uniform((3, tries, rows), generator).unbind()
        odds = shrink * _uniform_odds(self.dim, u, v)
        y = factor * (odds - shrink) / (1.0 + odds)
        accepted = torch.log(level) < (self.dim - 1) * (torch.log1p(y) - y)
        if tries == 1:
            return odds[0], accepted[0]
        first = accepted.to(torch.uint8).argmax(dim=0, keepdim=True)
        return odds.gather(0, first)[0], accepted.gather(0, first)[0]


def _uniform_odds(dim: int, u: Tensor, v: Tensor) -> Tensor:
    """tan²(θ/2) for points uniform on the sphere in R^dim, from two uniform numbers.

    It is Z / (1−Z) with Z = ½ (1 + s cos 2φ), s² = 1 − u^(2/(d−2)), φ uniform: Ulrich's symmetric beta
    variable without gamma draws. Written as ½ (1−s) + s cos²φ, it keeps its digits near 0 (s = 1 at d = 2,
    the one case where they matter), and so does 1 − Z.
    """
    angle = (0.5 * math.pi) * v
    sine, cosine = torch.sin(angle).square(), torch.cos(angle).square()
    if dim > 2:
        s = torch.sqrt(-torch.expm1(torch.log(u) * (2.0 / (dim - 2))))
        offset = 0.5 - 0.5 * s
        sine, cosine = torch.addcmul(offset, s, sine), torch.addcmul(offset, s, cosine)
    return (cosine / sine).clamp(max=1e30)  # 1 / 0 is the antipode


def _leave_pole(pole: Tensor, odds: Tensor, normal: Tensor) -> Tensor:
    """The point at the angle θ from ``pole: (..., d)``, tan²(θ/2) = ``odds: (..., 1)``, in a random direction.

    ``normal: (..., d−1)`` gives the direction in the coordinates after the first, and the reflection that
    swaps the first axis with ±pole turns it tangent to the sphere at the pole. A reflection loses no digits,
    however small the angle and however few the dimensions. The result has the norm of the pole.
    """
    radius = row_norm(pole)
    length = torch.linalg.vector_norm(normal, dim=-1, keepdim=True).clamp_min(torch.finfo(normal.dtype).tiny)
    first, rest = pole[..., :1] / radius, pole[..., 1:]
    step = 2.0 * torch.sqrt(odds) / (1.0 + odds) / length
    # On the unit sphere until the end: products with the radius would leave float32's range.
    tilt = step * (torch.linalg.vecdot(rest, normal).unsqueeze(-1) / radius) / (1.0 + first.abs())
    x = pole * (((1.0 - odds) / (1.0 + odds) - tilt) / radius)
    x[..., 1:].addcmul_(normal, step)
    x[..., :1].sub_(torch.where(first < 0, -tilt, tilt))
    return x.mul_(radius / torch.linalg.vector_norm(x, dim=-1, keepdim=True))
