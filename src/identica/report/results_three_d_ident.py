"""What a page shows of Tables 4 and 5 besides their rows: every factor, scenes drawn again, and scores by seconds.

Receipts hold latents and what was recovered of them (:mod:`identica.experiments.three_d_ident.recovered`); the scenes
are drawn here, on the CPU. Receipts without them are shown with what they have. A model that two tables share is drawn
in the first.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from markupsafe import Markup

from identica.experiments import Receipt, RowResult
from identica.experiments.catalogue import METRICS, Model, model_name
from identica.experiments.three_d_ident.tables import ImageExperiment
from identica.render import FACTORS
from identica.report import inversion_charts as charts
from identica.report.receipts import Point, is_number
from identica.report.results import Block, Results

#: Scenes that are drawn again: the first ones, not the best.
SCENES = 8
_TRAINED: tuple[Model, ...] = ("contrastive", "supervised")
_FOLLOWED = ("r2", "mcc")

_Key = tuple[str, ...]
_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Recovery:
    """Latents ``(n, 10)``, and what a model recovered of them."""

    true: tuple[charts.Latents, ...]
    recovered: tuple[charts.Latents, ...]

    @property
    def off(self) -> float:
        """How far a factor is off on average."""
        pairs = zip(sum(self.true, ()), sum(self.recovered, ()), strict=True)
        return statistics.fmean(abs(b - a) for a, b in pairs)


@dataclass(frozen=True)
class FactorLine:
    """A line of the table of factors: R² and MCC of each in percent, as text."""

    name: str
    setting: str
    cells: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class View:
    """What one model recovered, as pictures."""

    name: str
    setting: str
    seed: int
    count: int
    off: float
    strips: tuple[Markup, ...]
    scatters: tuple[Markup, ...]


@dataclass(frozen=True)
class Inversion:
    """What is shown of one block: the table of factors, (name, setting, chart) by seconds, and what was recovered.

    elsewhere: the experiments where models of this block are drawn that are not drawn here.
    """

    images: str
    lines: tuple[FactorLine, ...]
    timed: tuple[tuple[str, str, Markup], ...]
    views: tuple[View, ...]
    elsewhere: tuple[str, ...]


@dataclass(frozen=True)
class Inversions:
    """Of all blocks; ``originals`` are the pictures that their views refer to."""

    of_blocks: Mapping[tuple[str, str], Inversion]
    originals: Markup

    def of(self, block: Block) -> Inversion | None:
        """None where there is nothing to show."""
        return self.of_blocks.get((block.experiment.id, block.budget))


def inversions(results: Results) -> Inversions:
    """Everything to show of the experiments on rendered images."""
    found, names = {}, _Names({})
    timed: dict[_Key, str] = {}
    drawn: dict[_Key, str] = {}
    for block in (block for section in results.sections for block in section.blocks):
        if isinstance(block.experiment, ImageExperiment) and block.run:
            trained = list(_trained(block))
            found[block.experiment.id, block.budget] = Inversion(
                f"{'training' if _on_training_images(block) else 'test'} images",
                tuple(line for one in trained if (line := _line(one)) is not None),
                tuple(_once(trained, timed, _timed)),
                tuple(_once(trained, drawn, names.view)),
                tuple(sorted({drawn[one.key] for one in trained if one.key in drawn} - {block.experiment.id})),
            )
    return Inversions(found, names.originals)


def _on_training_images(block: Block) -> bool:
    return block.experiment.metric.endswith("_train")


# Models


@dataclass(frozen=True)
class _Trained:
    """One model of a row."""

    block: Block
    result: RowResult
    model: Model

    @property
    def key(self) -> _Key:
        """What it shares with the same model elsewhere: rows share the supervised one, tables all of them."""
        hashes = {str(self.info(receipt).get("hash")) for receipt in self.result.receipts}
        return (*([self.result.row.number] if self.model == "contrastive" else []), self.model, *sorted(hashes))

    def info(self, receipt: Receipt) -> Mapping[str, Any]:
        """What a receipt says of it."""
        info: Any = receipt.models.get(self.model)
        return info if isinstance(info, Mapping) else {}

    @property
    def name(self) -> str:
        """``Row 1b``."""
        return f"Row {self.result.row.number}" if self.model == "contrastive" else model_name(self.model)

    @property
    def setting(self) -> str:
        """``Normal 0.26, exact → Box, Normal``."""
        row = self.result.row
        return f"{row.pairs_label} → {row.model_label}" if self.model == "contrastive" else "regression on the factors"


def _trained(block: Block) -> Iterator[_Trained]:
    """The contrastive model of each row, then the supervised ones that differ."""
    seen = set()
    for model in _TRAINED:
        for result in block.run:
            one = _Trained(block, result, model)
            if any(model in receipt.scores for receipt in result.receipts) and one.key not in seen:
                seen.add(one.key)
                yield one


def _once(
    trained: Sequence[_Trained], seen: dict[_Key, str], make: Callable[[_Trained], _Made | None]
) -> Iterator[_Made]:
    """What is made of the models that nothing was made of before; ``seen`` says in which experiment it was."""
    for one in trained:
        if one.key not in seen and (made := make(one)) is not None:
            seen[one.key] = one.block.experiment.id
            yield made


# Factors in numbers


def _line(one: _Trained) -> FactorLine | None:
    """Mean over seeds; None without any numbers."""
    suffix = "_train" if _on_training_images(one.block) else ""
    r2, mcc = (_by_factor(one, f"{metric}{suffix}") for metric in _FOLLOWED)
    cells = tuple(zip(r2, mcc, strict=True))
    return FactorLine(one.name, one.setting, cells) if any(map(any, cells)) else None


def _by_factor(one: _Trained, metric: str) -> list[str]:
    lists = [_per_dimension(one, receipt, metric) for receipt in one.result.receipts]
    columns = [[values[k] for values in lists if values is not None] for k in range(len(FACTORS))]
    known = [[value for value in column if value is not None] for column in columns]
    return [f"{100 * statistics.fmean(column):.1f}".replace("-", "−") if column else "" for column in known]


def _per_dimension(one: _Trained, receipt: Receipt, metric: str) -> list[float | None] | None:
    of_model: Any = receipt.per_dimension.get(one.model)
    values = of_model.get(metric) if isinstance(of_model, Mapping) else None
    if not isinstance(values, list) or len(values) != len(FACTORS):
        return None
    return [value if is_number(value) else None for value in values]


# Scores by seconds


def _timed(one: _Trained) -> tuple[str, str, Markup] | None:
    """The curves of all seeds; None if no receipt says when its points were reached."""
    curves = [
        [(receipt.seed, curve) for receipt in one.result.receipts if (curve := _looks(one.info(receipt), metric))]
        for metric in _FOLLOWED
    ]
    if not any(curves):
        return None
    # During training test images are looked at, also by models of the table of training images.
    published = None if _on_training_images(one.block) else one.result.row.published.get(one.model)
    stages = next((_stages(one.info(receipt)) for receipt in one.result.receipts), [])
    chart = charts.by_seconds(curves, [METRICS["r2"], METRICS["mcc"]], published.mean if published else None, stages)
    return one.name, one.setting, Markup(chart)


def _looks(info: Mapping[str, Any], name: str) -> list[Point]:
    """(seconds, value) of each look during training."""
    curve, seconds = info.get("curve"), info.get("curve_seconds")
    values = curve.get(name) if isinstance(curve, Mapping) else None
    if not (isinstance(seconds, list) and isinstance(values, list)):
        return []
    return [(at, value) for at, value in zip(seconds, values, strict=False) if is_number(at) and is_number(value)]


def _stages(info: Mapping[str, Any]) -> list[tuple[float, str]]:
    """When training went on to images of another size, and to which."""
    resolutions, looks = info.get("resolutions"), _looks(info, "step")
    begun, stages = 0, []
    for one in resolutions if isinstance(resolutions, list) else []:
        if not (isinstance(one, list) and len(one) == 2 and all(map(is_number, one))):
            return []
        # A look ends each stage and another one begins the next: the first of the two is when it ended.
        ended = [at for at, step in looks if step == begun]
        if not ended:
            return []
        stages.append((ended[0] if begun else 0.0, f"{one[0]} px"))
        begun += one[1]
    return stages


# Latents recovered


def recovery(info: Mapping[str, Any]) -> Recovery | None:
    """What a receipt holds; None if there is nothing, or nothing that could be drawn."""
    found = info.get("recovered")
    if not isinstance(found, Mapping) or not is_number(found.get("unit")):
        return None
    true, recovered = (_latents(found.get(name), found["unit"]) for name in ("true", "recovered"))
    return Recovery(true, recovered) if true and len(true) == len(recovered) else None


def _latents(rows: Any, unit: float) -> tuple[charts.Latents, ...]:
    if not isinstance(rows, list):
        return ()
    whole = [row for row in rows if isinstance(row, list) and len(row) == len(FACTORS) and all(map(is_number, row))]
    return tuple(tuple(unit * value for value in row) for row in whole) if len(whole) == len(rows) else ()


@dataclass(frozen=True)
class _Names:
    """The names of the pictures of true latents, which stand in the page once for all models."""

    known: dict[charts.Latents, str]

    def name(self, latents: charts.Latents) -> str:
        return self.known.setdefault(latents, f"original-{len(self.known) + 1}")

    @property
    def originals(self) -> Markup:
        if not self.known:
            return Markup()
        return Markup(charts.originals(list(self.known.values()), charts.drawn(tuple(self.known))))

    def view(self, one: _Trained) -> View | None:
        """Of the first seed that has something to show."""
        for receipt in one.result.receipts:
            found = recovery(one.info(receipt))
            if found is not None:
                r2 = _per_dimension(one, receipt, "r2") or [None] * len(FACTORS)
                strips, scatters = self._strips(found), _scatters(found, r2)
                return View(one.name, one.setting, receipt.seed, len(found.true), found.off, strips, scatters)
        return None

    def _strips(self, found: Recovery) -> tuple[Markup, ...]:
        made = []
        for first in range(0, min(SCENES, len(found.true)), charts.COLUMNS):
            part = slice(first, min(first + charts.COLUMNS, SCENES))
            true, recovered = found.true[part], found.recovered[part]
            names = [self.name(latents) for latents in true]
            made.append(Markup(charts.strip(names, true, recovered, FACTORS, first + 1)))
        return tuple(made)


def _scatters(found: Recovery, r2: Sequence[float | None]) -> tuple[Markup, ...]:
    made = []
    for k, factor in enumerate(FACTORS):
        points = [(a[k], b[k]) for a, b in zip(found.true, found.recovered, strict=True)]
        made.append(Markup(charts.factor_scatter(points, factor, r2[k])))
    return tuple(made)
