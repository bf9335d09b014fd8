"""The Fisher-Bingham distribution with a diagonal quadratic form: the anisotropic conditional on the sphere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Self, get_args

import torch
from torch import Size, Tensor
from torch.distributions import constraints
from torch.types import Device

from identica.distributions import fisher_bingham_plan as planning
from identica.distributions.base import (
    LatentDistribution,
    Parameter,
    as_loc,
    as_parameter,
    batch_shape_of,
    require,
    require_each,
    require_finite,
    require_supported,
)
from identica.distributions.fisher_bingham_normalizer import log_sphere_integral
from identica.distributions.fisher_bingham_plan import SamplingPlan
from identica.distributions.fisher_bingham_sampler import (
    BINS_SLACK,
    HIGHEST_FLOAT32,
    SpreadBins,
    build_proposal,
    draw_early_finish,
    draw_fixed_tries,
)
from identica.distributions.fisher_bingham_shell import (
    BLIND_SHELL,
    ShellPlan,
    draw_shell_early_finish,
    draw_shell_fixed_tries,
    log_kept,
    log_shell_density,
    make_shell_plan,
)
from identica.distributions.fused import MOST_FUSED_DIMENSIONS
from identica.distributions.supports import OnSphere, row_norm
from identica.distributions.von_mises_fisher import VonMisesFisher
from identica.similarities import Anisotropic, LpSimilarity, Similarity

Method = Literal["exact", "shell"]


class FisherBingham(LatentDistribution):
    """Density ∝ exp(−½ (x−loc)ᵀ diag(precision) (x−loc)) on the sphere of radius ‖loc‖ (B, Eq. 2).

    ``loc: (..., d)`` with d ≥ 2 sets the centre and the radius; ``precision`` ≥ 0 is a number, ``(d,)`` or
    ``(..., d)``. Equal entries λ make it von Mises-Fisher with concentration λ‖loc‖², zeros uniform.

    **Sampling** is exact, by rejection from a projected normal (:mod:`.fisher_bingham_sampler`). On the CPU
    rejected rows try again until none is left. On other devices, so that nothing waits for them, the number
    of tries is fixed such that less than 1e-9 of the rows find none accepted and keep one of their proposals:
    by ``prepare_tables`` from the exact probability of acceptance (:mod:`.fisher_bingham_plan`), else for the
    worst precision with entries up to 1000 / ‖loc‖². On CUDA in float32 a fused kernel makes as many of
    them as each block of rows needs (:mod:`.triton_fisher_bingham`).
    In float32 the probabilities are as accurate as the density at a float32 point is, in float64 to 1e-9.
    The more uneven the precisions, the more tries: about √(λ_max / λ_min) / 2 a draw at the worst locations. A warning
    says where too many would be needed: for ratios above 1e10; on devices other than the CPU above 1e8, in float32
    for precision · ‖loc‖² above 2e7. ``prepare_tables`` refuses uneven precisions above 1e12.

    **The normaliser** depends on the location. It is a contour integral (:mod:`.fisher_bingham_normalizer`),
    from which mean, variance and entropy follow by differentiation. It is accurate to 1e-11, or to the float64
    rounding error of the largest precision · ‖loc‖² where that is more, up to precision · ‖loc‖² = 1e9; on devices
    other than the CPU, where the effort is fixed, up to 1e5.

    ``method="shell"`` is another law, which paper B's experiments drew from in place of this one: loc + N(0, Λ⁻¹),
    kept if its norm is within 0.1 ‖loc‖ of the radius, then projected (:mod:`.fisher_bingham_shell`). It needs
    positive precisions, and is there to show what it does to the Λ̂ that is learned. Its ``log_prob`` is that of what
    it draws, to 1e-9 up to precision · ‖loc‖² = 1e4; mode, moments and entropy it has none. On devices other than
    the CPU the number of tries is fixed, at most 4096: ``prepare_tables(...).leftover`` says which part of the draws
    keeps none of them, and a warning does so where that is more than 1e-9.

    >>> loc = torch.tensor([0.0, 0.6, 0.8])
    >>> d = FisherBingham(loc, torch.tensor([100.0, 100.0, 1.0]))
    >>> x = d.sample(1000, generator=torch.Generator().manual_seed(0))
    >>> x.shape, x.norm(dim=-1).allclose(torch.tensor(1.0))
    (torch.Size([1000, 3]), True)
    >>> d.mean
    tensor([0.0000, 0.6140, 0.4263])
    """

    parameters = ("loc", "precision", "method")
    settings = ("method",)
    arg_constraints = {"loc": constraints.real_vector, "precision": constraints.nonnegative}
    has_rsample = False

    def __init__(
        self,
        loc: Tensor,
        precision: Parameter,
        method: Method = "exact",
        *,
        validate_args: bool | None = None,
        tables: SamplingPlan | ShellPlan | None = None,
    ) -> None:
        _require_method(method)
        self.method: Method = method
        self.loc = as_loc(loc, "FisherBingham")
        if self.loc.shape[-1] < 2:
            raise ValueError(
                "FisherBingham lives on a sphere in at least two dimensions, but loc has shape "
                f"{tuple(self.loc.shape)}; its last axis must be 2 or more."
            )
        self.precision = as_parameter(precision, self.loc, "precision", "FisherBingham")
        batch_shape = batch_shape_of(self.loc, self.precision) if self.precision.ndim else self.loc.shape[:-1]
        super().__init__(batch_shape, self.loc.shape[-1], validate_args)
        if self._validate:
            self._check_arguments()
        self._shell = tables if isinstance(tables, ShellPlan) else BLIND_SHELL
        self._plan = tables if isinstance(tables, SamplingPlan) else self._glance()

    def _check_arguments(self) -> None:
        require_finite(self.loc, "loc", "FisherBingham")
        require(
            self.radius > 0,
            "loc of FisherBingham must not be zero: its direction is the mode and its norm the radius. "
            "Project it first, for example with Sphere(dim).project(loc).",
        )
        _require_precision(self.precision, self.method)

    def _glance(self) -> SamplingPlan:
        if self.method == "shell":  # which has a plan of its own
            return planning.BLIND_PLAN
        if self.precision.ndim == 0 or self.precision.shape[-1] == 1:
            return SamplingPlan(isotropic=True, steps=0, tries=0)
        # Looking means waiting, except on the CPU.
        may_look = self._validate or self.device.type == "cpu"
        return planning.look(self.precision) if may_look else planning.BLIND_PLAN

    @classmethod
    def prepare_tables(cls, device: Device, dtype: torch.dtype, **parameters: Any) -> SamplingPlan | ShellPlan:
        """How often to try on devices that one does not want to wait for, given the precision."""
        require_supported(dtype, "loc", cls.__name__)
        method = parameters.get("method", "exact")
        _require_method(method)
        precision = torch.as_tensor(parameters["precision"], dtype=torch.float64)
        _require_precision(precision, method)
        if method == "shell":
            if precision.ndim != 1 or len(precision) == 1:
                return BLIND_SHELL
            precision = precision.cpu()
            waits = torch.device(device or "cpu").type == "cpu"
            return make_shell_plan(precision, planning.hard_locations(precision), waits=waits)
        if precision.ndim == 0 or precision.shape[-1] == 1:
            return SamplingPlan(isotropic=True, steps=0, tries=0)
        return planning.make_plan(precision, dtype, waits=torch.device(device or "cpu").type == "cpu")

    @classmethod
    def matching_similarity(cls, **parameters: Any) -> Similarity:
        """Anisotropic(Λ), u = −½ (a−b)ᵀ diag(Λ) (a−b); for one number λ, which has no dimension, Lp(2, 2/λ)."""
        precision = torch.as_tensor(parameters["precision"])
        if precision.ndim > 1:
            raise ValueError(
                "FisherBingham matches Anisotropic(precision) when the precision is the same for all rows, a "
                f"number or a tensor of shape (d,), not {tuple(precision.shape)}."
            )
        if precision.numel() > 1:
            return Anisotropic(len(precision), init=precision, trainable=False)
        if not precision.item() > 0:
            raise ValueError(
                f"FisherBingham with precision {precision.item():g} matches LpSimilarity(2, 2 / precision), "
                "which needs a positive precision. For a dimension to ignore pass precisions of shape (d,)."
            )
        return LpSimilarity(2, temperature=2.0 / precision.item())

    def _rebuilt(self, replaced: Mapping[str, Any]) -> Self:
        copy = super()._rebuilt(replaced)
        copy._plan, copy._shell = self._plan, self._shell  # plain numbers, good on every device
        return copy

    @property
    def support(self) -> constraints.Constraint:
        """The sphere of radius ‖loc‖."""
        return OnSphere(self.radius)

    @property
    def radius(self) -> Tensor:
        """‖loc‖, the radius of the sphere; shape ``(..., 1)``."""
        return row_norm(self.loc)

    def _full(self, value: Tensor) -> Tensor:
        return value.expand((*self.batch_shape, self.dim))

    @property
    def mode(self) -> Tensor:
        """``loc``; shape ``(*batch, d)``."""
        self._require_exact("mode")
        return self._full(self.loc)

    @property
    def mean(self) -> Tensor:
        """Derivative of the log integral in the linear term; shape ``(*batch, d)``."""
        self._require_exact("mean")
        if self._plan.isotropic:
            return self._von_mises_fisher().mean
        return self._moments()[0].to(self.dtype)

    @property
    def variance(self) -> Tensor:
        """Of each coordinate; shape ``(*batch, d)``."""
        self._require_exact("variance")
        if self._plan.isotropic:
            return self._von_mises_fisher().variance
        mean, square = self._moments()
        return (square - mean.square()).to(self.dtype)

    def entropy(self) -> Tensor:
        """log_normalizer + ½ E (x−loc)ᵀΛ(x−loc); shape ``(*batch,)``."""
        self._require_exact("entropy")
        if self._plan.isotropic:
            return self._von_mises_fisher().entropy()
        mean, square = self._moments()
        loc = self.loc.double()
        quadratic = (self.precision.double() * (square - 2.0 * mean * loc + loc.square())).sum(dim=-1)
        return self._log_normalizer().add(0.5 * quadratic).to(self.dtype)

    def log_normalizer(self) -> Tensor:
        """The log of ∫ exp(−½ (x−loc)ᵀΛ(x−loc)) over the sphere's surface; shape ``(*batch,)``."""
        self._require_exact("normaliser")
        return self._log_normalizer().to(self.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density with respect to the surface of the sphere: ``(..., d) -> (...)``."""
        self._check_value(value)
        if self._validate:
            OnSphere(self.radius).require(value, "FisherBingham")
        if self.method == "shell":
            return self._shell_log_prob(value)
        gap = value - self.loc
        quadratic = (self.precision * gap * gap).sum(dim=-1)  # in this order: a huge sphere's gap² overflows
        return -0.5 * quadratic - self.log_normalizer()

    def _shell_log_prob(self, value: Tensor) -> Tensor:
        precision, unit, radius = self._unit_problem(torch.float64)
        shape = self.batch_shape
        log_constant = 0.5 * (precision.log().sum(dim=0) - (precision * unit * unit).sum(dim=0))
        log_constant = log_constant - log_kept(precision, unit) - (self.dim - 1) * radius.log()
        x, loc = value.double() / self.radius, (self.loc / self.radius).double()
        scaled = self.precision.double() * self.radius.double().square()
        log_density = log_shell_density((scaled * x * x).sum(-1), (scaled * loc * x).sum(-1), self.dim)
        total = log_density + log_constant.reshape(shape) - 0.5 * self.dim * math.log(2.0 * math.pi)
        return total.to(self.dtype)

    def _require_exact(self, what: str) -> None:
        if self.method == "shell":
            raise NotImplementedError(
                f'FisherBingham with method="shell" has no closed-form {what}; estimate what you need from draws of '
                'sample(), or use method="exact".'
            )

    def _von_mises_fisher(self, dtype: torch.dtype | None = None) -> VonMisesFisher:
        loc = self._full(self.loc) if dtype is None else self._full(self.loc).to(dtype)
        precision = self.precision if dtype is None else self.precision.to(dtype)
        radius = row_norm(loc)
        concentration = (precision[..., :1] if precision.ndim else precision) * radius * radius
        return VonMisesFisher(loc, concentration, validate_args=False)

    def _unit_problem(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        """The same on the unit sphere, one column a batch member: Λ‖loc‖² and loc/‖loc‖ ``(d, n)``, ‖loc‖."""
        # Coordinates first, and contiguous: every sum over them is then fast.
        loc = self._full(self.loc).to(dtype).reshape(-1, self.dim).T.contiguous()
        radius = loc.double().square().sum(dim=0).sqrt().to(dtype)  # as row_norm, along the fast axis
        precision = self.precision.to(dtype)
        if precision.ndim > 1:
            precision = self._full(precision).reshape(-1, self.dim).T
        else:
            precision = precision.expand(self.dim).unsqueeze(-1)
        return precision * radius * radius, loc * radius.reciprocal(), radius

    def _log_normalizer(self) -> Tensor:
        """In float64: the terms are large compared with the result."""
        if self._plan.isotropic:
            same = self._von_mises_fisher(torch.float64)
            return same.log_normalizer() - same.concentration[..., 0]
        precision, unit, radius = self._unit_problem(torch.float64)
        pull = precision * unit
        centred = log_sphere_integral(precision, pull) - 0.5 * (pull * unit).sum(dim=0)
        return (centred + (self.dim - 1) * radius.log()).reshape(self.batch_shape)

    def _moments(self) -> tuple[Tensor, Tensor]:
        """E x and E x² in float64, by differentiating the log integral; both ``(*batch, d)``."""
        precision, unit, radius = self._unit_problem(torch.float64)
        pull = precision * unit
        wants_graph = torch.is_grad_enabled() and pull.requires_grad
        with torch.enable_grad():
            # Copies, because pull depends on precision and the derivatives are partial ones.
            linear, quadratic = (t.clone() if wants_graph else t.detach().requires_grad_() for t in (pull, precision))
            total = log_sphere_integral(quadratic, linear).sum()
            slopes = torch.autograd.grad(total, (linear, quadratic), create_graph=wants_graph)
        shape = (*self.batch_shape, self.dim)
        return (slopes[0] * radius).T.reshape(shape), (-2.0 * slopes[1] * radius.square()).T.reshape(shape)

    def _bins_for(self, radius: Tensor) -> SpreadBins | None:
        """The prepared shortcut, where it applies: one precision, and the unit sphere."""
        bins = self._plan.bins
        if bins is None or self.precision.ndim > 1 or bins.shift.dtype != radius.dtype or radius.numel() == 0:
            return None
        least, most = torch.aminmax(radius)
        slack = 0.25 * BINS_SLACK
        return bins if least.item() > 1.0 - slack and most.item() < 1.0 + slack else None

    def _draw(self, shape: Size, generator: torch.Generator | None, early_finish: bool | None = None) -> Tensor:
        if self._plan.isotropic:
            return self._von_mises_fisher()._picked(shape, generator)
        precision, unit, radius = self._unit_problem(self.dtype)
        samples = shape.numel()
        if early_finish is None:
            early_finish = self._draw_device(generator).type == "cpu"
        if self.method == "shell":
            scale = precision.rsqrt()
            if early_finish:
                y = draw_shell_early_finish(scale, unit, samples, generator)
            else:
                y = draw_shell_fixed_tries(scale, unit, samples, self._shell.tries, generator)
        elif early_finish:
            if self.dtype != torch.float64 and bool((precision > HIGHEST_FLOAT32).any()):
                precision, unit, radius = self._unit_problem(torch.float64)
            proposal = build_proposal(precision, unit, self._plan.steps, self._bins_for(radius))
            y = draw_early_finish(proposal, samples, generator)
        else:
            proposal = build_proposal(precision, unit, self._plan.steps)
            y = draw_fixed_tries(proposal, samples, self._plan.tries, generator)
        y = y.reshape(self.dim, samples, len(radius))
        y *= radius * y.square().sum(dim=0).rsqrt()
        return y.to(self.dtype).reshape(self.dim, -1).T.reshape((*shape, *self.batch_shape, self.dim)).contiguous()

    def _draw_fused(self, shape: Size, generator: torch.Generator | None) -> Tensor | None:
        if self.method == "shell" or self._plan.isotropic or self.dim > MOST_FUSED_DIMENSIONS:
            return None
        from identica.distributions.triton_fisher_bingham import draw_fisher_bingham

        steps, tries = self._plan.steps, self._plan.tries
        return draw_fisher_bingham(shape, self.batch_shape, self.loc, self.precision, steps, tries, generator)


def _require_method(method: str) -> None:
    if method not in get_args(Method):
        raise ValueError(f'method of FisherBingham must be "exact" or "shell", not {method!r}.')


def _require_precision(precision: Tensor, method: Method) -> None:
    valid = torch.isfinite(precision) & (precision >= 0)
    require_each(precision, valid, "precision of FisherBingham must be finite and not negative")
    if method == "shell":
        advice = ' For a free coordinate use method="exact".'
        require_each(
            precision, precision > 0, 'precision of FisherBingham must be positive with method="shell"', advice
        )
