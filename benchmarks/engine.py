"""A whole training step, and how far it is from what the hardware allows.

    python benchmarks/engine.py                    on a GPU: the papers' four settings, batch 6144
    python benchmarks/engine.py --device cpu       on the CPU: batch 2048, p = 3, against a straightforward step

A step is sample, mix, encode, loss, backward, update, with the papers' encoder. On the GPU times are medians
over blocks of replays between device events, warm, on fresh random data; on the CPU medians of wall-clock times,
both versions in one run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

import identica as idt
from identica.training.step import matmul_precision

DIM = 10
SCALE = 0.05

SETTINGS: dict[str, tuple[torch.distributions.Distribution, idt.Conditional, idt.Space, idt.Similarity]] = {
    "sphere, vMF κ=1, dot": (
        idt.SphereUniform(DIM),
        idt.Conditional(idt.VonMisesFisher, concentration=1.0),
        idt.Sphere(DIM),
        idt.DotProduct(1.0),
    ),
    "box, Laplace, p=1": (
        idt.BoxUniform(DIM),
        idt.Conditional(idt.TruncatedLaplace, scale=SCALE),
        idt.Box(DIM),
        idt.LpSimilarity(1, SCALE),
    ),
    "box, normal, p=2": (
        idt.BoxUniform(DIM),
        idt.Conditional(idt.TruncatedNormal, scale=SCALE),
        idt.Box(DIM),
        idt.LpSimilarity(2, 2 * SCALE**2),
    ),
    "box, GenNorm β=3, p=3": (
        idt.BoxUniform(DIM),
        idt.Conditional(idt.TruncatedGeneralizedNormal, scale=SCALE, power=3.0),
        idt.Box(DIM),
        idt.LpSimilarity(3, SCALE**3),
    ),
}


def our_step(name: str, batch: int, device: str, precision: str) -> Callable[[], object]:
    """One step of ``idt.train`` for a setting, ready to be called again and again."""
    marginal, conditional, space, similarity = SETTINGS[name]
    mixing = idt.InvertibleMLP(DIM, seed=0, candidates=1000)
    process = idt.PairProcess(marginal, conditional, mixing=mixing).to(device)
    config = idt.TrainConfig(steps=10**6, batch_size=batch, precision=precision)  # type: ignore[arg-type]
    encoder = idt.MLPEncoder(DIM, space, seed=0)
    state = idt.TrainState.create(encoder, idt.InfoNCE(similarity), config, device=device)
    return idt.make_step(process, state, config)


def flops_of_encoder(batch: int) -> float:
    """Multiplications and additions of forward and backward over both views."""
    widths = [DIM, *(DIM * k for k in (10, 50, 50, 50, 50, 10)), DIM]
    weights = sum(a * b for a, b in zip(widths, widths[1:], strict=False))
    return 6.0 * weights * 2 * batch


def on_gpu(batch: int, precisions: list[str], blocks: int, replays: int) -> None:
    """Median milliseconds per step, from device events around blocks of replays."""
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, B = {batch}, N = {DIM}, the papers' encoder")
    print(f"{'setting':<26}" + "".join(f"{p + ' [ms]':>12}" for p in precisions))
    for name in SETTINGS:
        cells = []
        for precision in precisions:
            with matmul_precision(precision):  # type: ignore[arg-type]
                step = our_step(name, batch, "cuda", precision)
                for _ in range(20):
                    step()
                times = []
                for _ in range(blocks):
                    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                    begin.record()
                    for _ in range(replays):
                        step()
                    end.record()
                    end.synchronize()
                    times.append(begin.elapsed_time(end) / replays)
            cells.append(f"{statistics.median(times):>12.3f}")
        print(f"{name:<26}" + "".join(cells), flush=True)
    print(f"encoder alone: {flops_of_encoder(batch) / 1e9:.0f} GFLOP a step")


def straightforward_step(batch: int) -> Callable[[], object]:
    """What one would write first: rejection for the noise, a dense B × B × d loss, the same network."""
    mixing = idt.InvertibleMLP(DIM, seed=0, candidates=1000)
    encoder = idt.MLPEncoder(DIM, idt.Box(DIM), seed=0)
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-4)
    noise = torch.distributions.Gamma(1 / 3, 1.0)

    def draw(loc: torch.Tensor) -> torch.Tensor:
        sign = torch.randint(0, 2, loc.shape) * 2 - 1
        return loc + SCALE * sign * noise.sample(loc.shape) ** (1 / 3)

    def step() -> object:
        z = torch.rand(batch, DIM)
        z_pos = draw(z)
        while bool((outside := ((z_pos < 0) | (z_pos > 1)).any(dim=1)).any()):
            z_pos[outside] = draw(z[outside])
        h, h_pos = encoder(mixing(z)), encoder(mixing(z_pos))
        positive = -((h - h_pos).abs() ** 3).sum(-1) / SCALE**3
        pairs = -((h[:, None] - h[None]).abs() ** 3).sum(-1) / SCALE**3
        pairs = pairs.masked_fill(torch.eye(batch, dtype=torch.bool), -torch.inf)
        loss = (torch.logsumexp(torch.cat([positive[:, None], pairs], dim=1), dim=1) - positive).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def on_cpu(batch: int, repeats: int) -> None:
    """Both steps in turn, so that a busy moment hits both."""
    versions = {
        "ours": our_step("box, GenNorm β=3, p=3", batch, "cpu", "fp32"),
        "straightforward": straightforward_step(batch),
    }
    times: dict[str, list[float]] = {name: [] for name in versions}
    for k in range(repeats + 2):
        for name, step in versions.items():
            begin = time.perf_counter()
            step()
            if k >= 2:
                times[name].append(time.perf_counter() - begin)
    medians = {name: 1000 * statistics.median(values) for name, values in times.items()}
    print(f"CPU, {torch.get_num_threads()} threads, B = {batch}, N = {DIM}, p = 3, medians of {repeats} steps")
    for name, value in medians.items():
        print(f"{name:<18}{value:>9.1f} ms   {medians['straightforward'] / value:.1f}×")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=None)
    parser.add_argument("--precisions", default="tf32,bf16,fp32")
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    if options.device == "cuda":
        on_gpu(options.batch or 6144, options.precisions.split(","), options.repeats, replays=100)
    else:
        on_cpu(options.batch or 2048, options.repeats)


if __name__ == "__main__":
    main()
