"""Pairs of augmented views: what is drawn, what is recorded, and that an encoder can be trained on them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import identica as idt
from identica.data import AugmentedViews, HorizontalFlip, LabelledImages, RandomResizedCrop, simclr_without_colour
from identica.metrics import knn_accuracy


@pytest.fixture
def images(generator: torch.Generator) -> Tensor:
    return torch.rand(40, 1, 8, 8, generator=generator)


def test_both_views_are_the_same_image_changed_independently(images: Tensor) -> None:
    augmentation = simclr_without_colour(flip=0.5)
    views = AugmentedViews(images, augmentation).sample(30, 1)
    assert len(views) == 30 and views.z is None and views.x_neg is None
    assert len(views.index.unique()) == 30, "no image twice"
    chosen = images[views.index]
    assert torch.allclose(views.x, augmentation.apply(chosen, views.parameters), atol=1e-6)
    assert torch.allclose(views.x_pos, augmentation.apply(chosen, views.parameters_pos), atol=1e-6)
    assert not torch.equal(views.parameters["crop"].top, views.parameters_pos["crop"].top)


def test_more_pairs_than_images_use_each_of_them_about_equally_often(images: Tensor) -> None:
    counts = torch.bincount(AugmentedViews(images, HorizontalFlip()).sample(100, 0).index, minlength=40)
    assert counts.min() == 2 and counts.max() == 3


def test_bytes_are_divided_by_255_when_drawn(images: Tensor) -> None:
    packed = (images * 255).round().to(torch.uint8)
    views = AugmentedViews(packed, HorizontalFlip(probability=0), flatten=True).sample(40, 0)
    assert views.x.shape == (40, 64) and views.x.dtype == torch.float32
    assert torch.equal(views.x, packed[views.index].flatten(1).float() / 255)
    double = AugmentedViews(packed, HorizontalFlip()).to(dtype=torch.float64)
    assert double.images.dtype == torch.uint8 and double.sample(3, 0).x.dtype == torch.float64


def test_equal_seeds_give_equal_views_and_the_description_tells_images_apart(images: Tensor) -> None:
    process = AugmentedViews(images, RandomResizedCrop())
    assert torch.equal(process.sample(5, 7).x, process.sample(5, torch.Generator().manual_seed(7)).x)
    assert process.to_dict() == process.to("cpu", torch.float64).to_dict()
    assert process.to_dict() != AugmentedViews(images, RandomResizedCrop(area=(0.5, 1.0))).to_dict()
    assert process.to_dict() == AugmentedViews(images.clone(), RandomResizedCrop()).to_dict()
    other = images.clone()
    other[3, 0, 2, 2] = 1 - other[3, 0, 2, 2]
    assert process.to_dict() != AugmentedViews(other, RandomResizedCrop()).to_dict()


def test_views_are_a_pytree_of_tensors_alone(images: Tensor) -> None:
    views = AugmentedViews(images, simclr_without_colour()).sample(6, 0)
    stacked = pytree.tree_map(lambda *leaves: torch.stack(leaves), views, views)
    assert stacked.x.shape == (2, 6, 1, 8, 8) and stacked.parameters["blur"].sigma.shape == (2, 6)
    assert all(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(views))


def test_wrong_images_get_a_sentence(images: Tensor) -> None:
    with pytest.raises(ValueError, match=r"\(N, channels, height, width\)"):
        AugmentedViews(images[:, 0], HorizontalFlip())
    with pytest.raises(ValueError, match=r"lie in \[0, 1\]"):
        AugmentedViews(images * 255, HorizontalFlip())
    with pytest.raises(TypeError, match=r"images themselves, such as digits\.images, not LabelledImages"):
        AugmentedViews(LabelledImages(images, torch.zeros(len(images))), HorizontalFlip())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not str"):
        AugmentedViews("digits", HorizontalFlip())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is an Augmentation"):
        AugmentedViews(images, torch.flip)  # type: ignore[arg-type]


def bars(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Images of a bright bar, upright or lying (the class), at a random place, with some noise."""
    labels = torch.randint(2, (n,), generator=generator)
    place = torch.randint(2, 10, (n,), generator=generator)
    bar = ((torch.arange(12)[None] - place[:, None]).abs() <= 1).float()
    upright = bar[:, None, :].expand(n, 12, 12)
    images = torch.where(labels[:, None, None] == 1, upright, upright.mT)
    return (0.8 * images + 0.2 * torch.rand(n, 12, 12, generator=generator))[:, None], labels


class SmallConvEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.ReLU(), nn.Flatten(),
            nn.Linear(32, 4),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.normalize(self.layers(x), dim=1)


@pytest.mark.parametrize("kind", ["perceptron", "convolutional"])
def test_an_encoder_is_trained_on_views(kind: str, generator: torch.Generator, tmp_path: Path) -> None:
    images, labels = bars(500, generator)
    flatten = kind == "perceptron"
    process = AugmentedViews(images, RandomResizedCrop(area=(0.3, 1.0)), flatten=flatten)
    encoder = idt.MLPEncoder(144, idt.Sphere(4), hidden=(64,), seed=0) if flatten else SmallConvEncoder()
    config = idt.TrainConfig(steps=120, batch_size=128, lr=5e-3, eval_every=60, schedule="cosine")
    run = idt.train(process, encoder, idt.InfoNCE(idt.DotProduct(0.2)), config, quiet=True, out=tmp_path)
    losses = [record.terms["loss"] for record in run.history[1:]]
    assert losses[-1] < losses[0] and run.scores == {}, "nobody knows the latents, so there are no scores"
    resumed = idt.train(process, encoder, run.objective, config, quiet=True, out=tmp_path, resume=True)
    assert [record.terms for record in resumed.history] == [record.terms for record in run.history]
    fresh, truth = bars(400, generator)
    codes = run(fresh.flatten(1) if flatten else fresh)
    found = knn_accuracy(codes, truth)
    assert found.score > 0.9 and found.null is not None and found.null.p_value < 0.01


def test_scoring_without_latents_gets_a_sentence(images: Tensor) -> None:
    with pytest.raises(ValueError, match="AugmentedViews draws observations without latents.*knn_accuracy"):
        idt.evaluate(AugmentedViews(images, HorizontalFlip()), lambda x: x.flatten(1), 16)
