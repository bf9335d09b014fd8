"""How long a training step of Tables 4 and 5 takes, size by size, and what of it is drawing pairs.

    python benchmarks/images.py                                the rows 1, 1b and 5 of ``fast`` on a GPU
    python benchmarks/images.py --rows 1b --only step,parts    parts of it: step, pairs, parts
    python benchmarks/images.py --autotune                     let cuDNN try its algorithms out first
    python benchmarks/images.py --device cpu --budget smoke    a few small steps on the CPU
    python benchmarks/images.py --device cpu --search tree     snapping alone: tree, exact, faiss

``step``: milliseconds of a whole step, captured as in training, on pools that are smaller than in training, and what
all steps of that size would take. ``pairs``: of drawing a batch alone, not captured. ``parts``: the ten kernels that
take most of a step's time. Median over blocks of steps, warm. ``--search``: seconds until pairs can be
snapped to 250,000 latents, and for 512 pairs; of how many among 5000 further pairs' views the latent is the k-d tree's.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch is loaded: idle threads sleep instead of spinning

import torch  # noqa: E402

from identica.distributions import Conditional, TruncatedNormal  # noqa: E402
from identica.experiments.three_d_ident.plan import ImagePlan, latents_of, marginal  # noqa: E402
from identica.experiments.three_d_ident.tables import TABLE4  # noqa: E402
from identica.processes import PairProcess, SnappedProcess  # noqa: E402
from identica.processes.nearest import SearchName  # noqa: E402
from identica.training import TrainState, make_step  # noqa: E402
from identica.training.capture import WARM_UP  # noqa: E402

#: Timed blocks, and steps in a block: by pixels along a side, where a step is long a few will do.
BLOCKS = 3
#: What is snapped, and to how many latents: the paper's.
PAIRS, LATENTS = 512, 250_000
#: Pairs that are snapped to compare a search with the tree.
COMPARED = 5000


def steps_of(size: int) -> int:
    return 30 if size <= 64 else 10


def _seconds(work: Callable[[], object], count: int, device: torch.device) -> float:
    """The median over blocks of ``count`` calls, of one call."""
    blocks = []
    for _ in range(BLOCKS):
        _wait(device)
        begin = time.perf_counter()
        for _ in range(count):
            work()
        _wait(device)
        blocks.append((time.perf_counter() - begin) / count)
    return statistics.median(blocks)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


@dataclass
class Bench:
    """One row at one size, ready to take steps."""

    plan: ImagePlan
    place: int
    device: torch.device

    def __post_init__(self) -> None:
        self.resolution, stage = self.plan.recipe.resolutions[self.place], self.plan.stages("contrastive")[self.place]
        self.config = stage.config
        small = replace(self.resolution, pool=min(self.resolution.pool, 4 * self.config.batch_size))
        self.process: Any = self.plan.pairs("contrastive", small).to(self.device, torch.float32)
        encoder = self.plan.encoder("contrastive", 0)
        if stage.begin is not None:
            stage.begin(encoder)
        self.state = TrainState.create(encoder, stage.objective(), self.config, device=self.device)
        encoder.prepare(self.process.sample(encoder.prepare_samples, self.state.generator).x)
        encoder.train()

    def seconds(self, work: Callable[[], object], count: int) -> float:
        """The median over blocks of ``count`` calls, of one call."""
        return _seconds(work, count, self.device)

    def step(self) -> str:
        """Captured after the first few, where that is possible; a warning says where it is not."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        advance = make_step(self.process, self.state, self.config)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            begin = time.perf_counter()
            for _ in range(WARM_UP + 1):
                advance()
            _wait(self.device)
        first, each = time.perf_counter() - begin, self.seconds(advance, steps_of(self.resolution.size))
        memory = torch.cuda.max_memory_allocated() / 2**30 if self.device.type == "cuda" else 0.0
        images = 2 * self.config.batch_size / each
        whole = f"{self.resolution.steps} steps {each * self.resolution.steps:.0f} s"
        notes = "".join(f"\n      {warning.message}" for warning in said)
        return (
            f"step  {each * 1e3:8.2f} ms  {images:8,.0f} images/s  {whole}  "
            f"(first {WARM_UP + 1} {first:.1f} s, {memory:.1f} GiB){notes}"
        )

    def pairs(self) -> str:
        """A batch from the pool, which renews some of it, and a batch of nothing but new pairs."""
        batch, generator = self.config.batch_size, torch.Generator(self.device).manual_seed(0)
        pooled = self.seconds(lambda: self.process.sample(batch, generator), 5)
        inner = self.process.process
        fresh = getattr(inner, "evaluation_process", inner)
        new = self.seconds(lambda: fresh.sample(batch, generator), 2)
        return f"pairs {pooled * 1e3:8.2f} ms as in a step, {new * 1e3:.2f} ms if all were new"

    def parts(self) -> str:
        """From the profiler, of a step that is not captured."""
        if self.device.type != "cuda":
            return "parts are those of a GPU"
        advance = make_step(self.process, self.state, self.config)
        advance()
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            advance()
            torch.cuda.synchronize()
        events = sorted(profile.key_averages(), key=lambda event: -event.self_device_time_total)
        total = sum(event.self_device_time_total for event in events)
        lines = [
            f"\n      {event.self_device_time_total / 1e3:8.3f} ms  {event.count:>4} × {event.key[:90]}"
            for event in events[:10]
        ]
        return f"parts {total / 1e3:8.2f} ms in all{''.join(lines)}"


def search(name: SearchName, device: torch.device) -> str:
    """Both views of a batch moved to the nearest latent, without pictures."""
    process = PairProcess(marginal(), Conditional(TruncatedNormal, scale=0.1, low=-1.0, high=1.0)).to(device)
    latents = latents_of("train", LATENTS)
    snapped = SnappedProcess(process, latents, search=name)
    begin = time.perf_counter()
    snapped.indices(1, 0)  # makes the search
    _wait(device)
    made = time.perf_counter() - begin
    generator = torch.Generator(device).manual_seed(0)
    each = _seconds(lambda: snapped.indices(PAIRS, generator), 2, device)
    trees = SnappedProcess(process, latents, search="tree").indices(COMPARED, 1)
    same = (snapped.indices(COMPARED, 1) == trees).double().mean().item()
    timed = f"made in {made:6.2f} s, {PAIRS} pairs in {each:7.4f} s"
    return f"search {name:<6} {timed}, {same:.2%} as the tree  ({LATENTS:,} latents)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--budget", default="fast")
    parser.add_argument("--rows", default="1,1b,5")
    parser.add_argument("--sizes", help="only these, of those that the budget trains at")
    parser.add_argument("--only", default="step,pairs,parts")
    parser.add_argument("--autotune", action="store_true")
    parser.add_argument("--search", help="tree, exact or faiss, or several: time snapping alone")
    arguments = parser.parse_args()
    torch.backends.cudnn.benchmark = arguments.autotune
    device = torch.empty(0, device=arguments.device).device
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    if arguments.search:
        print(f"Snapping on {where}, PyTorch {torch.__version__}")
        for name in arguments.search.split(","):
            print(search(name, device), flush=True)
        return
    print(f"Steps on images on {where}, PyTorch {torch.__version__}, autotune {arguments.autotune}")
    for number in arguments.rows.split(","):
        plan = TABLE4.plan(TABLE4.row(number), arguments.budget, arguments.device)
        assert isinstance(plan, ImagePlan)
        for place, resolution in enumerate(plan.recipe.resolutions):
            if arguments.sizes and str(resolution.size) not in arguments.sizes.split(","):
                continue
            bench = Bench(plan, place, device)
            for part in arguments.only.split(","):
                print(f"row {number:<2} stage {place + 1}, {resolution.size:>3}²  {getattr(bench, part)()}", flush=True)
            del bench
            with contextlib.suppress(RuntimeError):
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
