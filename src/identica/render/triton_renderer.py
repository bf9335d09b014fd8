"""The renderer as four Triton kernels: depth buffer, ground, object, picture.

What never changes is taken over from the PyTorch renderer, and so are all settings: both draw the same pictures, up to
rounding. Nothing waits for the device, and no size depends on what is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
from torch import Tensor

from identica.render import raster, scene
from identica.render.lighting import Disk, Square, Sun
from identica.render.mesh import teapot
from identica.render.scene import Placement
from identica.render.torch_renderer import LIFT, OBJECT_FEW, ORDER, VARIANTS, Settings, TorchRenderer
from identica.render.triton_kernels import light_ground, light_object, resolve
from identica.render.triton_raster import draw

_PARAMETERS = 48


@dataclass(frozen=True)
class Blocks:
    """Lanes of a program.

    triangles: that it draws. lit, lit_width: points that it lights, and how many along a row; one warp, because warps
    would wait for one another's rays. pixels, pixels_width: of the picture. sharers: programs that share an object.
    """

    triangles: int = 32
    lit: int = 32
    lit_width: int = 8
    pixels: int = 128
    pixels_width: int = 32
    sharers: int = 128


#: The interpreter's cost is per operation, not per lane.
_INTERPRETED = Blocks(triangles=8192, lit=1024, lit_width=32, pixels=1024, pixels_width=32, sharers=1)


class TritonRenderer:
    """Draws scenes at one resolution on one GPU."""

    def __init__(self, resolution: int, settings: Settings, device: torch.device) -> None:
        self.tables = TorchRenderer(resolution, settings, device)
        self.resolution, self.settings, self.side = resolution, settings, self.tables.side
        self.blocks = _INTERPRETED if device.type == "cpu" else Blocks()
        mesh = teapot()
        self.triangles = len(mesh.triangles)
        corners, normals = mesh.vertices[mesh.triangles], mesh.normals[mesh.triangles]
        self.corners, self.normals = (self._planes(array) for array in (corners, normals))
        tracer = self.tables.tracer
        self.values = tracer.values.half()
        self.grid = {"NX": tracer.sizes[0], "NY": tracer.sizes[1], "NZ": tracer.sizes[2], "CELL": tracer.cell}
        self._prepare_ground()

    def _planes(self, array: Any) -> Tensor:
        """``(T, 3, 3)`` → ``(9, T)``, so that neighbouring lanes read neighbouring numbers."""
        return self._tensor(np.ascontiguousarray(array.reshape(len(array), 9).T))

    def _tensor(self, array: Any) -> Tensor:
        return torch.from_numpy(array).to(self.tables.device, torch.float32)

    def _prepare_ground(self) -> None:
        tables = self.tables
        self.count = len(tables.ground_points)
        self.points, self.views = (v.reshape(-1, 3).T.contiguous() for v in (tables.ground_points, tables.ground_view))
        self.known = torch.stack([share for light in tables.open_ground for share in light])
        self.variants = tables.ground_variant.int()
        self.order = torch.tensor(ORDER, dtype=torch.int32, device=tables.device)
        self.spread_first, self.spread = band(tables.spread, 4)
        self.ground_first, self.ground_weights = band(tables.ground_weights)
        reach = slice((raster.MARGIN - 1) * self.settings.supersampling, None)
        self.weights = tables.weights[0, reach][: 3 * self.settings.supersampling].contiguous()

    def render(self, placement: Placement, dtype: torch.dtype) -> Tensor:
        """Pictures of scenes in sRGB: ``(B, 3, H, W)``, bytes or floating numbers in [0, 1]."""
        scenes = parameters(placement, self.resolution, self.settings.supersampling)
        batch, device = len(scenes), scenes.device
        keys = torch.full((batch, self.side, self.side), raster.EMPTY, dtype=torch.int32, device=device)
        frames = torch.full((batch, 4), 1_000_000, dtype=torch.int32, device=device)
        ground = torch.empty(batch, 3, self.count, self.count, dtype=torch.float32, device=device)
        difference = torch.empty(batch, 3, self.side, self.side, dtype=torch.float16, device=device)
        size = (batch, 3, self.resolution, self.resolution)
        out = torch.empty(size, dtype=dtype, device=device)
        with torch.cuda.device_of(scenes):
            self._draw(scenes, keys, frames)
            self._light_ground(scenes, ground)
            self._light_object(scenes, keys, frames, ground, difference)
            self._resolve(keys, frames, difference, ground, out)
        return out

    def _draw(self, scenes: Tensor, keys: Tensor, frames: Tensor) -> None:
        grid = (triton.cdiv(self.triangles, self.blocks.triangles), len(scenes))
        draw[grid](
            scenes, self.corners, keys, frames, self.triangles, PARAMETERS=_PARAMETERS, SIDE=self.side,
            BLOCK=self.blocks.triangles, num_warps=1,
        )  # fmt: skip

    def _shared(self, samples: int) -> dict[str, Any]:
        tile = {"WIDTH": self.blocks.lit_width, "BLOCK": self.blocks.lit, "num_warps": 1}
        return self.grid | tile | {
            "PARAMETERS": _PARAMETERS, "NEAR": self.settings.near, "SAMPLES": samples,
            "VARIANTS": VARIANTS,
        }  # fmt: skip

    def _light_ground(self, scenes: Tensor, ground: Tensor) -> None:
        samples = self.settings.ground_samples
        disk, square = self.tables.patterns(Disk, samples), self.tables.patterns(Square, samples)
        grid = (tiles(self.count, self.blocks.lit, self.blocks.lit_width), len(scenes))
        light_ground[grid](
            scenes, self.values, disk, square, self.tables.patterns(Disk, Disk.few), self.variants, self.points,
            self.views, self.known, ground, *self.tables.tracer.low, self.count, SPOT_FEW=Disk.few,
            **self._shared(samples),
        )  # fmt: skip

    def _light_object(self, scenes: Tensor, keys: Tensor, frames: Tensor, ground: Tensor, out: Tensor) -> None:
        samples, tables = self.settings.object_samples, self.tables
        grid = (self.blocks.sharers, len(scenes))
        counts = [min(OBJECT_FEW, light.few) for light in (Sun, Square, Disk)]
        few = [tables.patterns(light, count) for light, count in zip((Sun, Square, Disk), counts, strict=True)]
        light_object[grid](
            scenes, self.values, tables.patterns(Disk, samples), tables.patterns(Square, samples), *few, self.corners,
            self.normals, self.triangles, keys, frames, self.order, self.spread, self.spread_first, ground, out,
            *tables.tracer.low, self.side, self.count, LIFT=LIFT * self.settings.cell, SUN_FEW=counts[0],
            SQUARE_FEW=counts[1], SPOT_FEW=counts[2], **self._shared(samples),
        )  # fmt: skip

    def _resolve(self, keys: Tensor, frames: Tensor, difference: Tensor, ground: Tensor, out: Tensor) -> None:
        lanes, width = self.blocks.pixels, self.blocks.pixels_width
        resolve[(tiles(self.resolution, lanes, width), len(keys))](
            keys, frames, difference, ground, self.weights, self.ground_weights, self.ground_first, out,
            SIDE=self.side, RESOLUTION=self.resolution, SUPERSAMPLING=self.settings.supersampling, COUNT=self.count,
            TAPS=self.ground_weights.shape[1], BYTES=out.dtype == torch.uint8, WIDTH=width, BLOCK=lanes, num_warps=4,
        )  # fmt: skip


def tiles(side: int, lanes: int, width: int) -> int:
    """How many tiles of so many lanes, ``width`` of them along a row, cover a square."""
    return triton.cdiv(side, width) * triton.cdiv(side, lanes // width)


def parameters(placement: Placement, resolution: int, supersampling: int) -> Tensor:
    """The numbers that kernels know a scene by, in the order that ``triton_kernels`` gives: ``(B, 48)``."""
    rotation, location = placement.rotation, placement.location
    x, y, z = location.unbind(1)
    camera = torch.stack([scene.CAMERA[0] - x, scene.CAMERA[1] - y, scene.CAMERA[2] - z], dim=1)
    square = torch.stack([-x, -y, scene.AREA_HEIGHT - z], dim=1)
    vectors = torch.stack([camera, square, placement.spot - location, placement.axis], dim=1)
    vectors = scene.turned(vectors, rotation.unsqueeze(1))
    projection = raster.projection(rotation, location, resolution, supersampling)
    depth, radius = projection[:, 2, 3], teapot().radius
    depths = torch.stack([1.0 / (depth - radius), 1.0 / (depth + radius)], dim=1)
    colours = (placement.object_colour, placement.spot_colour, placement.ground_colour)
    rows = [rotation.flatten(1), vectors.flatten(1), *colours, projection.flatten(1), depths, location]
    numbers = torch.cat(rows, dim=1)
    return torch.nn.functional.pad(numbers, (0, _PARAMETERS - numbers.shape[1])).contiguous()


def band(matrix: Tensor, width: int = 0) -> tuple[Tensor, Tensor]:
    """A matrix whose rows are 0 but for a few neighbours: where these begin, ``(rows,)``, and what they are."""
    filled = matrix != 0
    first = filled.int().argmax(dim=1)
    last = matrix.shape[1] - 1 - filled.flip(1).int().argmax(dim=1)
    width = max(width, int((last - first).max()) + 1)
    first = first.clamp(max=matrix.shape[1] - width)
    columns = first.unsqueeze(1) + torch.arange(width, device=matrix.device)
    return first.int(), matrix.gather(1, columns).contiguous()
