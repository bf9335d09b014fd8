"""How long the experiments of paper B take on a GPU that does nothing else, without running them to the end.

    IDENTICA_DATA=DIR python benchmarks/gpu_time.py                       all of them, with the budget fast
    python benchmarks/gpu_time.py --experiments aninfonce/figure2,aninfonce/figure9 --budget smoke
    python benchmarks/gpu_time.py --without aninfonce/figure2/linear      a row that takes as long in full

Receipts hold seconds, but most were written while other experiments ran on the same GPU. Here every model is trained,
evaluated and measured as ``identica reproduce`` does, all seeds together, for a small part of its steps. What a step
and what an evaluation takes (with a checkpoint, where one is due) is measured apart from all else, and counted as often
as the recipe has them. Models that differ in nothing that costs time are timed once, and the compiling of kernels is
counted with each. VAEs are trained in full; what needs no training is computed for one seed. Prints seconds and says
how they come about.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from identica.experiments import find
from identica.experiments.budgets import find_budget
from identica.experiments.catalogue import Experiment, Model, catalogue
from identica.experiments.mnist.plan import MnistPlan
from identica.experiments.planning import BasePlan
from identica.experiments.running.provenance import choose_device
from identica.experiments.running.reproduce import make_plans
from identica.experiments.running.runner import score_untrained, train_model
from identica.experiments.running.starts import find_start
from identica.experiments.running.supplies import Supplies, data_folder
from identica.training import Callback, TrainConfig, TrainState

#: For batches up to a size the evaluations of a timed run and the steps between two of them: enough to be timed, few
#: enough to be done with soon, and such that plans write their checkpoints where they evaluate.
SHORT = {8192: (6, 100), 16_384: (10, 8), 65_536: (10, 4), 2**62: (10, 3)}
#: Settings of a training that a step takes equally long with.
FREE = ("steps", "eval_every", "checkpoint_every", "lr", "similarity_lr", "similarity_after")


class StepClock(Callback):
    """Seconds for a step, from the first after an evaluation to the last but one before the next, and for those."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.every, self.began, self.ended = device, 1, 0.0, 0.0
        self.steps: list[float] = []
        self.gaps: list[float] = []

    def on_start(self, state: TrainState, config: TrainConfig) -> None:
        """Forget what was before."""
        self.every, self.steps, self.gaps = config.eval_every, [], []

    def on_step(self, state: TrainState) -> None:
        """Note the time where it begins and ends."""
        within = state.step % self.every
        if within == 1:
            self.began = self._now()
            if self.steps:
                self.gaps.append(self.began - self.ended)
        elif within == self.every - 1:
            self.ended = self._now()
            self.steps.append((self.ended - self.began) / (self.every - 2))

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.monotonic()

    @property
    def step(self) -> float:
        """The median; the first half, in which a step is captured, does not count."""
        return statistics.median(self.steps[len(self.steps) // 2 :])

    @property
    def evaluation(self) -> float:
        """The same, with the two steps that lie in a gap taken off."""
        return max(0.0, statistics.median(self.gaps[len(self.gaps) // 2 :]) - 2 * self.step)


@dataclass(frozen=True)
class Cost:
    """Seconds of a step and of an evaluation for all seeds, and of everything else."""

    step: float
    evaluation: float
    rest: float


@dataclass
class Timer:
    """What was timed so far."""

    device: torch.device
    folder: Path
    budget: str
    without: frozenset[str] = frozenset()
    costs: dict[Hashable, Cost] = field(default_factory=dict)
    trained: set[tuple[str, int]] = field(default_factory=set)  # as reproduce takes equal models over

    def experiment(self, experiment: Experiment, data: Path | None) -> float:
        """Seconds for all of it."""
        seeds = range(find_budget(self.budget).seeds or experiment.seeds)
        supplies = Supplies(data, self.folder, self.device)
        total = 0.0
        for plan in make_plans(experiment, None, self.budget, self.device):
            if f"{experiment.id}/{plan.row.number}" in self.without:
                continue
            plan = plan.supplied(supplies)
            total += self._vaes(plan, seeds)
            for model in plan.models:
                timed = self._trained if model in plan.trained else self._computed
                total += timed(plan, model, seeds)
        return total

    def _vaes(self, plan: BasePlan, seeds: range) -> float:
        """Those that are not there yet."""
        if not isinstance(plan, MnistPlan):
            return 0.0
        begin = time.monotonic()
        for seed in seeds:
            plan.vae(seed)
        return time.monotonic() - begin

    def _computed(self, plan: BasePlan, model: Model, seeds: range) -> float:
        begin = time.monotonic()
        score_untrained(plan, model, 0, self.device)
        seconds = len(seeds) * (time.monotonic() - begin)
        print(f"    {plan.row.number:<24} {model:<10} {seconds:7.1f} s, computed", flush=True)
        return seconds

    def _trained(self, plan: BasePlan, model: Model, seeds: range) -> float:
        name = plan.model_hashes[model]
        missing = [seed for seed in seeds if (name, seed) not in self.trained]
        if not missing:
            return 0.0
        self.trained |= {(name, seed) for seed in missing}
        kind = self._kind(plan, model, len(missing))
        known = kind in self.costs
        if not known:
            self.costs[kind] = self._timed(plan, model, missing)
        cost, config = self.costs[kind], plan.train_config(model)
        evaluations = config.steps // config.eval_every
        seconds = cost.step * config.steps + cost.evaluation * evaluations + cost.rest
        how = (
            f"{config.steps} steps of {1e3 * cost.step:.3f} ms, {evaluations} evaluations of "
            f"{1e3 * cost.evaluation:.0f} ms and {cost.rest:.1f} s" + (", as timed before" if known else "")
        )
        print(f"    {plan.row.number:<24} {model:<10} {seconds:7.1f} s, seeds {len(missing)}, {how}", flush=True)
        return seconds

    @staticmethod
    def _kind(plan: BasePlan, model: Model, seeds: int) -> Hashable:
        """All that decides how long a model takes, and more."""
        encoder: Any = plan.encoder(model, 0)
        objective: Any = plan.objective(model)
        config = {key: value for key, value in plan.train_config(model).to_dict().items() if key not in FREE}
        described = json.dumps([encoder.to_dict(), config, _switches(objective.to_dict())], sort_keys=True, default=str)
        pairs = getattr(plan.row, "precisions", None)
        return type(plan), model, plan.loss_label(model), seeds, described, pairs, getattr(plan.recipe, "turned", False)

    def _timed(self, plan: BasePlan, model: Model, seeds: list[int]) -> Cost:
        recipe: Any = plan.recipe
        batch = plan.train_config(model).batch_size
        evaluations, between = next(short for size, short in SHORT.items() if batch <= size)
        changes = {name: evaluations * between for name in ("steps", "plain_steps") if getattr(recipe, name, None)}
        short = replace(plan, recipe=replace(recipe, evaluations=evaluations, **changes))
        source = plan.starts_from(model)
        starts = None
        if source is not None:
            found = {seed: find_start(self._folder(plan, source), seed) for seed in seeds}
            starts = {seed: start for seed, start in found.items() if start is not None}
        clock, begin = StepClock(self.device), time.monotonic()
        folder = self._folder(plan, model)
        train_model(short, model, seeds, device=self.device, folder=folder, callbacks=[clock], starts=starts)
        seconds, config = time.monotonic() - begin, short.train_config(model)
        timed = clock.step * config.steps + clock.evaluation * (config.steps // config.eval_every)
        return Cost(clock.step, clock.evaluation, max(0.0, seconds - timed))

    def _folder(self, plan: BasePlan, model: Model) -> Path:
        return self.folder / plan.model_hashes[model]


def _switches(data: Any) -> Any:
    """An objective as plain data, of whose numbers it only matters whether they are 0."""
    if isinstance(data, dict):
        return {name: _switches(value) for name, value in data.items()}
    if isinstance(data, list):
        return [_switches(value) for value in data]
    return data != 0.0 if isinstance(data, float) else data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--experiments", help="ids, separated by commas; all of paper B unless given")
    parser.add_argument("--without", default="", help="rows to leave out, such as aninfonce/figure2/linear")
    parser.add_argument("--budget", default="fast")
    options = parser.parse_args()
    device = choose_device("auto")
    if options.experiments:
        chosen = [find(name) for name in options.experiments.split(",")]
    else:
        chosen = [experiment for experiment in catalogue() if experiment.id.startswith("aninfonce/")]
    # The largest first: Figure 4 takes its points over from Figure 9, with three seeds.
    chosen.sort(key=lambda experiment: experiment.id != "aninfonce/figure9")
    total, data = 0.0, data_folder(None)
    with tempfile.TemporaryDirectory() as folder:
        timer = Timer(device, Path(folder), options.budget, frozenset(options.without.split(",")))
        for experiment in chosen:
            seconds = timer.experiment(experiment, data)
            total += seconds
            print(f"{experiment.id:<28} {seconds:7.0f} s; together {total / 60:.1f} min", flush=True)


if __name__ == "__main__":
    main()
