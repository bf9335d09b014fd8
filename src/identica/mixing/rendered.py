"""A renderer as a mixing: latents become pictures of a scene."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from identica._numbers import whole_number
from identica.mixing.base import Mixing


class Renderer(Protocol):
    """What draws pictures, such as ``identica.render.ThreeDIdentScene``."""

    @property
    def render(self) -> Callable[..., Tensor]:
        """``(n, dim)`` to ``(n, 3, H, W)``, bytes or floating-point numbers in [0, 1], on the latents' device."""


class RenderedMixing(Mixing):
    """g(z) = a picture of the scene that z describes: ``(n, dim) -> (n, 3, H, W)``.

    scene: with ``render(latents)``. If that takes ``check=False``, it is told so on a GPU after the first pictures,
        those that a process draws when it is made: a training step must not wait for a look at its latents.
    dim: number of latents; ten in 3DIdent.
    chunk: how many pictures are drawn at once, which bounds the memory.

    Pictures stay as the scene draws them: bytes take a quarter of the memory and are exact.
    """

    dim: int

    def __init__(self, scene: Renderer, *, dim: int = 10, chunk: int = 2048) -> None:
        super().__init__()
        if not callable(getattr(scene, "render", None)):
            raise TypeError(
                "RenderedMixing takes a scene with a method render(latents), such as ThreeDIdentScene(), not "
                f"{type(scene).__name__}."
            )
        self.scene, self.dim = scene, whole_number(dim, "dim, the number of latents,")
        self.chunk = whole_number(chunk, "chunk, the pictures drawn at once,")
        self._checks = "check" in inspect.signature(scene.render).parameters
        self._checked = False

    @torch.no_grad()
    def forward(self, z: Tensor) -> Tensor:
        """``z: (n, dim)`` to pictures ``(n, 3, H, W)``."""
        if z.ndim != 2 or z.shape[-1] != self.dim:
            raise ValueError(f"This mixing takes latents of shape (n, {self.dim}), not {tuple(z.shape)}.")
        settings = {"check": z.device.type == "cpu" or not self._checked} if self._checks else {}
        parts = [self.scene.render(part, **settings) for part in z.split(self.chunk)]
        self._checked = True
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def to_dict(self) -> dict[str, Any]:
        """The scene's class, and its resolution, quality and version, where it has them."""
        names = ("resolution", "quality", "version")
        known = {name: getattr(self.scene, name) for name in names if hasattr(self.scene, name)}
        return {"mixing": "rendered", "dim": self.dim, "scene": type(self.scene).__qualname__, **known}

    def extra_repr(self) -> str:
        """The scene, for printing."""
        return f"{self.scene!r}, dim={self.dim}"
