"""Where the time of a training step goes, kernel by kernel, for a row of an experiment as it is trained.

    python benchmarks/step_profile.py clica/table1 1                five seeds together, budget fast
    python benchmarks/step_profile.py aninfonce/figure9 d40-p75-b16384 --seeds 3 --model infonce
    IDENTICA_DATA=DIR python benchmarks/step_profile.py aninfonce/figure3 1 --seeds 1    trains its VAEs first
    python benchmarks/step_profile.py clica/table2 1 --device cpu --batch 512 --steps 3    operators, on the CPU

Milliseconds are those of one step of all seeds. On a GPU the first line compares the sum over kernels with the time
between device events around the same number of steps without the profiler: what is missing is launches and gaps, and
a sum above it kernels that ran side by side.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import identica as idt
from identica.experiments import find
from identica.experiments.running.supplies import Supplies, data_folder
from identica.training.together import Together

WIDEST = 76


def step_of(plan: Any, model: str, seeds: int, device: str) -> Callable[[], object]:
    """The step that ``identica reproduce`` takes for one model of a row."""
    config = plan.train_config(model)
    processes, states = [], []
    for seed in range(seeds):
        process = plan.training_process(model, seed).to(torch.device(device), torch.get_default_dtype())
        encoder, objective = plan.encoder(model, seed), plan.objective(model)
        processes.append(process)
        states.append(idt.TrainState.create(encoder, objective, config, seed=plan.seed(model, seed), device=device))
    return Together(processes, states, config).advance


def milliseconds(step: Callable[[], object], steps: int, device: str) -> float:
    """The time of a step, warm and without a profiler."""
    if device == "cpu":
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        return 1e3 * (time.perf_counter() - begin) / steps
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(steps):
        step()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / steps


def by_kernel(step: Callable[[], object], steps: int, device: str) -> dict[str, tuple[float, float]]:
    """Name -> (calls, milliseconds) of a step."""
    activity = ProfilerActivity.CPU if device == "cpu" else ProfilerActivity.CUDA
    with profile(activities=[activity]) as profiler:
        for _ in range(steps):
            step()
        if device != "cpu":
            torch.cuda.synchronize()
    found: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for event in profiler.key_averages():
        spent = event.self_cpu_time_total if device == "cpu" else event.self_device_time_total
        calls, before = found[event.key[:WIDEST]]
        found[event.key[:WIDEST]] = (calls + event.count / steps, before + 1e-3 * spent / steps)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment")
    parser.add_argument("row")
    parser.add_argument("--model", help="by default the first that is trained")
    parser.add_argument("--budget", default="fast")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--batch", type=int, help="another batch size than the budget's")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--top", type=int, default=25)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    experiment = find(options.experiment)
    kind = "cpu" if options.device == "cpu" else "cuda"
    plan: Any = experiment.plan(experiment.row(options.row), options.budget, kind)  # type: ignore[arg-type]
    if options.batch is not None:
        plan = replace(plan, recipe=replace(plan.recipe, batch_size=options.batch))
    model = options.model or plan.trained[0]
    with tempfile.TemporaryDirectory() as folder:
        plan = plan.supplied(Supplies(data_folder(None), Path(folder), torch.device(options.device)))
        step = step_of(plan, model, options.seeds, options.device)
    for _ in range(3):
        step()
    whole = milliseconds(step, options.steps, options.device)
    kernels = sorted(by_kernel(step, options.steps, options.device).items(), key=lambda item: -item[1][1])
    total = sum(spent for _, (_, spent) in kernels)
    batch = plan.train_config(model).batch_size
    print(f"{experiment.id} row {options.row}, {model}, batch {batch}, seeds {options.seeds}")
    print(f"{whole:.3f} ms a step, {whole / options.seeds:.3f} a seed; sum below {total:.3f} ms")
    print(f"{'':<{WIDEST}}{'calls':>8}{'ms':>9}{'share':>8}")
    for name, (calls, spent) in kernels[: options.top]:
        print(f"{name:<{WIDEST}}{calls:>8.1f}{spent:>9.4f}{spent / total:>8.1%}")


if __name__ == "__main__":
    main()
