"""The scene as its users see it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from identica.data.png import read_png
from identica.render import FACTORS, ThreeDIdentScene
from identica.render.distance import teapot_grid


def latents_of(count: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(count, 10, generator=torch.Generator().manual_seed(seed)) * 2 - 1


@pytest.fixture(scope="module")
def small() -> ThreeDIdentScene:
    return ThreeDIdentScene(resolution=32)


def test_shapes_and_dtypes(small: ThreeDIdentScene) -> None:
    latents = latents_of(3)
    pictures = small.render(latents)
    assert pictures.shape == (3, 3, 32, 32) and pictures.dtype == torch.uint8
    values = small.render(latents, dtype=torch.float32)
    assert values.dtype == torch.float32 and values.min() >= 0.0 and values.max() <= 1.0
    assert ((values * 255 + 0.5).to(torch.uint8) == pictures).all()
    assert small.render(latents.double(), dtype=torch.float64).dtype == torch.float64
    assert small.render(latents[:0]).shape == (0, 3, 32, 32)


def test_equal_latents_give_equal_pictures(small: ThreeDIdentScene) -> None:
    """Whatever else is in the batch, and whichever scene object draws them."""
    latents = latents_of(4)
    pictures = small.render(latents)
    assert (small.render(latents) == pictures).all()
    assert (small.render(latents[2:3]) == pictures[2:3]).all()
    assert (ThreeDIdentScene(resolution=32).render(latents.flip(0)).flip(0) == pictures).all()


GOLDEN = Path(__file__).with_name("golden.png")


def test_pictures_are_those_of_this_version(small: ThreeDIdentScene) -> None:
    """Three scenes side by side, as drawn when the renderer was last compared with Blender (docs/render.md)."""
    latents = torch.sin(1.7 * torch.arange(30.0)).reshape(3, 10)
    drawn = np.concatenate(list(small.render(latents).permute(0, 2, 3, 1).numpy()), axis=1)
    off = np.abs(drawn.astype(float) - read_png(GOLDEN).astype(float))
    assert off.mean() < 0.3 and np.quantile(off, 0.99) <= 3.0, (
        "The pictures have changed. If they were meant to, compare with Blender (benchmarks/render.py), count VERSION "
        "up, so that no data set mixes both, and keep the new pictures: write_png(GOLDEN, drawn)."
    )


def test_pictures_do_not_depend_on_the_precision_around_them(small: ThreeDIdentScene) -> None:
    latents = latents_of(2)
    pictures = small.render(latents)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(small.render(latents), pictures)
        assert torch.equal(ThreeDIdentScene(resolution=32).render(latents), pictures)
    try:
        torch.set_default_dtype(torch.float64)
        teapot_grid.cache_clear()  # the shadows' distances too
        assert torch.equal(ThreeDIdentScene(resolution=32).render(latents), pictures)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("resolution", [16, 33, 512])
def test_any_resolution(resolution: int) -> None:
    """A larger picture, averaged down, is the smaller one: nothing moves by half a pixel."""
    latents = latents_of(1, seed=5)
    picture = ThreeDIdentScene(resolution).render(latents, dtype=torch.float32)
    assert picture.shape == (1, 3, resolution, resolution)
    reference = ThreeDIdentScene(96).render(latents, dtype=torch.float32)
    size = (min(resolution, 48),) * 2
    small, other = (torch.nn.functional.interpolate(p, size, mode="area") for p in (picture, reference))
    assert (small - other).abs().mean() < 0.012


def test_high_quality_is_close_to_standard() -> None:
    latents = latents_of(2, seed=1)
    high = ThreeDIdentScene(48, quality="high").render(latents, dtype=torch.float32)
    standard = ThreeDIdentScene(48).render(latents, dtype=torch.float32)
    error = (high - standard).square().mean(dim=(1, 2, 3))
    assert (error > 0).all() and (-10 * error.log10()).min() > 36.0


def sensitivity(scene: ThreeDIdentScene, latents: torch.Tensor, step: float) -> torch.Tensor:
    """How much the picture changes with each latent, root mean square per unit of the latent: ``(B, 10)``."""
    inward = torch.where(latents > 0, -step, step)
    moved = latents[:, None].repeat(1, 10, 1)
    index = torch.arange(10)
    moved[:, index, index] += inward
    base = scene.render(latents, dtype=torch.float32)
    other = scene.render(moved.flatten(0, 1), dtype=torch.float32).view(len(latents), 10, *base.shape[1:])
    return (other - base[:, None]).square().mean(dim=(2, 3, 4)).sqrt() / step


def smallest_changes(count: int, resolution: int) -> torch.Tensor:
    scene = ThreeDIdentScene(resolution)
    parts = [sensitivity(scene, part, 0.05) for part in latents_of(count, seed=11).split(25)]
    return torch.cat(parts).amin(dim=0)


def test_every_latent_changes_the_picture() -> None:
    """Injectivity, locally: no finite difference vanishes."""
    changes = smallest_changes(count=32, resolution=16)
    assert changes.min() > 1e-3, dict(zip(FACTORS, changes.tolist(), strict=True))


@pytest.mark.slow
def test_every_latent_changes_the_picture_at_a_thousand_points() -> None:
    changes = smallest_changes(count=1000, resolution=16)
    assert changes.min() > 1e-3, dict(zip(FACTORS, changes.tolist(), strict=True))


def test_hues_below_zero_are_not_all_red(small: ThreeDIdentScene) -> None:
    """The published generator did not wrap hues: a third of the object's hues gave one and the same red."""
    latents = torch.zeros(5, 10)
    latents[:, 7] = torch.linspace(-1.0, -0.2, 5)
    pictures = small.render(latents, dtype=torch.float32)
    differences = (pictures[1:] - pictures[:-1]).abs().amax(dim=(1, 2, 3))
    assert differences.min() > 0.05


def test_the_object_is_where_the_camera_sees_it(small: ThreeDIdentScene) -> None:
    """Projected by hand: a green object on ground that is not green, at the middle of what is greener than the rest."""
    latents = torch.zeros(1, 10)
    latents[0, :3] = torch.tensor([-0.5, 0.6, 0.0])
    latents[0, 7], latents[0, 9] = 1.0, -0.5
    picture = small.render(latents, dtype=torch.float32)[0]
    green = (picture[1] - picture[2]).clamp(min=0.1) - 0.1
    rows, columns = torch.meshgrid(torch.arange(32) + 0.5, torch.arange(32) + 0.5, indexing="ij")
    row, column = ((green * v).sum() / green.sum() for v in (rows, columns))
    away = np.array([-1.5, 1.8, 4.442117 / 2]) - np.array([8.0, 0.0, 8.0])
    depth = -(away[0] + away[2]) * math.sqrt(0.5)
    want_column = 32 * (0.5 + 0.7 * away[1] / depth)
    want_row = 32 * (0.5 - 0.7 * (away[2] - away[0]) * math.sqrt(0.5) / depth)
    assert abs(float(column) - want_column) < 2.5 and abs(float(row) - want_row) < 2.5


@pytest.mark.parametrize(
    "latents, words",
    [
        (torch.zeros(10), r"shape \(B, 10\)"),
        (torch.zeros(2, 9), r"shape \(B, 10\).*\(2, 9\)"),
        (torch.zeros(2, 10, dtype=torch.long), "floating numbers, not torch.int64"),
        (np.zeros((2, 10)), "tensor of floating numbers, not ndarray"),
        (torch.full((1, 10), 1.01), r"\[-1, 1\], but row 0 has 1.01 as its x"),
        (torch.full((1, 10), -1.0000001), r"row 0 has -1.0000001 as its x"),
        (torch.full((1, 10), 1.01, dtype=torch.bfloat16), r"row 0 has 1.0078125 as its x"),
        (torch.tensor([[0.0] * 7 + [math.nan, 0.0, 0.0]]), "row 0 has nan as its object hue"),
        (torch.tensor([[0.0] * 10, [0.0] * 6 + [-math.inf, 0, 0, 0]]), "row 1 has -inf as its spotlight angle"),
    ],
)
def test_bad_latents(small: ThreeDIdentScene, latents: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        small.render(latents)


def test_bad_settings() -> None:
    for resolution in (15, 513, 64.5, "64"):
        with pytest.raises(ValueError, match="resolution must be"):
            ThreeDIdentScene(resolution)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="quality must be one of standard, high, not 'best'"):
        ThreeDIdentScene(quality="best")  # type: ignore[arg-type]
    for dtype, said in ((torch.int64, "torch.int64"), ("uint8", "'uint8'")):
        with pytest.raises(ValueError, match=f"dtype must be torch.uint8 or a floating dtype, not {said}"):
            ThreeDIdentScene(16).render(torch.zeros(1, 10), dtype=dtype)  # type: ignore[arg-type]
