"""Charts as SVG text: small, sharp at any size, coloured by the page's own style sheet.

Colours come from CSS classes, so one chart serves the light and the dark page. Nothing here needs a
browser library or a network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]

#: Margins of a line chart, beside its axes.
LEFT, RIGHT = 58, 24


@dataclass(frozen=True)
class Series:
    """One curve: its name in the legend, its points, and the CSS colour class (``c1`` … ``c5``)."""

    name: str
    points: Sequence[Point]
    colour: str = "c1"
    dashed: bool = False


@dataclass(frozen=True)
class Axis:
    """A linear axis: the data's range, the length it is drawn with, and where it starts on the page."""

    low: float
    high: float
    start: float
    length: float

    def __call__(self, value: float) -> float:
        """Page coordinate of a data value."""
        span = self.high - self.low or 1.0
        return self.start + self.length * (value - self.low) / span


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About ``count`` round numbers between ``low`` and ``high``.

    >>> ticks(0.0, 0.97)
    [0.0, 0.2, 0.4, 0.6, 0.8]
    """
    span = high - low
    if not (math.isfinite(span) and span > 0):
        return [low] if math.isfinite(low) else []
    power = 10.0 ** math.floor(math.log10(span / count))
    step = next(power * m for m in (1.0, 2.0, 2.5, 5.0, 10.0) if span / (power * m) <= count + 0.5)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def number(value: float) -> str:
    """A short form of a tick's value: 12000 -> 12k.

    >>> number(12000.0), number(0.25), number(-3.0)
    ('12k', '0.25', '−3')
    """
    if abs(value) >= 10_000:
        return number(value / 1000) + "k"
    return f"{value:.6g}".replace("-", "−")


def line_chart(
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    reference: tuple[float, str] | None = None,
    y_range: tuple[float, float] | None = None,
    width: int = 480,
    height: int = 280,
) -> str:
    """Curves over a common axis; ``reference`` is a horizontal line with a label."""
    finite = [p for s in series for p in s.points if all(map(math.isfinite, p))]
    if not finite:
        return '<p class="muted">No points to draw.</p>'
    values = [y for _, y in finite] + ([reference[0]] if reference else [])
    low, high = y_range or _padded(min(values), max(values))
    x_axis = Axis(min(x for x, _ in finite), max(x for x, _ in finite), LEFT, width - LEFT - RIGHT)
    y_axis = Axis(low, high, height - 44, -(height - 44 - 14))
    parts = [_frame(x_axis, y_axis, width, height, x_label, y_label)]
    if reference:
        y = y_axis(reference[0])
        parts.append(f'<line class="reference" x1="{x_axis.start}" x2="{width - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        # On the left, where a curve that comes down towards the line is still far from it.
        parts.append(f'<text class="tick" x="{x_axis.start + 6}" y="{y - 5:.1f}">{escape(reference[1])}</text>')
    for s in series:
        path = " ".join(
            f"{x_axis(x):.1f},{y_axis(min(max(y, low), high)):.1f}" for x, y in s.points if math.isfinite(y)
        )
        dash = ' stroke-dasharray="5 4"' if s.dashed else ""
        parts.append(
            f'<polyline class="curve {s.colour}"{dash} points="{path}"><title>{escape(s.name)}</title></polyline>'
        )
    return _svg(width, height, parts, _in_words(series, x_label, reference), "wide") + legend(series)


def _in_words(series: Sequence[Series], x_label: str, reference: tuple[float, str] | None) -> str:
    """What a line chart shows, for those who do not see it: where each curve starts and ends."""
    parts = []
    for s in series:
        values = [y for _, y in s.points if math.isfinite(y)]
        if values:
            parts.append(f"{s.name} by {x_label}, from {values[0]:.3g} to {values[-1]:.3g}")
    return "; ".join(parts + ([f"{reference[1]} {reference[0]:.3g}"] if reference else []))


def legend(series: Sequence[Series]) -> str:
    """The names of the curves, each with its colour."""
    items = "".join(
        f'<span class="key"><i class="swatch {s.colour}{" dashed" if s.dashed else ""}"></i>{escape(s.name)}</span>'
        for s in series
    )
    return f'<div class="legend">{items}</div>'


def scatter(points: Sequence[Point], *, x_label: str, y_label: str, note: str = "", size: int = 220) -> str:
    """A cloud of points, for one factor against one code."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    x_axis = Axis(*_padded(min(xs), max(xs)), 60, size - 60 - 8)
    y_axis = Axis(*_padded(min(ys), max(ys)), size - 38, -(size - 38 - 22))
    dots = "".join(f'<circle cx="{x_axis(x):.1f}" cy="{y_axis(y):.1f}" r="1.5"/>' for x, y in points)
    parts = [
        _frame(x_axis, y_axis, size, size, x_label, y_label, count=3),
        f'<g class="dots">{dots}</g>',
        f'<text class="note" x="{size - 8}" y="14" text-anchor="end">{escape(note)}</text>',
    ]
    return _svg(size, size, parts, f"{y_label} against {x_label}. {note}")


def heatmap(
    matrix: Sequence[Sequence[float]], *, rows: Sequence[str], columns: Sequence[str], title: str, cell: int = 46
) -> str:
    """A matrix of numbers between 0 and 1, each cell with its value and the stronger coloured the larger it is."""
    left, top = 40, 26
    width, height = left + cell * len(columns) + 4, top + cell * len(rows) + 4
    parts = []
    for j, name in enumerate(columns):
        parts.append(
            f'<text class="tick" x="{left + cell * (j + 0.5)}" y="{top - 9}" text-anchor="middle">{escape(name)}</text>'
        )
    for i, name in enumerate(rows):
        y = top + cell * i
        parts.append(
            f'<text class="tick" x="{left - 8}" y="{y + cell / 2 + 4}" text-anchor="end">{escape(name)}</text>'
        )
        for j, value in enumerate(matrix[i]):
            x, strong = left + cell * j, " strong" if value > 0.55 else ""
            parts.append(
                f"<g><title>{escape(name)}, {escape(columns[j])}: {value:.4f}</title>"
                f'<rect class="cell" x="{x}" y="{y}" width="{cell - 2}" height="{cell - 2}" rx="4" '
                f'fill-opacity="{min(max(value, 0.0), 1.0):.3f}"/>'
                f'<text class="value{strong}" x="{x + cell / 2 - 1}" y="{y + cell / 2 + 4}" '
                f'text-anchor="middle">{value:.2f}</text></g>'
            )
    lines = "; ".join(f"{name}: {', '.join(f'{v:.2f}' for v in matrix[i])}" for i, name in enumerate(rows))
    return _svg(width, height, parts, f"{title}, in the columns {', '.join(columns)}. {lines}")


def _padded(low: float, high: float) -> tuple[float, float]:
    pad = 0.05 * (high - low) or max(abs(low) * 0.05, 0.5)
    return low - pad, high + pad


def _frame(x_axis: Axis, y_axis: Axis, width: int, height: int, x_label: str, y_label: str, count: int = 5) -> str:
    """Grid lines, tick labels and axis titles."""
    right, bottom = x_axis.start + x_axis.length, y_axis.start
    parts = []
    for value in ticks(y_axis.low, y_axis.high, count):
        y = y_axis(value)
        parts.append(f'<line class="grid" x1="{x_axis.start}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{x_axis.start - 6}" y="{y + 4:.1f}" text-anchor="end">{number(value)}</text>'
        )
    for value in ticks(x_axis.low, x_axis.high, count):
        x = x_axis(value)
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{bottom + 15:.1f}" text-anchor="middle">{number(value)}</text>'
        )
    middle = (x_axis.start + right) / 2
    parts.append(f'<line class="axis" x1="{x_axis.start}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    parts.append(f'<text class="label" x="{middle}" y="{height - 6}" text-anchor="middle">{escape(x_label)}</text>')
    centre = bottom + y_axis.length / 2
    parts.append(
        f'<text class="label" transform="rotate(-90 12 {centre:.1f})" x="12" y="{centre:.1f}" '
        f'text-anchor="middle">{escape(y_label)}</text>'
    )
    return "".join(parts)


def _svg(width: float, height: float, parts: Sequence[str], title: str, kind: str = "small") -> str:
    return (
        f'<svg class="{kind}" viewBox="0 0 {width} {height}" style="max-width:{width}px" '
        f'role="img" aria-label="{escape(title)}">' + "".join(parts) + "</svg>"
    )
