"""How bright points of a surface are under a light, in PyTorch, one scene at a time.

Brightness is irradiance times reflection. The irradiance is a mean over samples of the light, each with its own shadow
ray. The reflection changes little across a light that is far away, and is taken in the direction of its middle; for
a near one it is part of the mean. Most points see all of a light, which one cone finds out, and need no rays.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from identica.render import formulas
from identica.render.formulas import dot
from identica.render.lighting import Light
from identica.render.tracing import Tracer, Vector

#: Points without shadows that are lit together, which bounds the memory that their samples take.
_TOGETHER = 1 << 14

#: What the surface's colour is multiplied by, and what is added whatever its colour: each ``(P,)``.
Brightness = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Surface:
    """Points to be lit, each with its unit normal and the unit direction to the camera.

    ``variant``: (P,), which of the lights' patterns of samples each of them uses.
    """

    point: Vector
    normal: Vector
    view: Vector
    variant: Tensor

    def part(self, chosen: Tensor) -> Surface:
        """Some of the points."""
        return Surface(
            take(self.point, chosen), take(self.normal, chosen), take(self.view, chosen), self.variant[chosen]
        )

    def lifted(self, height: float) -> Vector:
        """The points, moved along their normals."""
        (x, y, z), (nx, ny, nz) = self.point, self.normal
        return x + height * nx, y + height * ny, z + height * nz


@dataclass(frozen=True, eq=False)
class Task:
    """A surface to be lit by a light.

    patterns: (2, samples, variants), where on the light samples are taken; few: the same for points that see all of it.
    lift: how far above the surface shadow rays start, so as not to meet it at once. near: the slope from which the
    light counts as near. whole: the brightness without shadows, if it is known.
    """

    surface: Surface
    light: Light
    patterns: Tensor
    few: Tensor
    lift: float
    near: float
    whole: Brightness | None = None


def light_all(tasks: list[Task], tracer: Tracer) -> list[Brightness]:
    """The brightness of every task's points. The rays of all tasks are traced together."""
    reached = [task.light.reaches(task.surface.point, task.surface.normal).nonzero().squeeze(1) for task in tasks]
    parts = [task.surface.part(chosen) for task, chosen in zip(tasks, reached, strict=True)]
    unclear = _unclear(tasks, parts, tracer)
    dim = [part.part(chosen) for part, chosen in zip(parts, unclear, strict=True)]
    samples = [Samples.of(some, task.light, task.patterns) for some, task in zip(dim, tasks, strict=True)]
    _remove_hidden(samples, [task.lift for task in tasks], tracer)
    results = []
    for task, points, part, chosen, some in zip(tasks, reached, parts, unclear, samples, strict=True):
        shares = [share.clone() for share in task.whole or _in_place(task, points, part)]
        for share, seen in zip(shares, some.brightness(task.near), strict=True):
            share[points[chosen]] = seen
        results.append((shares[0], shares[1]))
    return results


def _in_place(task: Task, points: Tensor, part: Surface) -> Brightness:
    """The brightness without shadows, 0 where the light does not reach."""
    tinted, glossy = (torch.zeros_like(task.surface.point[0]) for _ in range(2))
    tinted[points], glossy[points] = open_brightness(part, task.light, task.few, task.near)
    return tinted, glossy


def open_brightness(surface: Surface, light: Light, patterns: Tensor, near: float) -> Brightness:
    """The brightness of points that see all of a light."""
    numbers = torch.arange(len(surface.variant), device=patterns.device)
    parts = [Samples.of(surface.part(some), light, patterns).brightness(near) for some in numbers.split(_TOGETHER)]
    tinted, glossy = zip(*parts, strict=True)
    return torch.cat(list(tinted)), torch.cat(list(glossy))


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples of a light, seen from the points of a surface: directions, distance, irradiance: ``(samples, P)``."""

    surface: Surface
    light: Light
    direction: Vector
    distance: Tensor
    weight: Tensor

    @staticmethod
    def of(surface: Surface, light: Light, patterns: Tensor) -> Samples:
        """The samples at ``patterns: (2, samples, variants)``."""
        a, b = patterns.index_select(2, surface.variant)
        direction, distance, weight = light.sample(surface.point, a, b)
        return Samples(surface, light, direction, distance, weight * dot(surface.normal, direction).clamp(min=0))

    def brightness(self, near: float) -> Brightness:
        """Irradiance times reflection: from the light's middle, or if it is near, sample by sample."""
        middle, _, slope = self.light.middle(self.surface.point)
        irradiance = self.weight.mean(dim=0)
        tinted, glossy = (irradiance * share for share in reflection(self.surface, middle))
        close = (slope > near).nonzero().squeeze(1)
        if close.numel():
            x, y, z = (d.index_select(1, close) for d in self.direction)
            weight = self.weight.index_select(1, close)
            shares = reflection(self.surface.part(close), (x, y, z))
            tinted[close], glossy[close] = ((weight * share).mean(dim=0) for share in shares)
        return tinted, glossy


def _unclear(tasks: list[Task], parts: list[Surface], tracer: Tracer) -> list[Tensor]:
    """Of each part, the numbers of the points that may not see all of their task's light."""
    cones = [task.light.middle(part.point) for task, part in zip(tasks, parts, strict=True)]
    starts = [tracer.to_cells(part.lifted(task.lift)) for task, part in zip(tasks, parts, strict=True)]
    clear = tracer.clear(
        torch.cat(starts, dim=1),
        torch.cat([torch.stack(direction) for direction, _, _ in cones], dim=1),
        torch.cat([distance for _, distance, _ in cones]) / tracer.cell,
        torch.cat([slope for _, _, slope in cones]),
    )
    return [(~part).nonzero().squeeze(1) for part in clear.split([len(part.variant) for part in parts])]


def _remove_hidden(samples: list[Samples], lifts: list[float], tracer: Tracer) -> None:
    """Set the weights of samples that the object hides to 0."""
    asked = [(some.weight.reshape(-1) > 0).nonzero().squeeze(1) for some in samples]
    starts, ways, lengths = [], [], []
    for some, lift, chosen in zip(samples, lifts, asked, strict=True):
        point = chosen % max(1, some.weight.shape[1])
        starts.append(tracer.to_cells(some.surface.lifted(lift)).index_select(1, point))
        ways.append(torch.stack([d.reshape(-1).index_select(0, chosen) for d in some.direction]))
        lengths.append(some.distance.reshape(-1).index_select(0, chosen) / tracer.cell)
    rays = torch.cat(starts, dim=1), torch.cat(ways, dim=1), torch.cat(lengths)
    seen = torch.ones_like(rays[2])
    seen[tracer.occluded(*rays)] = 0.0
    for some, chosen, part in zip(samples, asked, seen.split([len(chosen) for chosen in asked]), strict=True):
        some.weight.view(-1)[chosen] *= part


def reflection(surface: Surface, direction: Vector) -> Brightness:
    """What of the irradiance from a direction goes to the camera."""
    nl, nv = dot(surface.normal, direction), dot(surface.normal, surface.view)
    return formulas.reflect(nl, nv, dot(direction, surface.view))


def take(vector: Vector, chosen: Tensor) -> Vector:
    """The chosen elements of each coordinate."""
    x, y, z = vector
    return x.index_select(0, chosen), y.index_select(0, chosen), z.index_select(0, chosen)
