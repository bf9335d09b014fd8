"""Readouts against scikit-learn, brute force and closed forms; their chance levels and nulls."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn

import identica as idt
from identica.data import simclr_without_colour
from identica.metrics import augmentation_readout, domain_classifier, knn_accuracy, linear_readout, neighbours
from tests.stat_checks import FALSE_ALARM


def blobs(n: int, generator: torch.Generator, classes: int = 4, spread: float = 1.0) -> tuple[Tensor, Tensor]:
    """Overlapping clouds around random centres."""
    centres = torch.randn(classes, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    labels = torch.randint(classes, (n,), generator=generator)
    return centres[labels] + spread * torch.randn(n, 3, generator=generator, dtype=torch.float64), labels


# Nearest neighbours


@pytest.mark.parametrize("k", [1, 3, 11])
def test_knn_agrees_with_scikit_learn(k: int, generator: torch.Generator) -> None:
    (h, labels), (h_test, truth) = blobs(300, generator, classes=2), blobs(200, generator, classes=2)
    expected = KNeighborsClassifier(k).fit(h.numpy(), labels.numpy()).score(h_test.numpy(), truth.numpy())
    found = knn_accuracy(h, labels, (h_test, truth), neighbours=k)
    assert found.score == pytest.approx(expected, abs=1e-12) and found.n == 200 and found.classes == (0, 1)


def test_cosine_distance_looks_at_directions_alone(generator: torch.Generator) -> None:
    (h, labels), (h_test, truth) = blobs(200, generator), blobs(100, generator)
    lengths = torch.rand(200, 1, generator=generator, dtype=torch.float64) + 0.1
    unit = knn_accuracy(nn.functional.normalize(h, dim=1), labels, (nn.functional.normalize(h_test, dim=1), truth))
    found = knn_accuracy(h * lengths, labels, (h_test, truth), distance="cosine")
    euclidean = knn_accuracy(h * lengths, labels, (h_test, truth))
    assert found.per_dimension == unit.per_dimension != euclidean.per_dimension


def test_of_equally_many_votes_the_nearer_class_wins() -> None:
    h = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
    labels = torch.tensor([5, 7, 7, 5])
    # From 0.9 the nearest are 1 (7), 0 (5), 2 (7), 3 (5): two votes each, and 7 is nearer.
    assert knn_accuracy(h, labels, ([[0.9]], [7]), neighbours=4).score == 1
    assert knn_accuracy(h, labels, ([[0.2]], [5]), neighbours=2).score == 1
    # Of the places 1 and 4 and of 2 and 3, which of the two labels is the smaller number does not matter.
    h = torch.tensor([[0.1], [5.0], [5.01], [5.1], [6.0]])
    for near, far in ((0, 1), (1, 0)):
        labels = torch.tensor([near, far, far, near, 2])
        assert knn_accuracy(h, labels, ([[0.0]], [near]), neighbours=5, null=0).score == 1
    # However far down the first of them is: 60 places of single votes, then 40 of the nearer class and 40 of the other.
    h = torch.arange(140.0)[:, None]
    for near, far in ((0, 1), (1, 0)):
        labels = torch.cat([torch.arange(2, 62), torch.tensor([near, far]).repeat(40)])
        assert knn_accuracy(h, labels, ([[0.0]], [near]), neighbours=140, null=0).score == 1
    h = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
    labels = torch.tensor([5, 7, 7, 5])
    # A majority is never overruled: from 0.1, 0 (5) is nearest, but 1 and 2 are 7.
    assert knn_accuracy(h, labels, ([[0.1]], [7]), neighbours=3).score == 1


def test_tiles_do_not_matter_and_offsets_cost_nothing(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    h, labels = blobs(150, generator)
    whole = knn_accuracy(h, labels)
    assert knn_accuracy(h + 1e6, labels).score == whole.score
    monkeypatch.setattr(neighbours, "TILE", 200)
    assert knn_accuracy(h, labels) == whole


@pytest.mark.statistical(false_alarm=1e-5, what="share of 64 twins that random halves separate, below 0.8")
def test_folds_are_judged_by_each_other() -> None:
    # Every code and class occurs twice: a row is right if and only if its twin is in the other half.
    h = torch.arange(64.0)[:, None]
    found = knn_accuracy(torch.cat([h, h]), torch.arange(128) % 64, neighbours=1)
    assert found.n == 128 and 0.2 < found.score < 0.8


# Linear readouts


def test_logistic_regression_agrees_with_scikit_learn(generator: torch.Generator) -> None:
    (h, labels), (h_test, truth) = blobs(400, generator), blobs(300, generator)
    h, h_test = h * torch.tensor([100.0, 1.0, 0.01]) + 7, h_test * torch.tensor([100.0, 1.0, 0.01]) + 7
    mean, scale = h.mean(dim=0), h.std(dim=0, correction=0)
    reference = LogisticRegression(tol=1e-10, max_iter=1000).fit(((h - mean) / scale).numpy(), labels.numpy())
    predicted = reference.predict(((h_test - mean) / scale).numpy())
    found = linear_readout(h, labels, (h_test, truth))
    assert found.score == np.mean(predicted == truth.numpy())
    per_class = [np.mean(predicted[truth.numpy() == c] == c) for c in range(4)]
    assert found.per_dimension == pytest.approx(per_class, abs=1e-12)


def test_constant_and_rescaled_codes_do_no_harm(generator: torch.Generator) -> None:
    h, labels = blobs(300, generator)
    plain = linear_readout(h, labels)
    padded = torch.cat([1e3 * h - 5, torch.full((300, 1), 0.1, dtype=torch.float64)], dim=1)
    assert linear_readout(padded.numpy(), labels.tolist()).score == pytest.approx(plain.score, abs=1e-12)
    with torch.no_grad():
        assert linear_readout(h, labels) == plain


def test_few_rows_are_warned_about(generator: torch.Generator) -> None:
    h, labels = blobs(20, generator)
    with pytest.warns(UserWarning, match="linear_readout fits 3 codes on 10 rows"):
        linear_readout(h, labels)


def test_separable_classes_converge_thanks_to_the_penalty() -> None:
    h = torch.linspace(-1, 1, 100)[:, None]
    assert linear_readout(h, h[:, 0] > 0, penalty=1e-3).score >= 0.98


@pytest.mark.statistical(false_alarm=1e-6, what="accuracy on labels independent of the codes: binomial against ½")
def test_noise_is_at_chance_and_signal_is_not(generator: torch.Generator) -> None:
    h = torch.randn(2000, 5, generator=generator)
    coin = torch.rand(2000, generator=generator) < 0.5
    signal = h[:, 0] + torch.randn(2000, generator=generator) > 0
    scores = augmentation_readout(h, {"blur": coin, "crop": signal})
    blur, crop = scores["blur"], scores["crop"]
    assert stats.binomtest(round(blur.score * 2000), 2000, 0.5).pvalue > FALSE_ALARM
    assert blur.null is not None and blur.null.mean == pytest.approx(0.5, abs=0.02)
    assert crop.null is not None and crop.null.p_value == pytest.approx(1 / 201)
    # The sign of a sum of two equal normals agrees with that of one in three of four cases.
    assert stats.binomtest(round(crop.score * 2000), 2000, 0.75).pvalue > FALSE_ALARM


def test_what_augmentations_return_can_be_passed_on(generator: torch.Generator) -> None:
    views = simclr_without_colour(crop=0.5, blur=0.5)(torch.rand(200, 1, 8, 8, generator=generator), generator)
    h = views.images.flatten(1)[:, :5]
    parameters = {name: views.parameters[name] for name in ("crop", "blur")}
    flags = {name: given.applied for name, given in parameters.items()}
    assert augmentation_readout(h, parameters) == augmentation_readout(h, flags)
    with pytest.raises(ValueError, match="'flip' was applied to none of the rows"):
        augmentation_readout(h, views.parameters)


def test_chance_is_the_commonest_class_and_the_null_what_shuffling_gives(generator: torch.Generator) -> None:
    h, labels = blobs(400, generator, classes=3)
    labels = torch.where(labels == 2, 0, labels)
    found = linear_readout(h, labels, (h, labels), null=2000)
    assert found.chance == pytest.approx((labels == 0).double().mean().item()) and found.chance > 0.55
    predictions = (
        found.per_dimension[0] * (labels == 0).sum() + (1 - found.per_dimension[1]) * (labels == 1).sum()
    ) / 400
    share = (labels == 0).double().mean()
    expected = predictions * share + (1 - predictions) * (1 - share)
    assert found.null is not None and found.null.mean == pytest.approx(float(expected), abs=0.005)
    assert linear_readout(h, labels, null=0).null is None


# Domains


@pytest.mark.statistical(false_alarm=1e-6, what="accuracy of telling poles apart, below the best possible: binomial")
@pytest.mark.parametrize("concentration", [0.0, 1.0, 4.0])
def test_poles_are_told_apart_as_well_as_possible(concentration: float) -> None:
    pole = torch.tensor([0.0, 1.0, 0.0])
    north = idt.VonMisesFisher(pole, concentration).sample(1500, generator=0)
    south = idt.VonMisesFisher(-pole, concentration).sample(2000, generator=1)
    found = domain_classifier(north, south, steps=150)
    # The best classifier asks for the hemisphere: on S² its accuracy is 1 / (1 + exp(−κ)).
    best = 1 / (1 + np.exp(-concentration))
    assert found.n == 3000 and found.chance == 0.5
    assert stats.binomtest(round(found.score * 3000), 3000, best, alternative="greater").pvalue > FALSE_ALARM
    assert found.score > best - 0.05
    assert found.null is not None and (found.null.p_value < 0.01 or concentration == 0)


def test_identifiability_fades_where_the_test_marginal_is_elsewhere() -> None:
    """Train around the north pole, test around the south pole (B, Fig. 6)."""
    mixing = idt.InvertibleMLP(3, seed=0, candidates=100)
    vmf = idt.Conditional(idt.VonMisesFisher, concentration=20.0)
    pole = torch.tensor([0.0, 0.0, 1.0])
    north, south = (idt.PairProcess(idt.VonMisesFisher(sign * pole, 10.0), vmf, mixing) for sign in (1, -1))
    encoder = idt.ResidualEncoder(3, idt.Sphere(3), width=32, blocks=1, seed=0)
    config = idt.TrainConfig(steps=300, batch_size=256, lr=5e-3, schedule="cosine", eval_every=300)
    idt.train(north, encoder, idt.InfoNCE(vmf.similarity()), config, quiet=True)
    here, there = idt.evaluate(north, encoder, 1024), idt.evaluate(south, encoder, 1024)
    assert here.r2.score > 0.9 and there.r2.score < here.r2.score - 0.1
    inputs = [process.sample(400, 0).x for process in (north, south)]
    assert domain_classifier(*inputs, steps=100).score > 0.95


def test_the_domain_classifier_takes_images_and_a_network_of_ones_own(generator: torch.Generator) -> None:
    dark, light = (torch.rand(60, 1, 6, 6, generator=generator) + shift for shift in (0.0, 0.5))

    def convolutional() -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))

    before = torch.random.get_rng_state()
    first, again = (domain_classifier(dark, light, network=convolutional, steps=250) for _ in range(2))
    assert first == again and first.score > 0.85
    assert domain_classifier(dark, light, steps=30).score > 0.95
    assert torch.equal(torch.random.get_rng_state(), before), "the global generator is left alone"
    with pytest.raises(ValueError, match=r"two outputs, \(n, 2\), not \(60, 3\)"):
        domain_classifier(dark, light, network=lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 3)))


def test_the_domain_classifier_takes_numpy_arrays(generator: torch.Generator) -> None:
    dark, light = (torch.rand(40, 3, generator=generator) + shift for shift in (0.0, 0.5))
    assert domain_classifier(dark.numpy(), light.numpy(), steps=5) == domain_classifier(dark, light, steps=5)
    with pytest.raises(TypeError, match="train must be a torch tensor, a numpy array"):
        domain_classifier("dark", light)  # type: ignore[arg-type]


# The border


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda h, y: knn_accuracy(h, y[:-1]), "h has 20 rows and labels 19"),
        (lambda h, y: knn_accuracy(h, y.double()), "whole numbers or booleans"),
        (lambda h, y: knn_accuracy(h, y, neighbours=11), "10 rows to find neighbours among"),
        (lambda h, y: knn_accuracy(h, y, distance="manhattan"), "'euclidean' or 'cosine'"),
        (lambda h, y: knn_accuracy(h, torch.zeros_like(y)), "All labels are equal"),
        (lambda h, y: knn_accuracy(h, y, (h[:, :2], y)), "h has 3 columns and h of test has 2"),
        (lambda h, y: knn_accuracy(h[:2], y[:2], neighbours=1), "at least 4"),
        (lambda h, y: knn_accuracy(h * float("nan"), y), "non-finite"),
        (lambda h, y: linear_readout(h, y, penalty=0), "penalty"),
        (lambda h, y: knn_accuracy(h, y, null=-1), "number of permutations"),
        (lambda h, y: knn_accuracy(h, y, (h[:0], y[:0])), "h of test has no rows"),
        (lambda h, y: augmentation_readout(h, {}), "applied is empty"),
        (lambda h, y: augmentation_readout(h, {"crop": y >= 0}), "'crop' was applied to all of the rows"),
        (lambda h, y: augmentation_readout(h, {"crop": y < 0}), "'crop' was applied to none of the rows"),
        (lambda h, y: augmentation_readout(h, {"crop": torch.arange(len(y)) % 3}), r"not numbers from 0 to 2.*classes"),
        (lambda h, y: domain_classifier(h, h[:, :2]), r"not \(20, 3\) and \(20, 2\)"),
        (lambda h, y: domain_classifier(h, h * float("inf")), "finite"),
    ],
)
def test_what_cannot_be_scored_gets_a_sentence(call: object, sentence: str, generator: torch.Generator) -> None:
    with pytest.raises(ValueError, match=sentence):
        call(*blobs(20, generator))  # type: ignore[operator]
