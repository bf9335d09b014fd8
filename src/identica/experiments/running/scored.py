"""Results of models whose row is not done yet, kept beside their checkpoints until it has its receipts.

One file for each seed, ``OUT/.runs/<hash>/<seeds>/scored-<seed>.json``: what was measured once, such as axes and
readouts, is not measured again by the call that continues with the row's other models; by another commit it is, which
may measure something else.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from identica.experiments.running.provenance import commit
from identica.training.checkpoint import write_atomically


@dataclass(frozen=True)
class ModelResult:
    """One model of one seed: what it scored and how it got there, or, under "failed", why there is no score.

    ``info`` goes into the receipt as it is; ``seconds`` is 0 for a result that was not computed here.
    """

    scores: dict[str, float]
    per_dimension: dict[str, list[float | None]]
    info: dict[str, Any]
    seconds: float = 0.0

    @property
    def failed(self) -> str | None:
        """Why there is no score."""
        return self.info.get("failed")


def keep_result(folder: Path, seed: int, result: ModelResult) -> None:
    """Write a result into the folder of the run that it is of."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(_path(folder, seed), json.dumps({"commit": commit(), "result": asdict(result)}).encode())


def find_result(folder: Path, seed: int) -> ModelResult | None:
    """What this commit kept of that seed; None if nothing was, or nothing that can be read: it is measured again."""
    try:
        kept = json.loads(_path(folder, seed).read_bytes())
        return ModelResult(**kept["result"]) if kept["commit"] == commit() else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _path(folder: Path, seed: int) -> Path:
    return folder / f"scored-{seed}.json"
