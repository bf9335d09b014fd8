"""What every chart stands in: axes with their ticks, the frame around the data, and the svg with its words.

Colours come from CSS classes, so one chart serves the light and the dark page. Nothing here needs a
browser library or a network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]
#: Where a label stands, and what it says.
Tick = tuple[float, str]

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


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

    def labels(self, count: int = 5) -> list[Tick]:
        """About ``count`` round numbers at their places."""
        return [(self(value), number(value)) for value in ticks(self.low, self.high, count)]


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


@dataclass(frozen=True)
class Frame:
    """Where a picture's data are drawn: its outer size and its margins."""

    width: float
    height: float
    left: float = 50
    right: float = 16
    top: float = 12
    bottom: float = 44

    @property
    def across(self) -> tuple[float, float]:
        """Start and length of the horizontal axis."""
        return self.left, self.width - self.left - self.right

    @property
    def upwards(self) -> tuple[float, float]:
        """Start and length of the vertical axis, which runs up the page."""
        return self.height - self.bottom, -(self.height - self.bottom - self.top)

    def drawn(self, x: Sequence[Tick], y: Sequence[Tick], x_label: str, y_label: str, upright: bool = True) -> str:
        """Grid lines with their labels, and the names of the axes; ``upright``: with lines for the ticks of x, too."""
        right, bottom = self.width - self.right, self.height - self.bottom
        parts = []
        for at, label in y:
            parts.append(f'<line class="grid" x1="{self.left}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>')
            parts.append(text(self.left - 6, at + 4, label, "tick", "end"))
        for at, label in x:
            if upright:
                parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{self.top}" y2="{bottom}"/>')
            parts.append(text(at, bottom + 16, label, "tick", "middle"))
        parts.append(f'<line class="axis" x1="{self.left}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
        parts.append(text((self.left + right) / 2, self.height - 8, x_label, "label", "middle"))
        if y_label:
            parts.append(sideways((bottom + self.top) / 2, y_label))
        return "".join(parts)

    def level(self, at: float, title: str = "") -> str:
        """A dotted line across, at a page coordinate."""
        said = f"<title>{escape(title)}</title>" if title else ""
        ends = f'x1="{self.left}" x2="{self.width - self.right}"'
        return f'<line class="reference" {ends} y1="{at:.1f}" y2="{at:.1f}">{said}</line>'

    def svg(self, parts: Sequence[str], words: str, kind: str = "wide") -> str:
        """The picture; ``words`` say what it shows to those who do not see it."""
        return svg(self.width, self.height, parts, words, kind)


def svg(width: float, height: float, parts: Sequence[str], words: str, kind: str = "wide") -> str:
    """A picture of that size; on a small screen the words in a ``wide`` one grow more than those in a ``small`` one."""
    return (
        f'<svg class="{kind}" viewBox="0 0 {width:g} {height:g}" style="max-width:{width:g}px" '
        f'role="img" aria-label="{escape(words)}">' + "".join(parts) + "</svg>"
    )


def text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    """Words at a place."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def sideways(middle: float, words: str) -> str:
    """Words along the left edge, running upwards."""
    turned = f'transform="rotate(-90 12 {middle:.1f})" x="12" y="{middle:.1f}"'
    return f'<text class="label" {turned} text-anchor="middle">{escape(words)}</text>'


def legend(keys: Sequence[tuple[str, str]]) -> str:
    """The names of what is drawn, each with the class of its swatch: ``("c1 dashed", "InfoNCE, style")``."""
    items = (f'<span class="key"><i class="swatch {kind}"></i>{escape(name)}</span>' for kind, name in keys)
    return f'<div class="legend">{"".join(items)}</div>'
