"""Receipts for tests that need some and train nothing."""

from __future__ import annotations

from typing import Any

from identica.experiments.receipts.receipt import Receipt


def receipt(row: str = "1", seed: int = 0, r2: float = 0.9, **changes: Any) -> Receipt:
    settings: dict[str, Any] = {
        "experiment": "clica/table1",
        "row": row,
        "seed": seed,
        "budget": "fast",
        "scores": {"contrastive": {"r2": r2, "mcc": 0.5}},
        "config": {"steps": 10},
        "config_hash": "abc",
    }
    return Receipt(**(settings | changes))
