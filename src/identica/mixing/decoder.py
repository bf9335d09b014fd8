"""A trained decoder as a mixing: latents become images, and the latents are still known."""

from __future__ import annotations

import copy
import hashlib
import math
from typing import Any, Self

import torch
from torch import Tensor, nn

from identica._numbers import as_float, whole_number
from identica._products import full_products
from identica.mixing.base import Mixing


class DecoderMixing(Mixing):
    """g(z) = decoder(scale · z): the images a generative model makes of latents on the unit sphere (B, Sec. F).

    decoder: a module from latents ``(n, dim)`` to observations ``(n, ...)``, such as ``vae.decoder``. It is copied;
        the copy stays in evaluation mode, is never trained, and follows ``.to``.
    dim: number of latents; by default the decoder's own ``dim``.
    scale: by default √dim, the length that latents of a standard normal prior concentrate at (B, Sec. H.5).
    flatten: observations are vectors, for encoders that take vectors; else they keep the decoder's shape.

    Nothing guarantees that a decoder is injective, as the theory asks of a mixing. A latent that a VAE does not use
    (``vae.divergence_per_latent``) is lost for good; an encoder that reaches R² = 1 shows that none is.

    >>> mixing = DecoderMixing(nn.Linear(4, 9), dim=4)
    >>> mixing.scale, mixing(torch.eye(4)).shape
    (2.0, torch.Size([4, 9]))
    """

    dim: int

    def __init__(
        self, decoder: nn.Module, scale: float | None = None, *, dim: int | None = None, flatten: bool = True
    ) -> None:
        super().__init__()
        if not isinstance(decoder, nn.Module):
            raise TypeError(f"DecoderMixing takes a torch module, such as vae.decoder, not {type(decoder).__name__}.")
        if hasattr(decoder, "encode") and hasattr(decoder, "decoder"):
            raise TypeError("DecoderMixing takes the decoder alone: pass vae.decoder, not the whole autoencoder.")
        dim = getattr(decoder, "dim", None) if dim is None else dim
        if dim is None:
            raise ValueError("This decoder does not say how many latents it takes: pass dim=.")
        self.dim = whole_number(dim, "dim, the number of latents,")
        self.scale = math.sqrt(self.dim) if scale is None else as_float(scale)
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ValueError(f"scale of DecoderMixing is a positive number, or None for √dim, not {scale!r}.")
        self.flatten = bool(flatten)
        self.decoder = copy.deepcopy(decoder).requires_grad_(False).eval()

    def train(self, mode: bool = True) -> Self:
        """Nothing changes: a mixing is a fixed function."""
        super().train(mode)
        self.decoder.eval()
        return self

    def forward(self, z: Tensor) -> Tensor:
        """``z: (n, dim)`` on the unit sphere to observations ``(n, ...)``, in the precision of ``z``.

        Neither autocast nor TF32 lowers it: observations are data, whatever precision a model is trained in.
        """
        if z.ndim != 2 or z.shape[-1] != self.dim:
            raise ValueError(f"This mixing takes latents of shape (n, {self.dim}), not {tuple(z.shape)}.")
        dtype = next((p.dtype for p in self.decoder.parameters()), z.dtype)
        with full_products(z.device):
            x = self.decoder((self.scale * z).to(dtype)).to(z.dtype)
        return x.flatten(start_dim=1) if self.flatten else x

    def to_dict(self) -> dict[str, Any]:
        """A description that tells one decoder from another by a hash of its weights (waits for the device)."""
        return {
            "mixing": "decoder",
            "decoder": type(self.decoder).__qualname__,
            "weights": weights_digest(self.decoder),
            "dim": self.dim,
            "scale": self.scale,
            "flatten": self.flatten,
        }

    def extra_repr(self) -> str:
        """The settings, for printing."""
        return f"dim={self.dim}, scale={self.scale:.4g}, flatten={self.flatten}"


def weights_digest(module: nn.Module) -> str:
    """SHA-256 over names, shapes and values of a module's state; the same in any precision that holds the values."""
    digest = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        digest.update(f"{name}{tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().to(torch.float64).contiguous().numpy().tobytes())
    return digest.hexdigest()
