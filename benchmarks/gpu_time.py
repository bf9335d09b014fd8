"""How long the experiments of paper B take on a GPU that does nothing else, without running them to the end.

    IDENTICA_DATA=DIR python benchmarks/gpu_time.py                       all of them, with the budget fast
    python benchmarks/gpu_time.py --experiments aninfonce/figure2,aninfonce/figure9 --budget smoke
    python benchmarks/gpu_time.py --without aninfonce/figure2/linear      a row that takes as long in full
    python benchmarks/gpu_time.py --minutes 3                             what counts most; the rest is bounded
    python benchmarks/gpu_time.py --minutes 3 --costs FILE                again: three minutes more, and closer bounds
    python benchmarks/gpu_time.py --report --costs benchmarks/gpu_time.json      what docs/experiments.md quotes

Receipts hold seconds, but most were written while other experiments ran on the same GPU. Here every model is trained,
evaluated and measured as ``identica reproduce`` does, all seeds together, for a small part of its steps. What a step
and what an evaluation takes (with a checkpoint, where one is due) is measured apart from all else, and counted as often
as the recipe has them. Of models that differ in nothing that costs time one is timed, twice: with the compiling of its
kernels, as the first of them takes it, and without, as the others do. Λ does not count as a difference where it is
equal in all factors in both models or in neither: how often a sampler tries again depends on it, which is a matter of
microseconds. VAEs are trained in full; what needs no training is computed for one seed.

With ``--minutes`` each kind of model is timed at its largest size; then, until the time is up, whatever size counts
most. A size that was not timed counts as much as the cheapest of its kind that has as many dimensions, pairs and seeds
or more, so that the sum is too large rather than too small. With ``--costs`` what was timed is written to a file and
taken from there by the next call, if it was timed on the same GPU with the same code; ``--report`` times nothing and
takes it whatever it was timed with. Prints seconds and says how they come about.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from identica.experiments import find_all
from identica.experiments.budgets import find_budget
from identica.experiments.catalogue import Experiment, Model
from identica.experiments.mnist.plan import MnistPlan
from identica.experiments.planning import BasePlan
from identica.experiments.running.provenance import choose_device, commit, device_name
from identica.experiments.running.reproduce import make_plans
from identica.experiments.running.runner import score_untrained, train_model
from identica.experiments.running.starts import find_start
from identica.experiments.running.supplies import Supplies, data_folder
from identica.training import Callback, TrainConfig, TrainState
from identica.training.checkpoint import write_atomically

#: For batches up to a size the evaluations of a timed run and the steps between two of them: enough to be timed, few
#: enough to be done with soon, and such that plans write their checkpoints where they evaluate.
SHORT = {8192: (6, 60), 16_384: (10, 8), 65_536: (10, 4), 2**62: (10, 3)}
#: Settings of a training that a step takes equally long with.
FREE = ("steps", "eval_every", "checkpoint_every", "lr", "similarity_lr", "similarity_after")
#: What says how large a model is, wherever it stands.
SIZES = ("dim", "dim_in", "width", "batch_size", "precision", "precisions", "importance")

#: Dimensions, pairs and seeds.
Size = tuple[int, int, int]
#: A kind of models and a size.
Group = tuple[str, Size]


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


UNKNOWN = Cost(math.inf, 0.0, 0.0)


@dataclass(frozen=True)
class Demand:
    """A model of a row, for the seeds that no earlier row has trained it for.

    kind: all that decides how long it takes but its size. size: dimensions, pairs and seeds.
    """

    plan: BasePlan
    model: Model
    seeds: tuple[int, ...]

    @property
    def experiment(self) -> Experiment:
        """Whose row it is."""
        return self.plan.experiment

    @property
    def trained(self) -> bool:
        """Or only computed."""
        return self.model in self.plan.trained

    @property
    def size(self) -> Size:
        """Dimensions, pairs and seeds."""
        row: Any = self.plan.row
        return row.dim, self.plan.train_config(self.model).batch_size, len(self.seeds)

    @cached_property
    def kind(self) -> str:
        """All that decides how long a step takes, and more, without what the size says."""
        plan, model = self.plan, self.model
        encoder: Any = plan.encoder(model, 0)
        config = {key: value for key, value in plan.train_config(model).to_dict().items() if key not in FREE}
        described = json.dumps([encoder.to_dict(), config, plan.objective(model).to_dict()], default=str)
        pairs = [len(set(precision)) > 1 for precision in getattr(plan.row, "precisions", ())]
        turned = "turned" in plan.config.get(model, {})
        return json.dumps([type(plan).__name__, model, _switches(json.loads(described)), pairs, turned], sort_keys=True)

    @property
    def group(self) -> Group:
        """Models of one group take equally long steps."""
        return self.kind, self.size

    def parts(self, cost: Cost) -> Cost:
        """Seconds of all steps, of all evaluations and of the rest."""
        config = self.plan.train_config(self.model)
        return Cost(cost.step * config.steps, cost.evaluation * (config.steps // config.eval_every), cost.rest)

    def seconds(self, cost: Cost) -> float:
        """The sum of these."""
        return sum(astuple(self.parts(cost)))


def _switches(data: Any) -> Any:
    """Plain data without sizes, of whose other numbers with a fraction it only matters whether they are 0."""
    if isinstance(data, dict):
        return {name: _switches(value) for name, value in data.items() if name not in SIZES or isinstance(value, str)}
    if isinstance(data, list):
        return [_switches(value) for value in data]
    return data != 0.0 if isinstance(data, float) else data


@dataclass
class Timings:
    """What was timed so far, and where: trained models by group, with compiling and without, the others by name."""

    made_by: dict[str, str | None]
    cold: dict[Group, Cost] = field(default_factory=dict)
    warm: dict[Group, Cost] = field(default_factory=dict)
    computed: dict[str, float] = field(default_factory=dict)
    vaes: dict[str, float] = field(default_factory=dict)

    def bound(self, demand: Demand) -> tuple[Cost, Size | None]:
        """What it costs at most, and the size that says so; infinitely much where none is known that is as large."""
        if demand.group in self.cold:
            return self.cold[demand.group], demand.size
        larger = [
            (cost, size)
            for (kind, size), cost in self.cold.items()
            if kind == demand.kind and all(one >= other for one, other in zip(size, demand.size, strict=True))
        ]
        return min(larger, key=lambda known: demand.seconds(known[0]), default=(UNKNOWN, None))

    def knows(self, demand: Demand) -> bool:
        """Whether there is at least a bound."""
        return self.bound(demand)[1] is not None if demand.trained else _name(demand) in self.computed

    @classmethod
    def read(cls, file: Path) -> Timings:
        """That of :meth:`write`; a ValueError if the file holds something else."""
        try:
            kept = json.loads(file.read_text())
            models = [((kind, tuple(size)), cold, warm) for kind, size, cold, warm in kept["models"]]
            cold = {group: Cost(*cost) for group, cost, _ in models}
            warm = {group: Cost(*cost) for group, _, cost in models if cost is not None}
            return cls(kept["made_by"], cold, warm, kept["computed"], kept["vaes"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file} holds no timings of this program ({error!r}): name another file.") from error

    def write(self, file: Path) -> None:
        """As JSON."""
        models = [[*group, astuple(cost), self.warm.get(group)] for group, cost in self.cold.items()]
        kept = {"made_by": self.made_by, "computed": self.computed, "vaes": self.vaes, "models": models}
        write_atomically(file, json.dumps(kept, default=astuple).encode() + b"\n")


@dataclass
class Timer:
    """Times what is wanted next."""

    device: torch.device
    folder: Path
    supplies: Supplies
    timings: Timings

    def time(self, demand: Demand, others: bool) -> None:
        """Train it for a part of its steps; again, with everything compiled, if there are others like it."""
        self.timings.cold[demand.group] = self._cost(demand)
        if others:
            self.timings.warm[demand.group] = self._cost(demand)

    def _cost(self, demand: Demand) -> Cost:
        plan = self._supplied(demand)
        model, seeds = demand.model, demand.seeds
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
        folder = self._folder(plan, model)
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier timing, which would be resumed
        clock, begin = StepClock(self.device), time.monotonic()
        train_model(short, model, seeds, device=self.device, folder=folder, callbacks=[clock], starts=starts)
        seconds, config = time.monotonic() - begin, short.train_config(model)
        timed = clock.step * config.steps + clock.evaluation * (config.steps // config.eval_every)
        cost = Cost(clock.step, clock.evaluation, max(0.0, seconds - timed))
        print(f"    timed in {seconds:5.1f} s: {_name(demand)}, {demand.size}: {cost}", flush=True)
        return cost

    def compute(self, demand: Demand) -> None:
        """Seconds of what needs no training, from those of one seed."""
        plan, begin = self._supplied(demand), time.monotonic()
        score_untrained(plan, demand.model, 0, self.device)
        self.timings.computed[_name(demand)] = len(demand.seeds) * (time.monotonic() - begin)

    def _supplied(self, demand: Demand) -> BasePlan:
        plan = demand.plan.supplied(self.supplies)
        if isinstance(plan, MnistPlan):
            for seed in demand.seeds:
                plan.vae(seed)
                if seconds := self.supplies.take_seconds(seed):  # 0 if it was there
                    self.timings.vaes[f"{plan.recipe.vae}, seed {seed}"] = seconds
        return plan

    def _folder(self, plan: BasePlan, model: Model) -> Path:
        return self.folder / plan.model_hashes[model]


def _name(demand: Demand) -> str:
    return f"{demand.experiment.id}/{demand.plan.row.number} {demand.model}"


def demands(
    experiments: Sequence[Experiment], budget: str, device: torch.device, without: set[str]
) -> Iterator[Demand]:
    """What is to be trained, each model once, as ``reproduce`` takes equal ones over."""
    done: set[tuple[str, int]] = set()
    for experiment in experiments:
        for plan in make_plans(experiment, None, budget, device):
            if f"{experiment.id}/{plan.row.number}" in without:
                continue
            for model in plan.models:
                seeds = range(find_budget(budget).seeds or experiment.seeds)
                missing = tuple(seed for seed in seeds if (plan.model_hashes[model], seed) not in done)
                done |= {(plan.model_hashes[model], seed) for seed in missing}
                if missing:
                    yield Demand(plan, model, missing)


def most_wanted(timings: Timings, wanted: list[Demand]) -> Demand | None:
    """The one to time next: of a kind without a bound the largest, then the size that counts most; None after all."""
    counts: dict[Group, float] = {}
    first: dict[Group, Demand] = {}
    for demand in wanted:
        if demand.group in timings.cold:
            continue
        first.setdefault(demand.group, demand)
        counts[demand.group] = counts.get(demand.group, 0.0) + demand.seconds(timings.bound(demand)[0])
    return first[max(counts, key=lambda group: (counts[group], math.prod(group[1])))] if counts else None


def report(timings: Timings, wanted: list[Demand]) -> None:
    """A line for each model and a sum for each experiment, then what it is made of."""
    vaes = sum(timings.vaes.values())
    total, bounded, computed = vaes, 0.0, 0.0
    steps, evaluations, rest = 0.0, 0.0, 0.0
    compiled: set[Group] = set()
    print(f"Timed with {timings.made_by}\nVAEs {vaes:.0f} s")
    for experiment in dict.fromkeys(demand.experiment.id for demand in wanted):
        summed = 0.0
        for demand in (demand for demand in wanted if demand.experiment.id == experiment):
            if demand.trained:
                cost, size = timings.bound(demand)
                how = "timed" if size == demand.size else f"at most, as {size}"
                if demand.group in compiled and demand.group in timings.warm:
                    cost, how = timings.warm[demand.group], "timed, compiled before"
                compiled.add(demand.group)
                parts = demand.parts(cost)
                steps, evaluations, rest = steps + parts.step, evaluations + parts.evaluation, rest + parts.rest
                seconds = demand.seconds(cost)
                bounded += seconds if size != demand.size else 0.0
            else:
                seconds, how = timings.computed[_name(demand)], "computed"
                computed += seconds
            print(f"    {_name(demand):<56} {str(demand.size if demand.trained else ''):<18} {seconds:7.1f} s, {how}")
            summed += seconds
        total += summed
        print(f"{experiment:<28} {summed:7.0f} s; together {total / 60:.1f} min", flush=True)
    print(f"Minutes: steps {steps / 60:.1f}, evaluations {evaluations / 60:.1f}, after training and compiling ", end="")
    print(f"{rest / 60:.1f}, VAEs and what is not trained {(vaes + computed) / 60:.1f}.")
    print(f"Of these, {bounded / 60:.1f} min are bounds, of sizes that were not timed.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--experiments", default="aninfonce", help="ids, separated by commas; all of paper B by default"
    )
    parser.add_argument("--without", default="", help="rows to leave out, such as aninfonce/figure2/linear")
    parser.add_argument("--minutes", type=float, default=math.inf, help="time no more after that; the rest is bounded")
    parser.add_argument("--costs", type=Path, help="a file for what was timed, from which the next call goes on")
    parser.add_argument("--report", action="store_true", help="time nothing: report what the file of --costs holds")
    parser.add_argument("--out", type=Path, help="where VAEs are found and kept, a folder of results")
    parser.add_argument("--budget", default="fast")
    options = parser.parse_args()
    try:
        chosen = find_all(options.experiments.split(","))
        kept = Timings.read(options.costs) if options.costs is not None and options.costs.exists() else None
    except ValueError as error:
        parser.error(str(error))
    if others := [one.id for one in chosen if not one.id.startswith("aninfonce/")]:
        parser.error(f"These are not of paper B: {', '.join(others)}.")
    without = set(filter(None, options.without.split(",")))
    if unknown := without - {f"{one.id}/{row.number}" for one in chosen for row in one.rows}:
        parser.error(f"There is no row {', '.join(sorted(unknown))}.")
    if options.report:
        if kept is None:
            parser.error("--report needs a file of timings: name it with --costs.")
        wanted = list(demands(chosen, options.budget, torch.device(kept.made_by.get("type") or "cuda"), without))
        if missing := [_name(demand) for demand in wanted if not kept.knows(demand)]:
            parser.error(f"{options.costs} does not know {', '.join(missing)}.")
        report(kept, wanted)
        return
    device = choose_device("auto")
    wanted = list(demands(chosen, options.budget, device, without))
    made_by = {"commit": commit(), "device": device_name(device), "type": device.type}
    if kept is not None and kept.made_by != made_by:
        parser.error(f"{options.costs} was timed with {kept.made_by}, this is {made_by}: name another file.")
    timings = kept or Timings(made_by)
    with tempfile.TemporaryDirectory() as folder:
        supplies = Supplies(data_folder(None), options.out or Path(folder), device)
        try:
            if options.costs is not None:
                timings.write(options.costs)  # what cannot be written, or read below, is said before anything is timed
            if any(isinstance(demand.plan, MnistPlan) for demand in wanted):
                _ = supplies.digits
        except (OSError, ValueError) as error:
            parser.error(str(error))
        run_for(60 * options.minutes, Timer(device, Path(folder), supplies, timings), wanted, options.costs)
    report(timings, wanted)


def run_for(seconds: float, timer: Timer, wanted: list[Demand], file: Path | None) -> None:
    """Time what needs no training, one size of each kind, and whatever counts most until the time is up."""
    timings, begin = timer.timings, time.monotonic()
    trained = [demand for demand in wanted if demand.trained]
    while (following := most_wanted(timings, trained)) is not None:
        late = time.monotonic() - begin > seconds
        if late and timings.bound(following)[1] is not None:
            break
        timer.time(following, others=sum(demand.group == following.group for demand in trained) > 1)
        if file is not None:
            timings.write(file)
    for demand in wanted:
        if not timings.knows(demand):
            timer.compute(demand)
            if file is not None:
                timings.write(file)


if __name__ == "__main__":
    main()
