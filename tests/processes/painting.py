"""A scene that takes no time: ten latents become an image of 8×8 pixels."""

from __future__ import annotations

import torch
from torch import Tensor


class Painting:
    """Colours and gradients of an image follow the latents linearly; bytes or floats, like a real renderer."""

    def __init__(self, resolution: int = 8, *, as_bytes: bool = True) -> None:
        self.resolution, self.as_bytes = resolution, as_bytes
        self.drawn = 0
        generator = torch.Generator().manual_seed(0)
        self.weights = torch.randn(10, 3 * resolution**2, generator=generator) / 10**0.5

    def render(self, latents: Tensor) -> Tensor:
        self.drawn += len(latents)
        flat = torch.sigmoid(latents.float() @ self.weights)
        images = flat.unflatten(1, (3, self.resolution, self.resolution))
        return (images * 255).round().to(torch.uint8) if self.as_bytes else images
