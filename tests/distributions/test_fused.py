"""Fused samplers as generators of randomness, and when they draw and when torch does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from identica.distributions import (
    BoxUniform,
    GeneralizedNormal,
    LatentDistribution,
    ProductDistribution,
    SphereUniform,
    TruncatedGeneralizedNormal,
    TruncatedLaplace,
    VonMisesFisher,
)
from identica.distributions.fused import computing_by
from tests.distributions.sphere_truth import random_directions
from tests.distributions.triton_draws import DEVICE, EPS, HAS_CUDA, in_box, no_numpy_warnings, norms

pytest.importorskip("triton")

from identica.distributions.triton_coordinates import draw_box_uniform, draw_truncated, draw_unbounded  # noqa: E402
from identica.distributions.triton_launch import Blocks  # noqa: E402
from identica.distributions.triton_sphere import draw_sphere_uniform, draw_von_mises_fisher  # noqa: E402

pytestmark = no_numpy_warnings


@pytest.fixture(autouse=True)
def by_triton() -> Iterator[None]:
    with computing_by("triton"):
        yield


# ------------------------------------------------------------------------------------------------ randomness


def draw(family: LatentDistribution, shape: int | tuple[int, ...] = (), seed: int = 3) -> torch.Tensor:
    return family.to(DEVICE).sample(shape, generator=torch.Generator(DEVICE).manual_seed(seed)).cpu()


SOME = {
    "box": BoxUniform(3),
    "sphere": SphereUniform(3),
    "vmf": VonMisesFisher(random_directions(40, 3, torch.float32), 2.0),
    "laplace": TruncatedLaplace(in_box(40, 3), 0.1),
    "cubic": TruncatedGeneralizedNormal(in_box(40, 3), 0.1, 3.0),
    "normal": GeneralizedNormal(in_box(40, 3), 0.1, 2.0),
}
every_family = pytest.mark.parametrize("family", SOME.values(), ids=SOME.keys())


@every_family
def test_equal_generators_give_equal_draws(family: LatentDistribution) -> None:
    assert torch.equal(draw(family, 5, seed=1), draw(family, 5, seed=1))
    assert not torch.equal(draw(family, 5, seed=1), draw(family, 5, seed=2))
    generator, family = torch.Generator(DEVICE).manual_seed(1), family.to(DEVICE)
    state = generator.get_state()
    first, second = (family.sample(5, generator=generator) for _ in range(2))
    assert not bool((first == second).any())
    generator.set_state(state)
    assert torch.equal(family.sample(5, generator=generator), first)


@every_family
def test_no_number_is_drawn_twice_within_a_call(family: LatentDistribution) -> None:
    x = draw(family, 5).reshape(-1, 3)
    assert len(torch.unique(x, dim=0)) == len(x)


@every_family
def test_the_global_random_state_is_used_when_there_is_no_other(family: LatentDistribution) -> None:
    family = family.to(DEVICE)
    torch.manual_seed(5)
    first = family.sample(2)
    torch.manual_seed(5)
    assert torch.equal(family.sample(2), first)


def test_draws_do_not_depend_on_the_block_size() -> None:
    shape, batch = torch.Size((2,)), torch.Size((12, 5))
    loc, number = random_directions(12, 5, torch.float32).to(DEVICE), torch.tensor(0.5, device=DEVICE)
    zero, one = torch.zeros((), device=DEVICE), torch.ones((), device=DEVICE)

    def draws(blocks: Blocks) -> list[torch.Tensor]:
        def generator() -> torch.Generator:
            return torch.Generator(DEVICE).manual_seed(0)

        return [
            draw_box_uniform(shape, batch, zero, one, generator(), blocks),
            draw_truncated(shape, batch, 1.0, 1.0, (loc.abs(), number, zero, one), generator(), blocks),
            draw_truncated(shape, batch, 3.0, 1.0, (loc.abs(), number, zero, one), generator(), blocks),
            draw_unbounded(shape, batch, 2.0, loc, number, generator(), blocks),
            draw_sphere_uniform(shape, batch[:1], 5, number, generator(), blocks),
            draw_von_mises_fisher(shape, batch[:1], loc, number, 20, generator(), blocks),
        ]

    for small, large in zip(draws(Blocks(8, 1)), draws(Blocks(64, 2)), strict=True):
        if HAS_CUDA:  # the order of a sum over coordinates may follow the layout
            torch.testing.assert_close(small, large, rtol=1e-5, atol=1e-6)
        else:
            assert torch.equal(small, large)


# ------------------------------------------------------------------------------------------------ who draws


@every_family
def test_torch_draws_on_the_cpu_and_triton_on_cuda_unless_told_otherwise(family: LatentDistribution) -> None:
    with computing_by("auto"):
        found = draw(family, 5)
    with computing_by("triton" if HAS_CUDA else "torch"):
        assert torch.equal(draw(family, 5), found)
    with computing_by("torch" if HAS_CUDA else "triton"):
        assert not torch.equal(draw(family, 5), found)


@every_family
def test_torch_draws_in_float64(family: LatentDistribution) -> None:
    found = draw(family.to(torch.float64), 5)
    with computing_by("torch"):
        assert torch.equal(draw(family.to(torch.float64), 5), found)


def test_torch_draws_where_a_gradient_is_wanted() -> None:
    loc = in_box(10, 3).to(DEVICE).requires_grad_()
    x = TruncatedLaplace(loc, 0.1).rsample(generator=torch.Generator(DEVICE).manual_seed(0))
    (gradient,) = torch.autograd.grad(x.sum(), loc)
    assert gradient.abs().sum() > 0
    assert not TruncatedLaplace(loc, 0.1).sample().requires_grad


def test_empty_draws_and_products() -> None:
    assert draw(BoxUniform(3), 0).shape == (0, 3)
    assert draw(VonMisesFisher(torch.empty(0, 3), 1.0)).shape == (0, 3)
    product = ProductDistribution(SphereUniform(3), BoxUniform(2))
    assert (norms(draw(product, 10)[:, :3]) - 1.0).abs().max() < 3 * EPS


def test_an_unknown_way_is_a_sentence() -> None:
    with pytest.raises(ValueError, match='by "auto", "torch" or "triton", not by'), computing_by("fast"):  # type: ignore[arg-type]
        pass


@pytest.mark.skipif(HAS_CUDA, reason="the interpreter is not used where there is a GPU")
def test_without_the_interpreter_the_cpu_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ValueError, match="need a CUDA device, not cpu"):
        BoxUniform(3).sample(5)


# ------------------------------------------------------------------------------------------------ on a GPU


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_CUDA, reason="needs a CUDA device")
@every_family
def test_a_draw_is_two_launches_and_never_waits(family: LatentDistribution) -> None:
    family, generator = family.to(DEVICE), torch.Generator(DEVICE).manual_seed(0)
    family.sample(generator=generator)
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        torch.cuda.set_sync_debug_mode("error")
        try:
            family.sample(generator=generator)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()
    launched = [event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    assert len(launched) <= 2, launched
