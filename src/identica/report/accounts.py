"""What runs took, each model counted once, and where models came from that were not trained again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from identica.experiments import Receipt, RowResult
from identica.report.receipts import hash_of, is_number, taken_from

#: A run: a row and a seed.
Run = tuple[str, int]


def costs_of(experiment_id: str, receipts: Sequence[Receipt]) -> dict[Run, float]:
    """The seconds of each run.

    Besides a receipt's own seconds those of models that it took over from a receipt of its experiment that is not among
    these any more. Models of other experiments are counted there.
    """
    own = ((receipt.seed, info) for receipt in receipts for info in receipt.models.values() if taken_from(info) is None)
    counted = {(seed, hash_of(info)) for seed, info in own}
    costs = {}
    for receipt in receipts:
        cost = receipt.seconds
        for info in receipt.models.values():
            model = receipt.seed, hash_of(info)
            if (taken_from(info) or "").startswith(f"{experiment_id}, ") and model not in counted:
                counted.add(model)
                cost += info["seconds"] if is_number(info.get("seconds")) else 0.0
        costs[receipt.row, receipt.seed] = cost
    return costs


def sources_of(experiment_id: str, rows: Sequence[RowResult], costs: Mapping[Run, float]) -> dict[str, list[str]]:
    """The numbers of the rows that took no time, by where their models were trained: an experiment, or rows of this."""
    found: dict[str, list[str]] = {}
    for result in rows:
        infos = [info for receipt in result.receipts for info in receipt.models.values()]
        places = sorted({place for info in infos if (place := taken_from(info))})
        if not places or any(costs[receipt.row, receipt.seed] for receipt in result.receipts):
            continue
        parts = [place.partition(", ") for place in places]
        names = [row if experiment == experiment_id else experiment for experiment, _, row in parts]
        found.setdefault(" and ".join(dict.fromkeys(names)), []).append(result.row.number)
    return found
