"""The theorems of paper A and of its workshop version W, measured: what ``identica verify`` runs.

Where a theorem is about any map, it is checked on known maps, exactly, by quadrature. Where it is about minimisers
of the loss, small encoders are trained for seconds. ``docs/theory.md`` says what each check shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from identica.diagnostics.theory import isometries, limits, marginals, mismatch, uniformity
from identica.diagnostics.theory.check import Check, Curve, Line, Matrix
from identica.diagnostics.theory.session import FULL, QUICK, Effort, Session

__all__ = ["CHECKS", "FULL", "QUICK", "Check", "Curve", "Effort", "Line", "Matrix", "Session", "verify"]

#: Every check, in the order of the argument.
CHECKS: tuple[Callable[[Session], Check], ...] = (
    limits.sphere_limit,
    limits.box_limit,
    limits.rate,
    limits.without_positive,
    isometries.best_scale,
    isometries.keeps_the_dot_product,
    isometries.keeps_the_distance,
    isometries.orthogonal,
    isometries.affine,
    isometries.permutation,
    uniformity.uniform_pushforward,
    uniformity.one_to_one,
    uniformity.not_differentiable,
    marginals.p_max_is_a_lower_bound,
    marginals.p_min_is_an_upper_bound,
    mismatch.p_two_cannot_see_a_rotation,
    mismatch.only_p_two_is_blind,
    mismatch.p_two_keeps_isometry,
    mismatch.p_two_loses_the_axes,
    mismatch.wrong_power_misses_the_floor,
)


def verify(session: Session | None = None) -> Iterator[Check]:
    """Run every check, one after the other, and yield each as soon as it is there."""
    session = Session() if session is None else session
    for check in CHECKS:
        yield check(session)
