"""InfoNCE against loops over lists, over every combination of its settings; its promises one by one."""

from __future__ import annotations

import copy
import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from identica.objectives import AnInfoNCE, InfoNCE, Terms
from identica.similarities import Anisotropic, DotProduct, LpSimilarity, Similarity
from tests.objectives.brute_force import info_nce_items

SIMILARITIES = [DotProduct(0.5), LpSimilarity(1, 0.7), LpSimilarity(3, 0.7), Anisotropic(3, 2.0)]


def codes(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_loops(similarity: Similarity, h: Tensor, h_pos: Tensor, h_neg: Tensor | None, **settings: Any) -> Any:
    def u(a: Any, b: Any) -> float:
        return similarity(torch.tensor(a, dtype=h.dtype), torch.tensor(b, dtype=h.dtype)).item()

    positives = h_pos if h_pos.ndim == 3 else h_pos[:, None]
    given = None if h_neg is None else h_neg.tolist()
    shared = h_neg is None or h_neg.ndim == 2
    return info_nce_items(u, h.tolist(), positives.tolist(), given, shared=shared, **settings)


def assert_terms(terms: Terms, items: list[dict[str, float]], weights: list[float] | None = None) -> None:
    weights = [w * (item["count"] > 0) for w, item in zip(weights or [1.0] * len(items), items, strict=True)]

    def mean(values: list[float]) -> float:
        return math.fsum(w * v for w, v in zip(weights, values, strict=True) if w) / math.fsum(weights)

    for name in ("loss", "alignment", "log_partition", "accuracy"):
        found = getattr(terms, name)
        assert found.shape == ()
        assert found.item() == pytest.approx(mean([i[name] for i in items]), rel=1e-9, abs=1e-9), name
    information = mean([math.log(i["count"]) - i["loss"] if i["count"] else 0.0 for i in items])
    assert terms.information.item() == pytest.approx(information, rel=1e-9, abs=1e-9)
    assert terms.per_item.tolist() == pytest.approx([i["loss"] for i in items], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("negatives", ["anchors", "positives", "both"])
@pytest.mark.parametrize("impl", ["reference", "tiled"])
@pytest.mark.parametrize("similarity", SIMILARITIES, ids=str)
def test_negatives_from_the_batch(similarity: Similarity, impl: str, negatives: Any) -> None:
    h = codes(5, 3, seed=1)
    for include, own, positives in itertools.product((True, False), (True, False), (None, 2)):
        h_pos = codes(5, 3, seed=2) if positives is None else codes(5, positives, 3, seed=2)
        settings = {"negatives": negatives, "include_positive": include, "self_negatives": own}
        terms = InfoNCE(similarity, impl=impl, **settings).terms(h, h_pos)
        assert_terms(terms, by_loops(similarity, h, h_pos, None, **settings))


@pytest.mark.parametrize("given", [(6, 3), (5, 6, 3), (1, 3)], ids=["shared", "per anchor", "one"])
@pytest.mark.parametrize("in_batch", [False, True])
@pytest.mark.parametrize("similarity", SIMILARITIES, ids=str)
def test_given_negatives(similarity: Similarity, in_batch: bool, given: tuple[int, ...]) -> None:
    h, h_pos, h_neg = codes(5, 3, seed=1), codes(5, 3, seed=2), codes(*given, seed=3)
    for include in (True, False):
        terms = InfoNCE(similarity, include_positive=include, in_batch=in_batch).terms(h, h_pos, h_neg)
        assert_terms(terms, by_loops(similarity, h, h_pos, h_neg, include_positive=include, in_batch=in_batch))


@pytest.mark.parametrize("impl", ["reference", "tiled"])
@pytest.mark.parametrize("given", [None, (6, 3), (5, 6, 3)], ids=["batch", "shared", "per anchor"])
@pytest.mark.parametrize("in_batch", [False, True])
def test_masks_and_weights(impl: str, given: tuple[int, ...] | None, in_batch: bool) -> None:
    similarity = LpSimilarity(1, 0.7)
    h, h_pos = codes(5, 3, seed=1), codes(5, 3, seed=2)
    h_neg = None if given is None else codes(*given, seed=3)
    columns = (5 if given is None or in_batch else 0) + (0 if given is None else 6)
    mask = torch.rand(5, columns, generator=torch.Generator().manual_seed(4)) < 0.6
    mask[3] = False
    weights = torch.tensor([1.0, 0.0, 2.5, 1.0, 0.5])
    for include in (True, False):
        objective = InfoNCE(similarity, include_positive=include, in_batch=in_batch, impl=impl)
        terms = objective.terms(h, h_pos, h_neg, mask=mask, weights=weights)
        items = by_loops(similarity, h, h_pos, h_neg, include_positive=include, in_batch=in_batch, mask=mask.tolist())
        assert_terms(terms, items, weights.tolist())


@pytest.mark.parametrize("negatives", ["anchors", "positives", "both"])
def test_symmetric_averages_the_two_directions(negatives: Any) -> None:
    similarity = Anisotropic(3, torch.tensor([1.0, 2.0, 5.0]))
    h, h_pos = codes(5, 3, seed=1), codes(5, 3, seed=2)
    there = by_loops(similarity, h, h_pos, None, negatives=negatives)
    back = by_loops(similarity, h_pos, h, None, negatives=negatives)
    items = [{k: (a[k] + b[k]) / 2 for k in a} for a, b in zip(there, back, strict=True)]
    assert_terms(InfoNCE(similarity, negatives, symmetric=True).terms(h, h_pos), items)


@pytest.mark.parametrize("impl", ["reference", "tiled"])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("similarity", SIMILARITIES, ids=str)
def test_gradcheck_of_codes_and_parameters(similarity: Similarity, symmetric: bool, impl: str) -> None:
    similarity = copy.deepcopy(similarity).double()
    h, h_pos, h_neg = (codes(n, 3, seed=n).requires_grad_() for n in (4, 4, 5))
    objective = InfoNCE(similarity, negatives="both", symmetric=symmetric, in_batch=True, impl=impl)
    names = [name for name, _ in objective.named_parameters()]
    values = [p.detach().clone().requires_grad_() for p in objective.parameters()]

    def loss(h: Tensor, h_pos: Tensor, h_neg: Tensor, *parameters: Tensor) -> Tensor:
        replaced = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(objective, replaced, (h, h_pos, h_neg))

    assert torch.autograd.gradcheck(loss, (h, h_pos, h_neg, *values))


def test_a_single_anchor() -> None:
    h, h_pos = codes(1, 3), codes(1, 3, seed=1)
    for similarity in SIMILARITIES:
        terms = InfoNCE(similarity).terms(h.requires_grad_(), h_pos)
        assert terms.loss.item() == 0 and terms.information.item() == 0 and terms.accuracy.item() == 1
        (grad,) = torch.autograd.grad(terms.loss, h)
        assert (grad == 0).all()
        with pytest.raises(ValueError, match="There are no negatives"):
            InfoNCE(similarity, include_positive=False)(h, h_pos)
        assert InfoNCE(similarity, include_positive=False)(h, h_pos, codes(2, 3)).isfinite()
        assert InfoNCE(similarity, include_positive=False, self_negatives=True)(h, h_pos).isfinite()


@pytest.mark.parametrize("similarity", [DotProduct(0.01), LpSimilarity(1, 0.01), LpSimilarity(2, 0.01)], ids=str)
@pytest.mark.parametrize("impl", ["reference", "tiled"])
def test_ties_are_wrong(similarity: Similarity, impl: str) -> None:
    """A collapsed encoder finds no positive, however its similarities are rounded."""
    collapsed = torch.nn.functional.normalize(torch.randn(1, 10), dim=-1).expand(150, 10)
    terms = InfoNCE(similarity, impl=impl).terms(collapsed, collapsed.clone())
    assert terms.accuracy.item() == 0
    assert terms.loss.item() == pytest.approx(math.log(150), rel=1e-4)
    assert terms.information.item() == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("temperature", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("p", [None, 0.5, 1, 2, 3])
@pytest.mark.parametrize("impl", ["reference", "tiled"])
def test_half_precision_has_no_nan(impl: str, p: float | None, temperature: float, dtype: torch.dtype) -> None:
    similarity = DotProduct(temperature) if p is None else LpSimilarity(p, temperature)
    h, h_pos = (torch.randn(40, 10, generator=torch.Generator().manual_seed(s)).to(dtype) for s in (0, 1))
    h_pos[:20] = h[:20]
    leaf = h.clone().requires_grad_()
    terms = InfoNCE(similarity, impl=impl).terms(leaf, h_pos)
    terms.loss.backward()
    assert terms.loss.isfinite() and leaf.grad is not None and leaf.grad.isfinite().all()
    exact = InfoNCE(similarity, impl="reference").terms(h.double(), h_pos.double())
    torch.testing.assert_close(terms.loss.double(), exact.loss, rtol=1e-4, atol=1e-4)


def test_given_negatives_are_taken_as_given() -> None:
    """A given negative that is the anchor itself still counts: nothing is dropped by value."""
    h = codes(3, 2)
    terms = InfoNCE(LpSimilarity(2)).terms(h, h + 1, h[:, None])
    assert terms.information.item() == pytest.approx(math.log(2) - terms.loss.item())
    assert terms.loss.item() == pytest.approx(math.log(1 + math.exp(2)))


def test_information_does_not_depend_on_the_batch_size() -> None:
    """For codes that say nothing the loss grows with the batch, the information stays 0."""
    losses = []
    for size in (8, 64):
        terms = InfoNCE(DotProduct()).terms(torch.zeros(size, 2), torch.zeros(size, 2))
        assert terms.information.item() == pytest.approx(0, abs=1e-5)
        losses.append(terms.loss.item())
    assert losses[1] > losses[0] + 2


def test_what_carries_a_gradient() -> None:
    terms = InfoNCE(DotProduct()).terms(codes(4, 3).requires_grad_(), codes(4, 3))
    assert terms.loss.requires_grad and terms.per_item.requires_grad
    for name in ("alignment", "log_partition", "accuracy", "information"):
        assert not getattr(terms, name).requires_grad


def test_an_infonce_learns_a_precision() -> None:
    objective = AnInfoNCE(3, init=2.0)
    assert isinstance(objective.similarity, Anisotropic) and objective.similarity.trainable
    objective(codes(5, 3).float(), codes(5, 3, seed=1).float()).backward()
    assert objective.similarity.log_precision.grad is not None
    assert "similarity.log_precision" in objective.state_dict(), "the learned precision must be saved"
    joined = AnInfoNCE(3, in_batch=True, include_positive=False)
    assert joined.settings() == InfoNCE(Anisotropic(3), in_batch=True, include_positive=False).settings()


class Cosine(Similarity):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.nn.functional.cosine_similarity(a, b, dim=-1)


def test_a_similarity_of_ones_own() -> None:
    h, h_pos, unit = codes(5, 3), codes(5, 3, seed=1), torch.nn.functional.normalize
    expected = InfoNCE(DotProduct())(unit(h), unit(h_pos))
    torch.testing.assert_close(InfoNCE(Cosine())(h, h_pos), expected)
    with pytest.raises(ValueError, match="needs a similarity with a kernel"):
        InfoNCE(Cosine(), impl="tiled")(h, h_pos)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"h": codes(4)}, r"shape \(B, d\)"),
        ({"h": codes(0, 3), "h_pos": codes(0, 3)}, r"with B ≥ 1"),
        ({"h_pos": codes(3, 3)}, r"h_pos must have the shape \(4, 3\)"),
        ({"h_pos": codes(4, 2)}, r"h_pos must have the shape"),
        ({"h_neg": codes(4)}, r"h_neg must have the shape \(M, 3\)"),
        ({"h_neg": codes(3, 5, 3)}, r"h_neg must have the shape"),
        ({"mask": torch.ones(4, 3, dtype=torch.bool)}, r"mask must be a bool tensor of shape \(4, 4\)"),
        ({"mask": torch.ones(4, 4)}, r"mask must be a bool tensor"),
        ({"weights": torch.ones(3)}, r"weights must have the shape \(4,\)"),
    ],
)
def test_wrong_shapes_are_sentences(arguments: dict[str, Tensor], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        InfoNCE(DotProduct())(**({"h": codes(4, 3), "h_pos": codes(4, 3)} | arguments))


def test_wrong_settings_are_sentences() -> None:
    with pytest.raises(ValueError, match="InfoNCE needs a similarity"):
        InfoNCE(0.1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='"anchors", "positives" or "both"'):
        InfoNCE(DotProduct(), negatives="all")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Unknown implementation"):
        InfoNCE(DotProduct(), impl="fast")
    with pytest.raises(ValueError, match="length 3"):
        InfoNCE(Anisotropic(3))(codes(4, 2), codes(4, 2))


def test_repr_shows_what_is_not_default() -> None:
    assert "include_positive" not in repr(InfoNCE(DotProduct()))
    shown = repr(InfoNCE(DotProduct(), negatives="both", self_negatives=True))
    assert "negatives='both'" in shown and "self_negatives=True" in shown and "DotProduct" in shown
