"""The pictures of ``identica verify`` as SVG text: lines, dots and bands over linear or logarithmic axes, matrices.

They are coloured by the page's style sheet, like those of :mod:`identica.report.charts`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from identica.diagnostics.theory import Curve, Line, Matrix
from identica.report.frame import SUPERSCRIPTS, Axis, Frame, Point, Tick, legend, number, svg, text

WIDTH, HEIGHT = 480, 300
FRAME = Frame(WIDTH, HEIGHT, left=62)


@dataclass(frozen=True)
class Scale:
    """An axis of a picture, linear or logarithmic: where a value is drawn, and which values get a label."""

    axis: Axis
    log: bool

    @staticmethod
    def of(values: Sequence[float], log: bool, start: float, length: float) -> Scale:
        """An axis that just holds the values, with a little room."""
        seen = [math.log10(v) for v in values if v > 0] if log else [v for v in values if math.isfinite(v)]
        low, high = (min(seen), max(seen)) if seen else (0.0, 1.0)
        room = 0.04 * (high - low) or 0.5
        return Scale(Axis(low - room, high + room, start, length), log)

    def as_long_as(self, other: Scale) -> Scale:
        """This axis with its middle kept and a unit as long as on the other one."""
        middle, axis = (self.axis.low + self.axis.high) / 2, other.axis
        half = (axis.high - axis.low) * abs(self.axis.length / axis.length) / 2
        return Scale(Axis(middle - half, middle + half, self.axis.start, self.axis.length), self.log)

    def __call__(self, value: float) -> float:
        """Page coordinate of a value; one that a logarithm cannot show is drawn at the lower end."""
        if self.log:
            value = math.log10(value) if value > 0 else self.axis.low
        return self.axis(min(max(value, self.axis.low), self.axis.high))

    def labels(self) -> list[Tick]:
        """Where labels stand, and what they say."""
        if not self.log:
            return self.axis.labels()
        decades = range(math.ceil(self.axis.low), math.floor(self.axis.high) + 1)
        if len(decades) < 3:  # so short an axis has room for 1, 2, 5, 10, 20 and so on
            values = [
                base * 10.0**power
                for power in range(math.floor(self.axis.low), math.ceil(self.axis.high) + 1)
                for base in (1, 2, 5)
            ]
            return [(self(v), number(v)) for v in values if self.axis.low <= math.log10(v) <= self.axis.high]
        every = max(1, math.ceil(len(decades) / 5))
        return [(self.axis(power), _decade(power)) for power in decades if power % every == 0]


def _decade(power: int) -> str:
    return number(10.0**power) if -3 <= power <= 4 else "10" + str(power).translate(SUPERSCRIPTS)


def picture(curve: Curve | Matrix) -> str:
    """The picture of a check, with its legend."""
    return matrix_chart(curve) if isinstance(curve, Matrix) else curve_chart(curve)


def curve_chart(curve: Curve) -> str:
    """Lines, dots and a band over two axes."""
    points = [point for line in curve.lines for point in line.points]
    heights = [y for _, y in points] + (list(curve.band[:2]) if curve.band else [])
    x = Scale.of([x for x, _ in points], curve.log_x, *FRAME.across)
    y = Scale.of(heights, curve.log_y, *FRAME.upwards)
    if curve.equal:
        x = x.as_long_as(y)
    parts = [FRAME.drawn(x.labels(), y.labels(), curve.x_label, curve.y_label)]
    if curve.band:
        low, high, name = curve.band
        start, length = FRAME.across
        parts.append(
            f'<rect class="band" x="{start}" width="{length}" y="{y(high):.1f}" '
            f'height="{max(y(low) - y(high), 1):.1f}"/>' + text(start + length - 6, y(high) - 5, name, "tick", "end")
        )
    coloured = colours(curve.lines)
    parts += [_drawn(line, colour, x, y) for line, colour in coloured]
    keys = [(f"{colour} {line.kind}", line.name) for line, colour in coloured if line.name]
    return FRAME.svg(parts, _in_words(curve)) + legend(keys)


def colours(lines: Sequence[Line]) -> list[tuple[Line, str]]:
    """Each line with its colour; a dashed one has that of the line it goes with, before all others that of the axes."""
    colour, coloured = 0, []
    for line in lines:
        colour += line.kind != "dashed"
        coloured.append((line, f"c{(colour - 1) % 5 + 1}" if colour else "reference"))
    return coloured


def _drawn(line: Line, colour: str, x: Scale, y: Scale) -> str:
    places = [(x(a), y(b)) for a, b in line.points if math.isfinite(a) and math.isfinite(b)]
    title = f"<title>{escape(line.name)}</title>" if line.name else ""
    if line.kind == "dots":
        size = 3.4 if len(places) < 40 else 2.6 if len(places) < 200 else 1.7
        return "".join(
            f'<circle class="dot {colour}" cx="{a:.1f}" cy="{b:.1f}" r="{size}">{title}</circle>' for a, b in places
        )
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
    dashed = ' stroke-dasharray="5 4"' if line.kind == "dashed" else ""
    curve = f'<polyline class="curve {colour}"{dashed} points="{path}">{title}</polyline>'
    if line.kind == "line" and len(places) < 20:
        curve += "".join(f'<circle class="dot {colour}" cx="{a:.1f}" cy="{b:.1f}" r="2.6"/>' for a, b in places)
    return curve


def matrix_chart(matrix: Matrix) -> str:
    """Each entry in a cell, the stronger coloured the larger it is."""
    largest = max((abs(v) for row in matrix.values for v in row), default=0.0) or 1.0
    left, top, wide, tall = 14 + 7 * max(map(len, matrix.rows)), 28, 78, 46
    width, height = left + wide * len(matrix.columns), top + tall * len(matrix.rows)
    parts = []
    for j, name in enumerate(matrix.columns):
        parts.append(text(left + wide * (j + 0.5), top - 10, name, "tick", "middle"))
    for i, (name, row) in enumerate(zip(matrix.rows, matrix.values, strict=True)):
        y = top + tall * i
        parts.append(text(left - 8, y + 27, name, "tick", "end"))
        for j, value in enumerate(row):
            x = left + wide * j
            parts.append(
                f'<rect class="cell" x="{x}" y="{y}" width="{wide - 3}" height="{tall - 3}" rx="5" '
                f'fill-opacity="{abs(value) / largest:.3f}"/>'
                + text(x + wide / 2 - 1, y + 27, f"{value:.3f}", "value", "middle")
            )
    rows = (f"{n}: {', '.join(f'{v:.3f}' for v in r)}" for n, r in zip(matrix.rows, matrix.values, strict=True))
    words = f"{matrix.title}. Columns {', '.join(matrix.columns)}. {'; '.join(rows)}"
    return svg(width, height, parts, words, "small")


def _in_words(curve: Curve) -> str:
    """What the picture shows, for those who do not see it."""

    def ends(points: Sequence[Point]) -> str:
        return f"from {points[0][1]:.3g} to {points[-1][1]:.3g}" if points else "empty"

    named = [f"{line.name} {ends(line.points)}" for line in curve.lines if line.name]
    band = [f"{curve.band[2]} between {curve.band[0]:.3g} and {curve.band[1]:.3g}"] if curve.band else []
    return f"{curve.title}: {curve.y_label} by {curve.x_label}. " + "; ".join(named + band)
