"""Training a variational autoencoder on images that fit on the device."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from identica._devices import usable_device
from identica._numbers import whole_number
from identica._randomness import as_seed
from identica.encoders import VAE
from identica.training.capture import CapturedCall
from identica.training.config import TrainConfig, derive_seed
from identica.training.run import TrainingDiverged
from identica.training.state import make_optimizer, trainable, unshare

#: Images ``(n, C, H, W)`` and a generator on their device to as many changed images.
Augment = Callable[[Tensor, torch.Generator], Tensor]


@dataclass(frozen=True)
class VAEEpoch:
    """Means over one epoch, in nats per image: ``loss`` = ``reconstruction`` + β · ``divergence``."""

    epoch: int
    loss: float
    reconstruction: float
    divergence: float
    seconds: float


def train_vae(
    images: Tensor,
    vae: VAE | None = None,
    *,
    epochs: int = 50,
    batch_size: int = 128,
    lr: float = 1e-3,
    augment: Augment | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    quiet: bool = False,
) -> tuple[VAE, tuple[VAEEpoch, ...]]:
    """Train ``vae`` in place (by default a new 10-d one) on ``images: (N, C, H, W)``, bytes or floats in [0, 1].

    epochs, batch_size, lr: Adam; every epoch goes through all images in a new order, less an incomplete last batch.
    augment: changes each batch before it is seen, as in ``lambda x, g: RandomResizedCrop()(x, g).images``.
    seed: of the initial weights of a new VAE, of the order and of the noise. Equal seeds give equal weights on the CPU.

    Returns the VAE, in evaluation mode, and how each epoch went. On CUDA the step is captured as one graph.
    """
    epochs, batch_size = whole_number(epochs, "epochs"), whole_number(batch_size, "batch_size")
    images, device = _checked(images), usable_device(device)
    vae = VAE(tuple(images.shape[1:]), seed=derive_seed(as_seed(seed), "vae")) if vae is None else vae
    training = _Training(images.to(device), vae.to(device).train(), min(batch_size, len(images)), lr, augment, seed)
    history: list[VAEEpoch] = []
    shown = began = time.monotonic()
    for epoch in range(1, epochs + 1):
        loss, reconstruction, divergence = training.epoch()
        now = time.monotonic()
        if not math.isfinite(loss):
            raise TrainingDiverged(f"The loss was NaN or infinite in epoch {epoch}: try a smaller learning rate.")
        history.append(VAEEpoch(epoch, loss, reconstruction, divergence, now - began))
        if not quiet and (now - shown > 2 or epoch == epochs):
            shown = now
            left = (now - began) / epoch * (epochs - epoch)
            print(f"VAE  epoch {epoch}/{epochs}  −ELBO {loss:.2f}  {left:.0f} s left", file=sys.stderr, flush=True)
    unshare(vae)
    return vae.eval(), tuple(history)


class _Training:
    """Everything one run needs on its device; a step reads from it and writes to it, and waits for nothing."""

    def __init__(
        self, images: Tensor, vae: VAE, batch_size: int, lr: float, augment: Augment | None, seed: int
    ) -> None:
        self.images, self.vae, self.batch_size, self.augment = images, vae, batch_size, augment
        self.steps = len(images) // batch_size
        self.optimizer = make_optimizer(trainable(vae), [], TrainConfig(lr=lr))
        self.orders = torch.Generator().manual_seed(derive_seed(seed, "order"))
        self.noise = torch.Generator(images.device).manual_seed(derive_seed(seed, "noise"))
        self.order = torch.zeros(len(images), dtype=torch.int64, device=images.device)
        self.rows = torch.arange(batch_size, device=images.device)
        self.sums = torch.zeros(3, dtype=torch.float64, device=images.device)
        on_cuda = images.device.type == "cuda"
        self.advance: Callable[[], Tensor] = CapturedCall(self._step, self.noise) if on_cuda else self._step

    def epoch(self) -> list[float]:
        """One pass over the images: the means of loss, reconstruction and divergence (waits for the device)."""
        self.order.copy_(torch.randperm(len(self.order), generator=self.orders))
        self.rows.copy_(torch.arange(self.batch_size))
        self.sums.zero_()
        for _ in range(self.steps):
            self.advance()
        return (self.sums / self.steps).tolist()

    def _step(self) -> Tensor:
        """One batch; returns the sums."""
        with torch.no_grad():
            x = self.images[self.order[self.rows]]
            x = x if x.is_floating_point() else x.float() / 255
            x = x if self.augment is None else self.augment(x, self.noise)
        self.optimizer.zero_grad(set_to_none=True)
        terms = self.vae.terms(x, self.noise)
        terms.loss.backward()
        self.optimizer.step()
        self.sums += torch.stack([terms.loss, terms.reconstruction, terms.divergence]).detach()
        self.rows += self.batch_size
        return self.sums


def _checked(images: Tensor) -> Tensor:
    if not isinstance(images, Tensor):
        raise TypeError(f"train_vae takes the images themselves, such as digits.images, not {type(images).__name__}.")
    if images.ndim != 4 or len(images) == 0 or not (images.dtype == torch.uint8 or images.is_floating_point()):
        raise ValueError(
            "train_vae takes at least one image, (N, channels, height, width), as bytes or floating-point numbers, not "
            f"{images.dtype} of shape {tuple(images.shape)}."
        )
    if images.is_floating_point() and not bool(((images >= 0) & (images <= 1)).all()):
        raise ValueError("Images given as floating-point numbers lie in [0, 1]; these do not. Divide bytes by 255.")
    return images
