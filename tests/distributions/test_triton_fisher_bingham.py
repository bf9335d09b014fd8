"""The fused Fisher-Bingham sampler against quadrature: in Triton's interpreter with few rows, on a GPU with many."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from identica.distributions import Conditional, FisherBingham
from identica.distributions.fused import computing_by
from tests.distributions.fisher_bingham_truth import BlockLaw, CircleLaw, general, unit
from tests.distributions.sphere_truth import AngleLaw, angle_between
from tests.stat_checks import assert_law, assert_mean

pytest.importorskip("triton")

from identica.distributions.triton_fisher_bingham import draw_fisher_bingham  # noqa: E402
from identica.distributions.triton_launch import Blocks  # noqa: E402

HAS_CUDA = torch.cuda.is_available()
DEVICE = "cuda" if HAS_CUDA else "cpu"
EPS = torch.finfo(torch.float32).eps
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's numpy warns of log 0
on_gpu = [pytest.mark.gpu, pytest.mark.skipif(not HAS_CUDA, reason="needs a CUDA device")]
few_and_many = pytest.mark.parametrize("rows", [10_000, pytest.param(2**20, marks=on_gpu)])


@pytest.fixture(autouse=True)
def by_triton() -> Iterator[None]:
    with computing_by("triton"):
        yield


def draw(family: FisherBingham, shape: int | tuple[int, ...] = (), seed: int = 3) -> torch.Tensor:
    plan = family._plan
    family = family.to(DEVICE)
    assert family._plan is plan
    return family.sample(shape, generator=torch.Generator(DEVICE).manual_seed(seed)).cpu()


def radius_error(x: torch.Tensor, loc: torch.Tensor) -> float:
    return float((x.double().norm(dim=-1) / loc.double().norm(dim=-1) - 1.0).abs().max())


@pytest.mark.statistical(false_alarm=1e-6, what="fused Fisher-Bingham draws: the share of two blocks of coordinates")
@few_and_many
@pytest.mark.parametrize(
    ("sizes", "precisions", "share"),
    [((5, 5), (5.0, 25.0), 0.3), ((5, 5), (1.0, 200.0), 0.5), ((3, 2), (0.0, 50.0), 0.9), ((9, 8), (400.0, 15.0), 0.1)],
    ids=str,
)
def test_two_blocks(sizes: tuple[int, int], precisions: tuple[float, float], share: float, rows: int) -> None:
    law = BlockLaw(sizes, precisions, share)
    x = draw(FisherBingham(law.loc.float(), law.precision.float()), rows)
    assert x.shape == (rows, sum(sizes)) and x.dtype == torch.float32
    assert radius_error(x, torch.ones(1)) < 3 * EPS
    assert_law(law.phi_of(x), law.cdf, false_alarm=0.5e-6)
    expected = torch.zeros(sum(sizes))
    expected[0], expected[sizes[0]] = law.mean
    assert_mean(x, expected, false_alarm=0.5e-6)


@pytest.mark.statistical(false_alarm=1e-6, what="fused Fisher-Bingham draws on the circle: their angle")
@few_and_many
@pytest.mark.parametrize("precision", [(0.0, 3.0), (30.0, 2.0), (0.1, 300.0)], ids=str)
def test_circle(precision: tuple[float, float], rows: int) -> None:
    loc = torch.tensor([0.6, 0.8])
    x = draw(FisherBingham(loc, torch.tensor(precision)), rows).double()
    assert_law(torch.atan2(x[:, 1], x[:, 0]), CircleLaw(loc, torch.tensor(precision)).cdf)


@pytest.mark.statistical(false_alarm=1e-6, what="fused Fisher-Bingham draws with equal precisions: vMF's angle")
@few_and_many
@pytest.mark.parametrize("dim", [2, 3, 10])
@pytest.mark.parametrize("precision", [0.0, 5.0, 500.0])
def test_equal_precisions_around_many_locations(precision: float, dim: int, rows: int) -> None:
    loc = unit(rows, dim, dtype=torch.float32)
    x = draw(general(FisherBingham(loc, torch.full((dim,), precision))))
    assert_law(angle_between(x, loc), AngleLaw(dim, precision).cdf)


@pytest.mark.statistical(false_alarm=1e-6, what="fused Fisher-Bingham draws, rows of different precision and radius")
@few_and_many
def test_rows_with_their_own_precision_and_radius(rows: int) -> None:
    laws = BlockLaw((2, 2), (3.0, 30.0), 0.4), BlockLaw((2, 2), (100.0, 1.0), 0.8)
    radius = torch.tensor([[0.5], [2.0]])
    loc = radius * torch.stack([law.loc for law in laws]).float()
    precision = torch.stack([law.precision for law in laws]).float() / radius**2
    x = draw(FisherBingham(loc, precision), rows)
    assert x.shape == (rows, 2, 4)
    assert radius_error(x, loc) < 3 * EPS
    for i, law in enumerate(laws):
        assert_law(law.phi_of(x[:, i]), law.cdf, false_alarm=1e-6 / 2)


def test_a_prepared_conditional_tries_often_enough() -> None:
    """What is worked out beforehand is what the kernel is given, and the draws are those of a glance."""
    loc, precision = unit(50, 10, dtype=torch.float32).to(DEVICE), (5.0,) * 5 + (25.0,) * 5
    prepared = Conditional(FisherBingham, precision=precision).prepare(DEVICE, torch.float32).unchecked(loc)
    assert isinstance(prepared, FisherBingham) and 10 < prepared._plan.tries < 30
    blind = FisherBingham(loc, torch.tensor(precision, device=DEVICE))
    x, y = draw(prepared), draw(blind)
    assert prepared._plan.tries < blind._plan.tries and prepared._plan.steps == blind._plan.steps
    torch.testing.assert_close(x, y)


def test_draws_do_not_depend_on_the_block_size() -> None:
    loc, precision = unit(20, 5, dtype=torch.float32).to(DEVICE), torch.tensor([1.0, 2, 4, 8, 16], device=DEVICE)
    generators = (torch.Generator(DEVICE).manual_seed(0) for _ in range(2))
    small, large = (
        draw_fisher_bingham(torch.Size(), torch.Size((20,)), loc, precision, 2, 100, generator, blocks)
        for generator, blocks in zip(generators, (Blocks(8, 1), Blocks(32, 1)), strict=True)
    )
    torch.testing.assert_close(small, large, rtol=1e-5, atol=1e-6)


def test_equal_generators_give_equal_draws_and_no_two_rows_agree() -> None:
    family = FisherBingham(torch.tensor([0.0, 0.6, 0.8]), torch.tensor([1.0, 2.0, 3.0]))
    assert torch.equal(draw(family, 100, seed=1), draw(family, 100, seed=1))
    assert not bool((draw(family, 100, seed=1) == draw(family, 100, seed=2)).any())
    assert len(torch.unique(draw(family, 100), dim=0)) == 100


@pytest.mark.parametrize("dim", [127, 600])
def test_many_dimensions(dim: int) -> None:
    loc = unit(40, dim, dtype=torch.float32)
    x = draw(FisherBingham(loc, torch.linspace(0.0, 100.0, dim)))
    assert radius_error(x, loc) < 4 * EPS
