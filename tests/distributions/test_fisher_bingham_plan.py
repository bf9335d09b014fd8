"""The bound is a bound, the acceptance is what it is said to be, and the tries suffice."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from identica.distributions import fisher_bingham_sampler as sampler
from identica.distributions.fisher_bingham import FisherBingham
from identica.distributions.fisher_bingham_normalizer import saddle_shift
from identica.distributions.fisher_bingham_plan import BLIND_PLAN, LEFTOVER, acceptance, make_plan
from identica.distributions.radial import log_radial_integral
from tests.distributions.fisher_bingham_truth import unit
from tests.stat_checks import FALSE_ALARM

PRECISIONS = {
    "5/25 d=10": (5.0,) * 5 + (25.0,) * 5,
    "5/200 d=10": (5.0,) * 5 + (200.0,) * 5,
    "15/250/400 d=20": (15.0,) * 7 + (250.0,) * 7 + (400.0,) * 6,
    "1/1000 d=10": (1.0,) * 5 + (1000.0,) * 5,
    "0.1/1000 d=2": (0.1, 1000.0),
    "0/1000 d=2": (0.0, 1000.0),
    "0/1 d=2": (0.0, 1.0),
    "one loose d=10": (0.0,) + (1000.0,) * 9,
    "one tight d=10": (0.0,) * 9 + (1000.0,),
    "ladder d=5": (0.0, 1.0, 10.0, 100.0, 1000.0),
    "nothing d=3": (0.0, 0.0, 1e-9),
    "equal d=10": (1000.0,) * 9 + (999.0,),
    "halves d=512": (0.0,) * 256 + (1000.0,) * 256,
    "one loose d=512": (0.0,) + (1000.0,) * 511,
}
GRID = pytest.mark.parametrize("values", PRECISIONS.values(), ids=PRECISIONS.keys())


def columns(values: tuple[float, ...], rows: int, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """The precision repeated and locations, axes included: both ``(d, rows + 2)``."""
    dim = len(values)
    loc = torch.cat([torch.eye(dim, dtype=torch.float64)[[0, -1]], unit(rows, dim, seed)]).T.contiguous()
    return torch.tensor(values, dtype=torch.float64)[:, None].expand_as(loc).contiguous(), loc


@pytest.mark.parametrize("d", (2, 3, 5, 10, 64, 512))
def test_radial_ratio_is_the_integral(d: int) -> None:
    root_a = torch.logspace(-0.5, 2, 60, dtype=torch.float64)[:, None].expand(60, 71)
    beta = torch.linspace(-35, 35, 71, dtype=torch.float64).expand(60, 71)
    expected = log_radial_integral(root_a**2, root_a * beta, d) + 0.5 * root_a**2 - root_a * beta
    found = sampler.log_radial_ratio(root_a, beta, d)
    can_be_accepted = expected < 40.0
    assert can_be_accepted.sum() > 100
    assert (found - expected)[can_be_accepted].abs().max().item() < 2e-10
    single = sampler.log_radial_ratio(root_a.float(), beta.float(), d)
    # β and √a, up to 35 and 100, carry rounding of 1e-7 relative to themselves
    assert (single - expected)[(expected < 5.0) & (beta > -12.0)].abs().max().item() < 3e-5


@pytest.mark.parametrize("d", (2, 10, 512))
def test_mean_radius_is_the_derivative(d: int) -> None:
    root_a = torch.tensor([2.0, 20.0, 40.0], dtype=torch.float64)
    beta = torch.tensor([-2.0, 3.0, 30.0], dtype=torch.float64)
    b = (root_a * beta).requires_grad_()
    (expected,) = torch.autograd.grad(log_radial_integral(root_a**2, b, d).sum(), b)
    assert torch.allclose(sampler.mean_radius(root_a, beta, d), expected, rtol=1e-8)


@GRID
@pytest.mark.parametrize("radius", (0.3, 1.0, 6.0))
def test_bound_holds_everywhere(values: tuple[float, ...], radius: float) -> None:
    """Over all (a, b) that any x could have, on a fine grid; L is close to the minimum, too."""
    precision, loc = columns(values, 10)
    precision, d = radius**2 * precision, len(values)
    pull = precision * loc
    shift = saddle_shift(precision, pull, steps=6, weight=1.0 - 1.0 / d)
    spread = (pull * loc).sum(dim=0)
    low, high = precision.amin(dim=0), precision.amax(dim=0)
    # the minimum lies on an edge of the set, and all edges are on the grid
    a = torch.lerp(low, high, torch.linspace(0, 1, 400, dtype=torch.float64)[:, None] ** 2)
    b = (spread * a).sqrt() * torch.linspace(-1, 1, 41, dtype=torch.float64)[:, None, None]
    root_a = (a + shift).sqrt().expand_as(b)
    lowest = sampler.log_radial_ratio(root_a, b / root_a, d).amin(dim=(0, 1))
    for dtype in (torch.float64, torch.float32):
        bound = sampler.log_lower_bound(*(t.to(dtype) for t in (shift, spread, low, high)), d).double()
        assert (bound < lowest).all()
        assert (lowest - bound).max().item() < 0.15


@GRID
@pytest.mark.parametrize("binned", (False, True))
def test_bound_holds_for_points_of_the_sphere(values: tuple[float, ...], binned: bool) -> None:
    precision, loc = columns(values, 30)
    bins = sampler.build_bins(precision[:, 0], steps=6, dtype=torch.float64) if binned else None
    proposal = sampler.build_proposal(precision, loc, steps=6, bins=bins)
    _, other = columns(values, 30, seed=2)
    # from the location itself through its neighbourhood to anywhere: (d, distances, rows)
    x = loc[:, None] + torch.logspace(-4, 4, 60, dtype=torch.float64)[:, None] * other[:, None]
    x = torch.cat([loc[:, None], x / x.norm(dim=0)], dim=1)
    root_a = (proposal.scale.pow(-2)[:, None] * x**2).sum(dim=0).sqrt()
    beta = (proposal.pull[:, None] * x).sum(dim=0) / root_a
    assert (sampler.log_radial_ratio(root_a, beta, len(values)) > proposal.log_bound).all()


@pytest.mark.statistical(false_alarm=FALSE_ALARM, what="share of accepted proposals against its exact probability")
@GRID
def test_acceptance_is_exact(values: tuple[float, ...]) -> None:
    precision, loc = columns(values, 6)
    proposal = sampler.build_proposal(precision, loc, steps=6)
    expected = acceptance(precision, proposal)
    tries = 400_000 // (10 * len(values)) + 1000
    noise = sampler._noise(proposal, (tries, loc.shape[1]), torch.Generator().manual_seed(3))
    _, accepted = sampler._propose(proposal, noise)
    count = accepted.sum(dim=0).numpy()
    tails = stats.binom.cdf(count, tries, expected), stats.binom.sf(count - 1, tries, expected)
    assert min(t.min() for t in tails) > FALSE_ALARM / (2 * loc.shape[1])


@GRID
def test_prepared_tries_leave_less_than_promised(values: tuple[float, ...]) -> None:
    """At locations and radii of all kinds, not only those that the plan looked at."""
    plan = make_plan(torch.tensor(values), torch.float64)
    largest_radius = min(max(1.0, math.sqrt(1000.0 / max(values))), 10.0)
    precision, loc = columns(values, 10 if len(values) > 100 else 100, seed=77)
    for radius in (0.1, 1.0, largest_radius**0.5, largest_radius):
        scaled = radius**2 * precision
        rate = acceptance(scaled, sampler.build_proposal(scaled, loc, plan.steps))
        assert (plan.tries * torch.log1p(-rate.clamp_max(0.9999999))).max().item() < math.log(LEFTOVER)
        if radius <= 1.0:
            blind = acceptance(scaled, sampler.build_proposal(scaled, loc, BLIND_PLAN.steps))
            assert (BLIND_PLAN.tries * torch.log1p(-blind.clamp_max(0.9999999))).max().item() < math.log(LEFTOVER)


@GRID
def test_bins_are_used_only_where_they_cost_few_acceptances(values: tuple[float, ...]) -> None:
    plan = make_plan(torch.tensor(values), torch.float64)
    if values == PRECISIONS["5/25 d=10"]:
        assert plan.bins is not None
    if plan.bins is not None:
        precision, loc = columns(values, 20)
        rate = acceptance(precision, sampler.build_proposal(precision, loc, plan.steps))
        binned = acceptance(precision, sampler.build_proposal(precision, loc, plan.steps, plan.bins))
        assert (binned / rate).min().item() > 0.85


def test_usual_cases_need_few_tries() -> None:
    assert make_plan(torch.tensor(PRECISIONS["5/25 d=10"]), torch.float32).tries <= 20
    assert make_plan(torch.tensor(PRECISIONS["5/200 d=10"]), torch.float32).tries <= 55
    assert make_plan(torch.tensor(PRECISIONS["halves d=512"]), torch.float32).tries <= 20


def test_plan_is_plain_numbers() -> None:
    plan = FisherBingham.prepare_tables("cpu", torch.float32, precision=torch.tensor([1.0, 2.0]))
    assert plan == FisherBingham.prepare_tables("cpu", torch.float64, precision=[1.0, 2.0])
    assert FisherBingham.prepare_tables("cpu", torch.float32, precision=3.0).isotropic
    assert FisherBingham.prepare_tables("cpu", torch.float32, precision=torch.full((4,), 3.0)).isotropic
    per_row = FisherBingham.prepare_tables("cpu", torch.float32, precision=torch.rand(7, 4))
    assert per_row.tries == BLIND_PLAN.tries


def test_lost_rows_keep_a_proposal_on_the_sphere() -> None:
    """With far too few tries every row still gets a direction, and no NaN."""
    precision, loc = columns(PRECISIONS["0/1000 d=2"], 200)
    y = sampler.draw_fixed_tries(sampler.build_proposal(precision, loc, 6), 1, 1, None)
    assert torch.isfinite(y).all() and (y.norm(dim=0) > 0).all()


def test_float32_needs_more_tries_for_large_precisions_where_their_number_is_fixed() -> None:
    """The bound leaves room for rounding, eps · λ: at 1e7 in float32 that costs two thirds of the acceptances."""
    uneven = torch.tensor([1e7, 1.0], dtype=torch.float64)
    exact, rounded = (make_plan(uneven, dtype, waits=False).tries for dtype in (torch.float64, torch.float32))
    assert rounded / exact == pytest.approx(math.exp(2**-23 * 1e7), rel=0.01)
    loose = torch.tensor([1e3, 1.0], dtype=torch.float64)
    assert make_plan(loose, torch.float32, waits=False).tries == make_plan(loose, torch.float32).tries


def test_precisions_without_enough_digits_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="precisions of at most 1e\\+12 where they are not all equal, not 1e\\+30"):
        make_plan(torch.tensor([1e30, 1.0, 1.0]), torch.float32)
    assert make_plan(torch.tensor([1e30, 1e30]), torch.float32).isotropic  # von Mises-Fisher, which has no such limit


@pytest.mark.parametrize(("precision", "dtype"), ((1e8, torch.float32), (1e12, torch.float64)))
def test_too_few_tries_are_spoken_of(precision: float, dtype: torch.dtype) -> None:
    uneven = torch.tensor([precision, 1.0], dtype=torch.float64)
    with pytest.warns(UserWarning, match="too large or too uneven for torch.float.* on this device"):
        make_plan(uneven, dtype, waits=False)
    assert make_plan(uneven, dtype).tries > 10_000  # not used where one waits, and nothing to warn of
