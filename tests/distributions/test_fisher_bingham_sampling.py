"""FisherBingham's draws have the stated law; the two ways of trying agree; nothing waits for the device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from identica.distributions import fisher_bingham_sampler
from identica.distributions.fisher_bingham import FisherBingham
from identica.distributions.sphere_uniform import SphereUniform
from identica.spaces import Sphere
from tests.distributions.fisher_bingham_truth import BlockLaw, CircleLaw, brute_force, general, unit
from tests.distributions.sphere_truth import AngleLaw, angle_between, coordinate_cdf
from tests.stat_checks import FALSE_ALARM, assert_law, assert_mean, assert_same_law

BOTH_DTYPES = pytest.mark.parametrize("dtype", (torch.float32, torch.float64), ids=("float32", "float64"))
BOTH_WAYS = pytest.mark.parametrize("early_finish", (True, False), ids=("early finish", "fixed tries"))


def draw(distribution: FisherBingham, rows: int, *, early_finish: bool = True, seed: int = 11) -> torch.Tensor:
    """Draws by the general sampler; the number of fixed tries is what is prepared for this precision."""
    tables = FisherBingham.prepare_tables("cpu", distribution.dtype, precision=distribution.precision)
    assert tables is not None and not tables.isotropic
    distribution._plan = tables
    generator = torch.Generator().manual_seed(seed)
    return distribution._draw(torch.Size((rows,)), generator, early_finish=early_finish)


def features(x: torch.Tensor, loc: torch.Tensor) -> torch.Tensor:
    """Coordinates, three projections and |x·loc|: ``(n, d) -> (n, d + 4)``."""
    x, dim = x.double(), x.shape[-1]
    directions = torch.randn(dim, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return torch.cat([x, x @ directions, (x @ loc.double()).abs()[:, None]], dim=-1)


@pytest.mark.statistical(false_alarm=FALSE_ALARM, what="FisherBingham d = 2, 3, 4 against rejection from uniform")
@pytest.mark.parametrize(
    "precision",
    ((5.0, 25.0), (0.0, 3.0), (0.1, 300.0), (5.0, 25.0, 1.0), (0.0, 0.0, 30.0), (1.0, 40.0, 3.0, 0.0)),
    ids=str,
)
@BOTH_DTYPES
@BOTH_WAYS
def test_against_brute_force(precision: tuple[float, ...], dtype: torch.dtype, early_finish: bool) -> None:
    loc, diagonal = unit(1, len(precision), seed=7, dtype=dtype)[0], torch.tensor(precision, dtype=dtype)
    x = draw(FisherBingham(loc, diagonal), 8_000, early_finish=early_finish)
    assert_same_law(features(x, loc), features(brute_force(loc, diagonal, 20_000), loc))


@pytest.mark.statistical(false_alarm=FALSE_ALARM, what="FisherBingham on the circle against its exact angle law")
@pytest.mark.parametrize(
    "precision", ((5.0, 25.0), (0.0, 1000.0), (0.1, 1000.0), (1000.0, 900.0), (0.0, 1e-3)), ids=str
)
@pytest.mark.parametrize("angle", (0.0, 0.9, 1.5707963267948966, 4.0))
def test_angle_law_on_the_circle(precision: tuple[float, float], angle: float) -> None:
    loc, diagonal = torch.tensor([angle, angle]).double(), torch.tensor(precision).double()
    loc = torch.stack([loc[0].cos(), loc[1].sin()])
    x = draw(FisherBingham(loc, diagonal), 10_000)
    assert_law(torch.atan2(x[:, 1], x[:, 0]), CircleLaw(loc, diagonal).cdf)


@pytest.mark.statistical(
    false_alarm=FALSE_ALARM, what="very uneven FisherBingham: variance of the tight coordinate, normal to 1e-6"
)
@pytest.mark.parametrize("precision", (1e7, 1e8))
@BOTH_DTYPES
def test_very_uneven_precisions_are_tried_for_long_enough(precision: float, dtype: torch.dtype) -> None:
    """One in a few thousand proposals is accepted; a row that gave up would be a thousand deviations off."""
    loc = torch.tensor([0.6, 0.8], dtype=dtype)
    x = FisherBingham(loc, torch.tensor([precision, 1.0], dtype=dtype)).sample(400, generator=5)
    assert x.dtype == dtype
    gap = x[:, :1].double() - loc[0].double()
    assert gap.abs().max() < 6 * precision**-0.5
    assert_mean(precision * gap**2, torch.ones(1, dtype=torch.float64))


def test_a_row_that_gives_up_is_spoken_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fisher_bingham_sampler, "_EARLY_FINISH_TRIES", 100)
    distribution = FisherBingham(torch.tensor([0.6, 0.8]), torch.tensor([1e7, 1.0]))
    with pytest.warns(UserWarning, match="draws were refused .* times and keep their last proposal"):
        distribution.sample(50, generator=0)


@pytest.mark.statistical(false_alarm=FALSE_ALARM, what="two-block FisherBingham: share of the first block, exact law")
@pytest.mark.parametrize(
    ("sizes", "precisions", "share"),
    (
        ((5, 5), (5.0, 25.0), 0.3),
        ((5, 5), (1.0, 1000.0), 0.5),
        ((1, 9), (0.0, 1000.0), 0.6),
        ((9, 1), (0.0, 1000.0), 0.2),
        ((32, 32), (5.0, 200.0), 0.5),
        ((256, 256), (0.0, 1000.0), 0.5),
        ((1, 511), (3.0, 1000.0), 0.7),
    ),
)
@BOTH_DTYPES
def test_block_law_in_any_dimension(
    sizes: tuple[int, int], precisions: tuple[float, float], share: float, dtype: torch.dtype
) -> None:
    law = BlockLaw(sizes, precisions, share)
    x = draw(FisherBingham(law.loc.to(dtype), law.precision.to(dtype)), 200_000 // max(20, sum(sizes)))
    assert_law(law.phi_of(x), law.cdf, FALSE_ALARM / 2)
    first, second = law.mean
    assert_mean(x[:, [0, sizes[0]]], torch.tensor([first, second]), FALSE_ALARM / 2)


@pytest.mark.statistical(false_alarm=FALSE_ALARM, what="FisherBingham moments against derivatives of log Z")
@pytest.mark.parametrize("dim", (10, 64, 512))
def test_moments_follow_from_the_normaliser(dim: int) -> None:
    precision = torch.logspace(-2, 2.5, dim, dtype=torch.float64)
    for loc in unit(2, dim, seed=dim):
        distribution = FisherBingham(loc, precision)
        x = draw(distribution, 1_000_000 // (5 * dim) + 2_000)
        assert_mean(x, distribution.mean, FALSE_ALARM / 4)
        assert_mean(x**2, distribution.variance + distribution.mean**2, FALSE_ALARM / 4)


@pytest.mark.statistical(false_alarm=FALSE_ALARM, what="general sampler with equal precisions: von Mises-Fisher angle")
@pytest.mark.parametrize("dim", (2, 3, 10, 512))
@pytest.mark.parametrize("precision", (1e-3, 2.0, 1000.0))
@BOTH_DTYPES
def test_equal_entries_give_von_mises_fisher(dim: int, precision: float, dtype: torch.dtype) -> None:
    loc = unit(1, dim, dtype=dtype)[0]
    distribution = general(FisherBingham(loc, torch.full((dim,), precision, dtype=dtype)))
    x = distribution.sample(4_000, generator=torch.Generator().manual_seed(4))
    assert_law(angle_between(x, loc), AngleLaw(dim, precision).cdf)


def test_equal_entries_take_the_direct_route() -> None:
    loc = unit(5, 4)
    numbers = [FisherBingham(loc, p) for p in (3.0, torch.full((4,), 3.0), torch.full((5, 1), 3.0))]
    draws = [d.sample(generator=torch.Generator().manual_seed(1)) for d in numbers]
    assert all(d._plan.isotropic for d in numbers)
    assert torch.equal(draws[0], draws[1]) and torch.equal(draws[0], draws[2])


@pytest.mark.statistical(false_alarm=FALSE_ALARM, what="FisherBingham with precision 0 is uniform")
@pytest.mark.parametrize("dim", (2, 3, 20))
def test_no_precision_is_uniform(dim: int) -> None:
    distribution = general(FisherBingham(unit(1, dim)[0], torch.zeros(dim, dtype=torch.float64)))
    x = distribution.sample(20_000, generator=torch.Generator().manual_seed(4))
    for k in range(min(dim, 3)):
        assert_law(x[:, k], coordinate_cdf(dim), FALSE_ALARM / 3)
    log_prob = distribution.log_prob(x)
    assert torch.allclose(log_prob, SphereUniform(dim).log_prob(x).double(), atol=1e-10)


@BOTH_DTYPES
@BOTH_WAYS
def test_radius_is_honoured(dtype: torch.dtype, early_finish: bool) -> None:
    """On radius R it is the unit sphere's distribution with precision R²Λ, blown up."""
    loc, precision = unit(200, 5, dtype=dtype), torch.tensor([0.0, 1.0, 2.0, 30.0, 5.0], dtype=dtype)
    for radius in (0.01, 4.0):
        scaled = draw(FisherBingham(radius * loc, precision), 3, early_finish=early_finish)
        assert Sphere(5, radius).contains(scaled).all()
        direct = FisherBingham(loc, radius**2 * precision)
        # the prepared bins are for the precision they were prepared for
        direct._plan = replace(FisherBingham.prepare_tables("cpu", dtype, precision=precision), bins=None)
        same = direct._draw(torch.Size((3,)), torch.Generator().manual_seed(11), early_finish=early_finish)
        agree = torch.isclose(scaled / radius, same, atol=1e-4).all(dim=-1)
        # rounding may turn an acceptance around
        assert agree.double().mean() > 0.99


@pytest.mark.statistical(false_alarm=FALSE_ALARM, what="FisherBingham on radius 3 against rejection from uniform")
def test_law_on_another_radius() -> None:
    loc, precision = 3.0 * unit(1, 3, seed=4)[0], torch.tensor([0.1, 2.0, 0.5], dtype=torch.float64)
    x = draw(FisherBingham(loc, precision), 10_000)
    assert_same_law(features(x, loc), features(brute_force(loc, precision, 20_000), loc))


@pytest.mark.statistical(false_alarm=FALSE_ALARM, what="rows with precisions of their own against rejection")
@BOTH_WAYS
def test_each_row_may_have_its_own_precision(early_finish: bool) -> None:
    loc = unit(2, 3, seed=9)
    precision = torch.tensor([[0.0, 20.0, 3.0], [8.0, 1.0, 0.5]], dtype=torch.float64)
    x = draw(FisherBingham(loc, precision), 8_000, early_finish=early_finish)
    for k in range(2):
        expected = brute_force(loc[k], precision[k], 20_000)
        assert_same_law(features(x[:, k], loc[k]), features(expected, loc[k]), FALSE_ALARM / 2)


@pytest.mark.parametrize("dim", (2, 3, 10, 128, 512))
@BOTH_DTYPES
def test_extremes_stay_on_the_sphere(dim: int, dtype: torch.dtype, generator: torch.Generator) -> None:
    loc = torch.cat([unit(20, dim, dtype=dtype), torch.eye(dim, dtype=dtype)[[0, -1]]])
    for low in (0.0, 1e-6, 0.1, 10.0):
        for high in (1e-3, 1.0, 1000.0):
            for tight in {1, dim // 2, dim - 1}:
                precision = torch.full((dim,), low, dtype=dtype)
                precision[-tight:] = high
                distribution = FisherBingham(loc, precision)
                x = distribution.sample(generator=generator)
                assert x.dtype == dtype and Sphere(dim).contains(x, atol=4 * torch.finfo(dtype).eps).all()
                assert torch.isfinite(distribution.log_prob(x)).all()


def test_huge_and_tiny_spheres_do_not_break(generator: torch.Generator) -> None:
    precision = torch.tensor([0.0, 1.0, 30.0])
    for radius in (1e-8, 1e-3, 100.0):
        x = FisherBingham(radius * unit(50, 3, dtype=torch.float32), precision).sample(generator=generator)
        assert torch.isfinite(x).all() and Sphere(3, radius).contains(x).all()


def test_equal_generators_give_equal_draws() -> None:
    distribution = FisherBingham(unit(300, 6), torch.logspace(-1, 3, 6, dtype=torch.float64))
    first, second, other = (distribution.sample(2, generator=torch.Generator().manual_seed(seed)) for seed in (5, 5, 6))
    assert torch.equal(first, second) and not torch.equal(first, other)


def test_nan_parameters_give_nan_at_once(generator: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is ever accepted for them, so trying again is pointless; the other rows are not affected."""
    rounds = 0
    propose = fisher_bingham_sampler._propose

    def counted(*arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
        nonlocal rounds
        rounds += 1
        return propose(*arguments)

    monkeypatch.setattr(fisher_bingham_sampler, "_propose", counted)
    loc, precision = unit(6, 3), torch.tensor([0.0, 3.0, 30.0], dtype=torch.float64)
    loc[2, 1] = torch.nan
    x = FisherBingham(loc, precision, validate_args=False).sample(5, generator=generator)
    assert x[:, 2].isnan().all() and x[:, [0, 1, 3, 4, 5]].isfinite().all()
    assert rounds < 20


class NoHostSynchronisation(TorchDispatchMode):
    """Refuses every operation whose result the host would have to wait for."""

    forbidden = {"_local_scalar_dense", "nonzero", "item", "is_nonzero", "equal", "masked_select", "unique_dim"}

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: tuple[Any, ...] = (), keywords: dict[str, Any] | None = None
    ) -> Any:
        name = function.overloadpacket.__name__
        assert name not in self.forbidden, f"{name} waits for the device"
        return function(*arguments, **(keywords or {}))


def test_prepared_sampling_never_asks_for_a_value(generator: torch.Generator) -> None:
    loc, precision = unit(8, 5, dtype=torch.float32), torch.tensor([0.0, 1.0, 2.0, 3.0, 100.0])
    tables = FisherBingham.prepare_tables("cpu", torch.float32, precision=precision)
    with NoHostSynchronisation():
        distribution = FisherBingham(loc, precision, validate_args=False, tables=tables)
        distribution._draw(torch.Size((2,)), generator, early_finish=False)
    with pytest.raises(AssertionError, match="waits for the device"), NoHostSynchronisation():
        distribution._draw(torch.Size((2,)), generator, early_finish=True)


@pytest.mark.parametrize("prepared", (True, False))
def test_other_devices_need_no_values_at_all(prepared: bool) -> None:
    """On the meta device tensors have shapes and no values: whatever runs there depends on shapes only."""
    precision = torch.tensor([0.0, 1.0, 2.0, 3.0, 100.0])
    tables = FisherBingham.prepare_tables("meta", torch.float32, precision=precision) if prepared else None
    loc = torch.empty(8, 5, device="meta")
    distribution = FisherBingham(loc, precision.to("meta"), validate_args=False, tables=tables)
    x = distribution.sample(3)
    assert x.device.type == "meta" and x.shape == (3, 8, 5)
    assert distribution.log_prob(x).shape == (3, 8) and distribution.mean.shape == (8, 5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.statistical(false_alarm=FALSE_ALARM, what="FisherBingham replayed from a CUDA graph, exact block law")
def test_captured_in_a_graph() -> None:
    law = BlockLaw((5, 5), (5.0, 25.0), 0.3)
    loc = law.loc.float().cuda().expand(6144, 10).contiguous()
    precision = law.precision.float().cuda()
    tables = FisherBingham.prepare_tables("cuda", torch.float32, precision=precision)
    generator = torch.Generator("cuda").manual_seed(0)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)

    def step() -> torch.Tensor:
        distribution = FisherBingham(loc, precision, validate_args=False, tables=tables)
        return distribution.sample(generator=generator)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        x = step()
    draws = []
    for _ in range(3):
        graph.replay()
        draws.append(x.clone())
    assert not torch.equal(draws[0], draws[1])
    everything = torch.cat(draws).cpu()
    assert Sphere(10).contains(everything).all()
    assert_law(law.phi_of(everything), law.cdf)
