"""Augmentations against slicing, interpolation and closed forms; their draws against the laws they state."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.nn import functional
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from identica.data import (
    Augmentations,
    AugmentedViews,
    Blurred,
    ColourJitter,
    Cropped,
    GaussianBlur,
    Greyscale,
    HorizontalFlip,
    RandomResizedCrop,
    simclr_without_colour,
)
from tests.stat_checks import FALSE_ALARM, assert_law


@pytest.fixture
def images(generator: torch.Generator) -> Tensor:
    return torch.rand(6, 2, 12, 15, generator=generator, dtype=torch.float64)


def boxes(*rows: tuple[int, int, int, int]) -> Cropped:
    top, left, height, width = torch.tensor(rows, dtype=torch.float64).T
    return Cropped(torch.ones(len(rows), dtype=torch.bool), top, left, height, width)


def assert_binomial(yes: Tensor, probability: float) -> None:
    p_value = stats.binomtest(int(yes.sum()), yes.numel(), probability).pvalue
    assert p_value > FALSE_ALARM, f"{int(yes.sum())} of {yes.numel()} at probability {probability}: p = {p_value:.1e}"


# Crops


def test_the_whole_image_as_a_box_is_the_image(images: Tensor) -> None:
    whole = boxes(*[(0, 0, 12, 15)] * 6)
    assert torch.allclose(RandomResizedCrop().apply(images, whole), images, atol=1e-13)
    single = RandomResizedCrop().apply(images.float(), whole)
    assert torch.allclose(single, images.float(), atol=5e-6)


def test_a_crop_is_a_slice_stretched_by_interpolation(images: Tensor) -> None:
    rows = [(0, 0, 5, 7), (7, 8, 5, 7), (3, 2, 1, 1), (0, 14, 12, 1), (11, 0, 1, 15), (2, 3, 8, 6)]
    found = RandomResizedCrop().apply(images, boxes(*rows))
    for image, result, (top, left, height, width) in zip(images, found, rows, strict=True):
        box = image[None, :, top : top + height, left : left + width]
        expected = functional.interpolate(box, size=(12, 15), mode="bilinear", align_corners=False)[0]
        assert torch.allclose(result, expected, atol=1e-13)


def test_drawn_boxes_are_whole_pixels_inside_the_image(generator: torch.Generator) -> None:
    crop = RandomResizedCrop(area=(0.01, 1.0), aspect=(0.25, 4.0))
    box = crop.draw(20_000, (12, 15), generator)
    for start, length, side in ((box.top, box.height, 12), (box.left, box.width, 15)):
        assert torch.equal(start, start.round()) and torch.equal(length, length.round())
        assert start.min() == 0 and length.min() == 1 and (start + length).max() == side
    assert bool(box.applied.all())


@pytest.mark.statistical(false_alarm=1e-6, what="area and log aspect of boxes that always fit: KS against uniform")
def test_area_and_aspect_follow_their_laws(generator: torch.Generator) -> None:
    # On an image this large, rounding to pixels shifts both by less than the test can see.
    crop = RandomResizedCrop(area=(0.1, 0.5), aspect=(3 / 4, 4 / 3))
    box = crop.draw(4000, (100_000, 100_000), generator)
    assert_law(box.height * box.width / 1e10, stats.uniform(0.1, 0.4).cdf)
    limit = math.log(4 / 3)
    assert_law((box.width / box.height).log(), stats.uniform(-limit, 2 * limit).cdf)
    assert_law(box.top / (100_001 - box.height), stats.uniform(0, 1).cdf)
    assert_law(box.left / (100_001 - box.width), stats.uniform(0, 1).cdf)


@pytest.mark.statistical(false_alarm=1e-6, what="share of boxes of area above 0.9 against 2-d quadrature of the law")
def test_boxes_that_do_not_fit_are_drawn_again(generator: torch.Generator) -> None:
    crop = RandomResizedCrop(area=(0.5, 1.0))
    box = crop.draw(40_000, (10_000, 10_000), generator)
    area, log_aspect = torch.meshgrid(
        0.5 + 0.5 * (torch.arange(4000).double() + 0.5) / 4000,
        math.log(4 / 3) * (2 * (torch.arange(4000).double() + 0.5) / 4000 - 1),
        indexing="ij",
    )
    fits = area * log_aspect.abs().exp() <= 1
    expected = (fits & (area > 0.9)).sum() / fits.sum()
    large = box.height * box.width > 0.9e8
    assert_binomial(large, float(expected))
    assert expected < 0.13, "without refusals it would be 0.2"


def test_if_nothing_fits_the_largest_allowed_box_is_taken(generator: torch.Generator) -> None:
    box = RandomResizedCrop(area=(1.0, 1.0)).draw(50, (10, 40), generator)
    assert bool((box.height == 10).all()) and bool((box.width == 13).all())
    assert box.left.max() > box.left.min()


def test_every_placement_occurs(generator: torch.Generator) -> None:
    box = RandomResizedCrop(area=(0.25, 0.25), aspect=(1.0, 1.0)).draw(2000, (4, 4), generator)
    assert sorted(set(zip(box.top.tolist(), box.left.tolist(), strict=True))) == [
        (y, x) for y in range(3) for x in range(3)
    ]


# Blur


def test_the_blur_of_a_point_is_the_gaussian() -> None:
    image = torch.zeros(2, 1, 21, 17, dtype=torch.float64)
    image[:, :, 10, 8] = 1
    sigma = torch.tensor([0.7, 2.0], dtype=torch.float64)
    found = GaussianBlur(radius=4).apply(image, Blurred(torch.tensor([True, True]), sigma))
    for result, width in zip(found, sigma.tolist(), strict=True):
        weights = torch.tensor([math.exp(-k * k / (2 * width * width)) for k in range(-4, 5)], dtype=torch.float64)
        weights /= weights.sum()
        expected = torch.zeros(21, 17, dtype=torch.float64)
        expected[6:15, 4:13] = torch.outer(weights, weights)
        assert torch.allclose(result[0], expected, atol=1e-15)


def test_blur_keeps_constant_images_and_reflects_at_edges() -> None:
    constant = torch.full((1, 1, 6, 6), 0.3, dtype=torch.float64)
    wide = Blurred(torch.tensor([True]), torch.tensor([1.5]))
    assert torch.allclose(GaussianBlur(radius=2).apply(constant, wide), constant, atol=1e-15)
    image = torch.arange(5.0, dtype=torch.float64).repeat(5, 1)[None, None]
    weights = torch.exp(-0.5 * (torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64) / 1.5).square())
    weights /= weights.sum()
    found = GaussianBlur(radius=1).apply(image, wide)[0, 0]
    assert torch.allclose(found[:, 0], (weights[0] * 1 + weights[1] * 0 + weights[2] * 1).expand(5), atol=1e-15)


def test_the_default_radius_is_a_twentieth_of_the_shorter_side() -> None:
    point = torch.zeros(1, 1, 65, 81)
    point[0, 0, 32, 40] = 1
    blurred = GaussianBlur().apply(point, Blurred(torch.tensor([True]), torch.tensor([2.0])))
    assert (blurred[0, 0] > 0).sum() == 7 * 7


def test_a_radius_beyond_the_image_gets_a_sentence() -> None:
    with pytest.raises(ValueError, match="radius must be smaller than both sides"):
        GaussianBlur(radius=4)(torch.rand(1, 1, 9, 4), 0)


# All of them


def test_a_flip_mirrors_left_and_right(images: Tensor) -> None:
    mirrored, parameters = HorizontalFlip(probability=1)(images, 0)
    assert torch.equal(mirrored, images.flip(3)) and bool(parameters.applied.all())


ALL = [
    RandomResizedCrop(area=(0.1, 0.3), probability=0.3),
    GaussianBlur(sigma=(0.5, 2.0), probability=0.3),
    HorizontalFlip(probability=0.3),
]
COLOURS = Augmentations(ColourJitter(), Greyscale())


@pytest.mark.statistical(false_alarm=1e-6, what="how often an augmentation is applied: binomial test against 0.3")
@pytest.mark.parametrize("augmentation", ALL, ids=lambda a: a.name)
def test_it_is_applied_as_often_as_said_and_nothing_else_changes(
    augmentation: RandomResizedCrop, generator: torch.Generator
) -> None:
    images = torch.rand(3000, 1, 8, 8, generator=generator)
    changed, parameters = augmentation(images, generator)
    differs = (changed != images).flatten(1).any(dim=1)
    assert torch.equal(differs, parameters.applied), "applied is what happened"
    assert_binomial(parameters.applied, 0.3)


@pytest.mark.parametrize("augmentation", [*ALL, simclr_without_colour(flip=0.5)], ids=lambda a: a.name)
def test_equal_generators_give_equal_images_and_replaying_the_parameters_repeats_them(
    augmentation: RandomResizedCrop, images: Tensor
) -> None:
    first, parameters = augmentation(images, 3)
    again, _ = augmentation(images, torch.Generator().manual_seed(3))
    assert torch.equal(first, again) and torch.equal(first, augmentation.apply(images, parameters))
    assert not torch.equal(first, augmentation(images, 4).images)
    part = pytree.tree_map(lambda leaf: leaf[2:4], parameters)
    assert torch.allclose(augmentation.apply(images[2:4], part), first[2:4], atol=1e-14), "rows do not mix"


def test_a_sequence_applies_its_steps_in_order(images: Tensor) -> None:
    both = Augmentations(RandomResizedCrop(), HorizontalFlip(probability=1.0))
    changed, parameters = both(images, 0)
    assert torch.equal(changed, RandomResizedCrop().apply(images, parameters["crop"]).flip(3))
    assert both.to_dict()["steps"][1] == {"augmentation": "flip", "probability": 1.0}


class NothingAsked(TorchDispatchMode):
    """Fails where a value would be fetched from the device, or a shape depend on one."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in ("_local_scalar_dense", "nonzero", "masked_select", "unique2", "is_nonzero"), name
        if name == "index":
            assert all(index is None or index.dtype != torch.bool for index in args[1]), "a mask as an index"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("augmentation", [*ALL, COLOURS, simclr_without_colour(flip=0.5)], ids=lambda a: a.name)
def test_nothing_is_asked_of_the_device(augmentation: RandomResizedCrop, generator: torch.Generator) -> None:
    images = torch.rand(4, 3, 8, 8, generator=generator)
    views = AugmentedViews(images, augmentation)
    with NothingAsked():
        augmentation(images, generator)
        views.sample(3, generator)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: RandomResizedCrop(area=(0.0, 1.0)), "area.*above 0 and at most 1"),
        (lambda: RandomResizedCrop(area=(0.5, 1.5)), "area"),
        (lambda: RandomResizedCrop(aspect=(2.0, 1.0)), "aspect.*smallest, largest"),
        (lambda: RandomResizedCrop(aspect=1.0), "aspect"),  # type: ignore[arg-type]
        (lambda: GaussianBlur(sigma=(0.0, 1.0)), "sigma"),
        (lambda: GaussianBlur(radius=0), "radius"),
        (lambda: HorizontalFlip(probability=1.1), "between 0 and 1"),
        (lambda: Augmentations(HorizontalFlip(), HorizontalFlip()), "once"),
        (lambda: HorizontalFlip()(torch.rand(3, 8, 8), 0), r"\(n, channels, height, width\)"),
        (lambda: HorizontalFlip()(torch.zeros(1, 1, 8, 8, dtype=torch.uint8), 0), "floating-point"),
    ],
)
def test_wrong_settings_and_images_get_a_sentence(make: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()  # type: ignore[operator]


def test_a_sequence_takes_augmentations_only() -> None:
    with pytest.raises(TypeError, match="not nothing"):
        Augmentations()
    with pytest.raises(TypeError, match="Augmentations takes augmentations"):
        Augmentations(torch.flip)  # type: ignore[arg-type]
