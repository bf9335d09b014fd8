"""Training and scoring one model of one row, for several seeds at once."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from identica.experiments.catalogue import Model
from identica.experiments.planning import BasePlan, Measured, NoScore
from identica.experiments.receipts.receipt import Receipt
from identica.experiments.running.pace import Work
from identica.experiments.running.scored import ModelResult, find_result, keep_result
from identica.experiments.running.seeds import train_seeds
from identica.experiments.running.stages import train_stages
from identica.experiments.running.starts import Start, keep, name_of
from identica.training import (
    Callback,
    Evaluation,
    Record,
    TrainingDiverged,
    TrainingRun,
    derive_seed,
    evaluate,
)


class Pool:
    """Results that are there already, by what they depend on: a hash and a seed."""

    def __init__(self) -> None:
        self._results: dict[tuple[str, int], ModelResult] = {}

    def get(self, model_hash: str, seed: int) -> ModelResult | None:
        """The result of that model and seed, if there is one."""
        return self._results.get((model_hash, seed))

    def add(self, model_hash: str, results: Mapping[int, ModelResult]) -> None:
        """What has just been computed, by seed."""
        self._results |= {(model_hash, seed): result for seed, result in results.items()}

    def fill(self, receipts: Iterable[Receipt], *, replace: bool = True) -> None:
        """Every model of every receipt that was trained for it, marked with where it comes from.

        Without ``replace`` what is known stays as it is, such as a model that had to be trained again for its weights.
        """
        for receipt in receipts:
            for model, info in receipt.models.items():
                if "hash" not in info or "shared_with" in info:
                    continue
                if not replace and (info["hash"], receipt.seed) in self._results:
                    continue
                source = f"{receipt.experiment}, row {receipt.row}"
                self._results[info["hash"], receipt.seed] = ModelResult(
                    scores=dict(receipt.scores.get(model, {})),
                    per_dimension=dict(receipt.per_dimension.get(model, {})),
                    info={**info, "shared_with": source, "device": receipt.device},
                )


# Training


def work_of(plan: BasePlan, model: Model, seeds: int) -> Work:
    """The steps that :func:`train_model` will take, each for all seeds, for the progress bar."""
    turns = seeds if plan.stages(model) else 1  # stages are trained seed by seed
    steps = turns * plan.train_config(model).steps
    return Work(f"{plan.loss_label(model)}, {seeds} seeds", steps, model == "supervised")


def train_model(
    plan: BasePlan,
    model: Model,
    seeds: Sequence[int],
    *,
    device: torch.device,
    folder: Path,
    callbacks: Sequence[Callback] = (),
    starts: Mapping[int, Start] | None = None,
) -> dict[int, ModelResult]:
    """Train and score a model for each seed, continuing from the checkpoints and the scores in ``folder``.

    ``starts``: by seed, the trained encoders that it starts from. Those that others start from are kept in ``folder``.
    """
    starts = {} if starts is None else starts
    watching = [*callbacks, *plan.watchers(model, seeds, device)]
    if plan.stages(model):
        runs = train_stages(plan, model, seeds, device=device, folder=folder, callbacks=watching)
    else:
        runs = train_seeds(
            [plan.training_process(model, seed) for seed in seeds],
            [_first_encoder(plan, model, seed, starts.get(seed)) for seed in seeds],
            [plan.objective(model) for _ in seeds],
            plan.train_config(model),
            seeds=[plan.seed(model, seed) for seed in seeds],
            device=device,
            out=folder / name_of(seeds, starts),
            callbacks=watching,
        )
    results, kept = {}, folder / name_of(seeds, starts)
    for seed, run in zip(seeds, runs, strict=True):
        result = find_result(kept, seed)
        if result is None:
            result = _result(plan, model, seed, run, device, together=1 if plan.stages(model) else len(seeds))
            keep_result(kept, seed, result)
        results[seed] = result
        if seed in starts:
            results[seed].info["started_from"] = starts[seed].described
        if plan.followers(model) and isinstance(run, TrainingRun):
            keep(folder, seed, run.encoder, {"model": model, "hash": plan.model_hashes[model], "steps": run.step})
    return results


def _first_encoder(plan: BasePlan, model: Model, seed: int, start: Start | None) -> nn.Module:
    """Untrained, or with the weights it starts from; whitening that was fitted then is not fitted again."""
    encoder = plan.encoder(model, seed)
    if start is not None:
        encoder.load_state_dict(dict(start.weights))
    return encoder


def _result(
    plan: BasePlan, model: Model, seed: int, run: TrainingRun | TrainingDiverged, device: torch.device, together: int
) -> ModelResult:
    """``run.seconds`` are those of all seeds trained together: each has its share."""
    info: dict[str, Any] = {"hash": plan.model_hashes[model]}
    if isinstance(run, TrainingDiverged):
        return ModelResult({}, {}, info | {"failed": str(run)})
    seconds = run.seconds / together
    info |= {"steps": run.step, "seconds": round(seconds, 3), "trained_together": together}
    info["curve"] = learning_curve(run.history)
    run = _FiniteRun(**vars(run))
    try:
        begin = time.monotonic()
        run = plan.finished(model, seed, run, device)
        seconds += time.monotonic() - begin
        evaluation = _evaluated(plan, model, seed, run, device)
        return _scored(evaluation, info, seconds, plan.measured(model, seed, run, evaluation, device))
    except NoScore as error:  # not a reason to stop the others; any other error is one, and none is kept as a result
        return ModelResult({}, {}, info | {"failed": str(error)}, seconds)


@dataclass(frozen=True)
class _FiniteRun(TrainingRun):
    """A run that looks at the codes it returns: of infinite ones nothing can be measured."""

    def __call__(self, x: Tensor) -> Tensor:
        codes = super().__call__(x)
        if not bool(codes.isfinite().all()):
            raise NoScore("The encoder returns NaN or infinite codes, which have no score.")
        return codes


def score_untrained(plan: BasePlan, model: Model, seed: int, device: torch.device) -> ModelResult:
    """Without training: the observations themselves, scored as if they were the code, or what the plan computes."""
    info: dict[str, Any] = {"hash": plan.model_hashes[model]}
    begin = time.monotonic()
    try:
        if model == "identity":
            evaluation = _evaluated(plan, model, seed, lambda x: x, device)
            measured = plan.measured_identity(seed, device)
            return _scored(evaluation, info, time.monotonic() - begin, measured)
        found = plan.computed(model, seed, device)
    except NoScore as error:
        return ModelResult({}, {}, info | {"failed": str(error)}, time.monotonic() - begin)
    per_dimension = {name: [*values] for name, values in found.per_dimension.items()}
    return ModelResult(dict(found.scores), per_dimension, {**info, **found.info}, time.monotonic() - begin)


def _evaluated(plan: BasePlan, model: Model, seed: int, encode: Any, device: torch.device) -> Evaluation:
    process = plan.process(model, seed).to(device, torch.get_default_dtype())
    source = derive_seed(seed, f"{model} evaluation")
    return evaluate(process, encode, plan.recipe.evaluation_samples, generator=source, device=device)


def _scored(
    evaluation: Evaluation, info: dict[str, Any], seconds: float, measured: Measured | None = None
) -> ModelResult:
    measured = Measured() if measured is None else measured
    scores = {**evaluation.scores, **measured.scores}
    if infinite := [name for name, score in scores.items() if not math.isfinite(score)]:
        raise NoScore(f"Scores of these codes are not finite: {', '.join(infinite)}.")
    per_dimension = {"r2": evaluation.r2.per_dimension, "mcc": evaluation.mcc.per_dimension, **measured.per_dimension}
    rounded = {name: [_rounded(value) for value in values] for name, values in per_dimension.items()}
    return ModelResult(scores, rounded, {**info, **measured.info}, seconds + measured.seconds)


def learning_curve(history: Sequence[Record]) -> dict[str, list[Any]]:
    """The evaluations of a run as lists: step, r2, mcc, other scores, loss (None before the first step).

    What a watcher added as terms "name/0", "name/1", …, such as the entries of Λ̂, is "name": a list for each step.
    """
    scores = dict.fromkeys(["r2", "mcc", *(name for record in history for name in record.scores)])
    several = dict.fromkeys(name for record in history for name in record.terms if "/" in name)
    curve: dict[str, list[Any]] = {"step": [record.step for record in history]}
    curve |= {name: [_rounded(record.scores.get(name)) for record in history] for name in scores}
    curve["loss"] = [_rounded(record.terms.get("loss")) for record in history]
    for vector in dict.fromkeys(name.partition("/")[0] for name in several):
        entries = [name for name in several if name.partition("/")[0] == vector]
        curve[vector] = [[_rounded(record.terms.get(name)) for name in entries] for record in history]
    return curve


def _rounded(value: float | None) -> float | None:
    """Five digits are more than a curve shows; NaN, which JSON does not know, is left out."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")
