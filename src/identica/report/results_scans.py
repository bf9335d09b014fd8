"""The loss at the true latents over Λ̂, as receipts of a scan hold it, as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from identica.diagnostics.theory import Curve, Line
from identica.experiments import RowResult
from identica.report.receipts import is_number


def scans(result: RowResult) -> list[Curve]:
    """The loss above its minimum, a line for each seed, and a dashed one where theory has the minimum; or nothing."""
    lines, targets = [], []
    for receipt in result.receipts:
        for model, info in receipt.models.items():
            found: Any = info.get("scan") if isinstance(info, Mapping) else None
            points = _points(found) if isinstance(found, Mapping) else []
            if points:
                lines.append(Line(f"seed {receipt.seed}{_least(receipt.scores.get(model, {}))}", tuple(points)))
                targets.append(found.get("target"))
    known = [target for target in targets if is_number(target)]
    if not lines:
        return []
    if known:
        height = max(y for line in lines for _, y in line.points)
        lines.insert(0, Line("Λ⁺ − Λ⁻", ((known[0], 0.0), (known[0], height)), "dashed"))
    title = f"The loss at the true latents, {result.row.process_label}"
    return [Curve(title, "Λ̂", "nats above the minimum", tuple(lines))]


def _least(scores: Mapping[str, float]) -> str:
    """Where it is smallest: ``, smallest at 50.02 ± 0.12``."""
    if not {"minimum", "minimum_error"} <= set(scores):
        return ""
    return f", smallest at {scores['minimum']:.2f} ± {scores['minimum_error']:.2f}"


def _points(found: Mapping[str, Any]) -> list[tuple[float, float]]:
    values, above = found.get("precision"), found.get("above")
    if not (isinstance(values, list) and isinstance(above, list)):
        return []
    return [(x, y) for x, y in zip(values, above, strict=False) if is_number(x) and is_number(y)]
