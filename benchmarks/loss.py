"""InfoNCE without the pair matrix against the dense loss one would write first: memory and time on the CPU.

    python benchmarks/loss.py [--batch 2048] [--large-batch 16384] [--dim 10] [--repeats 7]

Memory: how far loss and backward at the large batch raise the peak of a fresh process (p = 3); the dense
version's B×B×d intermediate is given by its size alone. Time: median of loss and backward at the smaller
batch, tiled and dense taking turns in one process.
"""

from __future__ import annotations

import argparse
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from identica.objectives import InfoNCE
from identica.similarities import DotProduct, LpSimilarity, Similarity

MEBIBYTE = 1 << 20
POWERS = (1.0, 2.0, 3.0)


def dense_info_nce(u: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """InfoNCE in four lines of eager PyTorch: all pairs at once."""

    def loss(h: Tensor, h_pos: Tensor) -> Tensor:
        positive, negative = u(h, h_pos), u(h[:, None], h[None])
        own = torch.eye(len(h), dtype=torch.bool, device=h.device)
        negative = negative.masked_fill(own, -torch.inf)
        return (torch.logsumexp(torch.cat([positive[:, None], negative], dim=1), dim=1) - positive).mean()

    return loss


def contenders(p: float | None) -> tuple[Similarity, Callable[[Tensor, Tensor], Tensor]]:
    if p is None:
        return DotProduct(), lambda a, b: (a * b).sum(dim=-1)
    return LpSimilarity(p), lambda a, b: -(a - b).abs().pow(p).sum(dim=-1)


def codes(batch: int, dim: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(batch, dim, generator=generator)
    return h.requires_grad_(), (h + 0.1 * torch.randn(batch, dim, generator=generator)).detach().requires_grad_()


def seconds(loss: Callable[[Tensor, Tensor], Tensor], h: Tensor, h_pos: Tensor) -> float:
    h.grad = h_pos.grad = None
    start = time.perf_counter()
    loss(h, h_pos).backward()
    return time.perf_counter() - start


def peak() -> float:
    """The largest resident size this process has had, in MiB."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / (MEBIBYTE if platform.system() == "Darwin" else 1024)


def print_rise_of_the_peak(batch: int, dim: int) -> None:
    h, h_pos = codes(batch, dim)
    loss = InfoNCE(LpSimilarity(3.0))
    before = peak()
    seconds(loss, h, h_pos)
    print(peak() - before)


def rise_in_a_fresh_process(batch: int, dim: int) -> float:
    command = [sys.executable, __file__, "--only-memory", "--large-batch", str(batch), "--dim", str(dim)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def compare(p: float | None, batch: int, dim: int, repeats: int) -> tuple[float, float, float]:
    """Median seconds of tiled and dense, and the largest difference of their gradients, relative to the largest."""
    similarity, u = contenders(p)
    h, h_pos = codes(batch, dim)
    losses = (InfoNCE(similarity, impl="tiled"), dense_info_nce(u))
    taken: tuple[list[float], list[float]] = ([], [])
    gradients = []
    for loss in losses:  # warm up, and compare what they compute
        seconds(loss, h, h_pos)
        assert h.grad is not None
        gradients.append(h.grad)
    for _ in range(repeats):
        for loss, times in zip(losses, taken, strict=True):
            times.append(seconds(loss, h, h_pos))
    difference = (gradients[0] - gradients[1]).abs().max() / gradients[1].abs().max()
    return statistics.median(taken[0]), statistics.median(taken[1]), difference.item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--large-batch", type=int, default=16384)
    parser.add_argument("--dim", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only-memory", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only_memory:
        return print_rise_of_the_peak(options.large_batch, options.dim)

    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, d = {options.dim}, float32")
    dense = options.large_batch**2 * options.dim * 4 / MEBIBYTE
    rise = rise_in_a_fresh_process(options.large_batch, options.dim)
    print(f"memory of loss + backward at B = {options.large_batch}, p = 3: {rise:.0f} MiB above the process before it")
    print(f"  (one copy of the dense B×B×d intermediate: {dense:.0f} MiB)")
    print(f"time of loss + backward at B = {options.batch}, median of {options.repeats}:")
    print("| similarity | tiled [ms] | dense [ms] | ratio | gradients differ by |")
    print("|---|---|---|---|---|")
    for p in (*POWERS, None):
        tiled, eager, difference = compare(p, options.batch, options.dim, options.repeats)
        name = "dot" if p is None else f"p = {p:g}"
        print(
            f"| {name} | {1e3 * tiled:.1f} | {1e3 * eager:.1f} | {eager / tiled:.1f} | {difference:.1e} |", flush=True
        )


if __name__ == "__main__":
    main()
