"""One row of pictures for each factor of a scene: the factor runs through its range, all others stay (A, Figure 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

#: Where the other factors stay: three colours that can be told apart, and light from one side.
BASE = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.3, -0.85, 0.5, 0.75)


def traversal(values: int, base: Sequence[float] = BASE) -> Tensor:
    """Latents ``(factors · values, factors)``: row by row one factor from −1 to 1 in equal steps.

    >>> traversal(3, base=(0.5, 0.0)).tolist()
    [[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.5, -1.0], [0.5, 0.0], [0.5, 1.0]]
    """
    factors = len(base)
    latents = torch.tensor(base).repeat(factors, values, 1)
    for factor in range(factors):
        latents[factor, :, factor] = torch.linspace(-1.0, 1.0, values)
    return latents.flatten(0, 1)


def draw_factor_sheet(
    path: Path, render: Callable[[Tensor], Tensor], names: Sequence[str], *, values: int = 7, dpi: int = 150
) -> None:
    """Write the figure as ``path``, in the format of its suffix (PNG, PDF, SVG).

    render: latents ``(n, factors)`` to pictures ``(n, 3, H, W)``, bytes or numbers in [0, 1].
    names: of the factors.
    """
    if len(names) != len(BASE):
        raise ValueError(f"The sheet shows {len(BASE)} factors, and {len(names)} names were given.")
    if path.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise ValueError(f"The sheet is written as a .png, .pdf or .svg file, not as {path.name!r}.")
    images = render(traversal(values)).cpu().unflatten(0, (len(names), values)).permute(0, 1, 3, 4, 2)
    figure = Figure(figsize=(1.1 * values + 1.4, 1.1 * len(names) + 0.4), layout="constrained")
    axes = figure.subplots(len(names), values, squeeze=False)
    for row, name in enumerate(names):
        for column in range(values):
            axis = axes[row, column]
            axis.imshow(images[row, column].numpy())
            axis.set(xticks=[], yticks=[])
            if row == 0:
                axis.set_title(f"{-1 + 2 * column / max(1, values - 1):.2g}", fontsize=8)
        axes[row, 0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    figure.savefig(path, dpi=dpi)
