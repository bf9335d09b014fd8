"""Colour jitter against the standard library's colour conversions, pixel by pixel."""

from __future__ import annotations

import colorsys
import itertools

import pytest
import torch
from torch import Tensor

from identica.data import Augmentations, ColourJitter, Greyscale, Jittered, RandomResizedCrop
from identica.data.colour import simclr_with_colour, with_hue_shifted


@pytest.fixture
def images(generator: torch.Generator) -> Tensor:
    images = torch.rand(24, 3, 3, 4, generator=generator, dtype=torch.float64)
    images[0, :, 0, 0], images[0, :, 0, 1], images[0, :, 0, 2] = 0.0, 1.0, 0.5  # no hue at all
    images[0, :, 1, 0] = torch.tensor([0.7, 0.7, 0.2])  # two largest channels
    return images


def pixels(image: Tensor) -> list[list[float]]:
    return image.flatten(1).T.tolist()


def luma(pixel: list[float]) -> float:
    return 0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2]


def clip(value: float) -> float:
    return min(1.0, max(0.0, value))


def jittered_slowly(image: Tensor, amounts: tuple[float, ...], order: list[int]) -> Tensor:
    """One image, one pixel at a time."""
    rows = pixels(image)
    for change in order:
        amount = amounts[change]
        mean = sum(map(luma, rows)) / len(rows)
        if change == 0:
            rows = [[clip(amount * c) for c in row] for row in rows]
        elif change == 1:
            rows = [[clip(mean + amount * (c - mean)) for c in row] for row in rows]
        elif change == 2:
            rows = [[clip(luma(row) + amount * (c - luma(row))) for c in row] for row in rows]
        else:
            hsv = [colorsys.rgb_to_hsv(*row) for row in rows]
            rows = [list(colorsys.hsv_to_rgb((h + amount) % 1, s, v)) for h, s, v in hsv]
    return torch.tensor(rows, dtype=image.dtype).T.reshape(image.shape)


@pytest.mark.parametrize("turns", [-0.5, -0.2, 0.0, 0.1, 1 / 3, 0.5])
def test_hues_turn_as_in_the_standard_library(images: Tensor, turns: float) -> None:
    found = with_hue_shifted(images, torch.full((24, 1, 1, 1), turns, dtype=torch.float64))
    expected = torch.stack([jittered_slowly(image, (0, 0, 0, turns), [3]) for image in images])
    assert torch.allclose(found, expected, atol=1e-13)


def test_all_four_in_every_order(images: Tensor) -> None:
    orders = torch.tensor(list(itertools.permutations(range(4))))
    drawn = ColourJitter().draw(24, (3, 4), torch.Generator().manual_seed(0))
    amounts = torch.stack([drawn.brightness, drawn.contrast, drawn.saturation, drawn.hue], dim=1).double()
    parameters = Jittered(torch.ones(24, dtype=torch.bool), *amounts.T, order=orders)
    found = ColourJitter().apply(images, parameters)
    for image, result, row, order in zip(images, found, amounts.tolist(), orders.tolist(), strict=True):
        assert torch.allclose(result, jittered_slowly(image, tuple(row), order), atol=1e-12)


def test_draws_stay_in_their_ranges_and_every_order_occurs(generator: torch.Generator) -> None:
    drawn = ColourJitter(brightness=0.4, contrast=1.5, saturation=0.0, hue=0.1).draw(5000, (3, 4), generator)
    for values, low, high in ((drawn.brightness, 0.6, 1.4), (drawn.contrast, 0.0, 2.5), (drawn.hue, -0.1, 0.1)):
        assert low <= values.min() < low + 0.01 * (high - low) and high - 0.01 * (high - low) < values.max() <= high
    assert bool((drawn.saturation == 1).all())
    assert len(drawn.order.unique(dim=0)) == 24
    assert 0 < drawn.applied.sum() < 5000


def test_grey_is_the_luminance_in_all_channels(images: Tensor) -> None:
    grey, parameters = Greyscale(probability=0.5)(images, 0)
    assert 0 < parameters.applied.sum() < 24
    for image, result, applied in zip(images, grey, parameters.applied.tolist(), strict=True):
        expected = torch.tensor([[luma(row)] * 3 for row in pixels(image)], dtype=torch.float64).T.reshape(image.shape)
        assert torch.allclose(result, expected, atol=1e-14) if applied else torch.equal(result, image)


def test_wrong_settings_and_images_get_a_sentence() -> None:
    with pytest.raises(ValueError, match="hue of ColourJitter is a number of at least 0 and at most 0.5"):
        ColourJitter(hue=0.6)
    with pytest.raises(ValueError, match="contrast of ColourJitter is a number of at least 0, not -1"):
        ColourJitter(contrast=-1)
    for augmentation in (ColourJitter(), Greyscale()):
        with pytest.raises(ValueError, match="3 channels"):
            augmentation(torch.rand(2, 1, 4, 4), 0)


def test_the_views_of_paper_a_are_crop_jitter_and_drop_at_simclrs_strengths() -> None:
    expected = Augmentations(
        RandomResizedCrop(area=(0.08, 1.0), aspect=(3 / 4, 4 / 3), probability=1.0),
        ColourJitter(brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2, probability=0.8),
        Greyscale(probability=0.2),
    )
    assert simclr_with_colour().to_dict() == expected.to_dict()
    assert simclr_with_colour(0.5).steps[1] == ColourJitter(0.4, 0.4, 0.4, 0.1)
    with pytest.raises(ValueError, match="between 0 and 2.5, not 3"):
        simclr_with_colour(3)
