"""The charts of the demo's page as SVG text: small, sharp at any size, coloured by the page's own style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from identica.report.frame import Axis, Frame, Point, legend, svg, text


@dataclass(frozen=True)
class Series:
    """One curve: its name in the legend, its points, and the CSS colour class (``c1`` … ``c5``)."""

    name: str
    points: Sequence[Point]
    colour: str = "c1"
    dashed: bool = False


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
    frame = Frame(width, height, left=58, right=24, top=14)
    x_axis = Axis(min(x for x, _ in finite), max(x for x, _ in finite), *frame.across)
    y_axis = Axis(low, high, *frame.upwards)
    parts = [frame.drawn(x_axis.labels(), y_axis.labels(), x_label, y_label, upright=False)]
    if reference:
        parts.append(frame.level(y_axis(reference[0])))
        # On the left, where a curve that comes down towards the line is still far from it.
        parts.append(text(frame.left + 6, y_axis(reference[0]) - 5, reference[1], "tick"))
    for s in series:
        path = " ".join(
            f"{x_axis(x):.1f},{y_axis(min(max(y, low), high)):.1f}" for x, y in s.points if math.isfinite(y)
        )
        dash = ' stroke-dasharray="5 4"' if s.dashed else ""
        parts.append(
            f'<polyline class="curve {s.colour}"{dash} points="{path}"><title>{escape(s.name)}</title></polyline>'
        )
    keys = [(f"{s.colour}{' dashed' if s.dashed else ''}", s.name) for s in series]
    return frame.svg(parts, _in_words(series, x_label, reference)) + legend(keys)


def _in_words(series: Sequence[Series], x_label: str, reference: tuple[float, str] | None) -> str:
    """What a line chart shows, for those who do not see it: where each curve starts and ends."""
    parts = []
    for s in series:
        values = [y for _, y in s.points if math.isfinite(y)]
        if values:
            parts.append(f"{s.name} by {x_label}, from {values[0]:.3g} to {values[-1]:.3g}")
    return "; ".join(parts + ([f"{reference[1]} {reference[0]:.3g}"] if reference else []))


def scatter(points: Sequence[Point], *, x_label: str, y_label: str, note: str = "", size: int = 220) -> str:
    """A cloud of points, for one factor against one code."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    frame = Frame(size, size, left=60, right=8, top=22, bottom=38)
    x_axis, y_axis = Axis(*_padded(min(xs), max(xs)), *frame.across), Axis(*_padded(min(ys), max(ys)), *frame.upwards)
    dots = "".join(f'<circle cx="{x_axis(x):.1f}" cy="{y_axis(y):.1f}" r="1.5"/>' for x, y in points)
    parts = [
        frame.drawn(x_axis.labels(3), y_axis.labels(3), x_label, y_label, upright=False),
        f'<g class="dots">{dots}</g>',
        text(size - 8, 14, note, "note", "end"),
    ]
    return frame.svg(parts, f"{y_label} against {x_label}. {note}", "small")


def heatmap(
    matrix: Sequence[Sequence[float]], *, rows: Sequence[str], columns: Sequence[str], title: str, cell: int = 46
) -> str:
    """A matrix of numbers between 0 and 1, each cell with its value and the stronger coloured the larger it is."""
    left, top = 40, 26
    width, height = left + cell * len(columns) + 4, top + cell * len(rows) + 4
    parts = []
    for j, name in enumerate(columns):
        parts.append(text(left + cell * (j + 0.5), top - 9, name, "tick", "middle"))
    for i, name in enumerate(rows):
        y = top + cell * i
        parts.append(text(left - 8, y + cell / 2 + 4, name, "tick", "end"))
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
    return svg(width, height, parts, f"{title}, in the columns {', '.join(columns)}. {lines}", "small")


def _padded(low: float, high: float) -> tuple[float, float]:
    pad = 0.05 * (high - low) or max(abs(low) * 0.05, 0.5)
    return low - pad, high + pad
