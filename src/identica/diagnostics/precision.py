"""The precision Λ̂ that a loss is smallest at, with standard errors: for given codes, by sampling pairs.

Λ̂ is an M-estimator: it minimises the mean over independent batches of a loss of θ = log Λ̂. With g_b the gradient
of batch b and H the Hessian of the expected loss, both at the minimum, the minimiser over k batches is
asymptotically normal with the covariance H⁻¹ Cov(g) H⁻¹ / k, the sandwich. Items of a batch share their
negatives and are not independent; batches are, so it is whole batches whose gradients are compared.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from scipy.optimize import minimize
from torch import Tensor

from identica.diagnostics.codes import ONE_BY_ONE, Codes, Encode, checked_similarity, drawn_codes
from identica.objectives import InfoNCE
from identica.processes import EnsembleProcess, PairProcess
from identica.processes.optimal_loss import OptimalLoss
from identica.similarities import Anisotropic
from identica.training.step import Process

#: Step in log Λ̂ of the differences that make the Hessian out of gradients, which are in float64: with it what a
#: difference to one side neglects, and what rounding does to it, are both some 1e-5 of an entry or less.
_STEP = 1e-5
#: Within e^±20 everything is computable; an entry that runs away stops there, or shortly before, and has left e^±12.
_BOUND, _FAR = 20.0, 12.0
#: A standard error above this part of an entry says that the batches hardly determine it.
_VAGUE = 0.5
#: A Newton step of so many standard errors, and of more than this part of an entry, says that Λ̂ is not at its minimum.
_ERRORS_OFF, _PART_OFF = 5.0, 0.1
#: The loss, in nats, bends by less in log Λ̂ only where codes do not vary: far above what rounding makes of 0.
_FLAT = 1e-9
#: Batches that the Hessian is averaged over: it needs fewer digits than the gradients, and costs d of them each.
_HESSIAN_BATCHES = 8


@dataclass(frozen=True)
class PrecisionEstimate:
    """Λ̂ with standard errors, from ``batches`` batches of ``n`` pairs; all in the order of the codes.

    ``to_minimum`` is what one Newton step towards the minimum of these batches' loss would add to each entry: 0 where
    Λ̂ was fitted to them, else how far training stopped short; near the minimum that is known up to about
    ``standard_error``. An entry that the loss does not depend on, as of a code that is the same everywhere, has an
    infinite standard error.
    """

    precision: tuple[float, ...]
    standard_error: tuple[float, ...]
    to_minimum: tuple[float, ...]
    n: int
    batches: int

    def __repr__(self) -> str:
        pairs = zip(self.precision, self.standard_error, strict=True)
        shown = ", ".join(f"{value:.4g} ± {error:.2g}" for value, error in pairs)
        return f"PrecisionEstimate({shown}, n={self.n}, batches={self.batches})"


def precision_standard_errors(
    process: Process, encoder: Encode, objective: InfoNCE, n: int, batches: int = 32, seed: int = 0
) -> PrecisionEstimate:
    """Standard errors of a learned Λ̂, by the sandwich estimator on fresh pairs, the encoder fixed.

    They say how much a Λ̂ that minimises the loss over ``batches`` batches of ``n`` pairs would scatter, whatever
    the similarity leaves out (a sandwich assumes no right model), and shrink as 1/√batches. A warning names entries
    that the batches hardly determine.

    What they leave out: the encoder was learned from pairs, too, and would have come out a little different with
    others; and the optimiser stops near the minimum, not in it. ``to_minimum`` shows the latter: where it exceeds a few
    standard errors, train longer or decay the learning rate of Λ̂; a warning names entries that are far off.
    ``batches · n`` much smaller than the number of pairs trained on makes these errors larger than those of Λ̂ itself.

    Args:
        process: draws the pairs: a PairProcess, or whatever else has ``sample``, such as AugmentedViews. For an
            ensemble, one of its processes with the member of the loss that belongs to it. A PairPool draws a pair more
            than once, which these errors know nothing of: pass its ``process``, or let it refresh whole batches.
        encoder: from observations to codes, a module or any function; a module is put into evaluation mode meanwhile.
        objective: InfoNCE with an Anisotropic similarity.
        n: pairs in a batch; take that of training, as it decides how much the negatives say.
        batches: at least two, and better four times as many as there are entries of Λ̂.
        seed: chooses the pairs.

    >>> from identica.distributions import Conditional, FisherBingham, SphereUniform
    >>> process = PairProcess(SphereUniform(3), Conditional(FisherBingham, precision=(4.0, 8.0, 16.0)))
    >>> truth = InfoNCE(Anisotropic(3, torch.tensor([4.0, 8.0, 16.0])))
    >>> found = precision_standard_errors(process, lambda x: x, truth, n=256, batches=16)
    >>> all(abs(step) < 4 * error for step, error in zip(found.to_minimum, found.standard_error))
    True
    """
    problem = PrecisionProblem.of(process, encoder, objective, n, batches, seed)
    found = problem.estimate(_log_precision(objective))
    entries = enumerate(zip(found.precision, found.standard_error, found.to_minimum, strict=True))
    far = [k for k, (value, error, step) in entries if abs(step) > max(_ERRORS_OFF * error, _PART_OFF * value)]
    if far:
        warnings.warn(
            f"Λ̂ is not at its minimum at {', '.join(map(str, far))}: one step towards it is more than {_ERRORS_OFF:g} "
            "standard errors long (to_minimum), so that these errors do not say how far Λ̂ is from the precision of "
            "the pairs. Train longer, or raise similarity_lr.",
            stacklevel=2,
        )
    return found


def best_precision(
    process: Process,
    objective: InfoNCE,
    n: int,
    batches: int = 32,
    seed: int = 0,
    encoder: Encode | None = None,
) -> PrecisionEstimate:
    """The Λ̂ that minimises the loss over sampled pairs, the codes fixed: the true latents, unless given an encoder.

    At the true latents this is where training with a perfect encoder would end: the true Λ for exact pairs and uniform
    negatives (B, Thm 3.1), Λ⁺ − Λ⁻ for hard negatives (B, Cor. B.1), and something else where the pairs or
    the negatives are not those of the theory, which is what it is for. Settings and starting point are
    ``objective``'s, which is not changed; arguments and standard errors as in :func:`precision_standard_errors`.

    >>> from identica.distributions import Conditional, FisherBingham, SphereUniform
    >>> process = PairProcess(SphereUniform(3), Conditional(FisherBingham, precision=(4.0, 8.0, 16.0)))
    >>> found = best_precision(process, InfoNCE(Anisotropic(3)), n=256, batches=16)
    >>> [round(value) for value in found.precision]
    [4, 8, 16]
    """
    problem = PrecisionProblem.of(*_seen(process, encoder), objective, n, batches, seed)
    return problem.estimate(problem.minimiser(_log_precision(objective)))


def precision_scan(
    process: Process,
    objective: InfoNCE,
    precisions: Sequence[float | Sequence[float]],
    n: int,
    batches: int = 8,
    seed: int = 0,
    encoder: Encode | None = None,
) -> tuple[OptimalLoss, ...]:
    """The loss at each of several Λ̂ (one number, or one per code) on the same pairs, as in B, Fig. 10A.

    At the true latents, unless given an encoder. As the pairs are the same, differences between entries have far
    smaller errors than the entries: compare ``per_batch`` with ``per_batch``.

    >>> from identica.distributions import Conditional, FisherBingham, SphereUniform
    >>> process = PairProcess(SphereUniform(3), Conditional(FisherBingham, precision=6.0))
    >>> scan = precision_scan(process, InfoNCE(Anisotropic(3)), (3.0, 6.0, 12.0), n=256)
    >>> scan[1].mean < min(scan[0].mean, scan[2].mean)
    True
    """
    problem = PrecisionProblem.of(*_seen(process, encoder), objective, n, batches, seed)
    values = [_one_for_each(value, problem.dim) for value in precisions]
    return tuple(OptimalLoss.of([problem.loss(codes, v.log())[0] for codes in problem.codes], n) for v in values)


def _one_for_each(value: float | Sequence[float], dim: int) -> Tensor:
    precision = torch.as_tensor(value, dtype=torch.float64)
    if precision.shape not in ((), (1,), (dim,)) or not bool((precision > 0).all() & precision.isfinite().all()):
        raise ValueError(f"Each Λ̂ of a scan is one positive number, or {dim} of them, one per code; not {value!r}.")
    return precision.expand(dim)


def _seen(process: Process, encoder: Encode | None) -> tuple[Process, Encode]:
    """Without an encoder the codes are the latents themselves: the process without its mixing, in float64."""
    if encoder is not None:
        return process, encoder
    if not isinstance(process, PairProcess):
        advice = ONE_BY_ONE if isinstance(process, EnsembleProcess) else "Pass encoder=."
        raise TypeError(
            "Without an encoder the codes are the true latents, which a PairProcess has, not "
            f"{type(process).__name__}. {advice}"
        )
    counts = {name: getattr(process, name) for name in ("negatives_per_anchor", "positives_per_anchor")}
    negative = process.negative_conditional
    bare = PairProcess(process.marginal, process.conditional, negative_conditional=negative, **counts)
    return bare.to(dtype=torch.float64), _itself


def _itself(x: Tensor) -> Tensor:
    return x


def _log_precision(objective: InfoNCE) -> Tensor:
    similarity = objective.similarity
    assert isinstance(similarity, Anisotropic)
    return similarity.precision.detach().to("cpu", torch.float64).log()


@dataclass(frozen=True)
class PrecisionProblem:
    """The loss of fixed codes as a function of θ = log Λ̂, batch by batch, in float64."""

    codes: list[Codes]
    settings: dict[str, object]
    dim: int
    n: int

    @staticmethod
    def of(process: Process, encoder: Encode, objective: InfoNCE, n: int, batches: int, seed: int) -> PrecisionProblem:
        """That of an encoder's codes of fresh pairs."""
        similarity = checked_similarity(process, objective)
        codes = drawn_codes(process, encoder, objective, n, batches, seed)
        settings = objective.settings() | {"impl": "auto"}  # not every kernel computes in float64
        return PrecisionProblem(codes, settings, similarity.dim, len(codes[0][0]))

    def loss(self, codes: Codes, theta: Tensor) -> tuple[float, Tensor]:
        """Loss and gradient in θ: ``(), (d,)``."""
        h, h_pos, h_neg = codes
        similarity = Anisotropic(self.dim, theta.exp()).to(h.device)
        value = InfoNCE(similarity, **self.settings)(h, h_pos, h_neg)  # type: ignore[arg-type]
        (slope,) = torch.autograd.grad(value, similarity.log_precision)
        return value.item(), slope.cpu()

    def mean(self, theta: Tensor, batches: int | None = None) -> tuple[float, Tensor]:
        """The same, averaged over the first ``batches`` batches."""
        values, slopes = zip(*(self.loss(codes, theta) for codes in self.codes[:batches]), strict=True)
        return sum(values) / len(values), torch.stack(slopes).mean(dim=0)

    def hessian(self, theta: Tensor, slope: Tensor) -> Tensor:
        """Second derivatives in θ, ``(d, d)``, by differences of gradients, of which ``slope`` is that at θ itself."""
        steps = _STEP * torch.eye(self.dim, dtype=torch.float64)
        matrix = torch.stack([self.mean(theta + step, _HESSIAN_BATCHES)[1] - slope for step in steps]) / _STEP
        return 0.5 * (matrix + matrix.T)

    def minimiser(self, start: Tensor) -> Tensor:
        """The θ at which the mean loss is smallest, from ``start``."""

        # In s = √(Λ̂ / start): the loss is convex in Λ̂, and in θ so flat towards Λ̂ = 0 that a long step stays there.
        def value_and_slope(s: object) -> tuple[float, object]:
            root = torch.tensor(s, dtype=torch.float64)
            value, slope = self.mean(start + 2.0 * root.log())
            return value, (2.0 * slope / root).numpy()

        options = {"gtol": 1e-8, "ftol": 1e-14, "maxiter": 200}
        lower, upper = ((0.5 * (bound - start)).exp().tolist() for bound in (-_BOUND, _BOUND))
        bounds, unit = list(zip(lower, upper, strict=True)), torch.ones(self.dim, dtype=torch.float64).numpy()
        found = minimize(value_and_slope, unit, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        return start + 2.0 * torch.tensor(found.x, dtype=torch.float64).log()

    def estimate(self, theta: Tensor) -> PrecisionEstimate:
        """The sandwich at θ, and one Newton step from there."""
        slopes = torch.stack([self.loss(codes, theta)[1] for codes in self.codes])
        hessian = self.hessian(theta, slopes[:_HESSIAN_BATCHES].mean(dim=0))
        inverse = torch.linalg.pinv(hessian, hermitian=True)
        scatter = inverse @ torch.cov(slopes.T).reshape(self.dim, self.dim) @ inverse / len(slopes)
        precision = theta.exp()
        error = precision * scatter.diagonal().clamp_min(0.0).sqrt()
        error[hessian.diagonal().abs() < _FLAT] = math.inf  # a code that does not vary says nothing, and not surely
        newton = _downhill(hessian, slopes)
        step = precision * torch.expm1(newton.clamp(-math.log(10.0), math.log(10.0)))
        values, errors, steps = (tuple(v.tolist()) for v in (precision, error, step))
        vague = (theta.abs() > _FAR) | (error > _VAGUE * precision)
        if bool(vague.any()):
            _warn_of_vague(vague.nonzero().flatten().tolist(), self.n)
        return PrecisionEstimate(values, errors, steps, self.n, len(slopes))


def _downhill(hessian: Tensor, slopes: Tensor) -> Tensor:
    """The Newton step in θ = log Λ̂ from the slopes of all batches: ``(d, d), (batches, d) -> (d,)``.

    The loss is convex in Λ̂ but not in θ, where the Hessian is that of Λ̂ times Λ̂ᵢΛ̂ⱼ, plus diag(g). Far below the
    minimum g is so negative that a step would go uphill: there the negative part of g is left out.
    """
    convex = hessian + (-slopes[:_HESSIAN_BATCHES].mean(dim=0)).clamp_min(0.0).diag()
    least, safe = (torch.linalg.eigvalsh(matrix)[0] for matrix in (hessian, convex))
    return -torch.linalg.pinv(hessian if least > 0.5 * safe else convex, hermitian=True) @ slopes.mean(dim=0)


def _warn_of_vague(entries: list[int], n: int) -> None:
    listed = ", ".join(map(str, entries))
    warnings.warn(
        f"Batches of {n} pairs hardly determine Λ̂ at {listed}: the standard error is above half of the entry, or the "
        "loss falls towards 0 or infinity there. Either too few negatives come near, which larger batches and more of "
        "them cure, or the codes there say nothing about the pairs.",
        stacklevel=4,
    )
