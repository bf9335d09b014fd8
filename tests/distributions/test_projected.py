"""What the three projected families have in common: sampler, density, limits, borders."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from identica.distributions.base import LatentDistribution
from identica.distributions.conditional import Conditional
from identica.distributions.projected_generalized_normal import ProjectedGeneralizedNormal
from identica.distributions.projected_laplace import ProjectedLaplace
from identica.distributions.projected_normal import ProjectedNormal
from identica.distributions.sphere_uniform import SphereUniform
from identica.spaces import Sphere
from tests.stat_checks import assert_law, assert_mean, assert_same_law

#: Name, constructor from loc and scale, and the generalised normal (scale factor, power) of the noise.
FAMILIES = {
    "normal": (ProjectedNormal, math.sqrt(2.0), 2.0),
    "laplace": (ProjectedLaplace, 1.0, 1.0),
    "power 0.5": (lambda *a, **k: ProjectedGeneralizedNormal(*a, power=0.5, **k), 1.0, 0.5),
    "power 3": (lambda *a, **k: ProjectedGeneralizedNormal(*a, power=3.0, **k), 1.0, 3.0),
}
every_family = pytest.mark.parametrize("name", FAMILIES)


def make(name: str, loc, scale, **keywords) -> LatentDistribution:
    return FAMILIES[name][0](torch.as_tensor(loc), scale, **keywords)


def double(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def random_unit(d: int, seed: int, dtype=torch.float64) -> torch.Tensor:
    return SphereUniform(d).to(dtype=dtype).sample(generator=torch.Generator().manual_seed(seed))


def graded_rule(points: list[float], low: float, high: float, depth: int = 24) -> tuple[torch.Tensor, torch.Tensor]:
    """Gauss-Legendre nodes and weights on panels that halve towards each of the points, ``depth`` times."""
    steps = 0.5 ** np.arange(0, depth) * (high - low)
    edges = np.concatenate([[low, high], *([p, *(p + steps), *(p - steps)] for p in points)])
    edges = np.unique(edges[(edges >= low) & (edges <= high)])
    x, w = np.polynomial.legendre.leggauss(8)
    half, middle = 0.5 * np.diff(edges), 0.5 * (edges[:-1] + edges[1:])
    nodes, weights = middle[:, None] + half[:, None] * x, half[:, None] * w
    return torch.tensor(nodes.ravel()), torch.tensor(weights.ravel())


def noise_by_rejection(power: float, count: int, seed: int) -> np.ndarray:
    """Numbers of density ∝ exp(-|t|^power) from Cauchy proposals, one at a time kept or not."""
    rng = np.random.default_rng(seed)
    t = np.tan(np.linspace(0, np.pi / 2, 200_001)[:-1])
    bound = 1.01 * np.max(np.exp(-(t**power)) * (1 + t**2))
    kept = np.empty(0)
    while len(kept) < count:
        t = rng.standard_cauchy(2 * count)
        kept = np.concatenate([kept, t[rng.random(len(t)) * bound < np.exp(-(np.abs(t) ** power)) * (1 + t**2)]])
    return kept[:count]


@every_family
@pytest.mark.statistical(false_alarm=1e-6, what="projected draws against noise by brute-force rejection, d = 3")
def test_draws_against_brute_force(name, generator):
    factor, power = FAMILIES[name][1:]
    loc, scale, n = np.array([0.6, -1.2, 0.9]), np.array([0.3, 1.0, 0.6]), 20_000
    y = loc + scale * factor * noise_by_rejection(power, 3 * n, seed=5).reshape(n, 3)
    expected = np.linalg.norm(loc) * y / np.linalg.norm(y, axis=1, keepdims=True)
    draws = make(name, double(*loc), double(*scale)).sample(n, generator=generator)
    assert_same_law(draws, torch.tensor(expected), false_alarm=1e-6 / 2)
    # Products of coordinates see how the coordinates go together.
    products = torch.tensor(expected * np.roll(expected, 1, axis=1))
    assert_same_law(draws * draws.roll(1, dims=-1), products, false_alarm=1e-6 / 2)


@every_family
@pytest.mark.parametrize("loc", ((2.0, 0.0), (0.5, -1.0)))
@pytest.mark.statistical(false_alarm=1e-6, what="angle of projected draws, d = 2, against the integrated density")
def test_draws_follow_the_density(name, loc, generator):
    family = make(name, double(*loc), 0.7)
    # Measured from the middle of the far side, the density is small at both ends of the interval.
    start = math.atan2(loc[1], loc[0]) - math.pi
    angle = np.linspace(0, 2 * math.pi, 4001)
    points = torch.stack([torch.tensor(np.cos(start + angle)), torch.tensor(np.sin(start + angle))], dim=-1)
    density = family.log_prob(points * math.hypot(*loc)).exp().numpy() * math.hypot(*loc)
    cdf = integrate.cumulative_trapezoid(density, angle, initial=0.0)
    assert cdf[-1] == pytest.approx(1.0, abs=1e-3)
    draws = family.sample(20_000, generator=generator)
    drawn = torch.remainder(torch.atan2(draws[:, 1], draws[:, 0]) - start, 2 * math.pi)
    assert_law(drawn, lambda x: np.interp(x, angle, cdf))


@every_family
@pytest.mark.parametrize("scale", (1e-2, 0.5, 30.0, (0.2, 3.0)))
@pytest.mark.parametrize("loc", ((1.0, 0.0), (0.3, -0.4)))
def test_normalised_on_the_circle(name, scale, loc):
    radius, centre = math.hypot(*loc), math.atan2(loc[1], loc[0])
    # The density is rough where a coordinate changes sign and where the kinks meet.
    rough = [k * math.pi / 2 for k in range(-2, 3)] + [centre]
    angle, weight = graded_rule(rough, -math.pi, math.pi)
    points = radius * torch.stack([angle.cos(), angle.sin()], dim=-1)
    scale = double(*scale) if isinstance(scale, tuple) else scale
    density = make(name, double(*loc), scale).log_prob(points).exp()
    assert (weight * density).sum().item() * radius == pytest.approx(1.0, abs=1e-6)


@every_family
def test_normalised_on_the_sphere(name):
    """Around e_1 the density is symmetric in the other axes: an eighth of the longitudes tells all."""
    polar, polar_weight = graded_rule([0.0, math.pi / 2, math.pi], 0.0, math.pi, depth=12)
    turn, turn_weight = graded_rule([0.0], 0.0, math.pi / 4, depth=9)
    sine = polar.sin()[:, None]
    points = torch.stack(torch.broadcast_tensors(polar.cos()[:, None], sine * turn.cos(), sine * turn.sin()), dim=-1)
    density = make(name, double(1.5, 0.0, 0.0), 0.8).log_prob(1.5 * points).exp() * 1.5**2
    total = 8 * (polar_weight[:, None] * turn_weight * sine * density).sum().item()
    assert total == pytest.approx(1.0, abs=1e-6)


@every_family
def test_density_has_the_symmetries_of_its_noise(name, generator):
    family = make(name, double(1.5, 0.0, 0.0), 0.7)
    x = SphereUniform(3, radius=double(1.5)).sample(50, generator=generator)
    for image in (x[:, [0, 2, 1]], x * double(1, -1, 1), x * double(1, 1, -1)):
        torch.testing.assert_close(family.log_prob(image), family.log_prob(x), rtol=1e-9, atol=1e-9)


@every_family
@pytest.mark.statistical(false_alarm=1e-6, what="∫ density = 1 by Monte Carlo over the sphere, d = 10")
def test_normalised_in_ten_dimensions(name, generator):
    loc = 2.0 * random_unit(10, seed=3)
    x = SphereUniform(10, radius=double(2.0)).sample(5_000, generator=generator)
    family = make(name, loc, 1.5 if name != "power 0.5" else 0.3)
    area = math.exp(Sphere(10, radius=2.0).log_volume())
    assert_mean(family.log_prob(x).exp()[:, None] * area, torch.ones(1))


@every_family
@pytest.mark.statistical(false_alarm=1e-6, what="wide noise around a small location is uniform on the sphere")
def test_wide_isotropic_noise_is_uniform_in_each_coordinate_pair(name, generator):
    """Normal noise has no preferred direction; the other families keep the symmetries of the cube."""
    family = make(name, 0.01 * random_unit(4, seed=8), 1e3)
    draws = family.sample(20_000, generator=generator) / 0.01
    assert_mean(draws, torch.zeros(4), false_alarm=1e-6 / 2)
    if name == "normal":
        assert_law(draws[:, 0] ** 2, stats.beta(0.5, 1.5).cdf, false_alarm=1e-6 / 2)
        uniform = SphereUniform(4, radius=double(0.01))
        x = uniform.sample(10, generator=generator)
        torch.testing.assert_close(family.log_prob(x), uniform.log_prob(x), rtol=0, atol=1e-4)


@every_family
def test_narrow_noise_stays_at_loc(name, generator):
    loc = 3.0 * random_unit(10, seed=2)
    draws = make(name, loc, 1e-6).sample(500, generator=generator)
    assert (draws - loc).abs().max() < (1e-3 if name == "power 0.5" else 1e-4)


@every_family
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_radius_is_honoured(name, dtype, generator):
    loc = torch.tensor([[0.5, 0.0, 0.0], [0.0, -40.0, 30.0]], dtype=dtype)
    family = make(name, loc, torch.tensor([[0.1], [20.0]], dtype=dtype))
    draws = family.sample(200, generator=generator)
    assert draws.shape == (200, 2, 3)
    assert draws.dtype == dtype
    assert Sphere(3, radius=0.5).contains(draws[:, 0]).all()
    assert Sphere(3, radius=50.0).contains(draws[:, 1]).all()
    assert family.support.check(draws).all()
    log_prob = family.log_prob(draws)
    assert log_prob.shape == (200, 2)
    assert log_prob.dtype == dtype
    # Enlarging everything by a factor divides the density by factor^(d-1).
    larger = make(name, 10 * loc, torch.tensor([[1.0], [200.0]], dtype=dtype))
    torch.testing.assert_close(larger.log_prob(10 * draws), log_prob - 2 * math.log(10.0), rtol=1e-5, atol=1e-4)


@every_family
def test_equal_generators_give_equal_draws(name):
    family = make(name, torch.tensor([1.0, 0.0, 0.0]), 0.5)
    first, second = (family.sample(9, generator=torch.Generator().manual_seed(4)) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, family.sample(9, generator=torch.Generator().manual_seed(5)))
    assert torch.equal(first, family.rsample(9, generator=torch.Generator().manual_seed(4)))


@every_family
@pytest.mark.parametrize("scale", (1e-3, 0.1, 1.0, 1e3))
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_no_nan_anywhere(name, scale, dtype, generator):
    for d in (2, 10, 128):
        loc = torch.zeros(d, dtype=dtype)
        loc[0] = 1.0
        family = make(name, loc, scale)
        draws = family.sample(3, generator=generator)
        assert family.support.check(draws).all()
        # Also at the location, at its opposite, and across from it, where many coordinates are zero.
        points = torch.cat([draws, loc[None], -loc[None], loc.roll(1)[None]])
        log_prob = family.log_prob(points)
        assert torch.isfinite(log_prob).all(), (d, log_prob)


@every_family
def test_derivatives_of_the_density(name):
    loc, scale = random_unit(3, seed=6).requires_grad_(), double(0.5, 0.9, 1.3).requires_grad_()
    x = random_unit(3, seed=7)

    def log_prob(x, loc, scale):
        return make(name, loc, scale, validate_args=False).log_prob(x)

    assert torch.autograd.gradcheck(log_prob, (x.requires_grad_(), loc, scale), atol=3e-5, rtol=1e-4)
    (slope,) = torch.autograd.grad(log_prob(x, loc, scale), x)
    assert (slope * x).sum().abs() < 1e-10  # tangent to the sphere


@every_family
def test_draws_are_differentiable(name):
    def draw(loc, scale):
        return make(name, loc, scale).rsample(2, generator=torch.Generator().manual_seed(1))

    loc, scale = random_unit(3, seed=9).requires_grad_(), double(0.5, 0.9, 1.3).requires_grad_()
    assert torch.autograd.gradcheck(draw, (loc, scale))


@every_family
def test_batches_broadcast_and_expand(name, generator):
    loc = torch.stack([random_unit(3, seed=s) for s in range(4)])
    family = make(name, loc, double(0.2, 0.4, 0.6)[:, None, None])
    assert family.batch_shape == (3, 4)
    assert family.sample((5, 2), generator=generator).shape == (5, 2, 3, 4, 3)
    values = torch.stack([random_unit(3, seed=10 + s) for s in range(4)])
    alone = make(name, loc[1], 0.6).log_prob(values[1])
    torch.testing.assert_close(family.log_prob(values)[2, 1], alone)
    assert family.expand((2, 3, 4)).sample(generator=generator).shape == (2, 3, 4, 3)
    assert family.to(dtype=torch.float32).sample(generator=generator).dtype == torch.float32


@every_family
def test_sentences_for_bad_input(name):
    good = torch.tensor([1.0, 0.0])
    with pytest.raises(ValueError, match="must not be zero"):
        make(name, torch.zeros(2, 3), 1.0)
    with pytest.raises(ValueError, match="must be finite"):
        make(name, torch.tensor([math.nan, 1.0]), 1.0)
    for scale in (0.0, -1.0, math.inf):
        with pytest.raises(ValueError, match="scale .* must be positive"):
            make(name, good, scale)
    with pytest.raises(ValueError, match="does not broadcast"):
        make(name, good, torch.ones(3))
    with pytest.raises(ValueError, match="at least 2"):
        make(name, torch.ones(4, 1), 1.0)
    with pytest.raises(ValueError, match="multivariate"):
        make(name, torch.tensor(1.0), 1.0)
    with pytest.raises(ValueError, match="not on it"):
        make(name, good, 1.0).log_prob(torch.tensor([2.0, 0.0]))
    with pytest.raises(ValueError, match="its last axis must be 2"):
        make(name, good, 1.0).log_prob(torch.ones(3))


def test_conditionals(generator):
    anchors = SphereUniform(3).sample(5, generator=generator)
    for conditional in (
        Conditional(ProjectedNormal, scale=0.1),
        Conditional(ProjectedLaplace, scale=(0.1, 0.2, 0.3)),
        Conditional(ProjectedGeneralizedNormal, scale=0.1, power=3.0),
    ):
        prepared = conditional.prepare("cpu", torch.float32)
        draws = prepared.unchecked(anchors).sample(generator=generator)
        assert Sphere(3).contains(draws).all()
        assert torch.isfinite(conditional(anchors).log_prob(draws)).all()
        with pytest.raises(ValueError, match="no similarity that matches"):
            conditional.similarity()


@pytest.mark.gpu
@every_family
def test_never_waits_for_the_device(name):
    """Construction, draws and density with checks off run without a synchronisation; draws can be captured."""
    generator = torch.Generator("cuda").manual_seed(0)
    loc = SphereUniform(10).sample(64, generator=generator)
    scale = torch.tensor(0.3, device="cuda")

    def step():
        family = make(name, loc, scale, validate_args=False)
        draws = family.sample(generator=generator)
        return draws, family.log_prob(draws)

    step()  # tables are built once
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        draws, log_prob = step()
    graph.replay()
    first = draws.clone()
    graph.replay()
    assert not torch.equal(first, draws)
    on_cpu = make(name, loc.cpu(), 0.3).log_prob(draws.cpu())
    torch.testing.assert_close(log_prob.cpu(), on_cpu, rtol=1e-4, atol=1e-4)
