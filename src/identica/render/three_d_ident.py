"""3DIdent: a teapot under a coloured spotlight, drawn from ten numbers."""

from __future__ import annotations

from typing import ClassVar, Literal, Protocol, get_args

import torch
from torch import Tensor

from identica._numbers import whole_number
from identica._optional import has_triton
from identica._products import no_autocast
from identica.render.scene import Placement, place
from identica.render.torch_renderer import Settings, TorchRenderer

Quality = Literal["standard", "high"]

#: The ten latents, in order.
FACTORS = (
    "x", "y", "z", "rotation about x", "rotation about y", "rotation about z",
    "spotlight angle", "object hue", "spotlight hue", "ground hue",
)  # fmt: skip
SMALLEST, LARGEST = 16, 512
#: Of the pictures: to be counted up with every change that makes other pictures. Results name it.
VERSION = 1
#: Scenes are drawn together as far as this much memory goes, and at most so many of them.
_MEMORY, _TOGETHER = 2**31, 4096


class Renderer(Protocol):
    """Draws scenes: PyTorch anywhere, Triton on a GPU."""

    def render(self, placement: Placement, dtype: torch.dtype) -> Tensor:
        """Pictures in sRGB: ``(B, 3, H, W)``."""


class ThreeDIdentScene:
    """The scene of the 3DIdent benchmark (A, Sec. 4.2), drawn instead of downloaded.

    resolution: pixels along each side, 16 to 512. quality: ``"standard"``, fast enough to train on, or ``"high"``,
    as close to the original renderer as we get, at any cost. docs/render.md says how close and how fast.

    Equal latents give equal pictures: nothing is drawn at random.

    >>> import torch
    >>> ThreeDIdentScene(resolution=16).render(torch.zeros(2, 10)).shape
    torch.Size([2, 3, 16, 16])
    """

    #: Of the pictures; whatever describes them names it.
    version: ClassVar[int] = VERSION

    def __init__(self, resolution: int = 224, quality: Quality = "standard") -> None:
        self.resolution = whole_number(resolution, "resolution", SMALLEST)
        if self.resolution > LARGEST:
            raise ValueError(f"resolution must be at most {LARGEST}, not {resolution}; draw smaller pictures.")
        if quality not in get_args(Quality):
            raise ValueError(f"quality must be one of {', '.join(get_args(Quality))}, not {quality!r}.")
        self.quality: Quality = quality
        self._renderers: dict[torch.device, Renderer] = {}

    def __repr__(self) -> str:
        return f"ThreeDIdentScene(resolution={self.resolution}, quality={self.quality!r})"

    @torch.no_grad()
    def render(self, latents: Tensor, *, dtype: torch.dtype = torch.uint8, check: bool = True) -> Tensor:
        """Pictures of latents ``(B, 10)`` in [−1, 1]: ``(B, 3, H, W)``, red, green and blue, on the latents' device.

        dtype: ``torch.uint8`` (0 to 255), or a floating dtype (0 to 1). check: whether the latents' values are
        looked at, for which a GPU has to be waited for; a training loop that drew them itself can do without.
        """
        check_latents(latents, values=check)
        if not isinstance(dtype, torch.dtype) or (dtype != torch.uint8 and not dtype.is_floating_point):
            raise ValueError(f"dtype must be torch.uint8 or a floating dtype, not {dtype!r}.")
        if not len(latents):
            return torch.empty(0, 3, self.resolution, self.resolution, dtype=dtype, device=latents.device)
        with no_autocast(latents.device):  # pictures do not depend on what is around them
            renderer = self._renderer(latents.device)
            parts = [renderer.render(place(part.float()), dtype) for part in latents.split(self._together())]
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def _together(self) -> int:
        """How many scenes are drawn at once; a sample of the picture takes ten bytes."""
        samples = (self.resolution * settings_of(self.quality, self.resolution).supersampling) ** 2
        return max(1, min(_TOGETHER, _MEMORY // (10 * samples)))

    def _renderer(self, device: torch.device) -> Renderer:
        if device not in self._renderers:
            settings = settings_of(self.quality, self.resolution)
            self._renderers[device] = _new_renderer(self.resolution, settings, device)
        return self._renderers[device]


def _new_renderer(resolution: int, settings: Settings, device: torch.device) -> Renderer:
    if device.type == "cuda" and has_triton():
        from identica.render.triton_renderer import TritonRenderer

        return TritonRenderer(resolution, settings, device)
    return TorchRenderer(resolution, settings, device)


def settings_of(quality: Quality, resolution: int) -> Settings:
    """What a quality means at a resolution: where pixels are small, not all of the ground's are lit."""
    if quality == "high":
        return Settings(supersampling=4, ground_step=1, object_samples=16, ground_samples=32, cell=0.0242, near=0.0)
    step = 1 if resolution < 160 else 2
    return Settings(supersampling=2, ground_step=step, object_samples=8, ground_samples=16, cell=0.0242, near=0.15)


def check_latents(latents: Tensor, *, values: bool = True) -> None:
    """Refuse what is not latents of this scene, in a sentence.

    >>> check_latents(torch.zeros(3))
    Traceback (most recent call last):
    ValueError: latents must have the shape (B, 10), a row of ten numbers for each picture, not (3,).
    """
    if not isinstance(latents, Tensor) or not latents.is_floating_point():
        kind = latents.dtype if isinstance(latents, Tensor) else type(latents).__name__
        raise ValueError(
            f"latents must be a tensor of floating numbers, not {kind}; convert them with torch.as_tensor."
        )
    if latents.ndim != 2 or latents.shape[1] != len(FACTORS):
        shape = tuple(latents.shape)
        raise ValueError(f"latents must have the shape (B, 10), a row of ten numbers for each picture, not {shape}.")
    if not values or bool(((latents >= -1.0) & (latents <= 1.0)).all()):
        return
    row, column = ((~((latents >= -1.0) & (latents <= 1.0))).nonzero()[0]).tolist()
    raise ValueError(
        f"latents must lie in [-1, 1], but row {row} has {_shortest(latents[row, column])} as its {FACTORS[column]}; "
        "divide positions by 3 and angles by pi/2 if they are in physical units."
    )


def _shortest(number: Tensor) -> str:
    """As few digits as tell a number from its neighbours: 1.01, but 1.0000001 where that is not 1."""
    exact = number if number.dtype == torch.float64 else number.float()
    return str(exact.cpu().numpy()[()])
