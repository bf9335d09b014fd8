"""Light at a point, against closed forms and quadrature."""

from __future__ import annotations

import math

import pytest
import torch

from identica.render import formulas


def test_fresnel_at_normal_and_grazing_incidence() -> None:
    for index in (1.2, 1.4):
        straight, grazing = formulas.fresnel(torch.tensor([1.0, 0.0], dtype=torch.float64), index)
        assert float(straight) == pytest.approx(((index - 1) / (index + 1)) ** 2)
        assert float(grazing) == pytest.approx(1.0)


def test_fresnel_against_the_laws_of_refraction() -> None:
    """The mean of the two polarisations' reflectances, from the angles by Snell's law."""
    angle = torch.linspace(0.1, 1.5, 20, dtype=torch.float64)
    inner = (angle.sin() / 1.4).asin()
    across = ((angle - inner).sin() / (angle + inner).sin()).square()
    along = ((angle - inner).tan() / (angle + inner).tan()).square()
    torch.testing.assert_close(formulas.fresnel(angle.cos(), 1.4), 0.5 * (across + along))


def test_microfacets_of_beckmann_cover_the_surface_once() -> None:
    """∫ D(h) (n·h) dω = 1; D is read off the formula where nothing is masked: 4 (n·v) f at n·l = n·v = 1."""
    angle = torch.linspace(0.0, math.pi / 2 - 0.02, 20_000, dtype=torch.float64)
    one = torch.ones_like(angle)
    density = 4.0 * formulas.beckmann(one, one, angle.cos())
    total = torch.trapezoid(density * angle.cos() * 2 * math.pi * angle.sin(), angle)
    assert float(total) == pytest.approx(1.0, abs=1e-3)


def test_fibres_of_velvet_cover_the_surface_once() -> None:
    """∫ D(h) (n·h) dω = 1: with c = cot²θ it is ∫ exp(−c / σ²) / σ² dc. D is 4 f where nothing is masked."""
    angle = torch.linspace(0.02, math.pi / 2 - 1e-3, 40_000, dtype=torch.float64)
    one = torch.ones_like(angle)
    density = 4.0 * formulas.velvet(one, one, angle.cos(), angle.cos())
    total = torch.trapezoid(density * 2 * math.pi * angle.cos() * angle.sin(), angle)
    assert float(total) == pytest.approx(1.0, abs=5e-3)


def test_light_is_not_made() -> None:
    """A white surface sends out no more than it gets: the reflection, over all directions of the light."""
    polar = torch.linspace(0.01, math.pi / 2 - 0.01, 200, dtype=torch.float64)[:, None]
    turn = torch.linspace(0.0, 2 * math.pi, 200, dtype=torch.float64)[None, :]
    for view in (0.2, 0.8, 1.2):
        nl = polar.cos().expand(200, 200)
        lv = polar.sin() * turn.cos() * math.sin(view) + polar.cos() * math.cos(view)
        tinted, glossy = formulas.reflect(nl, torch.full_like(nl, math.cos(view)), lv)
        sent = (tinted + glossy) * nl * polar.sin()
        total = torch.trapezoid(torch.trapezoid(sent, turn.squeeze(0), dim=1), polar.squeeze(1))
        assert 0.5 < float(total) < 1.02


def test_the_spot_fades_at_its_edge() -> None:
    edge = math.cos(math.radians(17.5))
    inner = edge + 0.1 * (1.0 - edge)
    cosine = torch.tensor([edge - 1e-3, edge, 0.5 * (edge + inner), inner, 1.0], dtype=torch.float64)
    torch.testing.assert_close(formulas.spot_edge(cosine), cosine.new_tensor([0.0, 0.0, 0.5, 1.0, 1.0]))


def test_srgb() -> None:
    linear = torch.tensor([-1.0, 0.0, 0.002, 0.2140411, 1.0, 5.0], dtype=torch.float64)
    want = linear.new_tensor([0.0, 0.0, 0.02584, 0.5, 1.0, 1.0])
    torch.testing.assert_close(formulas.to_srgb(linear), want, atol=1e-6, rtol=0)


def test_points_of_the_lights() -> None:
    """A disk that faces the point, at its distance; the sun within its radius."""
    generator = torch.Generator().manual_seed(0)
    to = torch.randn(3, 100, generator=generator, dtype=torch.float64)
    distance = to.norm(dim=0)
    x, y, z = to / distance
    a, b = torch.rand(2, 100, generator=generator, dtype=torch.float64) - 0.5
    sample = torch.stack(formulas.toward_disk((x, y, z), distance, a, b))
    offset = sample - to
    torch.testing.assert_close((offset * to).sum(dim=0), torch.zeros(100, dtype=torch.float64), atol=1e-12, rtol=0)
    torch.testing.assert_close(offset.norm(dim=0), 0.5 * (a.square() + b.square()).sqrt())
    edge = formulas.toward_sun(torch.tensor(1.0), torch.tensor(0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    assert math.atan2(float(edge[0]), float(edge[2])) == pytest.approx(0.1993 / 2, abs=1e-4)
