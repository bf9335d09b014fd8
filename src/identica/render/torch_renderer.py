"""The renderer in PyTorch: one scene after the other, on any device.

The object is drawn by a depth buffer, a few samples a pixel, and lit where it is seen. The ground is smooth but for
its shadows, which are soft, so it is lit on a coarser grid and interpolated. Both meet in the pixels' filter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from identica.kernels import workers
from identica.render import formulas, pixels, raster, scene, shading
from identica.render.distance import teapot_grid
from identica.render.lighting import Disk, Light, Square, Sun
from identica.render.mesh import teapot
from identica.render.patterns import disk_patterns, square_patterns
from identica.render.scene import Placement, place
from identica.render.shading import Brightness, Surface, Task
from identica.render.tracing import Tracer, Vector

#: Patterns of light samples: neighbours in a square of 4 by 4 all have different ones.
VARIANTS = 16
ORDER = (0, 8, 2, 10, 12, 4, 14, 6, 3, 11, 1, 9, 15, 7, 13, 5)
#: How far above the object's surface its shadow rays start, in cells.
LIFT = 0.4
#: Samples of a light that a sample of the object sees as a whole: fewer than on the ground, because a pixel has many.
OBJECT_FEW = 4
#: Samples of a light for what is computed only once.
PLENTY = 64


@dataclass(frozen=True)
class Settings:
    """How finely a picture is sampled.

    supersampling: samples of the object along a pixel's side. ground_step: pixels between lit points of the ground.
    object_samples, ground_samples: samples of each light where its shadows begin. cell: of the distances that shadows
    are traced through. near: from which slope on a light counts as near.
    """

    supersampling: int
    ground_step: int
    object_samples: int
    ground_samples: int
    cell: float
    near: float


@dataclass(frozen=True, eq=False)
class View:
    """One scene of a batch, as seen from the object."""

    placement: Placement
    number: int

    @property
    def rotation(self) -> Tensor:
        """From the object's axes to the world's."""
        return self.placement.rotation[self.number]

    def direction(self, vector: Tensor) -> Tensor:
        """A direction of the world, or many, ``(..., 3)``, along the object's axes."""
        return scene.turned(vector, self.rotation)

    def point(self, point: Tensor) -> Tensor:
        """A point of the world, or many, ``(..., 3)``, in the object's space."""
        return scene.turned(point - self.placement.location[self.number], self.rotation)

    def lights(self) -> tuple[Sun, Square, Disk]:
        """The sun, the area light and the spotlight."""
        across, along, up = (_components(axis) for axis in self.rotation)
        centre = self.rotation.new_tensor([0.0, 0.0, scene.AREA_HEIGHT])
        spot, axis = self.placement.spot[self.number], self.placement.axis[self.number]
        return (
            Sun(across, along, up),
            Square(_components(self.point(centre)), across, along, up),
            Disk(_components(self.point(spot)), _components(self.direction(axis))),
        )

    def mix(self, colours: Tensor, lights: list[Brightness]) -> Tensor:
        """The colours ``(3, P)`` of points from their brightness under the lights, the last of which has a colour."""
        colour, spot = colours[self.number][:, None], self.placement.spot_colour[self.number][:, None]
        (a, b), (c, d), (e, f) = lights
        return colour * (a + c) + (b + d) + spot * (colour * e + f)


class TorchRenderer:
    """Draws scenes at one resolution and on one device."""

    def __init__(self, resolution: int, settings: Settings, device: torch.device) -> None:
        self.resolution, self.settings, self.device = resolution, settings, device
        self.side = (resolution + 2 * raster.MARGIN) * settings.supersampling
        self.tracer = Tracer.of(teapot_grid(settings.cell), device)
        self._known_patterns: dict[tuple[bool, int], Tensor] = {}
        self._prepare_object()
        self._prepare_pixels()
        self._prepare_ground()

    def _prepare_object(self) -> None:
        mesh = teapot()
        self.vertices, self.normals = self._tensor(mesh.vertices), self._tensor(mesh.normals)
        self.triangles = torch.from_numpy(mesh.triangles).to(self.device)
        first, second, third = (mesh.vertices[mesh.triangles[:, k]] for k in range(3))
        self.faces = self._tensor(np.cross(second - first, third - first))

    def _prepare_pixels(self) -> None:
        size = (self.resolution, self.settings.supersampling, raster.MARGIN)
        weights, rows = pixels.sample_weights(*size), pixels.interpolation(*size, self.settings.ground_step)
        self.weights, self.spread = self._tensor(weights), self._tensor(rows)
        self.ground_weights = self._tensor(weights @ rows)

    def _prepare_ground(self) -> None:
        """Where the ground's points are, and what never changes there: sun and area light without the object."""
        positions = pixels.grid_positions(self.resolution, raster.MARGIN, self.settings.ground_step)
        points = ground_points(positions, self.resolution)
        view = np.array(scene.CAMERA) - points
        view /= np.linalg.norm(view, axis=-1, keepdims=True)
        self.ground_points, self.ground_view = self._tensor(points), self._tensor(view)
        row = torch.arange(len(positions), device=self.device)
        self.ground_variant = variants(row[:, None], row[None, :]).flatten()
        view_of_world = View(place(torch.zeros(1, 10, dtype=torch.float32, device=self.device)), 0)
        sun, square, _ = view_of_world.lights()
        surface = self._ground_surface(view_of_world)
        self.open_ground = tuple(
            shading.open_brightness(surface, light, self.patterns(light, PLENTY), 0.0) for light in (sun, square)
        )

    def render(self, placement: Placement, dtype: torch.dtype) -> Tensor:
        """Pictures of scenes in sRGB: ``(B, 3, H, W)``, bytes or floating numbers in [0, 1]."""
        count = len(placement.location)
        shares = min(count, workers.available_workers() if self.device.type == "cpu" else 1)
        draw = [partial(self._pictures, placement, range(k, count, shares), dtype) for k in range(shares)]
        pictures = torch.empty(count, 3, self.resolution, self.resolution, dtype=dtype, device=self.device)
        for k, share in enumerate(workers.run(draw) if shares > 1 else [piece() for piece in draw]):
            pictures[k::shares] = share
        return pictures

    def _pictures(self, placement: Placement, numbers: range, dtype: torch.dtype) -> Tensor:
        return torch.stack([self._picture(placement, number, dtype) for number in numbers])

    def _picture(self, placement: Placement, number: int, dtype: torch.dtype) -> Tensor:
        values = formulas.to_srgb(self.render_one(placement, number))
        return (values * 255.0 + 0.5).to(dtype) if dtype == torch.uint8 else values.to(dtype)

    def render_one(self, placement: Placement, number: int) -> Tensor:
        """Linear light of one scene: ``(3, H, W)``."""
        view = View(placement, number)
        location = placement.location[number]
        screen = raster.project(self.vertices, view.rotation, location, self.resolution, self.settings.supersampling)
        hits = raster.rasterise(screen, self.triangles, self.side)
        ground, colour = self._light(view, hits)
        picture = self.ground_weights @ ground @ self.ground_weights.T
        if not len(hits.sample):
            return picture
        row, column = torch.div(hits.sample, self.side, rounding_mode="floor"), hits.sample % self.side
        top, left = int(row.min()), int(column.min())
        bottom, right = int(row.max()) + 1, int(column.max()) + 1
        # In front of the ground: what the object adds to what the ground would have shown there
        behind = self.spread[top:bottom] @ ground @ self.spread[left:right].T
        where = (row - top) * (right - left) + column - left
        in_front = torch.zeros_like(behind).flatten(1)
        in_front[:, where] = colour - behind.flatten(1)[:, where]
        return picture + self.weights[:, top:bottom] @ in_front.view_as(behind) @ self.weights[:, left:right].T

    def _light(self, view: View, hits: raster.Hits) -> tuple[Tensor, Tensor]:
        """The ground's colour at its grid, ``(3, G, G)``, and the object's at the samples that show it, ``(3, P)``."""
        ground, body = self._ground_surface(view), self._object_surface(view, hits)
        lights, settings = view.lights(), self.settings
        known = (*self.open_ground, None)
        tasks = [
            self._task(ground, light, settings.ground_samples, light.few, 0.0, whole)
            for light, whole in zip(lights, known, strict=True)
        ]
        lift, count = LIFT * settings.cell, settings.object_samples
        tasks += [self._task(body, light, count, min(OBJECT_FEW, light.few), lift, None) for light in lights]
        shares = shading.light_all(tasks, self.tracer)
        side = len(self.ground_points)
        ground_colour = view.mix(view.placement.ground_colour, shares[:3]).view(3, side, side)
        return ground_colour, view.mix(view.placement.object_colour, shares[3:])

    def _task(
        self, surface: Surface, light: Light, samples: int, few: int, lift: float, whole: Brightness | None
    ) -> Task:
        patterns, few_patterns = self.patterns(light, samples), self.patterns(light, few)
        return Task(surface, light, patterns, few_patterns, lift, self.settings.near, whole)

    def _ground_surface(self, view: View) -> Surface:
        x, y, z = view.rotation[2][:, None].expand(3, len(self.ground_variant))
        point, eye = view.point(self.ground_points), view.direction(self.ground_view)
        return Surface(_vector(point), (x, y, z), _vector(eye), self.ground_variant)

    def _object_surface(self, view: View, hits: raster.Hits) -> Surface:
        corners = self.triangles[hits.triangle]
        weights = torch.stack(hits.weights, dim=1).unsqueeze(-1)
        point = (weights * self.vertices[corners]).sum(dim=1)
        normal = (weights * self.normals[corners]).sum(dim=1)
        eye = view.point(self._tensor(np.array(scene.CAMERA))) - point
        normal = torch.where((self.faces[hits.triangle] * eye).sum(dim=1, keepdim=True) < 0, -normal, normal)
        row, column = torch.div(hits.sample, self.side, rounding_mode="floor"), hits.sample % self.side
        return Surface(_vector(point), _vector(_unit(normal)), _vector(_unit(eye)), variants(row, column))

    def patterns(self, light: Light | type[Light], samples: int) -> Tensor:
        """Where on a light its samples are: ``(2, samples, variants)``."""
        key = (light.round, samples)
        if key not in self._known_patterns:
            family = disk_patterns if light.round else square_patterns
            self._known_patterns[key] = self._tensor(np.ascontiguousarray(family(samples, VARIANTS).T))
        return self._known_patterns[key]

    def _tensor(self, array: NDArray[np.float64]) -> Tensor:
        return torch.from_numpy(array).to(self.device, torch.float32)


def variants(row: Tensor, column: Tensor) -> Tensor:
    """Which pattern of light samples a sample of the picture uses: all of a square of 4 by 4 use different ones."""
    order = row.new_tensor(ORDER)
    return order[(row % 4) * 4 + column % 4]


def ground_points(positions: NDArray[np.float64], resolution: int) -> NDArray[np.float64]:
    """Where the camera's rays at these positions (in pixels, along rows and columns) meet the ground: ``(G, G, 3)``."""
    offset = (positions / resolution - 0.5) / scene.FOCAL
    right, up, forward, camera = (np.array(v) for v in (scene.RIGHT, scene.UP, scene.FORWARD, scene.CAMERA))
    ray = forward + offset[None, :, None] * right - offset[:, None, None] * up
    return camera + ray * ((scene.GROUND - camera[2]) / ray[..., 2:])


def _unit(rows: Tensor) -> Tensor:
    return rows / rows.norm(dim=1, keepdim=True)


def _components(vector: Tensor) -> Vector:
    x, y, z = vector
    return x, y, z


def _vector(rows: Tensor) -> Vector:
    """``(..., 3)`` → three flat tensors."""
    return _components(rows.reshape(-1, 3).T.contiguous())
