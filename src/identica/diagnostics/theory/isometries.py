"""A minimiser of the loss keeps the similarity, and what keeps the similarity is linear.

The tolerances here are not statistical: a theorem about minimisers is measured on an encoder that was trained for
seconds. How far it still is from a minimiser is known, though: the curves show that the distortion falls with the
excess loss, as it must. To second order the excess is half the variance of the distortion of u given z, so that
the distortion of u over positive pairs is √(2 · excess).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from identica.diagnostics.theory.check import Check, Curve, Line, Matrix
from identica.diagnostics.theory.minimisers import (
    KAPPA,
    LAPLACE_SCALE,
    LAPLACE_TEMPERATURE,
    SPHERE_TEMPERATURE,
    Minimiser,
    Snapshot,
)
from identica.diagnostics.theory.quadrature import on_interval, on_sphere
from identica.diagnostics.theory.sampling import CONCENTRATION, RADIUS, SCALE, STRETCH, TEMPERATURE
from identica.diagnostics.theory.session import Session
from identica.metrics import linear_r2
from identica.metrics.geometry import orthogonality, permutation_distance
from identica.metrics.regression import centred

#: Anchors for which the distortion over positive pairs is computed, each over all evaluation latents.
ANCHORS = 128


def best_scale(session: Session) -> Check:
    """Among h(z) = s·z the radius and the stretch of A, Propositions 1 and 4, are the best ones."""
    families: dict[str, tuple[float, Callable[[float], float]]] = {
        "sphere, predicted s = √(τκ)": (
            RADIUS,
            lambda s: on_sphere(lambda z: s * z, concentration=CONCENTRATION, temperature=TEMPERATURE, nodes=16).excess,
        ),
        "box, predicted s = τ/λ": (
            STRETCH,
            lambda s: on_interval(lambda z: s * z, scale=SCALE, temperature=TEMPERATURE, power=1.0, nodes=16).excess,
        ),
    }
    ratios, lines = [], []
    for name, (scale, excess) in families.items():
        found = minimize_scalar(excess, bracket=(0.5 * scale, 1.5 * scale), tol=1e-8)
        ratios.append(float(found.x) / scale)
        grid = [0.4 + 0.1 * k for k in range(17)]
        lines.append(Line(name, tuple((ratio, excess(ratio * scale)) for ratio in grid)))
    return Check(
        topic="isometry",
        claim="Along h(z) = s·z the cross-entropy is smallest, and equal to the entropy, at s = √(τκ) and at s = τ/λ",
        theorem="A, Prop. 1 and 4",
        quantity="best s over predicted s, the worse of sphere and box, by quadrature",
        measured=max(ratios, key=lambda ratio: abs(ratio - 1)),
        predicted=1.0,
        tolerance=1e-6,
        tolerance_is="rounding",
        curve=Curve("Excess over the entropy", "s over predicted s", "excess [nats]", tuple(lines)),
        note="W prints the radius as √(τ/κ), and A's Prop. 4 the factor as λτ; the proofs give these.",
    )


def keeps_the_dot_product(session: Session) -> Check:
    """A, Proposition 1, on a trained encoder."""
    return _isometry(
        session,
        session.sphere,
        claim="The minimiser keeps the dot product: ⟨h, h̃⟩ = τκ ⟨z, z̃⟩, on a sphere whose radius is learned",
        theorem="A, Prop. 1 (Eq. 36)",
        note=_radius_note(session.sphere),
    )


def _radius_note(run: Minimiser) -> str:
    squared = float(run.h[0].square().sum())
    return f"Squared radius learned: {squared:.3f}; τκ = {SPHERE_TEMPERATURE * KAPPA:.3f}."


def keeps_the_distance(session: Session) -> Check:
    """A, Proposition 4, on a trained encoder."""
    run = session.laplace
    u, kept = _far_pairs(run, run.looks[-1])
    slope = float((u * kept).sum() / kept.square().sum()) * LAPLACE_TEMPERATURE / LAPLACE_SCALE
    return _isometry(
        session,
        run,
        claim="The minimiser is an isometry: ‖h − h̃‖₁ = (τ/λ) ‖z − z̃‖₁, in a box whose size is learned",
        theorem="A, Prop. 4 (Eq. 83)",
        note=f"Factor between the distances: {slope:.3f}; τ/λ = {LAPLACE_TEMPERATURE / LAPLACE_SCALE:.3f}.",
    )


def _isometry(session: Session, run: Minimiser, *, claim: str, theorem: str, note: str) -> Check:
    return Check(
        topic="isometry",
        claim=claim,
        theorem=theorem,
        quantity=f"relative distortion of u over independent pairs, {run.task.name}",
        measured=distortion(run, run.looks[-1]),
        predicted=0.0,
        tolerance=session.effort.distortion,
        tolerance_is=run.leftover,
        relation="≤",
        curve=along_training(run),
        note=note,
    )


def distortion(run: Minimiser, look: Snapshot) -> float:
    """‖u(h, h̃) − kept(z, z̃)‖ / ‖kept(z, z̃)‖ over independent pairs of latents."""
    u, kept = _far_pairs(run, look)
    return float((u - kept).norm() / kept.norm())


@torch.no_grad()
def _far_pairs(run: Minimiser, look: Snapshot) -> tuple[Tensor, Tensor]:
    """What u of the codes is, and what it should be, for pairs of independent latents: ``(n,), (n,)``."""
    z, h = run.z.double(), look.h.double()
    return run.objective.similarity(h, h.roll(1, dims=0)), run.task.kept(z, z.roll(1, dims=0))


@torch.no_grad()
def _near_distortion(run: Minimiser, look: Snapshot) -> float:
    """√ E_z Var(u(h, h̃) − kept(z, z̃) | z), z̃ ~ p(·|z): the latents weighted by the matching similarity."""
    z, h = run.z.double(), look.h.double()
    kept = run.task.kept(z[:ANCHORS, None], z)
    kept[:, :ANCHORS].fill_diagonal_(-math.inf)
    weights = kept.softmax(dim=1)
    difference = run.objective.similarity(h[:ANCHORS, None], h) - run.task.kept(z[:ANCHORS, None], z)
    mean = (weights * difference).sum(dim=1, keepdim=True)
    return float((weights * (difference - mean).square()).sum(dim=1).mean().sqrt())


def along_training(run: Minimiser) -> Curve:
    """The distortion over positive pairs against the excess loss, where the excess is more than noise."""
    seen = [look for look in run.looks if look.excess.mean > 2 * look.excess.standard_error]
    points = [(look.excess.mean, _near_distortion(run, look)) for look in seen]
    ends = min(x for x, _ in points), max(x for x, _ in points)
    return Curve(
        f"From the first step to the last, {run.task.name}",
        "loss above the smallest possible [nats]",
        "distortion of u over positive pairs",
        (
            Line("encoder during training", tuple(points), "dots"),
            Line("√(2 · excess)", tuple((x, math.sqrt(2 * x)) for x in ends), "dashed"),
        ),
        log_x=True,
        log_y=True,
    )


def orthogonal(session: Session) -> Check:
    """A, Theorem 2, on a trained encoder."""
    run = session.sphere
    fitted = fitted_map(run)
    gram = fitted.T @ fitted
    gram = gram / gram.diagonal().mean()
    return Check(
        topic="group",
        claim="On the sphere the minimiser is an orthogonal map of the latents",
        theorem="A, Prop. 2, Thm 2",
        quantity="relative distance of the fitted linear map to the nearest scaled orthogonal one",
        measured=orthogonality(run.z, run.h).score,
        predicted=0.0,
        tolerance=session.effort.distortion,
        tolerance_is="what training leaves; a random map scores about 0.5",
        relation="≤",
        curve=_matrix("AᵀA of the fitted map h ≈ Az, scaled", gram, "z", "z"),
        note=f"The linear map explains {linear_r2(run.z, run.h).score:.2%} of the latents.",
    )


def affine(session: Session) -> Check:
    """A, Theorems 4 and 5, on a trained encoder."""
    run = session.laplace
    return Check(
        topic="group",
        claim="On a convex body the minimiser is affine, and every latent can be read from it",
        theorem="A, Thm 4, 5; W, Thm 6",
        quantity="1 − R² of the affine map from codes to latents, held out, L1 on the box",
        measured=1 - linear_r2(run.z, run.h).score,
        predicted=0.0,
        tolerance=0.1 * session.effort.distortion,
        tolerance_is=f"what training leaves; the observations score {1 - linear_r2(run.z, run.x).score:.3f}",
        relation="≤",
        curve=_along_latent(run),
    )


def permutation(session: Session) -> Check:
    """A, Theorem 6, on a trained encoder."""
    run = session.laplace
    return Check(
        topic="group",
        claim="With an Lα similarity, α ≠ 2, it is a generalized permutation: one latent in each code",
        theorem="A, Thm D, 6",
        quantity="relative distance of the fitted map to the nearest generalized permutation, L1 on the box",
        measured=permutation_distance(run.z, run.h).score,
        predicted=0.0,
        tolerance=session.effort.distortion,
        tolerance_is="what training leaves; a random rotation scores 0.53 on average",
        relation="≤",
        curve=_matrix("Size of the entries of the fitted map h ≈ Az", fitted_map(run), "h", "z"),
    )


def fitted_map(run: Minimiser) -> Tensor:
    """A of the least-squares map h ≈ Az + b: ``(d, d)``."""
    z, h = centred(run.z.double()), centred(run.h.double())
    return torch.linalg.lstsq(z, h).solution.T


def _matrix(title: str, values: Tensor, row: str, column: str) -> Matrix:
    rows = tuple(f"{row}{i + 1}" for i in range(values.shape[0]))
    columns = tuple(f"{column}{i + 1}" for i in range(values.shape[1]))
    return Matrix(title, rows, columns, tuple(tuple(line) for line in (values.abs() / values.abs().max()).tolist()))


def _along_latent(run: Minimiser) -> Curve:
    """Each latent against the code matched to it, both scaled to mean 0 and variance 1."""
    assignment = permutation_distance(run.z, run.h).assignment
    lines = []
    for factor, code in enumerate(assignment):
        if code is not None:
            pair = torch.stack([run.z[:150, factor], run.h[:150, code]]).double()
            pair = (pair - pair.mean(dim=1, keepdim=True)) / pair.std(dim=1, keepdim=True)
            lines.append(Line(f"h{code + 1} against z{factor + 1}", tuple((x, y) for x, y in pair.T.tolist()), "dots"))
    return Curve("Latents and their codes", "latent, standardised", "code, standardised", tuple(lines))
