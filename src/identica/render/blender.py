"""The same scene in Blender's Cycles, to compare with: built by code, without any .blend file.

Blender comes as the package bpy, the extra ``identica[blender]``; 4.2 and 5.0 agree but for noise. An image takes
seconds; our own renderer draws thousands in that time (:class:`identica.render.ThreeDIdentScene`).
"""

from __future__ import annotations

import importlib
import math
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from identica._numbers import whole_number
from identica.render import scene as layout
from identica.render.mesh import teapot
from identica.render.three_d_ident import check_latents

#: Watts: the area light's radiance is P / (π · 1 m²), the spotlight's intensity P / 4π.
_AREA_POWER = layout.AREA_RADIANCE * math.pi
_SPOT_POWER = layout.SPOT_INTENSITY * 4 * math.pi
_CONE, _CONE_EDGE = math.radians(35.0), 0.1
#: Blender squares what it calls roughness to get the width of Beckmann's slopes, which is 0.35 here.
_GLOSSY_ROUGHNESS = math.sqrt(0.35)
_VELVET = 0.6


class BlenderScene:
    """3DIdent drawn by Cycles.

    resolution: pixels along each side.
    samples: light paths for each pixel; the data set was drawn with 512. The result is denoised.

    Blender has one scene in a process. Several objects take turns: who draws after another builds it anew, and what
    else was in it is gone.

    >>> BlenderScene(resolution=64)  # doctest: +SKIP
    BlenderScene(resolution=64, samples=512)
    """

    #: Whose scene Blender has now.
    _current: ClassVar[BlenderScene | None] = None

    def __init__(self, resolution: int = 224, samples: int = 512) -> None:
        self.resolution = whole_number(resolution, "resolution", 16)
        self.samples = whole_number(samples, "samples")
        self._bpy = _blender()
        self._parts: dict[str, Any] = {}

    @property
    def version(self) -> str:
        """Blender's: others may draw other pictures."""
        return str(self._bpy.app.version_string)

    def __repr__(self) -> str:
        return f"BlenderScene(resolution={self.resolution}, samples={self.samples})"

    @torch.no_grad()
    def render(self, latents: Tensor) -> Tensor:
        """Pictures of latents ``(B, 10)`` in [−1, 1], one after the other: bytes ``(B, 3, H, W)`` on their device."""
        from PIL import Image

        check_latents(latents)
        if BlenderScene._current is not self:
            with _silent():
                self._parts = self._build()
            BlenderScene._current = self
        images = []
        with tempfile.TemporaryDirectory() as folder:
            for number, row in enumerate(latents.detach().cpu().double()):
                path = Path(folder) / f"{number}.png"  # never one that is there already
                self._arrange(layout.place(row[None]))
                self._draw(path)
                with Image.open(path) as image:
                    images.append(torch.from_numpy(np.array(image.convert("RGB"))))
        size = (0, self.resolution, self.resolution, 3)
        stacked = torch.stack(images) if images else torch.empty(size, dtype=torch.uint8)
        return stacked.permute(0, 3, 1, 2).contiguous().to(latents.device)

    def _draw(self, path: Path) -> None:
        self._bpy.context.scene.render.filepath = str(path)
        with _interrupted_afterwards(), _silent():
            outcome = self._bpy.ops.render.render(write_still=True)
        if "FINISHED" not in outcome or not path.exists():
            raise RuntimeError(f"Blender {self.version} has drawn no picture: {', '.join(outcome)}.")

    def _arrange(self, place: layout.Placement) -> None:
        """Move and colour what the latents move and colour."""
        parts, mathematics = self._parts, importlib.import_module("mathutils")
        turned = np.eye(4)
        turned[:3, :3], turned[:3, 3] = place.rotation[0].numpy(), place.location[0].numpy()
        parts["object"].matrix_world = mathematics.Matrix(turned.tolist())
        spot = parts["spot"]
        spot.location = place.spot[0].tolist()
        spot.rotation_euler = mathematics.Vector(place.axis[0].tolist()).to_track_quat("-Z", "Y").to_euler()
        spot.data.color = place.spot_colour[0].tolist()
        for name, colour in (("object", place.object_colour), ("ground", place.ground_colour)):
            for node in parts[f"{name} colours"]:
                node.inputs["Color"].default_value = (*colour[0].tolist(), 1.0)

    # -- what does not change from image to image

    def _build(self) -> dict[str, Any]:
        """An empty file, then everything in the scene."""
        bpy = self._bpy
        bpy.ops.wm.read_factory_settings(use_empty=True)
        self._set_up_rendering()
        self._add_camera()
        mesh = teapot()
        parts: dict[str, Any] = {}
        parts["object colours"], object_material = self._material("object")
        parts["ground colours"], ground_material = self._material("ground")
        parts["object"] = self._add_mesh("object", mesh.vertices.tolist(), mesh.triangles.tolist(), object_material)
        far, z = 500.0, layout.GROUND
        corners = [(-far, -far, z), (far, -far, z), (far, far, z), (-far, far, z)]
        self._add_mesh("ground", corners, [(0, 1, 2, 3)], ground_material)
        self._add_light("sun", "SUN", (0.0, 0.0, 10.0), energy=layout.SUN_IRRADIANCE, angle=2 * layout.SUN_RADIUS)
        area = {"energy": _AREA_POWER, "shape": "SQUARE", "size": 1.0}
        self._add_light("area", "AREA", (0.0, 0.0, layout.AREA_HEIGHT), **area)
        spot = {"energy": _SPOT_POWER, "spot_size": _CONE, "spot_blend": _CONE_EDGE}
        parts["spot"] = self._add_light("spot", "SPOT", (0.0, 0.0, 0.0), **spot, shadow_soft_size=layout.SPOT_RADIUS)
        return parts

    def _set_up_rendering(self) -> None:
        """Direct light only, no world, plain sRGB without dithering, and the filter of three pixels' width."""
        scene = self._bpy.context.scene
        scene.render.engine = "CYCLES"
        settings = {
            "samples": self.samples,
            "use_adaptive_sampling": False,
            "use_denoising": True,
            "max_bounces": 0,
            "pixel_filter_type": "BLACKMAN_HARRIS",
            "filter_width": 1.5,
            "seed": 0,
        }
        for name, value in settings.items():
            setattr(scene.cycles, name, value)
        scene.render.resolution_x = scene.render.resolution_y = self.resolution
        scene.render.resolution_percentage = 100
        scene.render.dither_intensity = 0.0
        scene.render.image_settings.file_format = "PNG"
        scene.render.image_settings.color_mode = "RGB"
        scene.render.image_settings.color_depth = "8"
        scene.view_settings.view_transform = "Standard"
        scene.view_settings.look = "None"
        scene.world = None  # a new one shines: since Blender 5.0 its nodes are grey, whatever its colour

    def _add_camera(self) -> None:
        """Columns of its matrix: right, up and backwards, then where it is."""
        camera = self._bpy.data.cameras.new("camera")
        camera.sensor_fit, camera.sensor_width, camera.lens = "HORIZONTAL", 50.0, 50.0 * layout.FOCAL
        placed = self._bpy.data.objects.new("camera", camera)
        columns = np.eye(4)
        columns[:3, 0], columns[:3, 1] = layout.RIGHT, layout.UP
        columns[:3, 2], columns[:3, 3] = -np.array(layout.FORWARD), layout.CAMERA
        placed.matrix_world = importlib.import_module("mathutils").Matrix(columns.tolist())
        self._bpy.context.scene.collection.objects.link(placed)
        self._bpy.context.scene.camera = placed

    def _add_mesh(self, name: str, vertices: Any, faces: Any, material: Any) -> Any:
        """A smooth mesh: parts of the teapot share no vertices, so that edges stay where they meet."""
        mesh = self._bpy.data.meshes.new(name)
        mesh.from_pydata(vertices, [], faces)
        mesh.polygons.foreach_set("use_smooth", [True] * len(mesh.polygons))
        mesh.materials.append(material)
        mesh.update()
        placed = self._bpy.data.objects.new(name, mesh)
        self._bpy.context.scene.collection.objects.link(placed)
        return placed

    def _add_light(self, name: str, kind: str, location: tuple[float, float, float], **settings: Any) -> Any:
        """A light that shines downwards."""
        light = self._bpy.data.lights.new(name, kind)
        for setting, value in settings.items():
            setattr(light, setting, value)
        placed = self._bpy.data.objects.new(name, light)
        placed.location = location
        self._bpy.context.scene.collection.objects.link(placed)
        return placed

    def _material(self, name: str) -> tuple[list[Any], Any]:
        """mix(Fresnel 1.2, mix(Fresnel 1.4, Lambert, velvet), Beckmann); returns the nodes that take the colour too."""
        material = self._bpy.data.materials.new(name)
        if self._bpy.app.version < (5, 0):  # later ones always do
            material.use_nodes = True
        tree = material.node_tree
        tree.nodes.clear()
        output = tree.nodes.new("ShaderNodeOutputMaterial")
        lambert = tree.nodes.new("ShaderNodeBsdfDiffuse")
        lambert.inputs["Roughness"].default_value = 0.0
        velvet = tree.nodes.new("ShaderNodeBsdfSheen")
        velvet.distribution = "ASHIKHMIN"
        velvet.inputs["Roughness"].default_value = _VELVET
        glossy = tree.nodes.new("ShaderNodeBsdfAnisotropic")
        glossy.distribution = "BECKMANN"
        glossy.inputs["Roughness"].default_value = _GLOSSY_ROUGHNESS
        glossy.inputs["Color"].default_value = (0.8, 0.8, 0.8, 1.0)
        inner = self._mixed(tree, 1.4, lambert, velvet)
        outer = self._mixed(tree, 1.2, inner, glossy)
        tree.links.new(outer.outputs["Shader"], output.inputs["Surface"])
        return [lambert, velvet], material

    def _mixed(self, tree: Any, index: float, first: Any, second: Any) -> Any:
        """The second shader as far as light is reflected at a surface of that refractive index, else the first."""
        fresnel, mix = tree.nodes.new("ShaderNodeFresnel"), tree.nodes.new("ShaderNodeMixShader")
        fresnel.inputs["IOR"].default_value = index
        tree.links.new(fresnel.outputs[0], mix.inputs[0])
        tree.links.new(first.outputs[0], mix.inputs[1])
        tree.links.new(second.outputs[0], mix.inputs[2])
        return mix


def _blender() -> Any:
    """The module bpy, or a sentence on how to get it."""
    try:
        with _silent():
            import bpy
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'The engine "blender" needs the package bpy: install it with pip install "identica[blender]" (each version '
            "of it is for one version of Python), or leave out --engine to use our own renderer.",
            name="bpy",
        ) from error
    return bpy


@contextmanager
def _silent() -> Iterator[None]:
    """Nothing on the standard output, where Blender tells from C what it does; other threads are not heard either."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # there is none
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


@contextmanager
def _interrupted_afterwards() -> Iterator[None]:
    """Ctrl-C when a picture is done: raised in the middle it would end in one of Blender's callbacks, and be lost."""
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if came:
        signal.raise_signal(signal.SIGINT)
