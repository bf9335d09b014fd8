"""Pictures of the experiments on MNIST, as their receipts hold them: a table of scores, and histograms of latents."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from identica.diagnostics.theory import Curve, Line, Matrix
from identica.experiments import RowResult
from identica.experiments.catalogue import model_name
from identica.experiments.claims import Quantity
from identica.experiments.mnist.rows import ViewsRow
from identica.report.receipts import is_number

#: Where the normal density is drawn, in tenths of a standard deviation.
_TENTHS = range(-35, 36)


def digits(result: RowResult) -> list[Curve | Matrix]:
    """Whatever there is to draw of a row with views of digits; nothing of other rows."""
    return [*_side_by_side(result), *_histograms(result)] if isinstance(result.row, ViewsRow) else []


def _side_by_side(result: RowResult) -> list[Matrix]:
    """Our means over seeds and the paper's scores, a line for each loss."""
    row = result.row
    assert isinstance(row, ViewsRow)
    scores = list(dict.fromkeys(score for of_model in row.table.values() for score in of_model))
    names, lines = [], []
    for model, theirs in row.table.items():
        ours = [Quantity(model, score).mean(result.receipts) for score in scores]
        known = [value for value in ours if value is not None]
        if len(known) == len(ours):
            names += [f"{model_name(model)}, ours", f"{model_name(model)}, paper"]
            lines += [tuple(known), tuple(theirs[score] for score in scores)]
    if not lines:
        return []
    columns = tuple(score.removesuffix("_accuracy").replace("r2", "R²") for score in scores)
    return [Matrix(f"What can be read off the codes: {row.model_label}", tuple(names), columns, tuple(lines))]


def _histograms(result: RowResult) -> list[Curve]:
    """Densities of latents of the views of single digits, of the first seed, beside a normal one."""
    if not result.receipts:
        return []
    receipt = result.receipts[0]
    info: Any = receipt.models.get("vae")
    found = info.get("histograms") if isinstance(info, Mapping) else None
    lines = [line for one in found if (line := _line(one)) is not None] if isinstance(found, list) else []
    if not lines:
        return []
    normal = Line("normal", tuple((x / 10, math.exp(-((x / 10) ** 2) / 2) / math.sqrt(2 * math.pi)) for x in _TENTHS))
    title = f"Latents of the views of single digits, seed {receipt.seed}"
    return [Curve(title, "standard deviations from the mean", "density", (*lines, normal))]


def _line(histogram: Any) -> Line | None:
    """One histogram as a line through the middles of its bins; None if the receipt's is not one."""
    if not isinstance(histogram, Mapping):
        return None
    low, high, density, dip = (cast(Any, histogram.get(name)) for name in ("low", "high", "density", "dip"))
    if not (isinstance(density, list) and density and all(map(is_number, (low, high, dip, *density)))):
        return None
    width = (high - low) / len(density)
    points = tuple((low + (k + 0.5) * width, value) for k, value in enumerate(density))
    return Line(f"a {histogram.get('digit')}, latent {histogram.get('latent')}, dip {dip:.3f}", points)
