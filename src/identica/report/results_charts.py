"""The pictures of the page of results, as SVG text coloured by the page's style sheet.

Scores near 100 % differ in their nines, so most axes here are drawn by −log₁₀(1 − score): from 90 to 99 is as far
as from 99 to 99.9.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from identica.experiments.receipts.verdicts import COLLAPSED, FAR_OUT, HIGH
from identica.report.frame import SUPERSCRIPTS, Axis, Frame, Point, Tick, text
from identica.report.results import hours_text

#: Scores in percent that an axis of nines may label.
NINES = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999)
#: A bar is at least so wide, that it can be seen.
_BAR = 6.0
#: Times that a logarithmic axis may label.
TIMES = ((1, "1 s"), (60, "1 min"), (3600, "1 h"), (36e3, "10 h"), (36e4, "100 h"), (36e5, "1,000 h"))


@dataclass(frozen=True)
class Nines:
    """An axis for scores in percent on which every further nine takes as much room as the one before."""

    axis: Axis

    @staticmethod
    def up_to(best: float, start: float, length: float) -> Nines:
        """From 0 to a little beyond the best score, which is at least 99 and counts at most as 99.9995."""
        return Nines(Axis(0.0, _nines(min(max(best, 99.0), 99.9995)) + 0.25, start, length))

    def __call__(self, score: float) -> float:
        """Page coordinate of a score; what is below 0 or beyond the end is drawn at the end."""
        return self.axis(min(_nines(score), self.axis.high))

    def labels(self) -> list[Tick]:
        """Where labels stand, and what they say."""
        return [(self(score), f"{score:g}") for score in NINES if _nines(score) <= self.axis.high]


def _nines(score: float) -> float:
    """The number of nines: 0 at 0 %, 2 at 99 %."""
    return -math.log10(1.0 - min(max(score, 0.0), 99.9999) / 100.0)


# Ours and the paper's


@dataclass(frozen=True)
class Pair:
    """A row for :func:`comparison`: its name, our scores seed by seed, the paper's mean and deviation; in percent."""

    name: str
    ours: Sequence[float]
    published: tuple[float, float] | None


def comparison(pairs: Sequence[Pair], metric: str) -> str:
    """A line for each row: our seeds as dots, the paper's mean as a tick in a bar of one deviation either way."""
    tall, frame = 24, Frame(480, 24 * len(pairs) + 60, left=44, right=20)
    scores = [score for pair in pairs for score in pair.ours]
    scores += [pair.published[0] for pair in pairs if pair.published]
    if not scores:
        return '<p class="muted">Nothing to draw yet.</p>'
    x = Nines.up_to(max(scores), *frame.across)
    rows = [(frame.top + tall * (i + 0.5), pair) for i, pair in enumerate(pairs)]
    parts = [frame.drawn(x.labels(), [(at, pair.name) for at, pair in rows], f"{metric} [%]", "")]
    said = []
    for at, pair in rows:
        drawn, words = "", []
        if pair.published:
            mean, sd = pair.published
            low, high = x(mean - sd), x(mean + sd)
            drawn += f'<rect class="paper" x="{low:.1f}" width="{max(high - low, 2):.1f}" y="{at - 7}" height="14"/>'
            drawn += f'<line class="paper" x1="{x(mean):.1f}" x2="{x(mean):.1f}" y1="{at - 8}" y2="{at + 8}"/>'
            words.append(f"paper {mean:.2f} ± {sd:.2f}")
        drawn += "".join(f'<circle class="dot c1" cx="{x(score):.1f}" cy="{at}" r="3.6"/>' for score in pair.ours)
        if pair.ours:
            words.append("ours " + ", ".join(f"{score:.2f}" for score in pair.ours))
        said.append(f"row {pair.name}: {'; '.join(words) or 'not run'}")
        parts.append(f"<g><title>{escape(said[-1])}</title>{drawn}</g>")
    return frame.svg(parts, f"{metric} in percent, ours and the paper's. " + ". ".join(said))


# Learning curves

#: A seed, and its (step, score as a fraction) in the order of steps.
Curve = tuple[int, Sequence[Point]]


def learning(seeds: Sequence[Sequence[Curve]], metrics: Sequence[str], published: float | None, best: float) -> str:
    """Score by step, one thin line for each seed.

    ``seeds[k]`` are the curves of metric k; the first metric is the one that counts, and ``published`` the paper's
    figure for it in percent. ``best`` is the score up to which the axis goes, the same for pictures side by side.
    """
    points = [point for curves in seeds for _, curve in curves for point in curve]
    if not points:
        return '<p class="muted">No learning curve was recorded.</p>'
    frame = Frame(300, 200, left=46, right=12, top=10, bottom=40)
    x, y = Axis(0.0, max(step for step, _ in points), *frame.across), Nines.up_to(best, *frame.upwards)
    parts = [frame.drawn(x.labels(3), y.labels(), "step", "")]
    if published is not None:
        parts.append(frame.level(y(published), f"paper {published:.2f}"))
    said = []
    for k in reversed(range(len(metrics))):  # the one that counts is drawn on top
        for seed, curve in seeds[k]:
            path = " ".join(f"{x(step):.1f},{y(100 * score):.1f}" for step, score in curve)
            name = f"{metrics[k]}, seed {seed}"
            parts.append(f'<polyline class="thin c{k + 1}" points="{path}"><title>{name}</title></polyline>')
        ends = [100 * curve[-1][1] for _, curve in seeds[k] if curve]
        if ends:
            said.append(f"{metrics[k]} ends between {min(ends):.2f} and {max(ends):.2f} percent")
    paper = [] if published is None else [f"the paper has {published:.2f}"]
    return frame.svg(
        parts,
        f"{len(seeds[0])} seed{'' if len(seeds[0]) == 1 else 's'} by step: {'; '.join(said[::-1] + paper)}",
        "small",
    )


# A figure redrawn


@dataclass(frozen=True)
class FigurePoint:
    """Where on a curve, the mass to move in percent if it is known, and our scores seed by seed in percent."""

    x: float
    mass: float | None
    scores: Sequence[float]


def figure(points: Sequence[FigurePoint], reference: float, metric: str, x_label: str, described: bool) -> str:
    """Score and transported mass against concentration (a power of two), a vertical line at that of the pairs.

    ``described``: mark the paper's trend: high up to a quarter of the pairs' concentration, low at the far end.
    """
    frame = Frame(480, 300)
    powers = [math.log2(point.x) for point in points] + [math.log2(reference)]
    low, high = min(powers), max(powers)
    room = 0.03 * (high - low) or 0.5
    x, y = Axis(low - room, high + room, *frame.across), Axis(-2.0, 104.0, *frame.upwards)
    every = 2 if high - low <= 20 else 4
    marks = [(x(p), "2" + str(p).translate(SUPERSCRIPTS)) for p in range(math.ceil(low), math.floor(high) + 1)]
    marks = marks[(-math.ceil(low)) % every :: every]
    parts = [frame.drawn(marks, [(y(v), f"{v}") for v in (0, 25, 50, 75, 100)], x_label, "percent")]
    if described:
        parts.append(_described(x, y, low, high, math.log2(reference)))
    at = x(math.log2(reference))
    parts.append(f'<line class="pairs" x1="{at:.1f}" x2="{at:.1f}" y1="{frame.top}" y2="{frame.upwards[0]}">')
    parts.append(f"<title>the pairs: {reference:g}</title></line>")
    masses = [(x(math.log2(p.x)), y(p.mass)) for p in points if p.mass is not None]
    means = [(x(math.log2(p.x)), y(sum(p.scores) / len(p.scores))) for p in points if p.scores]
    parts.append(_line(masses, "curve c2", "mass to move") + _line(means, "curve c1", f"{metric}, mean over seeds"))
    for p in points:
        name = f"{x_label} {p.x:g}: " + (", ".join(f"{score:.2f}" for score in p.scores) or "not run")
        dots = (f'<circle class="dot c1" cx="{x(math.log2(p.x)):.1f}" cy="{y(s):.1f}" r="3"/>' for s in p.scores)
        parts.append(f"<g><title>{escape(name)}</title>{''.join(dots)}</g>")
    said = [f"at {p.x:g} {metric} {sum(p.scores) / len(p.scores):.2f}" for p in points if p.scores]
    words = f"{metric} and mass to move by {x_label}; the pairs are at {reference:g}. {'; '.join(said) or 'Not run'}."
    return frame.svg(parts, words)


def _described(x: Axis, y: Axis, low: float, high: float, reference: float) -> str:
    """The trend that the paper describes, as the verdict reads it."""
    until = reference + math.log2(FAR_OUT)
    parts = []
    if low < until:
        parts.append(
            f'<rect class="described" x="{x(low):.1f}" width="{x(until) - x(low):.1f}" y="{y(104.0):.1f}" '
            f'height="{y(HIGH) - y(104.0):.1f}"><title>described: stays above {HIGH:g}</title></rect>'
        )
    if reference < high:
        parts.append(
            f'<rect class="described" x="{x(high) - 5:.1f}" width="10" y="{y(COLLAPSED):.1f}" '
            f'height="{y(0.0) - y(COLLAPSED):.1f}"><title>described: falls; here, below {COLLAPSED:g} at '
            "the far end</title></rect>"
        )
    return "".join(parts)


def _line(places: Sequence[Point], kind: str, name: str) -> str:
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
    return f'<polyline class="{kind}" points="{path}"><title>{escape(name)}</title></polyline>' if path else ""


# What it took


@dataclass(frozen=True)
class Spent:
    """Our seconds for something, and the authors' from … to …, in seconds too."""

    name: str
    ours: float
    authors: tuple[float, float]


def spent_chart(items: Sequence[Spent]) -> str:
    """Time on a logarithmic axis: ours a dot, the authors' a bar, however short. What took no time is left out."""
    items = [item for item in items if item.ours > 0]
    if not items:
        return '<p class="muted">Nothing to draw yet.</p>'
    tall, frame = 44, Frame(480, 44 * len(items) + 56, left=28, right=30, top=8)
    longest = max(item.authors[1] for item in items)
    shortest = min([60.0, *(item.ours for item in items)])
    x = Axis(math.log10(shortest), math.log10(longest) + 0.1, *frame.across)

    def place(seconds: float) -> float:
        return x(math.log10(max(seconds, shortest)))

    marks = [(place(seconds), label) for seconds, label in TIMES if shortest <= seconds <= longest]
    parts = [frame.drawn(marks, [], "time on one device", "")]
    said = []
    for i, item in enumerate(items):
        at = frame.top + tall * (i + 0.66)
        low, high = (place(seconds) for seconds in item.authors)
        start, wide = min(low, (low + high - _BAR) / 2), max(high - low, _BAR)
        hours = hours_text((item.authors[0] / 3600, item.authors[1] / 3600))
        said.append(f"{item.name}: ours {item.ours:,.1f} s, the authors {hours} h")
        parts.append(
            f"<g><title>{escape(said[-1])}</title>{text(frame.left, at - 13, item.name, 'tick')}"
            f'<line class="between" x1="{place(item.ours):.1f}" x2="{start:.1f}" y1="{at}" y2="{at}"/>'
            f'<rect class="paper" x="{start:.1f}" width="{wide:.1f}" y="{at - 6}" height="12"/>'
            f'<circle class="dot c1" cx="{place(item.ours):.1f}" cy="{at}" r="5"/></g>'
        )
    return frame.svg(parts, ". ".join(said))
