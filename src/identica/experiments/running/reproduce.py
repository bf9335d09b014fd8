"""``reproduce``: train what is missing of experiments, write the receipts, read the results."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from identica._numbers import whole_number
from identica.experiments.budgets import find_budget
from identica.experiments.catalogue import DeviceKind, Experiment
from identica.experiments.planning import BasePlan
from identica.experiments.receipts.verdicts import RowResult
from identica.experiments.running.provenance import choose_device
from identica.experiments.running.supplies import Supplies, data_folder
from identica.experiments.running.tasks import TaskRunner, Wanted
from identica.experiments.running.time_limit import TimeLimit

Folder = str | os.PathLike[str]


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
    minutes: float | None = None,
    force: bool = False,
    quiet: bool = False,
) -> tuple[RowResult, ...]:
    """Train what is missing and append one receipt per row and seed to the ledger in ``out``.

    Nothing that a ledger in ``out`` or in the folder or folders ``have`` holds is computed again, unless with
    ``force``, which appends new receipts and leaves the old ones. Interrupted, even killed, it continues
    from there when called again. Several processes may work on one folder: they divide the rows.

    ``data`` is the folder of data sets, for experiments on real data; by default IDENTICA_DATA names it.

    After ``minutes`` training stops as if it were interrupted, and :class:`TimeIsUp` says what is left.

    Returns the results of the chosen rows with the settings of this budget and device.
    """
    return reproduce_all(
        [experiment],
        rows=rows,
        seeds=seeds,
        budget=budget,
        device=device,
        out=out,
        have=have,
        data=data,
        minutes=minutes,
        force=force,
        quiet=quiet,
    )[0]


def reproduce_all(
    experiments: Sequence[Experiment],
    *,
    rows: Iterable[str] | None = None,
    seeds: int | None = None,
    budget: str = "fast",
    device: str = "auto",
    out: Folder = "results",
    have: Folder | Sequence[Folder] = (),
    data: Folder | None = None,
    minutes: float | None = None,
    force: bool = False,
    quiet: bool = False,
) -> tuple[tuple[RowResult, ...], ...]:
    """:func:`reproduce` for several experiments, one after the other, with one estimate and one limit of time for all.

    Data that any of them lacks are named before the first begins. Returns the results of each.
    """
    if rows is not None and len(experiments) != 1:
        raise ValueError("Rows are those of one experiment: name one experiment alone, or leave the rows out.")
    if force and minutes is not None:
        raise ValueError("With force every call trains everything anew: with a limit of time it might never end.")
    limit = TimeLimit(minutes)
    place = choose_device(device)
    supplies = Supplies(data_folder(data), Path(out), place)
    wanted = []
    for experiment in experiments:
        plans = tuple(plan.supplied(supplies) for plan in make_plans(experiment, rows, budget, place))
        count = find_budget(budget).seeds or experiment.seeds if seeds is None else whole_number(seeds, "seeds")
        wanted.append(Wanted(experiment, plans, tuple(range(count))))
    others = [Path(folder) for folder in ([have] if isinstance(have, str | os.PathLike) else have)]
    for folder in others:
        if not folder.is_dir():
            raise ValueError(f"There is no folder {folder} to read results from: name another with --have.")
    runner = TaskRunner(wanted, Path(out), others, place, limit, force, quiet)
    runner.run()
    return tuple(runner.results(one) for one in wanted)


def make_plans(
    experiment: Experiment, rows: Iterable[str] | None, budget: str, device: torch.device
) -> tuple[BasePlan, ...]:
    """The chosen rows with the recipes of this budget on this device."""
    kind: DeviceKind = "cuda" if device.type == "cuda" else "cpu"
    return tuple(experiment.plan(row, budget, kind) for row in experiment.select(rows))
