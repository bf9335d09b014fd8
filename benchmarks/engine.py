"""A whole training step, its parts, and how far they are from what the hardware allows.

    python benchmarks/engine.py                       on a GPU: everything below, in one call
    python benchmarks/engine.py --only step,seeds     parts of it: step, seeds, partition, samplers, targets
    python benchmarks/engine.py --device cpu          on the CPU: batch 2048, p = 3, against a straightforward step

A step is sample, mix, encode, loss, backward, update, with the papers' encoder. On the GPU times are medians
over blocks of replays between device events, warm, on fresh random data; on the CPU medians of wall-clock times,
both versions in one run. The floor of a step is its arithmetic at the device's peak: the encoder's products on the
matrix units, the pairs on the float32 units, one after the other.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch

import identica as idt
from identica.experiments.clica.budgets import RECIPES
from identica.experiments.clica.plan import Plan
from identica.experiments.clica.tables import TABLE1, TABLE2
from identica.training import Record
from identica.training.together import Together

sys.path.insert(0, str(Path(__file__).parent))
import kernels  # noqa: E402
import samplers  # noqa: E402

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


#: Peak of an H200 without sparsity, in operations a second.
PEAK = {"tf32": 495e12, "bf16": 990e12, "fp32": 67e12}
#: Float32 instructions a pair and coordinate, forward and backward, and a pair besides (benchmarks/kernels.py).
PAIR_INSTRUCTIONS = {"dot": 2, "p=1": 5, "p=2": 4, "p=3": 7}


def our_step(name: str, batch: int, device: str, precision: str, seeds: int = 1) -> Callable[[], object]:
    """One step of ``idt.train`` or ``idt.train_many`` for a setting, ready to be called again and again."""
    marginal, conditional, space, similarity = SETTINGS[name]
    config = idt.TrainConfig(steps=10**5, batch_size=batch, precision=precision)  # type: ignore[arg-type]
    processes, states = [], []
    for seed in range(seeds):
        mixing = idt.InvertibleMLP(DIM, seed=seed, candidates=100)
        processes.append(idt.PairProcess(marginal, conditional, mixing=mixing).to(device))
        encoder = idt.MLPEncoder(DIM, space, seed=seed)
        states.append(idt.TrainState.create(encoder, idt.InfoNCE(similarity), config, seed=seed, device=device))
    return Together(processes, states, config).advance


def flops_of_encoder(batch: int) -> float:
    """Multiplications and additions of forward and backward over both views."""
    widths = [DIM, *(DIM * k for k in (10, 50, 50, 50, 50, 10)), DIM]
    weights = sum(a * b for a, b in zip(widths, widths[1:], strict=False))
    return 6.0 * weights * 2 * batch


def floor_of_step(name: str, batch: int, precision: str) -> float:
    """Milliseconds that the arithmetic alone takes at the device's peak."""
    kind = next(kind for kind in PAIR_INSTRUCTIONS if kind in name)
    pairs = batch * batch * (DIM * PAIR_INSTRUCTIONS[kind] + 15)
    return 1e3 * (flops_of_encoder(batch) / PEAK[precision] + pairs / (PEAK["fp32"] / 2))


def gpu_milliseconds(step: Callable[[], object], blocks: int, replays: int) -> float:
    """Median milliseconds of a step, from device events around blocks of replays."""
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
    return statistics.median(times)


def steps_on_gpu(batch: int, precisions: list[str], seeds: int, blocks: int) -> None:
    """Milliseconds a step and seed, and the floor beside each."""
    together = "" if seeds == 1 else f", {seeds} seeds together, per seed"
    print(f"\nTraining step [ms]: B = {batch}, N = {DIM}, the papers' encoder{together}; in brackets the floor")
    print(f"{'setting':<26}" + "".join(f"{p:>18}" for p in precisions))
    for name in SETTINGS:
        cells = []
        for precision in precisions:
            measured = gpu_milliseconds(our_step(name, batch, "cuda", precision, seeds), blocks, replays=100) / seeds
            cells.append(f"{measured:>9.3f} ({floor_of_step(name, batch, precision):.3f})")
        print(f"{name:<26}" + "".join(f"{cell:>18}" for cell in cells), flush=True)
    print(f"The encoder's products are {flops_of_encoder(batch) / 1e9:.0f} GFLOP a step and seed.")


class Reached(Exception):
    """The score was reached."""


class StopAt(idt.Callback):
    """Ends a run at the first evaluation whose score is high enough, and keeps the last evaluation."""

    def __init__(self, score: str, target: float) -> None:
        self.score, self.target = score, target
        self.last: Record | None = None

    def on_evaluation(self, state: idt.TrainState, record: Record) -> None:
        """Look at the score."""
        self.last = record
        if record.scores[self.score] >= self.target:
            raise Reached


def seconds_to_target(plan: Plan, score: str, target: float) -> None:
    """Train a row with our recipe until it reaches the published score, evaluations included."""
    parts = (plan.process("contrastive", 0), plan.encoder("contrastive", 0), plan.objective("contrastive"))
    config, watcher = plan.train_config("contrastive"), StopAt(score, target)
    with contextlib.suppress(Reached):
        idt.train(*parts, config, seed=0, device="cuda", quiet=True, callbacks=[watcher])
    assert watcher.last is not None
    reached = watcher.last.scores[score]
    verdict = "reached" if reached >= target else "not reached"
    print(
        f"{plan.experiment.id} row {plan.row.number}, {score} {target}: {verdict} after {watcher.last.seconds:.1f} s, "
        f"{watcher.last.step} of {config.steps} steps ({reached:.4f}), B = {config.batch_size}, {config.precision}",
        flush=True,
    )


def targets_on_gpu() -> None:
    """Two rows of the papers, one seed, from the first step to the published score."""
    print("\nFrom the first step to the published score, our recipe, one seed, compilation included")
    for experiment, score, target in ((TABLE1, "r2", 0.9942), (TABLE2, "mcc", 0.9862)):
        row = experiment.rows[0]
        recipe = RECIPES.of(row, "fast", "cuda")
        seconds_to_target(Plan(experiment, row, "fast", recipe), score, target)


def partition_on_gpu() -> None:
    """The log-partition alone: benchmarks/kernels.py."""
    print()
    kernels.small_codes(6144, DIM)
    kernels.wide_codes(16384, 128)
    kernels.large_batch(1 << 20, DIM, ("dot", "p = 3"))


def on_gpu(batch: int, precisions: list[str], parts: list[str], blocks: int) -> None:
    """Everything that was asked for."""
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    work: dict[str, Callable[[], object]] = {
        "step": lambda: steps_on_gpu(batch, precisions, 1, blocks),
        "seeds": lambda: steps_on_gpu(batch, precisions, 5, blocks),
        "targets": targets_on_gpu,
        "partition": partition_on_gpu,
        "samplers": lambda: samplers.on_gpu(2**20, DIM, 9, ("triton",)),
    }
    failed = []
    for part in parts or work:
        try:
            work[part]()
        except Exception:  # the other parts are still worth having
            traceback.print_exc()
            failed.append(part)
    if failed:
        sys.exit(f"These parts failed: {', '.join(failed)}.")


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


P3 = "box, GenNorm β=3, p=3"


def cpu_step(version: str, batch: int) -> Callable[[], object]:
    """One of the two steps that are compared on the CPU."""
    return our_step(P3, batch, "cpu", "fp32") if version == "ours" else straightforward_step(batch)


def print_peak(version: str, batch: int) -> None:
    """Print by how many MiB two steps raise this process's peak memory (Linux only)."""

    def mebibytes(line: str) -> float:
        status = Path("/proc/self/status").read_text()
        return int(next(entry for entry in status.splitlines() if entry.startswith(line)).split()[1]) / 1024

    step = cpu_step(version, batch)
    before = mebibytes("VmRSS")
    step()
    step()
    print(mebibytes("VmHWM") - before)


def on_cpu(batch: int, repeats: int) -> None:
    """Both steps in turn, so that a busy moment hits both; their memory in a process of its own each."""
    versions = {name: cpu_step(name, batch) for name in ("ours", "straightforward")}
    times: dict[str, list[float]] = {name: [] for name in versions}
    for k in range(repeats + 2):
        for name, step in versions.items():
            begin = time.perf_counter()
            step()
            if k >= 2:
                times[name].append(time.perf_counter() - begin)
    medians = {name: 1000 * statistics.median(values) for name, values in times.items()}
    print(f"CPU, {torch.get_num_threads()} threads, B = {batch}, N = {DIM}, p = 3, float32, medians of {repeats} steps")
    for name, value in medians.items():
        command = [sys.executable, __file__, "--device", "cpu", "--batch", str(batch), "--peak-of", name]
        peak = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(
            f"{name:<18}{value:>9.1f} ms   {medians['straightforward'] / value:.1f}×   {peak:.0f} MiB above the start"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=None)
    parser.add_argument("--precisions", default="tf32,bf16")
    parser.add_argument("--only", default="", help="step, seeds, targets, partition, samplers; separated by commas")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--peak-of", choices=["ours", "straightforward"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak_of:
        print_peak(options.peak_of, options.batch)
    elif options.device == "cuda":
        parts = [part for part in options.only.split(",") if part]
        on_gpu(options.batch or 6144, options.precisions.split(","), parts, options.repeats)
    else:
        on_cpu(options.batch or 2048, options.repeats)


if __name__ == "__main__":
    main()
