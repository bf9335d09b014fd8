"""What is missing of some experiments, task by task: train it, write the receipts, lose nothing on the way."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from identica.experiments.catalogue import Experiment, Model, catalogue
from identica.experiments.planning import BasePlan
from identica.experiments.receipts import ledger
from identica.experiments.receipts.receipt import Receipt
from identica.experiments.receipts.verdicts import RowResult, row_result
from identica.experiments.running.folders import RunFolders
from identica.experiments.running.pace import Work
from identica.experiments.running.progress import TableProgress
from identica.experiments.running.provenance import commit, device_name, versions
from identica.experiments.running.runner import Pool, score_untrained, train_model, work_of
from identica.experiments.running.scored import ModelResult
from identica.experiments.running.starts import Start, find_start
from identica.experiments.running.time_limit import TimeIsUp, TimeLimit
from identica.training import StopTraining
from identica.training.checkpoint import CheckpointError, require_writable


@dataclass(frozen=True)
class Wanted:
    """What is asked for of one experiment: rows under their recipes, and seeds."""

    experiment: Experiment
    plans: tuple[BasePlan, ...]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Task:
    """One row of an experiment and the seeds of it that are done together."""

    experiment: Experiment
    plan: BasePlan
    seeds: tuple[int, ...]

    @property
    def row(self) -> str:
        """For people: which row of which experiment."""
        return f"row {self.plan.row.number} of {self.experiment.id}"


def tasks_of(experiment: Experiment, plan: BasePlan, seeds: Sequence[int]) -> tuple[Task, ...]:
    """One task for all seeds; where they are trained one after the other, in stages, one for each.

    A seed is then whole, with all its models and a receipt, before the next begins.
    """
    if any(plan.stages(model) for model in plan.trained):
        return tuple(Task(experiment, plan, (seed,)) for seed in seeds)
    return (Task(experiment, plan, tuple(seeds)),) if seeds else ()


#: Seconds between two looks whether another process has finished a run.
_LOOK_AGAIN = 0.2


class TaskRunner:
    """One call of :func:`reproduce_all`: what is known, what is missing, where it goes."""

    def __init__(
        self,
        wanted: Sequence[Wanted],
        out: Path,
        have: Sequence[Path],
        device: torch.device,
        limit: TimeLimit,
        force: bool,
        quiet: bool,
    ) -> None:
        self.wanted = wanted
        self.out, self.have, self.device, self.limit, self.force, self.quiet = out, have, device, limit, force, quiet
        self.folders, self.pool = RunFolders(out), Pool()
        self.device_name, self.versions, self.commit = device_name(device), versions(), commit()

    # -- what is there

    def path(self, experiment: Experiment) -> Path:
        """The ledger that we write."""
        return ledger.ledger_path(self.out, experiment.id)

    def receipts(self, experiment: Experiment) -> tuple[Receipt, ...]:
        """Everything in the ledgers of an experiment, the oldest first."""
        paths = [*(ledger.ledger_path(folder, experiment.id) for folder in self.have), self.path(experiment)]
        return tuple(receipt for path in dict.fromkeys(paths) for receipt in ledger.read(path))

    def results(self, wanted: Wanted) -> tuple[RowResult, ...]:
        """The results of the rows that were asked for, with the settings that were."""
        receipts = self.receipts(wanted.experiment)

        def found(plan: BasePlan) -> RowResult:
            ours = [one for one in receipts if one.config_hash == plan.config_hash]
            return row_result(wanted.experiment, plan.row, ours, plan.budget)

        return tuple(found(plan) for plan in wanted.plans)

    def missing(
        self, experiment: Experiment, plan: BasePlan, seeds: Sequence[int], receipts: Iterable[Receipt]
    ) -> tuple[int, ...]:
        """Those of the seeds of a row that no receipt has."""
        if self.force:
            return tuple(seeds)
        done = {receipt.key for receipt in receipts}
        return tuple(
            seed for seed in seeds if (experiment.id, plan.row.number, seed, plan.budget, plan.config_hash) not in done
        )

    def tasks(self) -> list[Task]:
        """All that is missing, in the order in which it was asked for."""
        tasks: list[Task] = []
        for one in self.wanted:
            receipts = self.receipts(one.experiment)
            for plan in one.plans:
                missing = self.missing(one.experiment, plan, one.seeds, receipts)
                tasks += tasks_of(one.experiment, plan, missing)
        return tasks

    def look_around(self) -> None:
        """Take results from all experiments in our folders: rows with equal settings share their models."""
        if not self.force:
            experiments = (*(one.experiment for one in self.wanted), *catalogue())
            ids = dict.fromkeys(experiment.id for experiment in experiments)
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
        """Do all that is missing."""
        tasks = self.tasks()
        if tasks:
            for task in tasks:
                task.plan.check_supplies()
            experiments = {task.experiment.id: task.experiment for task in tasks}
            for experiment in experiments.values():
                require_folder(self.out, self.path(experiment))
            self.look_around()
            title = f"{len(experiments)} experiments" if len(experiments) > 1 else tasks[0].experiment.id
            try:
                with TableProgress(f"{title}, {tasks[0].plan.budget}", quiet=self.quiet) as progress:
                    self._do_all(tasks, progress)
            except StopTraining:
                rows, left = (len({task.row for task in some}) for some in (tasks, self.tasks()))
                if left:
                    said = f"The time is up: {left} of {rows} rows are left. Run the same command again to continue."
                    raise TimeIsUp(said) from None
        self._tidy()

    def _do_all(self, tasks: Sequence[Task], progress: TableProgress) -> None:
        """One after the other; those that another process is working on last."""
        waiting: list[Task] = []
        for i, task in enumerate(tasks):
            progress.ahead = self._ahead([*tasks[i:], *waiting])
            if not self._do(task, progress, wait=False):
                waiting.append(task)
        for i, task in enumerate(waiting):
            progress.ahead = self._ahead(waiting[i:])
            progress.say(f"Waiting for another process that is working on {task.row}.")
            self._do(task, progress, wait=True)

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
        experiment, plan = task.experiment, task.plan
        claimed: list[Model] = []
        with ExitStack() as claims:
            for model in plan.trained:
                name = plan.model_hashes[model]
                if claimed and not self.needed(plan, model, task.seeds):
                    continue
                self.limit.check()
                if not self._claim(claims, name, wait or bool(claimed)):
                    return False
                claimed.append(model)
                self.look_around()  # somebody else may have finished it while we waited
                self._train(task, model, self.needed(plan, model, task.seeds), progress)
            missing = self.missing(experiment, plan, task.seeds, self.receipts(experiment))
            self._write(experiment, plan, missing)
            for model in claimed:
                name = plan.model_hashes[model]
                # Checkpoints of other seeds may be there, and what models start from may serve the next row, too.
                if not self.lacking(plan, model, missing) and name not in self._sources([plan]):
                    self.folders.forget(name)
        return True

    def _claim(self, claims: ExitStack, name: str, wait: bool) -> bool:
        """Claim a run; with ``wait`` look again until whoever has it is done, or the time is up."""
        while True:
            with ExitStack() as attempt:
                if attempt.enter_context(self.folders.claim(name, wait=False)):
                    claims.push(attempt.pop_all())
                    return True
            if not wait:
                return False
            self.limit.check(waiting=True)
            time.sleep(_LOOK_AGAIN)

    @staticmethod
    def _sources(plans: Iterable[BasePlan]) -> set[str]:
        """The hashes of the models that others start from."""
        return {plan.model_hashes[model] for plan in plans for model in plan.trained if plan.followers(model)}

    def _tidy(self) -> None:
        """Forget what models started from, now that all rows are done."""
        for name in sorted(self._sources(plan for one in self.wanted for plan in one.plans)):
            if self.folders.folder(name).exists():
                with self.folders.claim(name, wait=False) as ours:
                    if ours:
                        self.folders.forget(name)

    def _train(self, task: Task, model: Model, seeds: Sequence[int], progress: TableProgress) -> None:
        """Train a model for these seeds and put it into the pool."""
        plan = task.plan
        starts = self._starts(plan, model, seeds)
        seeds = [seed for seed in seeds if starts is None or seed in starts]
        if not seeds:
            return
        label = f"row {plan.row.number}, {model}"
        if len(self.wanted) > 1:
            label = f"{task.experiment.id.rpartition('/')[2]}, {label}"
        progress.begin(label, work_of(plan, model, len(seeds)))
        folder, watching = self.folders.folder(plan.model_hashes[model]), [progress, self.limit]
        trained = train_model(plan, model, seeds, device=self.device, folder=folder, callbacks=watching, starts=starts)
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

    def _write(self, experiment: Experiment, plan: BasePlan, seeds: Sequence[int]) -> None:
        """One receipt for each seed, from what is in the pool."""
        for seed in seeds:
            if not plan.trained:  # what is computed takes its time here; where a model was trained its scores are kept
                self.limit.check()
            found = {model: self.pool.get(plan.model_hashes[model], seed) for model in plan.models}
            for model in plan.models:
                if found[model] is None and model not in plan.trained:
                    found[model] = score_untrained(plan, model, seed, self.device)
            known = {model: result for model, result in found.items() if result is not None}
            receipt = self._receipt(experiment, plan, seed, known)
            ledger.append(self.path(experiment), receipt)
            self.pool.fill([receipt])  # from here on it is shared with this row

    def _receipt(self, experiment: Experiment, plan: BasePlan, seed: int, found: dict[Model, ModelResult]) -> Receipt:
        config = plan.train_config(plan.trained[0]) if plan.trained else None
        failures = [f"{model}: {result.failed}" for model, result in found.items() if result.failed]
        return Receipt(
            experiment=experiment.id,
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
