"""The von Mises-Fisher sampler: its law on every path, the radius, the tries, and that it need not wait."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch.utils._python_dispatch import TorchDispatchMode

from identica.distributions.sphere_uniform import SphereUniform
from identica.distributions.von_mises_fisher import TRIES, VonMisesFisher
from identica.spaces import Sphere
from tests.distributions.sphere_truth import AngleLaw, angle_between, coordinate_cdf, random_directions
from tests.stat_checks import assert_law, assert_mean, assert_same_law

DTYPES = (torch.float32, torch.float64)
DIMS = (2, 3, 4, 10, 512)
CONCENTRATIONS = (1e-3, 1.0, 10.0, 1e3, 1e4)


def rows_for(dim: int) -> int:
    return 20_000 if dim < 100 else 2_000


def draw(family: VonMisesFisher, path: str, shape: tuple[int, ...] = (), seed: int = 3) -> torch.Tensor:
    """Draws by one of the three paths: "shared" and "by_row" on the CPU, "fixed" is the capturable one."""
    generator = torch.Generator().manual_seed(seed)
    if path == "fixed":
        with torch.no_grad():
            return family._draw_with(torch.Size(shape), generator, wait=False)
    if path == "by_row":
        concentration = family.concentration.expand(*family.batch_shape, 1).contiguous()
        family = VonMisesFisher(family.loc, concentration)
    return family.sample(shape, generator=generator)


# ---------------------------------------------------------------------------------------------- the law


def check_angles(dim: int, concentration: float, dtype: torch.dtype, path: str) -> None:
    loc = random_directions(rows_for(dim), dim, dtype)
    x = draw(VonMisesFisher(loc, concentration), path)
    assert x.dtype == dtype and x.shape == loc.shape
    assert bool(torch.isfinite(x).all())
    assert bool(Sphere(dim).contains(x, atol=4 * torch.finfo(dtype).eps).all())
    assert_law(angle_between(x, loc), AngleLaw(dim, concentration).cdf)


@pytest.mark.statistical(false_alarm=1e-6, what="vMF angle to its own loc, by row, against its quadrature CDF")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("concentration", CONCENTRATIONS)
@pytest.mark.parametrize("dim", DIMS)
def test_angle_law(dim: int, concentration: float, dtype: torch.dtype) -> None:
    check_angles(dim, concentration, dtype, "shared")


@pytest.mark.statistical(false_alarm=1e-6, what="vMF angle of the other two sampling paths against its CDF")
@pytest.mark.parametrize("path", ["by_row", "fixed"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("concentration", [1e-3, 10.0, 1e4])
@pytest.mark.parametrize("dim", [2, 3, 10, 512])
def test_angle_law_of_the_other_paths(dim: int, concentration: float, dtype: torch.dtype, path: str) -> None:
    check_angles(dim, concentration, dtype, path)


@pytest.mark.statistical(false_alarm=1e-6, what="capturable vMF draws against the CPU's, two-sample")
def test_paths_agree() -> None:
    loc = random_directions(1, 5, torch.float64)[0]
    family = VonMisesFisher(loc, 4.0)
    assert_same_law(draw(family, "shared", (20_000,)), draw(family, "fixed", (20_000,), seed=4))


@pytest.mark.statistical(false_alarm=1e-6, what="tangent direction of vMF draws against the uniform sphere")
@pytest.mark.parametrize("dim", [3, 4, 10])
@pytest.mark.parametrize("place", ["+e1", "-e1", "random"])
def test_tangent_direction_is_uniform(dim: int, place: str) -> None:
    """In a basis of the tangent space, coordinates of the direction follow the uniform law on S^(d−2)."""
    first = torch.eye(dim, dtype=torch.float64)[0]
    loc = {"+e1": first, "-e1": -first, "random": random_directions(1, dim, torch.float64)[0]}[place]
    basis = torch.linalg.qr(torch.cat([loc[:, None], torch.eye(dim).double()], dim=1)).Q[:, 1:dim]
    x = draw(VonMisesFisher(loc, 3.0), "shared", (20_000,))
    direction = Sphere(dim - 1).project(x @ basis)
    for j in range(dim - 1):
        assert_law(direction[:, j], coordinate_cdf(dim - 1), false_alarm=1e-6 / (2 * dim))
    near = angle_between(x, loc) < AngleLaw(dim, 3.0).expect(lambda theta: theta)
    assert_same_law(direction[near], direction[~near], false_alarm=0.5e-6)


@pytest.mark.statistical(false_alarm=1e-6, what="which side of loc vMF draws fall on in the plane: a fair coin")
@pytest.mark.parametrize("concentration", [1.0, 1e4])
def test_both_sides_are_equally_likely_in_the_plane(concentration: float) -> None:
    loc = random_directions(20_000, 2, torch.float32)
    x = draw(VonMisesFisher(loc, concentration), "shared")
    left = int((loc[:, 0] * x[:, 1] > loc[:, 1] * x[:, 0]).sum())
    assert stats.binomtest(left, len(x)).pvalue > 1e-6


@pytest.mark.statistical(false_alarm=1e-6, what="mean of vMF draws at d = 512 against A_d(κ) by quadrature")
@pytest.mark.parametrize("concentration", [1.0, 100.0, 1e4])
def test_moments_in_many_dimensions(concentration: float) -> None:
    loc = random_directions(1, 512, torch.float64)[0]
    x = draw(VonMisesFisher(loc, concentration), "shared", (4_000,))
    law = AngleLaw(512, concentration)
    cosine = x @ loc
    moments = torch.tensor([law.expect(np.cos), law.expect(lambda theta: np.cos(theta) ** 2)])
    assert_mean(torch.stack([cosine, cosine**2], dim=1), moments, false_alarm=0.5e-6)
    assert_mean(x, moments[0] * loc, false_alarm=0.5e-6)


@pytest.mark.statistical(false_alarm=1e-6, what="coordinates of vMF draws around uniform anchors: uniform again")
@pytest.mark.parametrize("concentration", [0.0, 5.0, 1e3])
def test_positives_of_uniform_anchors_are_uniform(concentration: float) -> None:
    generator = torch.Generator().manual_seed(5)
    anchors = SphereUniform(6).sample(20_000, generator=generator)
    x = VonMisesFisher(anchors, concentration).sample(generator=generator)
    for j in range(6):
        assert_law(x[:, j], coordinate_cdf(6), false_alarm=1e-6 / 6)


@pytest.mark.statistical(false_alarm=1e-6, what="vMF at concentration 0 against the uniform sphere's angle")
@pytest.mark.parametrize("path", ["shared", "by_row", "fixed"])
@pytest.mark.parametrize("dim", [2, 3, 10])
def test_zero_concentration_is_uniform(dim: int, path: str) -> None:
    loc = random_directions(20_000, dim, torch.float32)
    x = draw(VonMisesFisher(loc, 0.0), path)
    assert_law((x * loc).sum(dim=-1), coordinate_cdf(dim))
    torch.testing.assert_close(VonMisesFisher(loc, 0.0).log_prob(x), SphereUniform(dim).log_prob(x))


@pytest.mark.statistical(false_alarm=1e-6, what="vMF angle with a concentration of its own for each row")
@pytest.mark.parametrize("wait", [True, False])
def test_each_row_has_its_own_concentration(wait: bool) -> None:
    concentrations = (0.5, 30.0, 2e3)
    loc = random_directions(3, 4, torch.float64)
    family = VonMisesFisher(loc, torch.tensor(concentrations)[:, None])
    x = family._draw_with(torch.Size((10_000,)), torch.Generator().manual_seed(6), wait=wait)
    assert x.shape == (10_000, 3, 4)
    for row, concentration in enumerate(concentrations):
        assert_law(angle_between(x[:, row], loc[row]), AngleLaw(4, concentration).cdf, false_alarm=1e-6 / 3)


# ------------------------------------------------------------------------------------ the radius, the tries


def old_sampler(loc: torch.Tensor, concentration: float, generator: torch.Generator) -> torch.Tensor:
    """What the reference code does: a unit tangent vector is added to a loc of any length."""
    unit = loc / loc.norm(dim=-1, keepdim=True)
    cosine = (VonMisesFisher(unit, concentration).sample(generator=generator) * unit).sum(-1, keepdim=True)
    tangent = torch.randn(loc.shape, generator=generator, dtype=loc.dtype)
    tangent = tangent - (tangent * unit).sum(-1, keepdim=True) * unit
    tangent = tangent / tangent.norm(dim=-1, keepdim=True)
    return cosine * loc + torch.sqrt(1 - cosine**2) * tangent


@pytest.mark.statistical(false_alarm=1e-6, what="vMF angle off the unit sphere: the radius does not matter")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("radius", [1e-3, 0.5, 3.0, 1e3])
def test_radius_is_honoured(radius: float, dtype: torch.dtype) -> None:
    loc = radius * random_directions(10_000, 5, dtype)
    x = draw(VonMisesFisher(loc, 7.0), "shared")
    sphere = Sphere(5, radius)
    assert bool(sphere.contains(x).all())
    assert_law(angle_between(x, loc), AngleLaw(5, 7.0).cdf)
    assert not bool(sphere.contains(old_sampler(loc, 7.0, torch.Generator().manual_seed(7))).any())


def test_rows_may_lie_on_different_spheres() -> None:
    loc = torch.tensor([[0.0, 2.0, 0.0], [0.5, 0.0, 0.0]])
    x = draw(VonMisesFisher(loc, 20.0), "shared", (100,))
    torch.testing.assert_close(x.norm(dim=-1), torch.tensor([2.0, 0.5]).expand(100, 2))


def acceptance(dim: int, concentration: float) -> float:
    """The chance that a proposal is accepted, by quadrature over the uniform angle it starts from."""
    b = (dim - 1) / (2 * concentration + math.hypot(2 * concentration, dim - 1))

    def probability(theta: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            cosine = np.cos(2 * np.arctan(np.sqrt(b) * np.tan(theta / 2)))
        y = concentration / (dim - 1) * ((1 - b) / (1 + b) - cosine)
        return np.exp((dim - 1) * (np.log1p(y) - y))

    return AngleLaw(dim, 0.0, nodes=4_001).expect(probability)


def test_tries_leave_less_than_a_billionth() -> None:
    """Over the whole range, acceptance stays above its limit √(e/2π), and 20 tries leave less than 1e-9."""
    worst = min(acceptance(dim, k) for dim in (2, 3, 5, 10, 64, 512) for k in np.geomspace(1e-3, 1e4, 15))
    limit = math.sqrt(math.e / (2 * math.pi))
    assert worst > limit - 1e-6
    assert acceptance(2, 1e4) == pytest.approx(limit, abs=1e-4)
    assert (1 - limit) ** TRIES < 5e-10


@pytest.mark.statistical(false_alarm=1e-6, what="share of accepted vMF proposals against its quadrature")
@pytest.mark.parametrize("dim, concentration", [(2, 1.0), (2, 1e4), (3, 30.0), (10, 10.0), (512, 1e3)])
def test_acceptance_is_what_the_argument_says(dim: int, concentration: float) -> None:
    loc = torch.ones(dim, dtype=torch.float64)
    family = VonMisesFisher(loc, concentration)
    envelope = family._envelope(torch.Size())
    _, accepted = family._try(envelope, 40_000, 1, torch.Generator().manual_seed(8))
    result = stats.binomtest(int(accepted.sum()), 40_000, min(acceptance(dim, concentration), 1.0))
    assert result.pvalue > 1e-6


# ------------------------------------------------------------------------------------- waiting and randomness


class ForbidWaiting(TorchDispatchMode):
    """Raises at any operation whose result depends on reading values back from the device."""

    names = ("_local_scalar_dense", "item", "is_nonzero", "nonzero", "masked_select", "equal", "unique")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().split("::")[1].split(".")[0]
        reads_mask = name.startswith("index") and any(
            isinstance(i, torch.Tensor) and i.dtype == torch.bool for a in args if isinstance(a, list) for i in a
        )
        if name in self.names or reads_mask:
            raise AssertionError(f"{name} waits for the device")
        return func(*args, **(kwargs or {}))


@contextmanager
def no_waiting() -> Iterator[None]:
    with ForbidWaiting(), torch.no_grad():
        yield


@pytest.mark.parametrize("concentration", [torch.tensor(3.0), torch.full((8, 1), 3.0)])
def test_capturable_path_does_not_wait(concentration: torch.Tensor) -> None:
    loc, generator = random_directions(8, 3, torch.float32), torch.Generator().manual_seed(9)
    with no_waiting():
        family = VonMisesFisher(loc, concentration, validate_args=False)
        x = family._draw_with(torch.Size((4,)), generator, wait=False)
        family.log_prob(x), family.entropy(), family.mean, family.variance
    with pytest.raises(AssertionError, match="waits for the device"), no_waiting():
        family.sample(1000, generator=generator)


def test_sampling_without_data() -> None:
    """Meta tensors have shapes but no values, so nothing here can depend on values."""
    loc, concentration = torch.empty(6, 3, device="meta"), torch.empty(6, 1, device="meta")
    family = VonMisesFisher(loc, concentration, validate_args=False)
    assert family.sample((4,)).shape == (4, 6, 3)
    assert family.log_prob(loc).shape == (6,)


@pytest.mark.parametrize("path", ["shared", "by_row", "fixed"])
def test_equal_generators_give_equal_draws(path: str) -> None:
    family = VonMisesFisher(random_directions(50, 4, torch.float32), 2.0)
    assert torch.equal(draw(family, path, (3,), seed=1), draw(family, path, (3,), seed=1))
    assert not torch.equal(draw(family, path, (3,), seed=1), draw(family, path, (3,), seed=2))
    generator = torch.Generator().manual_seed(1)
    first, second = (family.sample(generator=generator) for _ in range(2))
    assert not torch.equal(first, second)


def test_extremes_stay_finite_and_on_the_sphere() -> None:
    """No NaN and no point off the sphere, for many draws at the corners of the supported range."""
    for dtype in DTYPES:
        for dim, rows in ((2, 400_000), (3, 100_000), (512, 500)):
            for concentration in (0.0, 1e-3, 1e4, 1e8):
                loc = torch.zeros(dim, dtype=dtype)
                loc[-1] = -1.0
                x = draw(VonMisesFisher(loc, concentration), "shared", (rows,))
                assert bool(Sphere(dim).contains(x, atol=8 * torch.finfo(dtype).eps).all())


@pytest.mark.statistical(false_alarm=1e-6, what="float32 vMF draws within 1e-7 of loc at d = 2: their share")
def test_small_angles_keep_their_law_in_float32() -> None:
    """At d = 2 and κ = 1e4 no share of the draws collapses onto loc, as ½ (1 + cos) in float32 would."""
    x = draw(VonMisesFisher(torch.tensor([1.0, 0.0]), 1e4), "shared", (200_000,))
    expected = special.erf(1e-7 * 1e2 / math.sqrt(2))  # nearly normal with deviation 1/√κ
    assert stats.binomtest(int((x[:, 1].abs() < 1e-7).sum()), len(x), expected).pvalue > 1e-6
