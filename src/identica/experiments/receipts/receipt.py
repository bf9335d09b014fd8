"""One line of the ledger: what was trained, what it scored, and everything needed to do it again."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Key = tuple[str, str, int, str, str]
Scores = Mapping[str, Mapping[str, float]]

_KINDS: dict[str, type | tuple[type, ...]] = {
    "experiment": str,
    "row": str,
    "seed": int,
    "budget": str,
    "config_hash": str,
    "scores": Mapping,
    "config": Mapping,
    "per_dimension": Mapping,
    "models": Mapping,
    "x": Mapping,
    "versions": Mapping,
}


@dataclass(frozen=True)
class Receipt:
    """The result of one seed of one row.

    scores: ``{"contrastive": {"r2": 0.9942, "mcc": ...}, "supervised": ..., "identity": ...}``, as fractions.
        A model that failed has none.
    per_dimension: the same, one number for each latent.
    models: for each model a hash of what it depends on; for a trained one its steps, seconds and learning curve;
        and where another row with the same settings had trained it already, that row as ``shared_with``.
    seconds: what this line cost: models shared with another row are not counted twice.
    config, config_hash: every setting, and a hash of those that change the result.
    failed: a sentence if a model diverged.
    """

    experiment: str
    row: str
    seed: int
    budget: str
    scores: Scores
    config: Mapping[str, Any]
    config_hash: str
    x: Mapping[str, float] = field(default_factory=dict)
    per_dimension: Mapping[str, Mapping[str, list[float | None]]] = field(default_factory=dict)
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    steps: int = 0
    batch: int = 0
    seconds: float = 0.0
    device: str = ""
    precision: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    commit: str | None = None
    failed: str | None = None

    @property
    def key(self) -> Key:
        """What is not computed twice."""
        return self.experiment, self.row, self.seed, self.budget, self.config_hash

    def to_json(self) -> str:
        """One line. Raises ValueError for NaN and infinities, which JSON has no word for."""
        everything = dataclasses.asdict(self)
        data = {name: value for name, value in everything.items() if name in _REQUIRED or value not in ({}, None)}
        return json.dumps({**data, "commit": self.commit}, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> Receipt:
        """The inverse. Keys of a newer version are left out; what is missing or of a wrong kind is a ValueError."""
        data = json.loads(line)
        if not isinstance(data, dict):
            raise ValueError("it is not a JSON object")
        known = {field.name for field in dataclasses.fields(cls)}
        try:
            receipt = cls(**{name: value for name, value in data.items() if name in known})
        except TypeError:
            raise ValueError("it lacks " + ", ".join(sorted(_REQUIRED - set(data)))) from None
        for name, kind in _KINDS.items():
            if not isinstance(getattr(receipt, name), kind):
                raise ValueError(f"its {name} is not what it should be")
        models = receipt.scores.values()
        if not all(isinstance(scores, Mapping) and all(map(_is_number, scores.values())) for scores in models):
            raise ValueError("its scores are not all numbers")
        return receipt


_REQUIRED = {
    field.name
    for field in dataclasses.fields(Receipt)
    if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
