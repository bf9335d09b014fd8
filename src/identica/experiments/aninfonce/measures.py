"""What is measured of a model of paper B: blocks, the loss beside its minimum, Λ̂ and how well it is known."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from identica.diagnostics import folding, iterations_to_target, precision_standard_errors, promise
from identica.experiments.aninfonce.budgets import LossRecipe
from identica.experiments.aninfonce.shared_loss import SharedInfoNCE
from identica.experiments.planning import Measured
from identica.metrics import SimilarityHistogram, block_scores, precision_blocks, similarity_histogram
from identica.objectives import EnsembleInfoNCE, InfoNCE, Objective, TriCL
from identica.processes import EnsembleProcess, PairProcess
from identica.similarities import Anisotropic, DotProduct, Similarity
from identica.training import Callback, Evaluation, Record, TrainingRun, TrainState, derive_seed, evaluate, excess_loss

#: How soon R² got there, "steps_to_0.7" and so on: at the first evaluation that has it (B, Figure 9).
TARGETS = (0.7, 0.8, 0.9)

#: Bins of the histograms of similarities.
BINS = 50

Precisions = Sequence[Sequence[float]]


class PrecisionWatch(Callback):
    """Adds content and style R² to every evaluation, and what the loss has learned by then, to be kept with it.

    processes: by the seed of the run. Records are saved in checkpoints, so that a resumed run has the whole curve.
    """

    def __init__(
        self, processes: Mapping[int, PairProcess | EnsembleProcess], precisions: Precisions, samples: int
    ) -> None:
        self._processes, self._samples = processes, samples
        blocks = precision_blocks(*precisions)
        self._groups = {"content_r2": blocks[0], "style_r2": blocks[-1]}

    def on_evaluation(self, state: TrainState, record: Record) -> None:
        """Score again, on latents of its own, unless all factors are one block, whose score is there already."""
        if len(set(self._groups.values())) == 1:
            record.scores.update(dict.fromkeys(self._groups, record.scores["r2"]))
        else:
            self._score(state, record)
        for name, values in learned(state.objective).items():
            record.terms.update({f"{name}/{k}": value for k, value in enumerate(values)})

    def _score(self, state: TrainState, record: Record) -> None:
        source = derive_seed(state.seed, f"blocks {state.step}")
        process = self._processes[state.seed]
        per_factor = evaluate(process, state.encoder, self._samples, generator=source, device=state.device).r2
        for name, factors in self._groups.items():
            record.scores[name] = sum(per_factor.per_dimension[i] for i in factors) / len(factors)


def learned(objective: Objective) -> dict[str, list[float]]:
    """What the loss itself has learned: Λ̂ ("precision", "precision 2" …), τ, or TriCL's importances."""
    if isinstance(objective, TriCL):
        return {"importance": objective.importance.detach().tolist()}
    found: dict[str, list[float]] = {}
    for k, similarity in enumerate(similarities(objective), start=1):
        suffix = "" if k == 1 else f" {k}"
        if isinstance(similarity, Anisotropic) and similarity.trainable:
            found[f"precision{suffix}"] = similarity.precision.detach().tolist()
        elif isinstance(similarity, DotProduct) and similarity.trainable:
            found[f"temperature{suffix}"] = [float(torch.as_tensor(similarity.temperature).detach())]
    return found


def similarities(objective: Objective) -> tuple[Similarity, ...]:
    """The different similarities of a loss: one that several kinds of pairs share is one."""
    return tuple(member.similarity for member in dict.fromkeys(_members(objective)))


def measures(
    process: PairProcess | EnsembleProcess,
    run: TrainingRun,
    evaluation: Evaluation,
    precisions: Precisions,
    recipe: LossRecipe,
    seed: int,
) -> Measured:
    """Everything besides R² and MCC."""
    blocks = block_scores(evaluation.z, evaluation.h, precisions)
    scores = {"content_r2": blocks.content_r2, "style_r2": blocks.style_r2, "within_r2": blocks.within_r2}
    scores["mean_code"] = folding(evaluation.h).size
    info: dict[str, Any] = {"promise": promise(precisions).sentence}
    reached = iterations_to_target(run.history, "r2", TARGETS)
    scores |= {f"steps_to_{target:g}": float(step) for target, step in reached.items() if step is not None}
    kinds = process.processes if isinstance(process, EnsembleProcess) else (process,)
    histogram = _histogram(kinds[0], run, _compared(run, recipe), seed)
    scores["overlap"], info["similarities"] = histogram.overlap, _plain(histogram)
    if members := _members(run.objective):
        one_each = members * len(kinds) if len(members) < len(kinds) else members
        info |= _floor(list(zip(kinds, one_each, strict=True)), run, recipe, seed)
        scores["excess_loss"] = info["excess_loss"]["mean"]
    per_dimension: dict[str, list[float | None]] = {name: [*values] for name, values in learned(run.objective).items()}
    found = _precision(list(kinds), run, precisions, recipe, seed)
    return Measured({**scores, **found.scores}, {**per_dimension, **found.per_dimension}, info)


def _compared(run: TrainingRun, recipe: LossRecipe) -> int:
    """Of how many pairs the batches are that a loss is looked at on: no more than it was trained with."""
    return min(recipe.batch_size, run.config.batch_size, recipe.floor_pairs)


@torch.no_grad()
def _histogram(process: PairProcess, run: TrainingRun, n: int, seed: int) -> SimilarityHistogram:
    """Cosines of codes: positives, and all other pairs of a batch (B, Figure 8)."""
    pairs = process.sample(n, derive_seed(seed, "similarities"))
    return similarity_histogram(run(pairs.x), run(pairs.x_pos), bins=BINS)


def _plain(histogram: SimilarityHistogram) -> dict[str, list[float]]:
    """Both densities, from −1 to 1 in equal bins."""
    positives, negatives = ([float(f"{value:.4g}") for value in density] for density in histogram.densities)
    return {"positives": positives, "negatives": negatives}


def _members(objective: Objective) -> list[InfoNCE]:
    """The InfoNCE losses that it is made of; none for TriCL."""
    modules = objective.modules() if isinstance(objective, EnsembleInfoNCE | SharedInfoNCE) else (objective,)
    return [module for module in modules if isinstance(module, InfoNCE)]


def _floor(
    pairs: Sequence[tuple[PairProcess, InfoNCE]], run: TrainingRun, recipe: LossRecipe, seed: int
) -> dict[str, Any]:
    """The loss above its minimum on the same pairs; for several kinds of pairs, the sum.

    As InfoNCE is defined, with the other anchors as negatives, whatever it was trained with: that loss has a floor.
    Where it was trained so, with batches of this size, there is also the minimum, to compare the learning curve with.
    """
    n, batches = _compared(run, recipe), recipe.floor_batches
    found = [excess_loss(process, run, InfoNCE(member.similarity), n, batches, seed=seed) for process, member in pairs]
    error = sum(one.standard_error**2 for one in found) ** 0.5
    info: dict[str, Any] = {
        "excess_loss": {"mean": sum(one.mean for one in found), "standard_error": error, "pairs": n}
    }
    if n == run.config.batch_size and recipe.negatives == "anchors" and not recipe.symmetric:
        info["minimal_loss"] = sum(process.optimal_loss(n, batches, generator=seed).mean for process, _ in pairs)
    return info


def _precision(
    kinds: Sequence[PairProcess], run: TrainingRun, precisions: Precisions, recipe: LossRecipe, seed: int
) -> Measured:
    """Λ̂ against Λ, entry by entry in order of size, and its standard errors, in the order of the codes.

    With one Λ̂ for several kinds of pairs there is no truth to compare with; of two Λ̂ there is the correlation of
    their logarithms.
    """
    own = [(k, s) for k, s in enumerate(similarities(run.objective)) if isinstance(s, Anisotropic) and s.trainable]
    if len(own) != len(precisions):
        return Measured()
    errors: list[float] = []
    per_dimension: dict[str, list[float | None]] = {}
    for k, similarity in own:
        suffix = "" if k == 0 else f" {k + 1}"
        member = _members(run.objective)[k]
        n = min(recipe.batch_size, recipe.error_pairs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the receipt has the errors themselves
            found = precision_standard_errors(kinds[k], run, member, n, recipe.error_batches, seed=seed)
        per_dimension[f"precision_standard_error{suffix}"] = [*found.standard_error]
        per_dimension[f"precision_to_minimum{suffix}"] = [*found.to_minimum]
        ordered = zip(sorted(similarity.precision.tolist()), sorted(precisions[k]), strict=True)
        errors += [abs(ours / truth - 1.0) for ours, truth in ordered]
    scores = {"precision_error": max(errors)}
    if len(own) == 2:
        first, second = (similarity.precision.detach().double().log() for _, similarity in own)
        scores["precision_correlation"] = float(torch.corrcoef(torch.stack([first, second]))[0, 1])
    return Measured(scores, per_dimension)
