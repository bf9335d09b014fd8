"""A variational autoencoder (Kingma and Welling, 2013) of fully connected layers, as paper B uses on MNIST."""

from __future__ import annotations

import itertools
import json
import math
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from identica._numbers import as_float, whole_number
from identica._randomness import Randomness, as_generator
from identica.encoders.base import make_linear, weight_generator
from identica.spaces import Euclidean

FORMAT = "identica-vae"
FORMAT_VERSION = 1


@dataclass(frozen=True, eq=False)
class ElboTerms:
    """The negative evidence lower bound in nats: ``loss`` = ``reconstruction`` + β · ``divergence``, averaged.

    per_item: ``(n,)``, the same for each image.
    """

    loss: Tensor
    reconstruction: Tensor
    divergence: Tensor
    per_item: Tensor


class Decoder(nn.Module):
    """Latents ``(..., dim)`` to images ``(..., *shape)`` with grey values in [0, 1]."""

    def __init__(self, dim: int, shape: Sequence[int], network: nn.Module) -> None:
        super().__init__()
        self.dim, self.shape, self.network = dim, tuple(shape), network

    def logits(self, z: Tensor) -> Tensor:
        """The grey values before the sigmoid: ``(..., *shape)``."""
        if z.ndim == 0 or z.shape[-1] != self.dim:
            raise ValueError(f"This decoder takes latents of length {self.dim}, not of shape {tuple(z.shape)}.")
        return self.network(z).unflatten(-1, self.shape)

    def forward(self, z: Tensor) -> Tensor:
        """The images."""
        return self.logits(z).sigmoid()


class VAE(nn.Module):
    """Encoder q(z|x) = N(mean, exp(log_variance)), decoder p(x|z), prior N(0, I); images have grey values in [0, 1].

    shape: of one image.
    dim: number of latents.
    hidden: widths of the encoder's hidden layers, of the decoder's in reverse; two of them make the three
        fully connected layers each way of B, Sec. H.5, which does not give the widths.
    negative_slope: of the leaky ReLUs.
    beta: weight of the divergence; 1 is the evidence lower bound.
    seed: a number or a generator for the initial weights.

    Calling it gives the means: an encoder into R^dim. Under the prior ‖z‖ is close to √dim, so that points of the unit
    sphere times √dim are latents the decoder knows: see :class:`identica.mixing.DecoderMixing`.

    >>> vae = VAE(shape=(1, 4, 4), dim=2, hidden=(8, 8))
    >>> images = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    >>> vae(images).shape, vae.decode(vae(images)).shape
    (torch.Size([3, 2]), torch.Size([3, 1, 4, 4]))
    """

    def __init__(
        self,
        shape: Sequence[int] = (1, 28, 28),
        dim: int = 10,
        hidden: Sequence[int] = (512, 256),
        negative_slope: float = 0.01,
        *,
        beta: float = 1.0,
        seed: Randomness = 0,
    ) -> None:
        super().__init__()
        self.shape = tuple(whole_number(side, "shape, the sides of an image: each") for side in shape)
        self.dim = whole_number(dim, "dim, the number of latents,")
        self.hidden = tuple(whole_number(width, "hidden, the widths of the hidden layers: each") for width in hidden)
        self.negative_slope, self.beta = float(negative_slope), as_float(beta)
        if not (math.isfinite(self.beta) and self.beta >= 0):
            raise ValueError(f"beta of VAE is a finite number of at least 0, not {beta!r}.")
        self.space = Euclidean(self.dim)
        generator, pixels = weight_generator(seed), math.prod(self.shape)
        self.network = self._perceptron([pixels, *self.hidden, 2 * self.dim], generator)
        self.decoder = Decoder(
            self.dim, self.shape, self._perceptron([self.dim, *self.hidden[::-1], pixels], generator)
        )

    def _perceptron(self, widths: Sequence[int], generator: torch.Generator) -> nn.Sequential:
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            layers += [make_linear(before, after, generator), nn.LeakyReLU(self.negative_slope)]
        return nn.Sequential(*layers[:-1])

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of q(z|x), ``(n, dim)`` each, of images ``(n, *shape)`` or ``(n, pixels)``."""
        mean, log_variance = self.network(self._flat(x)).chunk(2, dim=-1)
        return mean, log_variance

    def decode(self, z: Tensor) -> Tensor:
        """Images ``(n, *shape)`` of latents ``(n, dim)``."""
        return self.decoder(z)

    def forward(self, x: Tensor) -> Tensor:
        """The means: ``(n, dim)``."""
        return self.encode(x)[0]

    def terms(self, x: Tensor, generator: Randomness) -> ElboTerms:
        """−E_q log p(x|z) + β KL(q(z|x) ‖ N(0, I)), with one draw of z for each image.

        The likelihood is Bernoulli in every pixel, also for grey values between 0 and 1, where it is not
        normalised: bounds of one kind of images compare, those of different kinds do not.
        """
        mean, log_variance = self.encode(x)
        source = as_generator(generator, mean.device)
        noise = torch.randn(mean.shape, generator=source, device=source.device, dtype=mean.dtype)
        logits = self.decoder.logits(mean + noise * (0.5 * log_variance).exp()).flatten(start_dim=1)
        pixels = functional.binary_cross_entropy_with_logits(logits, self._flat(x), reduction="none")
        reconstruction = pixels.sum(dim=-1)
        divergence = _divergences(mean, log_variance).sum(dim=-1)
        per_item = reconstruction + self.beta * divergence
        return ElboTerms(per_item.mean(), reconstruction.mean(), divergence.mean(), per_item)

    @torch.no_grad()
    def divergence_per_latent(self, x: Tensor) -> Tensor:
        """Mean of KL(q(z_i|x) ‖ N(0, 1)) over the images, in nats: ``(dim,)``.

        Where it is near 0 the latent is not used: the decoder ignores it, and as part of a mixing nobody could
        recover it. Longer training, more images or a smaller ``beta`` bring it to life.
        """
        return _divergences(*self.encode(x)).mean(dim=0)

    def _flat(self, x: Tensor) -> Tensor:
        pixels = math.prod(self.shape)
        if x.ndim < 2 or math.prod(x.shape[1:]) != pixels or not x.is_floating_point():
            raise ValueError(
                f"This VAE takes floating-point images of shape (n, {', '.join(map(str, self.shape))}) or (n, {pixels})"
                f", not {x.dtype} of shape {tuple(x.shape)}."
            )
        return x.flatten(start_dim=1)

    # -- saving

    def to_dict(self) -> dict[str, Any]:
        """The architecture as plain data; the weights are in ``state_dict``."""
        return {
            "encoder": "vae",
            "shape": list(self.shape),
            "dim": self.dim,
            "hidden": list(self.hidden),
            "negative_slope": self.negative_slope,
            "beta": self.beta,
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write architecture and weights into one safetensors file; an older one there is replaced when it is whole."""
        path = Path(path)
        beside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        # clone: after training the weights may be slices of one vector, which safetensors refuses.
        tensors = {name: value.detach().cpu().contiguous().clone() for name, value in self.state_dict().items()}
        header = {"format_version": FORMAT_VERSION, "vae": self.to_dict()}
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            save_file(tensors, beside, {FORMAT: json.dumps(header)})
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> VAE:
        """A VAE that :meth:`save` wrote, on the CPU, in evaluation mode."""
        header, tensors = _read(Path(path))
        try:
            data = json.loads(header[FORMAT])
            version, settings = int(data["format_version"]), dict(data["vae"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is a safetensors file, but not a VAE of this library.") from error
        if version > FORMAT_VERSION:
            raise ValueError(f"{path} was written by a newer version of this library (format {version}): upgrade it.")
        settings.pop("encoder", None)
        try:
            vae = cls(**settings)
            vae.to(next(iter(tensors.values())).dtype).load_state_dict(tensors)
        except (TypeError, RuntimeError, StopIteration) as error:
            raise ValueError(f"The VAE in {path} is damaged: {error}") from error
        return vae.eval()


def _divergences(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(mean, exp(log_variance)) ‖ N(0, 1)), elementwise."""
    return 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance)


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    if not path.is_file():
        raise ValueError(f"There is no VAE at {path}.")
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"{path} is not a complete safetensors file ({error}): it was cut short or is something else."
        ) from error
