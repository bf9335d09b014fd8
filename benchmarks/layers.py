"""The fused layers of the residual encoder on a GPU, one kind of launch at a time, with tiles of several sizes.

    python benchmarks/layers.py [--width 512] [--rows 24576 49152 131072]

TF32, warm; medians over replays of a captured graph. For each launch the tile that ``tile_for`` chooses (marked *) and
others: milliseconds, and trillions of multiplications and additions a second.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from identica.encoders import triton_layers as layers
from identica.encoders.triton_layers import Tile

TILES = (
    Tile(64, 128, 32, 4, 4),
    Tile(128, 128, 32, 4, 3),
    Tile(128, 128, 32, 8, 3),
    Tile(128, 128, 32, 8, 4),
    Tile(128, 256, 32, 8, 3),
)


def launches(rows: int, width: int) -> Iterator[tuple[str, Callable[[Tile], object]]]:
    """What a block h + V gelu(U h) takes, forward and backward, apart from the gradients of U and V."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, device="cuda")

    h, seen, weight, bias = normal(1, rows, width), normal(1, rows, width), normal(1, width, width), normal(1, width)
    gelu = {"activation": layers.GELU, "keeps_pre": True}
    yield "gelu(U h), U h kept", lambda tile: layers.run_forward(h, weight, bias, tile=tile, **gelu)
    yield "h + V a", lambda tile: layers.run_forward(seen, weight, bias, added=h, tile=tile)
    yield (
        "through V and gelu",
        lambda tile: layers.run_backward(h, weight, seen=seen, activation=layers.GELU, tile=tile),
    )
    yield "through U, added", lambda tile: layers.run_backward(seen, weight, added=h, tile=tile)


def compare(rows: int, width: int, tiles: Sequence[Tile]) -> None:
    """One line for each launch."""
    from kernels import gpu_milliseconds

    print(f"{rows} rows of {width} numbers [ms (TFLOP/s)], tiles as rows x columns, warps, stages")
    for name, launch in launches(rows, width):
        chosen = layers.tile_for(torch.empty(1, rows, width, device="cuda"), width)
        for tile in tiles:
            time = gpu_milliseconds(lambda launch=launch, tile=tile: launch(tile))  # type: ignore[misc]
            rate = 2e-9 * rows * width**2 / time
            mark = "*" if tile == chosen else " "
            size = f"{tile.rows} x {tile.columns}, {tile.warps}, {tile.stages}"
            print(f"  {name:22s} {mark} {size:18s} {time:8.4f} ({rate:4.0f})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--rows", type=int, nargs="+", default=[24_576, 49_152, 131_072])
    options = parser.parse_args()
    print(torch.cuda.get_device_name(), "| torch", torch.__version__)
    for rows in options.rows:
        compare(rows, options.width, [tile for tile in TILES if options.width % tile.columns == 0])


if __name__ == "__main__":
    main()
