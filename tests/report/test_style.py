"""The style sheet: text can be read on what it is written on, in the light and in the dark page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import identica.report

STYLE = (Path(identica.report.__file__).parent / "templates" / "style.css").read_text(encoding="utf-8")
ENOUGH = 4.5  # the contrast that the accessibility guidelines ask of small text (WCAG 2, level AA)

Colour = tuple[float, ...]


def palette(theme: str) -> dict[str, Colour]:
    """The colours of a theme, by name, each as red, green, blue between 0 and 1."""
    light, dark = re.findall(r":root \{(.*?)\}", STYLE, flags=re.DOTALL)
    pairs = re.findall(r"--(\w+): #(\w{6})", light if theme == "light" else light + dark)
    return {name: tuple(int(code[i : i + 2], 16) / 255 for i in (0, 2, 4)) for name, code in pairs}


def luminance(colour: Colour) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(a: Colour, b: Colour) -> float:
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


def test_contrast_of_known_colours() -> None:
    assert contrast((0, 0, 0), (1, 1, 1)) == pytest.approx(21.0)
    assert contrast((1, 0, 0), (1, 1, 1)) == pytest.approx(4.0, abs=0.01)  # a value often quoted


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read(theme: str) -> None:
    colours = palette(theme)
    for text in ("ink", "muted"):
        for ground in ("paper", "card"):
            assert contrast(colours[text], colours[ground]) >= ENOUGH, (text, ground)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_numbers_in_a_heat_map_can_be_read_whatever_their_value(theme: str) -> None:
    colours = palette(theme)
    for value in range(101):
        share = value / 100
        mixed = tuple(share * c + (1 - share) * k for c, k in zip(colours["cell"], colours["card"], strict=True))
        assert contrast(colours["ink"], mixed) >= ENOUGH, share
    assert contrast(colours["cell"], colours["card"]) >= 2, "a full cell must stand out from an empty one"


def test_the_numbers_have_no_other_colour() -> None:
    """The test above speaks of the text's colour: there is one rule for it."""
    assert re.findall(r"\.value[^{]*\{[^}]*fill: ([^;}]+)", STYLE) == ["var(--ink)"]
    assert re.search(r"svg \.cell \{ fill: var\(--cell\)", STYLE)
