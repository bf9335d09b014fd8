"""Alignment and uniformity, the spectral losses, ensembles, the supervised baseline; encoding; saved forms."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from identica.objectives import (
    AlignUniform,
    AnInfoNCE,
    EnsembleInfoNCE,
    InfoNCE,
    Objective,
    SpectralContrastive,
    Supervised,
    Terms,
    TriCL,
    objective_from_dict,
)
from identica.similarities import Anisotropic, DotProduct, LpSimilarity, Similarity


def codes(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@dataclass(frozen=True)
class SomePairs:
    """Pairs as a process would draw them."""

    x: Tensor
    x_pos: Tensor
    x_neg: Tensor | None = None
    z: Tensor | None = None


# Alignment and uniformity


@pytest.mark.parametrize("p", [0.5, 1, 2, 3])
@pytest.mark.parametrize("impl", ["reference", "tiled"])
def test_align_uniform_is_its_two_expectations(p: float, impl: str) -> None:
    h, h_pos = codes(6, 3), codes(6, 3, seed=1)

    def distance(a: Tensor, b: Tensor) -> Tensor:
        return (a - b).abs().pow(p).sum()

    align = torch.stack([distance(h[i], h_pos[i]) for i in range(6)])
    uniform = torch.stack(
        [torch.stack([(-distance(h[i], h[j])).exp() for j in range(6) if j != i]).mean().log() for i in range(6)]
    )
    for alpha in (0.0, 0.3, 1.0):
        terms = AlignUniform(alpha, p, impl=impl).terms(h, h_pos)
        torch.testing.assert_close(terms.per_item, alpha * uniform + (1 - alpha) * align)
        torch.testing.assert_close(terms.loss, alpha * uniform.mean() + (1 - alpha) * align.mean())
        torch.testing.assert_close(terms.information, -(align + uniform).mean())
        torch.testing.assert_close(terms.alignment, -align.mean())


def test_align_uniform_takes_given_negatives_masks_and_weights() -> None:
    h, h_pos, h_neg = codes(4, 3), codes(4, 3, seed=1), codes(5, 3, seed=2)
    mask, weights = torch.ones(4, 5, dtype=torch.bool), torch.tensor([1.0, 0.0, 0.0, 3.0])
    mask[:, 0] = False
    found = AlignUniform(0.5, 2)(h, h_pos, h_neg, mask=mask, weights=weights)
    per_item = AlignUniform(0.5, 2).terms(h, h_pos, h_neg[1:]).per_item
    torch.testing.assert_close(found, (per_item[0] + 3 * per_item[3]) / 4)


def test_align_uniform_with_equal_weights_is_half_of_info_nce_less_a_constant() -> None:
    h, h_pos = codes(7, 3), codes(7, 3, seed=1)
    info = InfoNCE(LpSimilarity(1), include_positive=False)(h, h_pos)
    torch.testing.assert_close(2 * AlignUniform(0.5, 1)(h, h_pos), info - torch.tensor(6.0).double().log())


# The spectral loss and TriCL


def spectral_by_loops(h: Tensor, h_pos: Tensor, importance: Tensor) -> Tensor:
    size = len(h)
    aligned = torch.stack([(h[i] * importance * h_pos[i]).sum() for i in range(size)]).mean()
    pairs = [(i, j) for i, j in itertools.product(range(size), repeat=2) if i != j]
    squares = torch.stack([(h[i] * importance * h[j]).sum() ** 2 for i, j in pairs]).mean()
    return -2 * aligned + squares


def test_spectral_contrastive_is_its_two_expectations() -> None:
    h, h_pos = codes(6, 3), codes(6, 3, seed=1)
    terms = SpectralContrastive().terms(h, h_pos)
    torch.testing.assert_close(terms.loss, spectral_by_loops(h, h_pos, torch.ones(3)))
    torch.testing.assert_close(terms.per_item.mean(), terms.loss)
    torch.testing.assert_close(terms.alignment, (h * h_pos).sum(dim=1).mean())
    for name in ("log_partition", "accuracy", "information"):
        assert getattr(terms, name).isnan() and getattr(terms, name).shape == ()


def test_spectral_contrastive_with_a_mask_or_given_negatives() -> None:
    h, h_pos, h_neg = codes(5, 3), codes(5, 3, seed=1), codes(4, 3, seed=2)
    everyone = torch.ones(5, 5, dtype=torch.bool)
    loss = SpectralContrastive()
    torch.testing.assert_close(loss(h, h_pos, mask=everyone), loss(h, h_pos))
    torch.testing.assert_close(loss(h, h_pos, h_neg), loss(h, h_pos, h_neg.expand(5, 4, 3)))
    some = torch.tensor([True, False, True, True]).expand(5, 4)
    torch.testing.assert_close(loss(h, h_pos, h_neg, mask=some), loss(h, h_pos, h_neg[[0, 2, 3]]))
    torch.testing.assert_close(loss(h, h_pos, h_neg.expand(5, 4, 3), mask=some), loss(h, h_pos, h_neg[[0, 2, 3]]))
    with pytest.raises(ValueError, match="There are no negatives"):
        loss(h[:1], h_pos[:1])


def test_tricl_scales_every_term_and_decorrelates() -> None:
    h, h_pos, importance = codes(6, 3), codes(6, 3, seed=1), torch.tensor([2.0, 1.0, 0.25])
    moment = sum(torch.outer(row, row) for row in h) / 6
    off = ((moment - torch.eye(3)) ** 2).sum()
    for weight in (0.0, 1.0, 0.5):
        loss = TriCL(3, init=importance, decorrelation=weight)
        expected = spectral_by_loops(h, h_pos, importance.double()) + weight * off
        torch.testing.assert_close(loss(h, h_pos).detach(), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(loss.importance.detach(), importance)


def test_tricl_gradcheck() -> None:
    loss = TriCL(3, init=0.5).double()
    h, h_pos = codes(5, 3).requires_grad_(), codes(5, 3, seed=1).requires_grad_()
    start = loss.log_importance.detach().clone().requires_grad_()

    def value(h: Tensor, h_pos: Tensor, log_importance: Tensor) -> Tensor:
        return torch.func.functional_call(loss, {"log_importance": log_importance}, (h, h_pos))

    assert torch.autograd.gradcheck(value, (h, h_pos, start))


def test_weights_are_repetitions_in_the_decorrelation_too() -> None:
    """Given negatives do not depend on the batch, so an item of weight k is k items of weight 1."""
    h, h_pos, h_neg = codes(3, 2), codes(3, 2, seed=1), codes(5, 2, seed=2)
    loss = TriCL(2, torch.tensor([0.5, 2.0]), decorrelation=3.0)
    counts = torch.tensor([1, 4, 0])
    expected = loss(h.repeat_interleave(counts, dim=0), h_pos.repeat_interleave(counts, dim=0), h_neg)
    torch.testing.assert_close(loss(h, h_pos, h_neg, weights=counts), expected)
    h[2] = torch.inf  # without weight it does not count, whatever it is
    torch.testing.assert_close(loss(h, h_pos, h_neg, weights=counts), expected)


def test_tricl_mistakes_are_sentences() -> None:
    for dim in (0, 2.5, "2"):
        with pytest.raises(ValueError, match=f"dim must be a whole number of at least 1, not {dim!r}"):
            TriCL(dim)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one positive number or 3 of them"):
        TriCL(3, init=torch.tensor([1.0, -1.0, 1.0]))
    with pytest.raises(ValueError, match="decorrelation must be finite"):
        TriCL(3, decorrelation=-1)
    with pytest.raises(ValueError, match=r"TriCL\(3\) needs codes of length 3"):
        TriCL(3)(codes(4, 2), codes(4, 2))


# Ensembles


def test_an_ensemble_is_the_sum_of_its_members() -> None:
    similarities = [Anisotropic(3, 2.0), Anisotropic(3, 5.0)]
    h, h_pos = (codes(5, 3), codes(5, 3, seed=1)), (codes(5, 3, seed=2), codes(5, 3, seed=3))
    parts = [InfoNCE(s).terms(a, b) for s, a, b in zip(similarities, h, h_pos, strict=True)]
    terms = EnsembleInfoNCE(similarities).terms(h, h_pos)
    for name in ("loss", "alignment", "log_partition", "information", "per_item"):
        torch.testing.assert_close(getattr(terms, name), getattr(parts[0], name) + getattr(parts[1], name))
    torch.testing.assert_close(terms.accuracy, (parts[0].accuracy + parts[1].accuracy) / 2)
    torch.testing.assert_close(EnsembleInfoNCE(similarities)(h, h_pos), terms.loss)


def test_ensembles_encode_all_pairs_in_one_call() -> None:
    calls = []

    def encoder(x: Tensor) -> Tensor:
        calls.append(len(x))
        return x.tanh()

    pairs = tuple(SomePairs(codes(5, 3, seed=i), codes(5, 3, seed=i + 2)) for i in range(2))
    loss = EnsembleInfoNCE([Anisotropic(3), Anisotropic(3, 4.0)])
    found = loss.compute(encoder, pairs)
    assert calls == [20]
    h, h_pos = (p.x.tanh() for p in pairs), (p.x_pos.tanh() for p in pairs)
    torch.testing.assert_close(found.loss, loss(tuple(h), tuple(h_pos)))


def test_members_of_an_ensemble_do_not_share_what_they_learn() -> None:
    with pytest.raises(ValueError, match="would learn one set of parameters"):
        EnsembleInfoNCE([Anisotropic(3)] * 2)
    EnsembleInfoNCE([DotProduct(0.5)] * 2)  # which learn nothing


def test_ensembles_of_the_wrong_size_are_sentences() -> None:
    with pytest.raises(ValueError, match=r"codes of \[3, 4\] dimensions"):
        EnsembleInfoNCE([Anisotropic(3), Anisotropic(4)])
    with pytest.raises(ValueError, match="at least two similarities"):
        EnsembleInfoNCE([DotProduct()])
    with pytest.raises(TypeError, match=r"a list of similarities, one per process, not Anisotropic\(3"):
        EnsembleInfoNCE(Anisotropic(3))  # type: ignore[arg-type]
    loss = EnsembleInfoNCE([DotProduct(), DotProduct(0.5)])
    h = codes(4, 3)
    with pytest.raises(ValueError, match=r"h must be a tuple of 2, one per process, not a single tensor"):
        loss(h, h)
    with pytest.raises(ValueError, match=r"h_pos must be a tuple of 2, one per process, not 3"):
        loss((h, h), (h, h, h))
    with pytest.raises(ValueError, match=r"pairs must be a tuple of 2, one per process, not 1"):
        loss.compute(lambda x: x, SomePairs(h, h))
    with pytest.raises(ValueError, match="same number of rows, but their batches have 4, 3"):
        loss((h, h[:3]), (h, h[:3]))
    for name in ("h_neg", "mask", "weights"):
        with pytest.raises(ValueError, match=f"{name} must be a tuple of 2, one per process, not a single tensor"):
            loss((h, h), (h, h), **{name: h})


@pytest.mark.parametrize(
    "objective", [InfoNCE(DotProduct()), AlignUniform(), SpectralContrastive(), TriCL(3), Supervised()]
)
def test_several_kinds_of_pairs_are_for_ensembles(objective: Objective) -> None:
    h = codes(4, 3)
    both = (SomePairs(h, h, z=h), SomePairs(h, h, z=h))
    with pytest.raises(ValueError, match="takes one kind of pairs, not a tuple of 2, as an EnsembleProcess draws"):
        objective.compute(lambda x: x, both)


# Supervised


def test_supervised_is_the_mean_squared_error() -> None:
    h, z = codes(5, 3).requires_grad_(), codes(5, 3, seed=1)
    terms = Supervised().terms(h, z)
    torch.testing.assert_close(terms.loss, nn.functional.mse_loss(h, z))
    assert terms.per_item.shape == (5,) and terms.alignment.isnan()
    assert Supervised().compute(lambda x: x, SomePairs(z, z, z=z)).loss == 0
    with pytest.raises(ValueError, match="needs the true latents z"):
        Supervised().compute(lambda x: x, SomePairs(z, z))
    with pytest.raises(ValueError, match="one shape"):
        Supervised()(h, z[:, :2])
    with pytest.raises(ValueError, match="no negatives"):
        Supervised()(h, z, z)


def test_supervised_computes_half_precision_codes_in_float32() -> None:
    h, z = torch.full((4, 2), 300.0, dtype=torch.float16), torch.zeros(4, 2, dtype=torch.float16)
    loss = Supervised()(h, z)
    assert loss.dtype == torch.float32 and loss.item() == 90_000


# What all share


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return 2 * x + 1


@pytest.mark.parametrize("positives", [(), (2,)], ids=["one", "two"])
@pytest.mark.parametrize("negatives", [None, (7,), (5, 7)], ids=["batch", "shared", "per anchor"])
def test_compute_encodes_all_views_in_one_call(positives: tuple[int, ...], negatives: tuple[int, ...] | None) -> None:
    x, x_pos = codes(5, 3), codes(5, *positives, 3, seed=1)
    x_neg = None if negatives is None else codes(*negatives, 3, seed=2)
    encoder = Linear()
    loss = InfoNCE(LpSimilarity(1))
    found = loss.compute(encoder, SomePairs(x, x_pos, x_neg))
    assert encoder.calls == 1
    torch.testing.assert_close(found.loss, loss(2 * x + 1, 2 * x_pos + 1, None if x_neg is None else 2 * x_neg + 1))


def test_compute_encodes_observations_of_any_shape() -> None:
    images, others = codes(4, 1, 8, 8), codes(4, 3, 1, 8, 8, seed=1)
    found = InfoNCE(DotProduct()).compute(lambda x: x.flatten(1)[:, :5], SomePairs(images, others))
    expected = InfoNCE(DotProduct())(images.flatten(1)[:, :5], others.flatten(2)[..., :5])
    torch.testing.assert_close(found.loss, expected)


OBJECTIVES: list[Objective] = [
    InfoNCE(DotProduct(0.2), negatives="both", include_positive=False, symmetric=True),
    InfoNCE(LpSimilarity(3, 0.2, trainable=True), self_negatives=True, in_batch=True, impl="tiled"),
    AnInfoNCE(3, torch.tensor([1.0, 2.0, 3.0])),
    AlignUniform(0.9, 1),
    SpectralContrastive(),
    TriCL(3, torch.tensor([0.5, 1.0, 2.0]), decorrelation=0.1),
    EnsembleInfoNCE([Anisotropic(3, 2.0), Anisotropic(3, 3.0)], include_positive=False),
    Supervised(),
]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: type(o).__name__)
def test_round_trip_through_plain_data(objective: Objective) -> None:
    again = objective_from_dict(json.loads(json.dumps(objective.to_dict())))
    assert type(again) is type(objective) and repr(again) == repr(objective)
    assert again.state_dict().keys() == objective.state_dict().keys()
    h, h_pos = codes(6, 3), codes(6, 3, seed=1)
    arguments = ((h, h), (h_pos, h_pos)) if isinstance(objective, EnsembleInfoNCE) else (h, h_pos)
    torch.testing.assert_close(again(*arguments), objective(*arguments))


class Mine(Objective):
    def terms(self, h: Tensor, h_pos: Tensor, h_neg: Tensor | None = None, **settings: Tensor | None) -> Terms:  # type: ignore[override]
        loss = (h - h_pos).square().mean()
        return Terms(loss, loss, loss, loss, loss, (h - h_pos).square().mean(dim=1))


def test_an_objective_of_ones_own_needs_only_terms() -> None:
    h = codes(4, 3)
    assert Mine()(h, h + 1).item() == pytest.approx(1)
    assert Mine().compute(lambda x: x, SomePairs(h, h + 1)).loss.item() == pytest.approx(1)
    with pytest.raises(ValueError, match="'Mine' is not one of identica's"):
        objective_from_dict(Mine().to_dict())
    with pytest.raises(ValueError, match="Unknown objective None"):
        objective_from_dict({})
    with pytest.raises(NotImplementedError, match="must implement terms"):
        Objective()(h, h)


class Cosine(Similarity):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.nn.functional.cosine_similarity(a, b, dim=-1)


class MyInfoNCE(InfoNCE):
    pass


@pytest.mark.parametrize(
    ("objective", "name"),
    [
        (InfoNCE(Cosine()), "InfoNCE(Cosine)"),
        (MyInfoNCE(DotProduct()), "MyInfoNCE(DotProduct)"),
        (EnsembleInfoNCE([DotProduct(), Cosine()]), "EnsembleInfoNCE([DotProduct, Cosine])"),
    ],
)
def test_what_cannot_be_rebuilt_says_so(objective: Objective, name: str) -> None:
    assert objective.to_dict() == {"class": name}
    with pytest.raises(ValueError, match="is not one of identica's"):
        objective_from_dict(objective.to_dict())


def test_numpy_settings_become_plain_ones() -> None:
    yes = np.bool_(True)
    settings = dict.fromkeys(("include_positive", "self_negatives", "symmetric", "in_batch"), yes)
    for objective in (
        InfoNCE(DotProduct(), **settings),  # type: ignore[arg-type]
        TriCL(np.int64(3)),  # type: ignore[arg-type]
        AlignUniform(np.float32(0.5), np.int64(1)),  # type: ignore[arg-type]
    ):
        assert repr(objective_from_dict(json.loads(json.dumps(objective.to_dict())))) == repr(objective)


def test_wrong_alpha_or_p_is_a_sentence() -> None:
    for alpha in (-0.1, 1.1, "0.5"):
        with pytest.raises(ValueError, match=r"lies in \[0, 1\]"):
            AlignUniform(alpha, 1)  # type: ignore[arg-type]
    for p in (0, "1"):
        with pytest.raises(ValueError, match="positive, finite p"):
            AlignUniform(0.5, p)  # type: ignore[arg-type]
