"""Reading a folder of ledgers for a report: every receipt that can be used, and a sentence for all that cannot."""

from __future__ import annotations

import math
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from identica.experiments import Experiment, Receipt, ledger_path, read

Point = tuple[float, float]

#: From one file at most so many lines are named one by one.
NAMED = 3
#: What a report reads of a receipt besides what the ledger itself insists on.
_KINDS: dict[str, type | tuple[type, ...]] = {
    "steps": int,
    "batch": int,
    "device": str,
    "precision": str,
    "commit": (str, type(None)),
    "failed": (str, type(None)),
}


def load(folder: str | os.PathLike[str]) -> tuple[tuple[Receipt, ...], tuple[str, ...]]:
    """The receipts of every ledger in ``folder``, and sentences about what was left out.

    Raises ValueError, which says how to make some, if there are none at all.
    """
    folder = Path(folder)
    how = "'identica reproduce clica/table1 --budget smoke' makes some, and --results names another folder."
    if not folder.exists():
        raise ValueError(f"There is no folder {folder} with results. {how}")
    if not folder.is_dir():
        raise ValueError(f"{folder} is a file, and results are in a folder of ledgers (*.jsonl). {how}")
    receipts: list[Receipt] = []
    notes: list[str] = []
    for path in sorted(folder.glob("*.jsonl")):
        found, said = _read(path)
        receipts += found
        notes += said
    if not receipts:
        raise ValueError(" ".join([f"The folder {folder} holds no receipts.", *notes, how]))
    return tuple(receipts), tuple(notes)


def _read(path: Path) -> tuple[tuple[Receipt, ...], list[str]]:
    """The receipts of one file, and what is to be said about the rest of it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            receipts = read(path)
        except IsADirectoryError:
            return (), [f"{path.name} is a folder, not a ledger. It is left out."]
        except RecursionError:  # JSON nested a thousand deep: whatever it is, a receipt it is not
            return (), [f"{path.name} cannot be read as a ledger. It is left out."]
    notes = [str(warning.message).replace(str(path), path.name) for warning in caught]
    if not receipts:
        return (), [f"{path.name} holds no receipts. It is left out."]
    if len(notes) > NAMED:
        more = len(notes) - NAMED
        notes[NAMED:] = [f"{more} more line{'' if more == 1 else 's'} of {path.name} cannot be read either."]
    return receipts, notes


def usable(receipts: Iterable[Receipt], known: Mapping[str, Experiment]) -> tuple[list[Receipt], tuple[str, ...]]:
    """Those that the catalogue has a row for and a report can use, and a sentence about the others."""
    kept, reasons = [], Counter[str]()
    for receipt in receipts:
        reason = _why_not(receipt, known.get(receipt.experiment))
        if reason is None:
            kept.append(receipt)
        else:
            reasons[reason] += 1
    notes = [f"{count} receipt{'' if count == 1 else 's'} left out: {reason}." for reason, count in reasons.items()]
    return kept, tuple(notes)


def _why_not(receipt: Receipt, experiment: Experiment | None) -> str | None:
    if experiment is None:
        return f"the catalogue has no experiment {receipt.experiment}"
    if receipt.row not in {row.number for row in experiment.rows}:
        return f"{experiment.id} has no row {receipt.row}"
    where = f"in {ledger_path('', experiment.id)}, row {receipt.row}, seed {receipt.seed}"
    for name, kind in _KINDS.items():
        if not isinstance(getattr(receipt, name), kind):
            return f"{where}, {name} is not what it should be"
    if not is_number(receipt.seconds):
        return f"{where}, seconds is not a number"
    for model, scores in receipt.scores.items():
        if model in experiment.models and experiment.metric not in scores:
            return f"{where}, {model} has no {experiment.metric}"
    return None


def is_number(value: Any) -> bool:
    """Whether it is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def learning_curve(receipt: Receipt, model: str, metric: str) -> list[Point]:
    """(step, score) for each evaluation during training; empty if the receipt has none.

    Of a model that started from a trained one the steps go on from there.
    """
    info = receipt.models.get(model)
    curve = info.get("curve") if isinstance(info, Mapping) else None
    steps, scores = (curve.get("step"), curve.get(metric)) if isinstance(curve, Mapping) else (None, None)
    if not (isinstance(steps, list) and isinstance(scores, list)):
        return []
    pairs = zip(steps, scores, strict=False)
    before = steps_before(info)
    return [(before + step, score) for step, score in pairs if is_number(step) and is_number(score)]


def steps_before(info: Any) -> float:
    """How many steps the encoder had been trained for when the model started."""
    start = info.get("started_from") if isinstance(info, Mapping) else None
    steps = start.get("steps") if isinstance(start, Mapping) else None
    return steps if steps is not None and is_number(steps) else 0


def taken_from(info: Any) -> str | None:
    """Where a model was trained that a receipt has taken over: ``clica/table1, row 5``; None for one of its own."""
    found = info.get("shared_with") if isinstance(info, Mapping) else None
    return found if isinstance(found, str) else None


def hash_of(info: Any) -> str | None:
    """What tells a model from every other one."""
    found = info.get("hash") if isinstance(info, Mapping) else None
    return found if isinstance(found, str) else None


def settings_of(receipt: Receipt, model: str) -> Mapping[str, Any]:
    """The settings of one model, as the receipt has them; empty if it has none."""
    found = receipt.config.get(model)
    return found if isinstance(found, Mapping) else {}


def batch_of(receipt: Receipt, model: str) -> int:
    """How many pairs a step of that model had; those of the receipt where nothing else is said."""
    train = settings_of(receipt, model).get("train")
    found = train.get("batch_size") if isinstance(train, Mapping) else None
    return found if isinstance(found, int) else receipt.batch


def training_of(receipt: Receipt, model: str) -> str:
    """How long a model was trained: ``4,000 steps of 16,384 pairs and a turn to the axes``."""
    info = receipt.models.get(model)
    steps = info.get("steps") if isinstance(info, Mapping) else None
    steps = steps if isinstance(steps, int) else receipt.steps
    turned = " and a turn to the axes" if settings_of(receipt, model).get("turned") else ""
    return f"{steps:,} steps of {batch_of(receipt, model):,} pairs{turned}" if steps else "none"
