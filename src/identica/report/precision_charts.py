"""Pictures of where Λ̂ ends: the bias that approximate pairs and wrong negatives cause, by quadrature."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Literal, NamedTuple

from identica.diagnostics import limiting_precision
from identica.diagnostics.theory import Curve, Line
from identica.report.theory_charts import HEIGHT, WIDTH, colours, curve_chart

#: The precisions of the tight block that are drawn.
TIGHT = (5.0, 7.0, 10.0, 15.0, 25.0, 40.0, 60.0, 100.0, 150.0, 250.0)


class Way(NamedTuple):
    """How positives are drawn and what the negatives are, with its name in the legend."""

    name: str
    method: Literal["exact", "shell"]
    negatives: Literal["anchors", "positives", "both"]


WAYS = (
    Way("exact pairs, other anchors as negatives", "exact", "anchors"),
    Way("shell pairs, other anchors", "shell", "anchors"),
    Way("exact pairs, other positives", "exact", "positives"),
)


def precision_bias(
    sizes: tuple[int, int] = (5, 5),
    loose: float = 5.0,
    tight: Sequence[float] = TIGHT,
    ways: Sequence[Way] = WAYS,
) -> tuple[Curve, Curve]:
    """By how many per cent Λ̂ ends off the truth in the loose and in the tight block, against the tight precision.

    At the true latents with many negatives, see :func:`identica.diagnostics.limiting_precision`.
    """
    ends = {
        way: [limiting_precision(sizes, (loose, t), method=way.method, negatives=way.negatives) for t in tight]
        for way in ways
    }

    def curve(block: int, name: str) -> Curve:
        lines = tuple(
            Line(
                way.name,
                tuple((t, _per_cent(end[block], (loose, t)[block])) for t, end in zip(tight, ends[way], strict=True)),
            )
            for way in ways
        )
        return Curve(
            f"Bias of the learned precision, {name} block of {sizes[block]} in {sum(sizes)} dimensions",
            "precision of the tight block",
            f"bias of Λ̂, {name} block, %",
            lines,
            log_x=True,
        )

    return curve(0, "loose"), curve(1, "tight")


def _per_cent(found: float, truth: float) -> float:
    return 100.0 * (found / truth - 1.0)


def standalone(curves: Sequence[Curve]) -> str:
    """Curves with the same lines side by side as one SVG file, with its colours and a legend inside."""
    lines = colours(curves[0].lines)
    height = HEIGHT + 22 * len(lines) + 10
    parts = []
    for place, curve in enumerate(curves):
        drawn = curve_chart(curve).partition("</svg>")[0]
        content = drawn.partition(">")[2]
        parts.append(f'<g transform="translate({place * WIDTH} 0)">{content}</g>')
    for row, (line, colour) in enumerate(lines):
        y = HEIGHT + 22 * row + 10
        parts.append(f'<line class="curve {colour}" x1="62" x2="92" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="label" x="102" y="{y + 4}">{escape(line.name)}</text>')
    style = (Path(__file__).parent / "templates" / "style.css").read_text(encoding="utf-8")
    dots = " ".join(f".dot.c{k} {{ fill: var(--c{k}); }}" for k in range(1, 6))
    words = escape("; ".join(curve.title for curve in curves))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * len(curves)} {height}" role="img" '
        f'aria-label="{words}"><title>{words}</title><style>{style}{dots} svg {{ background: var(--card); }}'
        "</style>"
        f"{''.join(parts)}</svg>\n"
    )
