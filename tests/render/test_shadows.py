"""Silhouettes and shadows at a low resolution, against rays that are cast at every triangle."""

from __future__ import annotations

import math

import pytest
import torch

from identica.render import raster, scene
from identica.render.distance import teapot_grid
from identica.render.lighting import Disk, Light
from identica.render.mesh import teapot
from identica.render.patterns import disk_patterns, square_patterns
from identica.render.raycast import first_hit, is_hidden
from identica.render.scene import place
from identica.render.shading import Samples, Surface, Task, light_all
from identica.render.torch_renderer import LIFT, View, ground_points
from identica.render.tracing import Tracer

CELL = 0.0242


@pytest.fixture(scope="module")
def latents() -> torch.Tensor:
    return torch.rand(4, 10, generator=torch.Generator().manual_seed(3)) * 1.8 - 0.9


@pytest.fixture(scope="module")
def tracer() -> Tracer:
    return Tracer.of(teapot_grid(CELL), torch.device("cpu"))


def camera_rays(view: View, side: int) -> tuple[torch.Tensor, torch.Tensor]:
    """From the camera through every sample of a picture of side² pixels and its margin, in the object's space."""
    steps = (torch.arange(side + 2 * raster.MARGIN).double() + 0.5 - raster.MARGIN) / side - 0.5
    right, up, forward, eye = (torch.tensor(v).double() for v in (scene.RIGHT, scene.UP, scene.FORWARD, scene.CAMERA))
    ray = forward + steps[None, :, None] / scene.FOCAL * right - steps[:, None, None] / scene.FOCAL * up
    rotation = view.rotation.double()
    origin = (eye - view.placement.location[view.number].double()) @ rotation
    ray = ray.reshape(-1, 3) @ rotation
    return origin.expand_as(ray), ray


@pytest.mark.parametrize("number", range(3))
def test_silhouettes_and_triangles(latents: torch.Tensor, number: int) -> None:
    placement = place(latents)
    view, mesh, side = View(placement, number), teapot(), 32
    vertices, triangles = torch.from_numpy(mesh.vertices).float(), torch.from_numpy(mesh.triangles)
    screen = raster.project(vertices, view.rotation, placement.location[number], side, 1)
    hits = raster.rasterise(screen, triangles, side + 2 * raster.MARGIN)
    origin, ray = camera_rays(view, side)
    _, want = first_hit(origin, ray, mesh)
    got = torch.full_like(want, -1)
    got[hits.sample] = hits.triangle
    assert (want >= 0).sum() > 30
    assert ((got >= 0) != (want >= 0)).sum() <= 1  # a sample on an edge may fall to either side
    assert (got != want).sum() <= 3
    corners = vertices[triangles[hits.triangle]]
    point = sum(w[:, None] * corners[:, k] for k, w in enumerate(hits.weights))
    distance, _ = first_hit(origin[hits.sample], ray[hits.sample], mesh)
    there = origin[hits.sample] + distance[:, None] * ray[hits.sample]
    both = distance.isfinite()
    assert (point - there).norm(dim=1)[both].median() < 1e-4


def ground_surface(view: View, side: int) -> Surface:
    positions = torch.arange(side).double() * (224 / side)
    points = torch.from_numpy(ground_points(positions.numpy(), 224)).float().reshape(-1, 3)
    eye = torch.tensor(scene.CAMERA) - points
    x, y, z = view.rotation[2][:, None].expand(3, len(points))
    point, way = view.point(points).T.contiguous(), view.direction(eye / eye.norm(dim=1, keepdim=True)).T.contiguous()
    return Surface((point[0], point[1], point[2]), (x, y, z), (way[0], way[1], way[2]), torch.zeros(len(points)).long())


@pytest.mark.parametrize("number", range(2))
@pytest.mark.parametrize("which", [0, 1, 2])
def test_shadow_masks_on_the_ground(latents: torch.Tensor, tracer: Tracer, number: int, which: int) -> None:
    """Hard shadows, of the middle of each light: all points agree but for some on the shadow's edge."""
    view = View(place(latents), number)
    surface, light = ground_surface(view, 32), view.lights()[which]
    samples = Samples.of(surface, light, torch.zeros(2, 1, 1))
    way, length = torch.stack(samples.direction).reshape(3, -1), samples.distance.reshape(-1)
    start = torch.stack(surface.point)
    got = torch.zeros(start.shape[1], dtype=torch.bool)
    got[tracer.occluded(tracer.to_cells(surface.point), way, length / tracer.cell)] = True
    want = is_hidden(start.T, (start + way * length).T, teapot())
    assert want.sum() > 10
    wrong = (got != want).sum()
    edge = 4 * math.sqrt(float(want.sum()))  # about how many points are next to the shadow's edge
    assert wrong <= 0.25 * edge


def seen_share(surface: Surface, light: Light, count: int) -> torch.Tensor:
    """How much of a light's irradiance gets through, by rays against every triangle."""
    patterns = disk_patterns(count) if light.round else square_patterns(count)
    samples = Samples.of(surface, light, torch.tensor(patterns.T.copy()).float())
    start = torch.stack(surface.point)[:, None]
    end = start + torch.stack(samples.direction) * samples.distance
    start, end = (v.expand_as(end).reshape(3, -1).T for v in (start, end))
    hidden = is_hidden(start, end, teapot()).view_as(samples.weight)
    return (samples.weight * ~hidden).sum(dim=0) / samples.weight.sum(dim=0)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_soft_shadows_on_the_ground(latents: torch.Tensor, tracer: Tracer, which: int) -> None:
    """The share of light that gets through, against 24 rays at every triangle, near the edge of the shadow."""
    view = View(place(latents), 0)
    everywhere, light = ground_surface(view, 64), view.lights()[which]
    patterns = torch.tensor((disk_patterns if light.round else square_patterns)(32).T.copy()).float()
    without, _ = Samples.of(everywhere, light, patterns).brightness(near=1e9)
    ((tinted, _),) = light_all([Task(everywhere, light, patterns, patterns, lift=0.0, near=1e9)], tracer)
    share = tinted / without.clamp(min=1e-9)
    partly = ((without > 1e-3) & (share > 0.02) & (share < 0.98)).nonzero().squeeze(1)[::4]
    assert len(partly) > 8
    want = seen_share(everywhere.part(partly), light, 24)
    error = (share[partly] - want).abs()
    assert error.mean() < 0.05 and error.max() < 0.25


def test_shadows_of_the_object_on_itself(latents: torch.Tensor, tracer: Tracer) -> None:
    """At points of the object that face the sun: which see its middle, against every triangle."""
    mesh, view = teapot(), View(place(latents), 1)
    point, normal = torch.from_numpy(mesh.vertices).float().T, torch.from_numpy(mesh.normals).float().T
    up = view.rotation[2]
    facing = ((normal * up[:, None]).sum(dim=0) > 0.2).nonzero().squeeze(1)[::5]
    point, normal = point[:, facing], normal[:, facing]
    zero = torch.zeros(len(facing)).long()
    corner = (point[0], point[1], point[2])
    surface = Surface(corner, (normal[0], normal[1], normal[2]), corner, zero)
    start, way = tracer.to_cells(surface.lifted(LIFT * CELL)), up[:, None].expand(3, len(facing))
    got = torch.zeros(len(facing), dtype=torch.bool)
    got[tracer.occluded(start, way, torch.full((len(facing),), 800.0))] = True
    begin = (point + 0.05 * normal).T
    want = is_hidden(begin, begin + 20.0 * up, mesh)
    assert want.sum() > 20 and (~want).sum() > 100
    assert (got != want).double().mean() < 0.06


def test_the_spot_reaches_what_is_in_its_cone(latents: torch.Tensor) -> None:
    view = View(place(latents), 2)
    surface, light = ground_surface(view, 48), view.lights()[2]
    assert isinstance(light, Disk)
    patterns = torch.tensor(disk_patterns(64).T.copy()).float()
    weight = Samples.of(surface, light, patterns).weight.mean(dim=0)
    reached = light.reaches(surface.point, surface.normal)
    assert (weight[~reached] == 0).all()
    assert (weight[reached] > 0).double().mean() > 0.9
