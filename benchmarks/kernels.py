"""The log-partition over all pairs on a GPU, forward and backward: time, memory, and how far from the floor.

    python benchmarks/kernels.py [--batch 6144] [--dim 10] [--large-batch 1048576]

Random codes in float32 unless stated, warm; medians over replays of a captured graph, timed by device events.
The floor counts the arithmetic of a pair alone: an instruction per lane and cycle, and exponentials on their
own unit at an eighth of that rate. ``--large-batch 0`` leaves the large problem out.

    python benchmarks/kernels.py --routes        few coordinates: by lanes or by matrix products?
    python benchmarks/kernels.py --held          many: all of them with their program, or fetched for every tile?
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product

import torch
from torch import Tensor
from triton.runtime.errors import OutOfResources

from identica.kernels import log_partition
from identica.kernels import triton_launch as launch
from identica.similarities import Anisotropic, DotProduct, LpSimilarity, Similarity

MEBIBYTE = 1 << 20
LANES = 128  # float32 lanes of a multiprocessor
EXPONENTIALS = 16  # of a multiprocessor and cycle
LANES_AT_MOST = launch.NARROW
ALL_CHUNKS = 4  # of up to 128 coordinates
ERROR_BATCH = 1024

#: name, similarity, instructions per coordinate and pair: forward, and backward summed over the passes.
CASES: list[tuple[str, Callable[[int], Similarity], int, int]] = [
    ("dot", lambda d: OneTensorDot(), 1, 2),  # one pass back: similarity and gradient, one FMA each
    ("dot / tau", lambda d: DotProduct(0.5), 1, 4),  # anchors and candidates differ by the scale: two passes
    ("p = 2", lambda d: LpSimilarity(2, 0.5), 2, 3),  # difference, FMA; the difference is kept for one more FMA
    ("anisotropic", lambda d: Anisotropic(d, 2.0), 2, 3),
    ("p = 1", lambda d: LpSimilarity(1, 0.5), 2, 5),  # sign, its exception at 0, sum
    ("p = 3", lambda d: LpSimilarity(3, 0.5), 3, 5),
]


class OneTensorDot(DotProduct):
    """The inner product without temperature, with the anchors as their own candidates."""

    def rescale(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Nothing to do."""
        return a, b


def gpu_milliseconds(work: Callable[[], object], repeats: int = 25) -> float:
    """Median time of one replay of the captured work."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    graph.replay()
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
    for start, end in events:
        start.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in events)


def once_milliseconds(work: Callable[[], object]) -> tuple[float, float]:
    """Time of one eager run, and by how many MiB it raises the peak of the allocated memory."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end), (torch.cuda.max_memory_allocated() - before) / MEBIBYTE


def info_nce_denominator(similarity: Similarity, h: Tensor, impl: str) -> Callable[[], object]:
    """Forward and backward of the log-partition of codes against themselves, and of the rescaling."""
    parameters = [h, *similarity.parameters()]
    kernel = similarity.kernel
    assert kernel is not None

    def work() -> object:
        a, b = similarity.rescale(h, h)
        value = log_partition(a, b, kernel, exclude_diagonal=True, impl=impl).log_partition.mean()
        return torch.autograd.grad(value, parameters)

    return work


def floor_milliseconds(pairs: int, dim: int, forward: int, backward: int) -> float:
    """Coordinates' arithmetic and about 15 instructions a pair besides, and 3 exponentials."""
    device = torch.cuda.get_device_properties(0)
    clock = 1e3 * device.clock_rate if hasattr(device, "clock_rate") else 1.98e9
    cycles = device.multi_processor_count * clock
    arithmetic = pairs * (dim * (forward + backward) + 15) / (LANES * cycles)
    return 1e3 * max(arithmetic, pairs * 3 / (EXPONENTIALS * cycles))


def small_codes(batch: int, dim: int) -> None:
    h = torch.randn(batch, dim, device="cuda").requires_grad_()
    print(f"B = M = {batch}, d = {dim}, float32, forward + backward [ms]: triton, tiled, floor of the arithmetic")
    for name, make, forward, backward in CASES:
        similarity = make(dim).to("cuda")
        times = [gpu_milliseconds(info_nce_denominator(similarity, h, impl)) for impl in ("triton", "tiled")]
        floor = floor_milliseconds(batch * batch, dim, forward, backward)
        print(f"  {name:12s} {times[0]:8.4f} {times[1]:8.3f} {floor:8.4f}")


def large_batch(batch: int, dim: int, names: Sequence[str] = ("dot", "p = 1", "p = 2", "p = 3")) -> None:
    h = torch.randn(batch, dim, device="cuda").requires_grad_()
    print(f"B = M = {batch}, d = {dim}, float32, forward + backward, one run [s], peak memory added [MiB], floor [s]")
    for name, make, forward, backward in CASES:
        if name in names:
            time, memory = once_milliseconds(info_nce_denominator(make(dim).to("cuda"), h, "triton"))
            floor = floor_milliseconds(batch * batch, dim, forward, backward)
            print(f"  {name:12s} {time / 1e3:8.3f} {memory:8.0f} {floor / 1e3:8.3f}")


def wide_codes(batch: int, dim: int) -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    shape = (batch, dim)
    a, b = (
        (torch.randn(shape, device="cuda", generator=generator) / dim**0.25).bfloat16().requires_grad_()
        for _ in range(2)
    )
    kernel = DotProduct().kernel

    def ours() -> object:
        return torch.autograd.grad(log_partition(a, b, kernel, impl="triton").log_partition.mean(), (a, b))

    def dense() -> object:
        return torch.autograd.grad(torch.logsumexp(a @ b.T, dim=1).mean(), (a, b))

    floor = 1e3 * 5 * 2 * batch * batch * dim / 790e12  # five products: one forward, two in each gradient pass
    print(f"B = M = {batch}, d = {dim}, dot, bfloat16, forward + backward [ms], peak memory added [MiB]")
    for name, work in (("triton", ours), ("dense", dense)):
        time = gpu_milliseconds(work)
        print(f"  {name:12s} {time:8.3f} {once_milliseconds(work)[1]:8.0f}")
    print(f"  floor        {floor:8.3f} (its matrix products at 790 TFLOP/s)")


@contextmanager
def route(products_from: int, precision: str) -> Iterator[None]:
    """Codes of that many coordinates or more go through matrix products, of that precision where they may be TF32."""
    before, products = launch.PRODUCTS_FROM, torch.get_float32_matmul_precision()
    launch.PRODUCTS_FROM = products_from
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        launch.PRODUCTS_FROM = before
        torch.set_float32_matmul_precision(products)


def routes(batches: Sequence[int], dims: Sequence[int], device: str = "cuda") -> None:
    """Unit codes, inner products and squared distances times 75: milliseconds, and the largest error of a gradient."""
    ways = {"lanes": (1 << 20, "highest"), "products": (0, "highest"), "products, TF32": (0, "high")}
    print(f"codes against themselves, forward + backward [ms (relative error)]: {', '.join(ways)}")
    for dim, (name, similarity) in product(dims, {"dot": DotProduct(1 / 75), "p = 2": LpSimilarity(2, 2 / 75)}.items()):
        lanes, tf32 = dim <= LANES_AT_MOST, dim > LANES_AT_MOST and name == "dot"
        for batch in batches:
            h = torch.nn.functional.normalize(torch.randn(batch, dim, device=device), dim=1).requires_grad_()
            few = h[:ERROR_BATCH].detach()
            exact = gradient_of(similarity, few.double(), "reference")
            cells = []
            for setting, possible in zip(ways.values(), (lanes, True, tf32), strict=True):
                if not possible:
                    cells.append("–")
                    continue
                with route(*setting):
                    work = info_nce_denominator(similarity, h, "triton")
                    time = gpu_milliseconds(work, repeats=5) if device != "cpu" else float("nan")
                    error = (gradient_of(similarity, few, "triton") - exact).abs().max() / exact.abs().max()
                cells.append(f"{time:.3f} ({error:.0e})")
            print(f"  {name:5}, d = {dim:3d}, B = {batch:6d} " + " ".join(f"{cell:>18}" for cell in cells), flush=True)


def held(batch: int, dims: Sequence[int], similarity: Similarity, device: str = "cuda") -> None:
    """Unit codes: milliseconds with all chunks of a row held by its program, and with none of them."""
    if one_chunk := [dim for dim in dims if dim <= LANES_AT_MOST]:
        raise SystemExit(f"Up to {LANES_AT_MOST} coordinates are one chunk, which is always held: not {one_chunk}.")
    print(f"{similarity} among {batch} codes, forward + backward [ms (relative error)]: held, not held, ratio")
    for dim, (kind, setting) in product(dims, {"TF32": "high", "float32": "highest"}.items()):
        if kind == "TF32" and not isinstance(similarity, DotProduct):
            continue  # squared distances are never computed in TF32
        h = torch.nn.functional.normalize(torch.randn(batch, dim, device=device), dim=1).requires_grad_()
        few = h[:ERROR_BATCH].detach()
        exact = gradient_of(similarity, few.double(), "reference")
        times, cells = [], []
        for most in (ALL_CHUNKS, 0):
            with most_held(most), route(launch.PRODUCTS_FROM, setting):
                work = info_nce_denominator(similarity, h, "triton")
                try:
                    error = (gradient_of(similarity, few, "triton") - exact).abs().max() / exact.abs().max()
                    times.append(gpu_milliseconds(work, repeats=5) if device != "cpu" else float("nan"))
                    cells.append(f"{times[-1]:.3f} ({error:.0e})")
                except OutOfResources:
                    times.append(float("nan"))
                    cells.append("does not fit")
        shown = " ".join(f"{cell:>16}" for cell in cells)
        print(f"  {kind:7}, d = {dim:3d} {shown} {times[1] / times[0]:6.2f}", flush=True)


@contextmanager
def most_held(chunks: int) -> Iterator[None]:
    """Codes of so many chunks of coordinates stay with their program."""
    before, launch.MOST_HELD = launch.MOST_HELD, dict.fromkeys(launch.MOST_HELD, chunks)
    try:
        yield
    finally:
        launch.MOST_HELD = before


def gradient_of(similarity: Similarity, h: Tensor, impl: str) -> Tensor:
    """The gradient of the mean log-partition, for a comparison."""
    h = h.clone().requires_grad_()
    kernel = similarity.kernel
    assert kernel is not None
    a, b = similarity.rescale(h, h)
    value = log_partition(a, b, kernel, exclude_diagonal=True, impl=impl).log_partition.mean()
    (gradient,) = torch.autograd.grad(value, h)
    return gradient


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=6144)
    parser.add_argument("--dim", type=int, default=10)
    parser.add_argument("--large-batch", type=int, default=1 << 20)
    parser.add_argument("--wide-batch", type=int, default=16384)
    parser.add_argument("--wide-dim", type=int, default=128)
    parser.add_argument("--routes", action="store_true", help="only compare the two ways for few coordinates")
    parser.add_argument("--held", action="store_true", help="only compare the two ways for many coordinates")
    parser.add_argument("--dims", default="33,40,64,80,96,100,128", help="for --held")
    options = parser.parse_args()
    print(torch.cuda.get_device_name(), "| torch", torch.__version__)
    if options.routes:
        routes((4096, 16_384, 65_536), (5, 10, 20, 32, 40, 80))
        return
    if options.held:
        for similarity in (DotProduct(1 / 75), LpSimilarity(2, 2 / 75)):
            held(32_768, [int(dim) for dim in options.dims.split(",")], similarity)
        return
    small_codes(options.batch, options.dim)
    wide_codes(options.wide_batch, options.wide_dim)
    if options.large_batch:
        large_batch(options.large_batch, options.dim)


if __name__ == "__main__":
    main()
