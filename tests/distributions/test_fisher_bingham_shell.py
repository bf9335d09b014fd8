"""The shell approximation draws what paper B's experiments drew, knows its own density, and says where it ends."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
import torch
from scipy import integrate
from torch import Tensor

import identica as idt
from identica.distributions.fisher_bingham_shell import MOST_TRIES, ShellPlan, log_kept
from tests.distributions.fisher_bingham_truth import unit
from tests.distributions.test_fisher_bingham_sampling import NoHostSynchronisation, features
from tests.stat_checks import FALSE_ALARM, assert_law, assert_mean, assert_same_law

BOTH_WAYS = pytest.mark.parametrize("early_finish", (True, False), ids=("early finish", "fixed tries"))


def shell(loc: Tensor, precision: Tensor | float, **settings: object) -> idt.FisherBingham:
    return idt.FisherBingham(loc, precision, method="shell", **settings)  # type: ignore[arg-type]


def prepared(loc: Tensor, precision: Tensor) -> idt.FisherBingham:
    tables = idt.FisherBingham.prepare_tables("cpu", loc.dtype, precision=precision, method="shell")
    return shell(loc, precision, tables=tables)


def by_hand(loc: Tensor, precision: Tensor, rows: int, seed: int = 5) -> Tensor:
    """The definition, word by word, in numpy: ``(rows, d)``."""
    source = np.random.default_rng(seed)
    mean, scale = loc.double().numpy(), precision.double().rsqrt().numpy()
    radius = np.linalg.norm(mean)
    found: list[np.ndarray] = []
    while len(found) < rows:
        y = mean + scale * source.standard_normal((20_000, len(mean)))
        norm = np.linalg.norm(y, axis=1)
        found.extend(radius * v / n for v, n in zip(y, norm, strict=True) if abs(n - radius) <= 0.1 * radius)
    return torch.tensor(np.array(found[:rows]))


@pytest.mark.statistical(false_alarm=FALSE_ALARM, what="shell draws against their definition in numpy")
@pytest.mark.parametrize("precision", ((5.0, 25.0), (3.0, 30.0, 300.0), (5.0, 5.0, 5.0)), ids=str)
@BOTH_WAYS
def test_draws_are_those_of_the_definition(precision: tuple[float, ...], early_finish: bool) -> None:
    loc, diagonal = unit(1, len(precision), seed=7)[0], torch.tensor(precision, dtype=torch.float64)
    distribution = prepared(loc, diagonal)
    x = distribution._draw(torch.Size((6_000,)), torch.Generator().manual_seed(1), early_finish=early_finish)
    assert idt.Sphere(len(precision)).contains(x).all()
    assert_same_law(features(x, loc), features(by_hand(loc, diagonal, 6_000), loc))


@pytest.mark.parametrize(("precision", "angle"), (((5.0, 25.0), 0.9), ((2.0, 2.0), 4.0), ((400.0, 30.0), 1.5)))
@pytest.mark.statistical(false_alarm=FALSE_ALARM, what="shell draws on the circle against a double integral")
def test_density_on_the_circle(precision: tuple[float, float], angle: float) -> None:
    """The density from scipy's quadrature in the plane, ring segment by ring segment."""
    mean, scale = np.array([math.cos(angle), math.sin(angle)]), np.array(precision)

    def in_the_plane(radius: float, at: float) -> float:
        gap = radius * np.array([math.cos(at), math.sin(at)]) - mean
        return radius * math.sqrt(scale.prod()) / (2 * math.pi) * math.exp(-0.5 * float(gap @ (scale * gap)))

    grid = np.linspace(-math.pi, math.pi, 721)
    along = np.array(
        [integrate.fixed_quad(np.vectorize(lambda r, t=t: in_the_plane(r, t)), 0.9, 1.1, n=40)[0] for t in grid]
    )
    kept = integrate.trapezoid(along, grid)  # periodic and smooth: exact
    loc, diagonal = torch.tensor(mean), torch.tensor(precision, dtype=torch.float64)
    assert log_kept(diagonal[:, None], loc[:, None]).exp().item() == pytest.approx(kept, rel=1e-9)
    points = torch.tensor(np.stack([np.cos(grid), np.sin(grid)], axis=1))
    found = shell(loc, diagonal).log_prob(points)
    np.testing.assert_allclose(found.numpy(), np.log(along / kept), atol=1e-8)
    cumulated = integrate.cumulative_trapezoid(along / kept, grid, initial=0.0)
    x = shell(loc, diagonal).sample(10_000, generator=3)
    assert_law(torch.atan2(x[:, 1], x[:, 0]), lambda at: np.interp(at, grid, cumulated))


@pytest.mark.statistical(false_alarm=FALSE_ALARM, what="shell density: E 1/q over its draws is the sphere's area")
@pytest.mark.parametrize("precision", (1.0, 3.0))
def test_density_in_five_dimensions(precision: float) -> None:
    diagonal = precision * torch.linspace(0.5, 2.0, 5, dtype=torch.float64)
    loc = 3.0 * unit(1, 5, seed=2)[0]
    distribution = shell(loc, diagonal / 9.0)
    x = distribution.sample(40_000, generator=1)
    log_area = idt.Sphere(5, 3.0).log_volume()
    assert_mean((-distribution.log_prob(x) - log_area).exp()[:, None], torch.ones(1))
    uniform = idt.SphereUniform(5, torch.tensor(3.0, dtype=torch.float64)).sample(40_000, 2)
    assert_mean((distribution.log_prob(uniform) + log_area).exp()[:, None], torch.ones(1))


def test_tight_pairs_hardly_differ_from_exact_ones() -> None:
    """All of the normal is in the shell and the sphere is flat at its scale: for equal precisions one law."""
    loc = unit(1, 3, seed=4)[0]
    x = idt.FisherBingham(loc, 3000.0).sample(50, generator=0)
    gap = shell(loc, 3000.0).log_prob(x) - idt.FisherBingham(loc, 3000.0).log_prob(x)
    assert gap.abs().max() < 0.01


def test_the_radius_scales_everything() -> None:
    loc, precision = unit(200, 4), torch.tensor([2.0, 8.0, 30.0, 100.0], dtype=torch.float64)
    small, large = (shell(r * loc, precision / r**2) for r in (1.0, 4.0))
    draws = [d.sample(generator=torch.Generator().manual_seed(3)) for d in (small, large)]
    torch.testing.assert_close(4.0 * draws[0], draws[1])
    torch.testing.assert_close(small.log_prob(draws[0]), large.log_prob(draws[1]) + 3 * math.log(4.0))


def test_equal_precisions_are_not_von_mises_fisher_here() -> None:
    loc = unit(1, 10, seed=1)[0]
    x = unit(20, 10, seed=3)
    assert (shell(loc, 5.0).log_prob(x) - idt.FisherBingham(loc, 5.0).log_prob(x)).abs().max() > 0.05
    assert not torch.equal(shell(loc, 5.0).sample(9, generator=0), idt.FisherBingham(loc, 5.0).sample(9, generator=0))


def test_copies_keep_the_method() -> None:
    distribution = prepared(unit(4, 3), torch.tensor([2.0, 8.0, 30.0], dtype=torch.float64))
    for copy in (distribution.to(torch.float32), distribution.expand((2, 4))):
        assert copy.method == "shell" and copy._shell == distribution._shell
    assert "method=shell" in repr(distribution)


def test_conditional_there_and_back() -> None:
    conditional = idt.Conditional(idt.FisherBingham, precision=(5.0, 5.0, 25.0), method="shell")
    again = idt.Conditional.from_dict(json.loads(json.dumps(conditional.to_dict())))
    assert again == conditional and hash(again) == hash(conditional)
    assert conditional != idt.Conditional(idt.FisherBingham, precision=(5.0, 5.0, 25.0))
    assert repr(conditional) == "Conditional(FisherBingham, precision=(5.0, 5.0, 25.0), method='shell')"
    assert isinstance(conditional.similarity(), idt.Anisotropic)
    assert conditional.similarity().precision.tolist() == [5.0, 5.0, 25.0]  # type: ignore[attr-defined]
    anchors = unit(6, 3, dtype=torch.float32)
    draws = [
        d.sample(generator=torch.Generator().manual_seed(1)) for d in (conditional(anchors), again.unchecked(anchors))
    ]
    assert draws[0].dtype == torch.float32 and torch.equal(draws[0], draws[1])


def test_the_floor_of_the_loss_uses_the_shells_own_density() -> None:
    """Its similarity does not match it, and the process notices."""
    conditional = idt.Conditional(idt.FisherBingham, precision=(5.0, 5.0, 400.0), method="shell")
    process = idt.PairProcess(idt.SphereUniform(3), conditional).to(dtype=torch.float64)
    pairs = process.sample(64, 0)
    truth = process.loss_at_truth(pairs)
    logits = conditional(pairs.z).log_prob(pairs.z[:, None]).T.clone().fill_diagonal_(-torch.inf)
    logits = torch.cat([conditional(pairs.z).log_prob(pairs.z_pos)[:, None], logits], dim=1)
    torch.testing.assert_close(truth, logits.logsumexp(dim=1) - logits[:, 0])
    assert truth.mean() < idt.InfoNCE(conditional.similarity().double())(pairs.z, pairs.z_pos)


def test_the_number_of_tries_follows_from_the_probability_to_keep_one() -> None:
    precision = torch.tensor([5.0] * 5 + [25.0] * 5)
    plan = idt.FisherBingham.prepare_tables("cpu", torch.float32, precision=precision, method="shell")
    assert isinstance(plan, ShellPlan) and plan.leftover is not None and plan.leftover < 1e-9
    worst = log_kept(precision.double()[:, None].expand(10, 200), unit(200, 10).T.contiguous()).exp().min().item()
    assert (1 - worst) ** plan.tries < 1e-9


def test_where_tries_are_too_few_a_warning_says_how_many_are_left() -> None:
    precision = torch.full((10,), 1.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quiet = idt.FisherBingham.prepare_tables("cpu", torch.float32, precision=precision, method="shell")
    with pytest.warns(UserWarning, match="draws keep none"):
        plan = idt.FisherBingham.prepare_tables("meta", torch.float32, precision=precision, method="shell")
    assert isinstance(plan, ShellPlan) and plan == quiet and plan.tries == MOST_TRIES
    assert plan.leftover is not None and 1e-9 < plan.leftover < 0.1


def test_nothing_waits_for_the_device(generator: torch.Generator) -> None:
    loc, precision = unit(8, 5, dtype=torch.float32), torch.tensor([5.0, 10.0, 20.0, 30.0, 100.0])
    tables = idt.FisherBingham.prepare_tables("cpu", torch.float32, precision=precision, method="shell")
    with NoHostSynchronisation():
        distribution = shell(loc, precision, validate_args=False, tables=tables)
        distribution._draw(torch.Size((2,)), generator, early_finish=False)
    meta = shell(loc.to("meta"), precision.to("meta"), validate_args=False, tables=tables)
    assert meta.sample(3).shape == (3, 8, 5) and meta.log_prob(meta.sample()).shape == (8,)


def test_nan_parameters_give_nan_at_once(generator: torch.Generator) -> None:
    loc = unit(6, 3)
    loc[2, 1] = torch.nan
    x = shell(loc, torch.tensor([5.0, 3.0, 30.0]).double(), validate_args=False).sample(5, generator=generator)
    assert x[:, 2].isnan().all() and x[:, [0, 1, 3, 4, 5]].isfinite().all()


@pytest.mark.parametrize("name", ("mode", "mean", "variance"))
def test_what_it_does_not_have_gets_a_sentence(name: str) -> None:
    with pytest.raises(NotImplementedError, match=f'method="shell" has no closed-form {name}'):
        getattr(shell(unit(1, 3)[0], 5.0), name)
    with pytest.raises(NotImplementedError, match="no closed-form entropy"):
        shell(unit(1, 3)[0], 5.0).entropy()


def test_mistakes_get_sentences() -> None:
    loc = unit(1, 3)[0]
    with pytest.raises(ValueError, match='must be "exact" or "shell", not \'schell\''):
        idt.FisherBingham(loc, 1.0, method="schell")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be positive with method"):
        shell(loc, torch.tensor([0.0, 1.0, 2.0]).double())
    with pytest.raises(ValueError, match="not negative"):
        idt.Conditional(idt.FisherBingham, precision=(-1.0, 1.0)).prepare()
    with pytest.raises(ValueError, match='keeps less than 2e-06 of its proposals.*use method="exact"'):
        idt.Conditional(idt.FisherBingham, precision=(0.1,) * 10, method="shell").prepare()
    with pytest.raises(TypeError, match="method must be a word, not 3"):
        idt.Conditional(idt.FisherBingham, precision=1.0, method=3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.statistical(false_alarm=FALSE_ALARM, what="shell draws on the GPU against those on the CPU")
def test_on_the_gpu() -> None:
    conditional = idt.Conditional(idt.FisherBingham, precision=(5.0,) * 5 + (25.0,) * 5, method="shell")
    loc = unit(1, 10, dtype=torch.float32)[0]
    draws = [
        conditional.prepare(device)
        .unchecked(loc.expand(6000, 10).to(device))
        .sample(generator=torch.Generator(device).manual_seed(0))
        for device in ("cpu", "cuda")
    ]
    assert_same_law(features(draws[0], loc), features(draws[1].cpu(), loc))
