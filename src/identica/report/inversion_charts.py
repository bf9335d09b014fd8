"""Pictures of models that invert a scene: true against recovered factors, scenes drawn again, scores by seconds."""

from __future__ import annotations

import base64
import functools
import io
from collections.abc import Sequence
from html import escape

import torch

from identica.render import ThreeDIdentScene
from identica.report.frame import Axis, Frame, Point, number, sideways, text, ticks
from identica.report.results_charts import Curve, Nines

#: Pixels along each side of a picture, and the room that it takes with the gap beside it.
TILE, PITCH = 96, 100
#: Pictures side by side; on a phone the next ones stand below.
COLUMNS = 4
#: Beyond the factors' own range by so much a recovered value is still drawn where it is.
_REACH = 1.3
#: A label of a stage needs this much room.
_LABEL = 36

Latents = tuple[float, ...]


# Factors


def factor_scatter(points: Sequence[Point], name: str, r2: float | None) -> str:
    """Recovered against true values of one factor in [−1, 1], with the diagonal on which they would be equal."""
    frame = Frame(190, 196, left=40, right=8, top=24, bottom=38)
    x, y = Axis(-1.1, 1.1, *frame.across), Axis(-_REACH, _REACH, *frame.upwards)
    marks = (-1.0, 0.0, 1.0)
    parts = [frame.drawn([(x(v), number(v)) for v in marks], [(y(v), number(v)) for v in marks], "true", "recovered")]
    parts.append(f'<line class="reference" x1="{x(-1):.1f}" y1="{y(-1):.1f}" x2="{x(1):.1f}" y2="{y(1):.1f}"/>')
    places = (f"M{x(a):.1f} {y(min(max(b, -_REACH), _REACH)):.1f}h0" for a, b in points)
    parts.append(f'<path class="specks" d="{"".join(places)}"/>')
    score = "" if r2 is None else f"R² {100 * r2:.1f}".replace("-", "−")
    parts += [text(8, 14, name, "note"), text(frame.width - frame.right, 14, score, "tick", "end")]
    off = sum(abs(b - a) for a, b in points) / len(points)
    words = f"{name}, recovered against true, {len(points)} latents, off by {off:.3f} on average. {score}"
    return frame.svg(parts, words.strip(), "small")


# Scenes


@functools.lru_cache(maxsize=1)
def _scene() -> ThreeDIdentScene:
    return ThreeDIdentScene(resolution=TILE)


def drawn(latents: tuple[Latents, ...]) -> tuple[str, ...]:
    """Pictures of latents, each as the address of a PNG file inside the page; values beyond [−1, 1] at the end."""
    from PIL import Image

    addresses = []
    for pixels in _scene().render(torch.tensor(latents).clamp(-1.0, 1.0)).permute(0, 2, 3, 1).numpy():
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, format="PNG", optimize=True)
        addresses.append(f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}")
    return tuple(addresses)


def _tile(address: str, attributes: str) -> str:
    return f'<image {attributes} width="{TILE}" height="{TILE}" href="{address}"/>'


def originals(names: Sequence[str], addresses: Sequence[str]) -> str:
    """Pictures that stand in the page once and are shown elsewhere, by their names; nothing to be seen here."""
    images = (_tile(address, f'id="{name}"') for name, address in zip(names, addresses, strict=True))
    hidden = 'style="position:absolute;width:0;height:0" aria-hidden="true"'
    return f"<svg {hidden}><defs>{''.join(images)}</defs></svg>"


def strip(
    names: Sequence[str], true: Sequence[Latents], recovered: Sequence[Latents], factors: Sequence[str], first: int
) -> str:
    """Scenes above, by the names of their pictures, and below what is drawn from the latents recovered of them.

    ``first`` is the number of the first one.
    """
    left = 20
    frame = Frame(left + PITCH * len(names), 2 * PITCH)
    parts = [sideways(TILE / 2, "original"), sideways(PITCH + TILE / 2, "recovered")]
    said = []
    for k, address in enumerate(drawn(tuple(recovered))):
        x = left + PITCH * k
        values = [f"{factor} {a:.2f} → {b:.2f}" for factor, a, b in zip(factors, true[k], recovered[k], strict=True)]
        said.append(f"scene {first + k}, {_errors(true[k], recovered[k], factors)}")
        tile = _tile(address, f'x="{x}" y="{PITCH}"')
        parts.append(f'<g><title>{escape(", ".join(values))}</title><use href="#{names[k]}" x="{x}" y="0"/>{tile}</g>')
    return frame.svg(parts, f"Originals above, below drawn from the latents recovered: {'; '.join(said)}", "small")


def _errors(true: Latents, recovered: Latents, factors: Sequence[str]) -> str:
    errors = [abs(b - a) for a, b in zip(true, recovered, strict=True)]
    worst = max(range(len(errors)), key=errors.__getitem__)
    return f"off by {sum(errors) / len(errors):.2f} on average, {errors[worst]:.2f} in {factors[worst]}"


# Seconds


def by_seconds(
    seeds: Sequence[Sequence[Curve]],
    metrics: Sequence[str],
    published: float | None,
    stages: Sequence[tuple[float, str]],
) -> str:
    """Score by seconds of training, one thin line for each seed; ``seeds[k]`` are the curves of metric k.

    published: the paper's figure for the first metric, in percent. stages: when each began, and what it is called.
    """
    frame = Frame(300, 214, left=46, right=12, top=24, bottom=40)
    points = [point for curves in seeds for _, curve in curves for point in curve]
    longest, best = max(seconds for seconds, _ in points), max(100 * score for _, score in points)
    x, y = Axis(0.0, longest, *frame.across), Nines.up_to(max(best, published or 0.0), *frame.upwards)
    parts = [frame.drawn([(x(s), number(s)) for s in ticks(0.0, longest, 4)], y.labels(), "seconds of training", "")]
    parts += _stages([(x(min(at, longest)), name) for at, name in stages], frame)
    if published is not None:
        parts.append(frame.level(y(published), f"paper {published:.2f}"))
    said = []
    for k in reversed(range(len(metrics))):
        for seed, curve in seeds[k]:
            path = " ".join(f"{x(seconds):.1f},{y(100 * score):.1f}" for seconds, score in curve)
            name = f"{metrics[k]}, seed {seed}"
            parts.append(f'<polyline class="thin c{k + 1}" points="{path}"><title>{name}</title></polyline>')
            said.append(f"{name} ends at {100 * curve[-1][1]:.2f} percent after {curve[-1][0]:.0f} seconds")
    paper = [] if published is None else [f"the paper has {published:.2f}"]
    return frame.svg(parts, "; ".join(said[::-1] + paper), "small")


def _stages(stages: Sequence[tuple[float, str]], frame: Frame) -> list[str]:
    """A line where each stage begins, and its name above where there is room."""
    parts, bottom = [], frame.height - frame.bottom
    ends = [at for at, _ in stages[1:]] + [frame.width - frame.right]
    for (at, name), end in zip(stages, ends, strict=False):  # without any stage there is still the end
        parts.append(
            f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="8" y2="{bottom}"><title>{name}</title></line>'
        )
        if end - at >= _LABEL:
            parts.append(text(at + 3, 17, name, "tick"))
    return parts
