"""``reproduce``: train what is missing of an experiment, write the receipts, read the results."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from identica._numbers import whole_number
from identica.experiments.budgets import find_budget
from identica.experiments.catalogue import DeviceKind, Experiment, Model, catalogue
from identica.experiments.planning import BasePlan
from identica.experiments.receipts import ledger
from identica.experiments.receipts.receipt import Receipt
from identica.experiments.receipts.verdicts import RowResult, row_result
from identica.experiments.running.folders import RunFolders
from identica.experiments.running.pace import Work
from identica.experiments.running.progress import TableProgress
from identica.experiments.running.provenance import choose_device, commit, device_name, versions
from identica.experiments.running.runner import ModelResult, Pool, score_untrained, train_model, work_of
from identica.experiments.running.starts import Start, find_start
from identica.experiments.running.supplies import Supplies, data_folder
from identica.training.checkpoint import CheckpointError, require_writable

Folder = str | os.PathLike[str]


@dataclass(frozen=True)
class Task:
    """One row and the seeds of it that are done together."""

    plan: BasePlan
    seeds: tuple[int, ...]


def tasks_of(plan: BasePlan, seeds: Sequence[int]) -> tuple[Task, ...]:
    """One task for all seeds; where they are trained one after the other, in stages, one for each.

    A seed is then whole, with all its models and a receipt, before the next begins.
    """
    if any(plan.stages(model) for model in plan.trained):
        return tuple(Task(plan, (seed,)) for seed in seeds)
    return (Task(plan, tuple(seeds)),) if seeds else ()


def reproduce(
    experiment: Experiment,
    *,
    rows: Iterable[str] | None = None,
    seeds: int | None = None,
    budget: str = "fast",
    device: str = "auto",
    out: Folder = "results",
    have: Folder | Sequence[Folder] = (),
    data: Folder | None = None,
    force: bool = False,
    quiet: bool = False,
) -> tuple[RowResult, ...]:
    """Train what is missing and append one receipt per row and seed to the ledger in ``out``.

    Nothing that a ledger in ``out`` or in the folder or folders ``have`` holds is computed again, unless with
    ``force``, which appends new receipts and leaves the old ones. Interrupted, even killed, it continues
    from there when called again. Several processes may work on one folder: they divide the rows.

    ``data`` is the folder of data sets, for experiments on real data; by default IDENTICA_DATA names it.

    Returns the results of the chosen rows with the settings of this budget and device.
    """
    place = choose_device(device)
    supplies = Supplies(data_folder(data), Path(out), place)
    plans = tuple(plan.supplied(supplies) for plan in make_plans(experiment, rows, budget, place))
    count = find_budget(budget).seeds or experiment.seeds if seeds is None else whole_number(seeds, "seeds")
    others = [have] if isinstance(have, str | os.PathLike) else have
    work = _Work(experiment, plans, range(count), Path(out), [Path(folder) for folder in others], place, force, quiet)
    work.run()
    receipts = work.receipts()
    return tuple(
        row_result(
            experiment, plan.row, [receipt for receipt in receipts if receipt.config_hash == plan.config_hash], budget
        )
        for plan in plans
    )


def make_plans(
    experiment: Experiment, rows: Iterable[str] | None, budget: str, device: torch.device
) -> tuple[BasePlan, ...]:
    """The chosen rows with the recipes of this budget on this device."""
    kind: DeviceKind = "cuda" if device.type == "cuda" else "cpu"
    return tuple(experiment.plan(row, budget, kind) for row in experiment.select(rows))


class _Work:
    """One call of :func:`reproduce`: what is known, what is missing, where it goes."""

    def __init__(
        self,
        experiment: Experiment,
        plans: Sequence[BasePlan],
        seeds: Sequence[int],
        out: Path,
        have: Sequence[Path],
        device: torch.device,
        force: bool,
        quiet: bool,
    ) -> None:
        self.experiment, self.plans, self.seeds = experiment, plans, seeds
        self.out, self.have, self.device, self.force, self.quiet = out, have, device, force, quiet
        self.path = ledger.ledger_path(out, experiment.id)
        self.folders, self.pool = RunFolders(out), Pool()
        self.device_name, self.versions, self.commit = device_name(device), versions(), commit()

    # -- what is there

    def receipts(self) -> tuple[Receipt, ...]:
        """Everything in the ledgers of this experiment, the oldest first."""
        paths = [*(ledger.ledger_path(folder, self.experiment.id) for folder in self.have), self.path]
        return tuple(receipt for path in dict.fromkeys(paths) for receipt in ledger.read(path))

    def missing(self, plan: BasePlan, receipts: Iterable[Receipt]) -> tuple[int, ...]:
        """The seeds of a row that no receipt has."""
        if self.force:
            return tuple(self.seeds)
        done = {receipt.key for receipt in receipts}
        return tuple(
            seed
            for seed in self.seeds
            if (self.experiment.id, plan.row.number, seed, plan.budget, plan.config_hash) not in done
        )

    def look_around(self) -> None:
        """Take results from all experiments in our folders: rows with equal settings share their models."""
        if not self.force:
            ids = dict.fromkeys((self.experiment.id, *(experiment.id for experiment in catalogue())))
            for folder in dict.fromkeys((*self.have, self.out)):
                for name in ids:
                    self.pool.fill(ledger.read(ledger.ledger_path(folder, name)), replace=False)

    def lacking(self, plan: BasePlan, model: Model, seeds: Sequence[int]) -> tuple[int, ...]:
        """The seeds for which a model has to be trained."""
        return tuple(seed for seed in seeds if self.pool.get(plan.model_hashes[model], seed) is None)

    def needed(self, plan: BasePlan, model: Model, seeds: Sequence[int]) -> tuple[int, ...]:
        """The same, and those of which another model that lacks needs the weights, which nobody has kept."""
        lacking = set(self.lacking(plan, model, seeds))
        for follower in plan.followers(model):
            wanted = self.needed(plan, follower, seeds)
            folder = self.folders.folder(plan.model_hashes[model])
            lacking |= {seed for seed in wanted if find_start(folder, seed) is None}
        return tuple(seed for seed in seeds if seed in lacking)

    # -- what is to be done

    def run(self) -> None:
        receipts = self.receipts()
        tasks = [task for plan in self.plans for task in tasks_of(plan, self.missing(plan, receipts))]
        if not tasks:
            self._tidy()
            return
        for task in tasks:
            task.plan.check_supplies()
        require_folder(self.out, self.path)
        self.look_around()
        with TableProgress(f"{self.experiment.id}, {tasks[0].plan.budget}", quiet=self.quiet) as progress:
            waiting: list[Task] = []
            for i, task in enumerate(tasks):
                progress.ahead = self._ahead([*tasks[i:], *waiting])
                if not self._do(task, progress, wait=False):
                    waiting.append(task)
            for i, task in enumerate(waiting):
                progress.ahead = self._ahead(waiting[i:])
                progress.say(f"Waiting for another process that is working on row {task.plan.row.number}.")
                self._do(task, progress, wait=True)
        self._tidy()

    def _ahead(self, tasks: Sequence[Task]) -> list[Work]:
        """The training that the tasks need: of models that several rows share only the first."""
        counted, ahead = set(), []
        for task in tasks:
            for model in task.plan.trained:
                model_hash = task.plan.model_hashes[model]
                needed = self.needed(task.plan, model, task.seeds)
                new = [seed for seed in needed if (model_hash, seed) not in counted]
                counted |= {(model_hash, seed) for seed in new}
                if new:
                    ahead.append(work_of(task.plan, model, len(new)))
        return ahead

    def _do(self, task: Task, progress: TableProgress, *, wait: bool) -> bool:
        """Do one task, unless another process is at its row (then False, or wait).

        What is trained stays claimed until its receipts are written, so that nobody else trains it meanwhile.
        """
        plan = task.plan
        claimed: list[Model] = []
        with ExitStack() as claims:
            for model in plan.trained:
                name = plan.model_hashes[model]
                if claimed and not self.needed(plan, model, task.seeds):
                    continue
                if not claims.enter_context(self.folders.claim(name, wait=wait or bool(claimed))):
                    return False
                claimed.append(model)
                self.look_around()  # somebody else may have finished it while we waited
                self._train(plan, model, self.needed(plan, model, task.seeds), progress)
            missing = self.missing(plan, self.receipts())
            self._write(plan, [seed for seed in task.seeds if seed in missing])
            for model in claimed:
                name = plan.model_hashes[model]
                # Checkpoints of other seeds may be there, and what models start from may serve the next row, too.
                if not self.lacking(plan, model, missing) and name not in self._sources([plan]):
                    self.folders.forget(name)
        return True

    @staticmethod
    def _sources(plans: Iterable[BasePlan]) -> set[str]:
        """The hashes of the models that others start from."""
        return {plan.model_hashes[model] for plan in plans for model in plan.trained if plan.followers(model)}

    def _tidy(self) -> None:
        """Forget what models started from, now that all rows are done."""
        for name in sorted(self._sources(self.plans)):
            if self.folders.folder(name).exists():
                with self.folders.claim(name, wait=False) as ours:
                    if ours:
                        self.folders.forget(name)

    def _train(self, plan: BasePlan, model: Model, seeds: Sequence[int], progress: TableProgress) -> None:
        """Train a model for these seeds and put it into the pool."""
        starts = self._starts(plan, model, seeds)
        seeds = [seed for seed in seeds if starts is None or seed in starts]
        if not seeds:
            return
        progress.begin(f"row {plan.row.number}, {model}", work_of(plan, model, len(seeds)))
        folder = self.folders.folder(plan.model_hashes[model])
        trained = train_model(plan, model, seeds, device=self.device, folder=folder, callback=progress, starts=starts)
        self.pool.add(plan.model_hashes[model], trained)
        progress.end()

    def _starts(self, plan: BasePlan, model: Model, seeds: Sequence[int]) -> dict[int, Start] | None:
        """What a model starts from, by seed; None where nothing. Seeds of which that diverged have failed with it."""
        source = plan.starts_from(model)
        if source is None:
            return None
        folder, name = self.folders.folder(plan.model_hashes[source]), plan.model_hashes[model]
        found = {seed: start for seed in seeds if (start := find_start(folder, seed)) is not None}
        failed = {"hash": name, "failed": f"There is no trained {source} to start from."}
        self.pool.add(name, {seed: ModelResult({}, {}, failed) for seed in seeds if seed not in found})
        return found

    def _write(self, plan: BasePlan, seeds: Sequence[int]) -> None:
        """One receipt for each seed, from what is in the pool."""
        for seed in seeds:
            found = {model: self.pool.get(plan.model_hashes[model], seed) for model in plan.models}
            for model in plan.models:
                if found[model] is None and model not in plan.trained:
                    found[model] = score_untrained(plan, model, seed, self.device)
            known = {model: result for model, result in found.items() if result is not None}
            receipt = self._receipt(plan, seed, known)
            ledger.append(self.path, receipt)
            self.pool.fill([receipt])  # from here on it is shared with this row

    def _receipt(self, plan: BasePlan, seed: int, found: dict[Model, ModelResult]) -> Receipt:
        config = plan.train_config(plan.trained[0]) if plan.trained else None
        failures = [f"{model}: {result.failed}" for model, result in found.items() if result.failed]
        return Receipt(
            experiment=self.experiment.id,
            row=plan.row.number,
            x=dict(plan.row.x),
            seed=seed,
            budget=plan.budget,
            scores={model: result.scores for model, result in found.items() if not result.failed},
            per_dimension={model: result.per_dimension for model, result in found.items() if not result.failed},
            models={model: result.info for model, result in found.items()},
            steps=config.steps if config else 0,
            batch=config.batch_size if config else 0,
            precision=config.precision if config else "",
            seconds=round(sum(result.seconds for result in found.values()), 3),
            config=plan.config,
            config_hash=plan.config_hash,
            failed=" ".join(failures) or None,
            device=self.device_name,
            versions=self.versions,
            commit=self.commit,
        )


def require_folder(out: Path, ledger_file: Path) -> None:
    """Find out before any training whether results can be written there."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file, and the results need a folder: choose another with --out.")
    try:
        require_writable(out)
    except CheckpointError as error:
        reason = getattr(error.__cause__, "strerror", None) or "it cannot be written to"
        raise ValueError(f"The folder {out} cannot hold the results ({reason}): choose another with --out.") from error
    if ledger_file.exists() and not os.access(ledger_file, os.W_OK):
        raise ValueError(f"The ledger {ledger_file} cannot be written to: choose another folder with --out.")
