"""Uniformity keeps h one-to-one: at a minimiser the codes are uniform, and a map with uniform codes cannot fold."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import jacrev, vmap

from identica.diagnostics.theory.check import STANDARD_ERRORS, Check, Curve, Line
from identica.diagnostics.theory.quadrature import Map, Population, on_sphere
from identica.diagnostics.theory.sampling import CONCENTRATION, RADIUS, TEMPERATURE
from identica.diagnostics.theory.session import Session

#: Mean distance of a uniform point of the unit sphere in R³ to any other point of it.
MEAN_CHORD = 4 / 3


def energy(x: Tensor) -> float:
    """The number of points times the energy distance of ``x: (n, 3)``, on the unit sphere, to the uniform law there.

    E‖x − x′‖ is largest for the uniform law, where it is 4/3, and for no other.
    """
    chords = (2 - 2 * x @ x.T).clamp_min(0).sqrt()
    return len(x) * (MEAN_CHORD - float(chords.mean()))


def _unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def uniform_pushforward(session: Session) -> Check:
    """W, Lemma 3, on a trained encoder: the energy statistic of its codes beside that of uniform points."""
    n, draws = session.effort.uniform_samples, session.effort.null_draws
    generator = session.generator("null of the energy statistic")
    null = [energy(_unit(torch.randn(n, 3, generator=generator))) for _ in range(draws)]
    path = tuple((float(look.step), energy(_unit(look.h[:n]))) for look in session.sphere.looks)
    return Check(
        topic="uniformity",
        claim="The minimiser's codes are uniform on their sphere",
        theorem="W, Lemma 3",
        quantity=f"energy statistic of {n} codes against the uniform law",
        measured=path[-1][1],
        predicted=max(null),
        tolerance=0.0,
        tolerance_is=f"the largest of {draws} samples of truly uniform points; false alarms {1 / (draws + 1):.3f}",
        relation="≤",
        curve=Curve(
            "Energy statistic of the codes during training",
            "step",
            "energy statistic",
            (Line("codes", path),),
            log_y=True,
            band=(min(null), max(null), "uniform points"),
        ),
        note=f"Uniform points score {sum(null) / draws:.2f} on average, this encoder before training {path[0][1]:.0f}.",
    )


def one_to_one(session: Session) -> Check:
    """A, Proposition 5 and Lemma 2, on a trained encoder."""
    run = session.sphere
    ratio = area_ratio(run.map, _unit(run.z[: session.effort.uniform_samples])).double()
    degree, error = float(ratio.mean()), float(ratio.std() / len(ratio) ** 0.5)
    ratio = (ratio if degree > 0 else -ratio).sort().values
    folds = int((ratio <= 0).sum())
    shares = torch.linspace(0, 1, 101)
    return Check(
        topic="uniformity",
        claim="Uniform codes keep h one-to-one: its Jacobian never vanishes and it covers the sphere once",
        theorem="A, Prop. 5, Lemma 2",
        quantity="degree of h, the mean of det J_h over the sphere, without its sign",
        measured=abs(degree),
        predicted=1.0,
        tolerance=STANDARD_ERRORS * error,
        tolerance_is=f"5 standard errors of {error:.4f}",
        curve=Curve(
            "How much h stretches area, from where least to where most",
            "share of the sphere",
            "det J_h",
            (
                Line(
                    "trained encoder",
                    tuple(zip(shares.tolist(), ratio.quantile(shares.double()).tolist(), strict=True)),
                ),
                Line("uniform codes", ((0.0, 1.0), (1.0, 1.0)), "dashed"),
                Line("a fold", ((0.0, 0.0), (1.0, 0.0)), "dashed"),
            ),
        ),
        note=f"Smallest determinant at {len(ratio)} points: {float(ratio[0]):.3f}; points where h folds: {folds}.",
    )


def area_ratio(h: Map, z: Tensor) -> Tensor:
    """Determinant of the Jacobian of h between the tangent planes of two unit spheres: ``(n, 3) -> (n,)``.

    ``h`` maps unit vectors to vectors of one length; its mean over the sphere is the degree of h, how often it
    covers the sphere, counted with the sign of the orientation.
    """
    codes = h(z).detach()
    jacobian = vmap(jacrev(lambda row: h(row[None])[0]))(z).detach()
    # With (z, a, b) positively oriented and orthonormal, the determinant is that of (h, Ja, Jb) at unit length.
    axis = torch.eye(3, dtype=z.dtype)[z.abs().argmin(dim=-1)]
    a = _unit(torch.linalg.cross(z, axis))
    b = torch.linalg.cross(z, a)
    radius = codes.norm(dim=-1)
    columns = [_unit(codes), *((jacobian @ tangent[..., None])[..., 0] / radius[:, None] for tangent in (a, b))]
    return torch.linalg.det(torch.stack(columns, dim=-1))


def wound(z: Tensor, times: int) -> Tensor:
    """The point with ``times`` the longitude: so many to one, uniform for uniform z, smooth but at the poles."""
    x, y, height = z.unbind(dim=-1)
    radius, longitude = torch.hypot(x, y), times * torch.atan2(y, x)
    return torch.stack([radius * longitude.cos(), radius * longitude.sin(), height], dim=-1)


def not_differentiable(session: Session) -> Check:
    """The counterexample that A mentions after Lemma 2, and why the full loss still tells."""
    windings = (1, 2, 3)
    maps = [_population_of_winding(times) for times in windings]
    uniformity = [population.log_mean - maps[0].log_mean for population in maps]
    return Check(
        topic="uniformity",
        claim="Without differentiability in just two points, uniformity alone cannot tell a map that is many-to-one",
        theorem="A, remark after Lemma 2",
        quantity="uniformity term of maps that wind the sphere two and three times around, less that of the truth",
        measured=max(uniformity, key=abs),
        predicted=0.0,
        tolerance=1e-6,
        tolerance_is="quadrature and rounding",
        curve=Curve(
            "Sphere wound around its axis",
            "times wound",
            "above the truth [nats]",
            (
                Line("uniformity term alone", tuple(zip(map(float, windings), uniformity, strict=True))),
                Line("full loss", tuple((float(k), p.excess) for k, p in zip(windings, maps, strict=True))),
            ),
        ),
        note=f"Alignment tells: the full loss of the double map is {maps[1].excess:.3f} nats above the smallest. On "
        "the circle, which Lemma 2 would include, doubling the angle is smooth everywhere: a hypersphere of "
        "dimension two or more is needed, because the circle is not simply connected.",
    )


def _population_of_winding(times: int) -> Population:
    # 48 longitudes: wound three times, 16 different ones are left, still enough for ten digits.
    return on_sphere(lambda z: RADIUS * wound(z, times), concentration=CONCENTRATION, temperature=TEMPERATURE, nodes=24)
