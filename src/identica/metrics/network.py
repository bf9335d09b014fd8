"""A small network as a classifier of rows of any shape."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

BATCH = 256
#: Rows that are classified at once.
AT_ONCE = 4096


class _Standardise(nn.Module):
    """Rows of any shape as vectors whose entries have mean 0 and variance 1 on the rows fitted on."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        flat = x.flatten(start_dim=1)
        scale = flat.std(dim=0, correction=0)
        self.mean: Tensor
        self.scale: Tensor
        self.register_buffer("mean", flat.mean(dim=0))
        self.register_buffer("scale", scale.masked_fill(scale == 0, 1.0))

    def forward(self, x: Tensor) -> Tensor:
        return (x.flatten(start_dim=1) - self.mean) / self.scale


def fit_network(
    x: Tensor, labels: Tensor, make: Callable[[], nn.Module] | None, steps: int, generator: torch.Generator
) -> Callable[[Tensor], Tensor]:
    """A function from rows to their class, fitted on ``x: (n, ...)`` with ``labels: (n,)`` 0 or 1 by AdamW.

    The learning rate falls from 1e-3 to 0 along a cosine. ``generator``, on the CPU, decides weights and batches.
    """
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        network = (make() if make is not None else _perceptron(x)).to(x.device).train()
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
        for step in range(steps):
            rows = torch.randint(len(x), (min(BATCH, len(x)),), generator=generator).to(x.device)
            optimizer.param_groups[0]["lr"] = 5e-4 * (1 + math.cos(math.pi * step / steps))
            optimizer.zero_grad()
            functional.cross_entropy(_two_outputs(network(x[rows])), labels[rows]).backward()
            optimizer.step()
    network.eval()

    @torch.no_grad()
    def predict(rows: Tensor) -> Tensor:
        return torch.cat([network(part).argmax(dim=1) for part in rows.split(AT_ONCE)])

    return predict


def _perceptron(x: Tensor) -> nn.Module:
    inputs = math.prod(x.shape[1:])
    layers = [nn.Linear(inputs, 128), nn.LeakyReLU(), nn.Linear(128, 128), nn.LeakyReLU(), nn.Linear(128, 2)]
    return nn.Sequential(_Standardise(x), *layers)


def _two_outputs(outputs: Tensor) -> Tensor:
    if outputs.ndim != 2 or outputs.shape[1] != 2:
        raise ValueError(f"The network of a domain classifier has two outputs, (n, 2), not {tuple(outputs.shape)}.")
    return outputs
