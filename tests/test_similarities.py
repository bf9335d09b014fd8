"""Similarities: their formulas, their gradients where codes coincide, their kernels, and their saved form."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from identica.similarities import (
    Anisotropic,
    DotProduct,
    Kernel,
    LpSimilarity,
    Similarity,
    can_be_rebuilt,
    similarity_from_dict,
)

PRECISION = torch.tensor([0.5, 2.0, 10.0])
SIMILARITIES = [
    DotProduct(0.3),
    DotProduct(0.3, trainable=True),
    *(LpSimilarity(p, 0.2, power=power) for p in (0.5, 1, 1.5, 2, 3, 4) for power in (True, False)),
    LpSimilarity(3, 0.7, trainable=True),
    LpSimilarity(1, 0.7, power=False, trainable=True),
    Anisotropic(3, PRECISION),
    Anisotropic(3, PRECISION, link="softplus"),
    Anisotropic(3, torch.tensor([0.0, 1.0, 4.0]), trainable=False),
]
every_similarity = pytest.mark.parametrize("similarity", SIMILARITIES, ids=str)


def by_formula(similarity: Similarity, a: list[float], b: list[float]) -> float:
    if isinstance(similarity, DotProduct):
        return math.fsum(x * y for x, y in zip(a, b, strict=True)) / float(similarity.temperature)
    if isinstance(similarity, LpSimilarity):
        total = math.fsum(abs(x - y) ** similarity.p for x, y in zip(a, b, strict=True))
        return -(total if similarity.power else total ** (1 / similarity.p)) / float(similarity.temperature)
    assert isinstance(similarity, Anisotropic)
    precision = similarity.precision.tolist()
    return -0.5 * math.fsum(k * (x - y) ** 2 for k, x, y in zip(precision, a, b, strict=True))


@pytest.fixture
def codes(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    a, b = (torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in (5, 4))
    b[0] = a[1]  # one pair coincides, another in one coordinate
    b[1, 2] = a[2, 2]
    return a, b


@every_similarity
@torch.no_grad()
def test_formula(similarity: Similarity, codes: tuple[Tensor, Tensor]) -> None:
    a, b = codes
    expected = torch.tensor(
        [[by_formula(similarity, x, y) for y in b.tolist()] for x in a.tolist()], dtype=torch.float64
    )
    torch.testing.assert_close(similarity.pairwise(a, b), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(similarity(a[:, None], b[None]), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(similarity(a, b[0]), expected[:, 0], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(similarity(a[0], b[0]), expected[0, 0], rtol=1e-6, atol=1e-6)


@every_similarity
@torch.no_grad()
def test_a_kernel_after_a_rescaling(similarity: Similarity, codes: tuple[Tensor, Tensor]) -> None:
    a, b = codes
    assert similarity.kernel is not None
    torch.testing.assert_close(similarity.kernel.pairwise(*similarity.rescale(a, b)), similarity.pairwise(a, b))
    twice = similarity.rescale(a, a)
    assert twice[0] is twice[1]
    torch.testing.assert_close(similarity.kernel.pairwise(*twice), similarity.pairwise(a, a.clone()))


@every_similarity
def test_parameters_get_their_gradients(similarity: Similarity, codes: tuple[Tensor, Tensor]) -> None:
    """d/dθ by autograd against the difference quotient of the formula itself."""
    similarity = similarity_from_dict(similarity.to_dict()).double()
    a, b = codes
    for name, parameter in similarity.named_parameters():
        (grad,) = torch.autograd.grad(similarity.pairwise(a, b).sum(), parameter)
        step = torch.zeros_like(parameter)
        flat, flat_grad = step.view(-1), grad.reshape(-1)
        for i in range(len(flat)):
            values = []
            for sign in (1, -1):
                flat.zero_()
                flat[i] = sign * 1e-6
                moved = torch.func.functional_call(similarity, {name: (parameter + step).detach()}, (a[:, None], b))
                values.append(moved.sum().item())
            assert flat_grad[i].item() == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-5, abs=1e-7)


@every_similarity
def test_gradients_are_finite_and_zero_where_coordinates_coincide(similarity: Similarity) -> None:
    a = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]], requires_grad=True)
    b = torch.tensor([[1.0, 2.0, 3.0], [1.0, 0.0, 3.0]])
    similarity(a, b).sum().backward()
    assert a.grad is not None and a.grad.isfinite().all()
    if isinstance(similarity, DotProduct):
        return
    assert (a.grad[0] == 0).all() and a.grad[1, 0] == 0 and a.grad[1, 2] == 0 and a.grad[1, 1] != 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@every_similarity
def test_half_precision_codes_do_not_overflow(similarity: Similarity, dtype: torch.dtype) -> None:
    if isinstance(similarity, LpSimilarity):
        similarity = LpSimilarity(similarity.p, 0.01, similarity.power)
    a = torch.full((2, 3), 5.0, dtype=dtype, requires_grad=True)
    u = similarity(a, -a.detach())
    u.sum().backward()
    assert u.dtype == torch.float32 and u.isfinite().all()
    assert a.grad is not None and a.grad.dtype == dtype and not a.grad.isnan().any()


@every_similarity
def test_round_trip_through_plain_data(similarity: Similarity, codes: tuple[Tensor, Tensor]) -> None:
    again = similarity_from_dict(json.loads(json.dumps(similarity.to_dict())))
    assert type(again) is type(similarity) and repr(again) == repr(similarity)
    with torch.no_grad():
        torch.testing.assert_close(again.pairwise(*codes), similarity.pairwise(*codes), rtol=1e-6, atol=1e-6)
    assert set(again.state_dict()) == set(similarity.state_dict())


def test_a_precision_that_has_vanished_can_be_rebuilt() -> None:
    similarity = Anisotropic(2)
    with torch.no_grad():
        similarity.log_precision[0] = -200.0
    again = similarity_from_dict(json.loads(json.dumps(similarity.to_dict())))
    assert isinstance(again, Anisotropic) and 0 < again.precision[0].item() < 1e-37
    again.load_state_dict(similarity.state_dict())
    assert again.log_precision.tolist() == [-200.0, 0.0]


def test_learned_parameters_stay_positive_and_are_saved() -> None:
    for similarity, name in ((Anisotropic(3), "log_precision"), (LpSimilarity(1, trainable=True), "log_temperature")):
        assert name in similarity.state_dict()
        optimizer = torch.optim.SGD(similarity.parameters(), lr=1e3)
        for _ in range(3):
            optimizer.zero_grad()
            learned = similarity.precision if isinstance(similarity, Anisotropic) else similarity.temperature
            assert isinstance(learned, Tensor)
            learned.sum().backward()
            optimizer.step()
        assert bool((learned >= 0).all()) and bool(learned.isfinite().all())


@pytest.mark.parametrize("link", ["log", "softplus"])
@pytest.mark.parametrize("value", [1e-4, 0.7, 25.0, 400.0])
def test_both_links_start_at_the_given_precision(link: str, value: float) -> None:
    similarity = Anisotropic(2, value, link=link)  # type: ignore[arg-type]
    torch.testing.assert_close(similarity.precision.detach(), torch.full((2,), value), rtol=1e-5, atol=0)
    similarity(torch.randn(4, 2), torch.randn(4, 2)).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in similarity.parameters())


@pytest.mark.parametrize("link", ["log", "softplus"])
def test_a_vanishing_precision_has_a_finite_slope(link: str) -> None:
    similarity = Anisotropic(2, link=link)  # type: ignore[arg-type]
    with torch.no_grad():
        next(similarity.parameters()).fill_(-1000.0)
    similarity(torch.randn(4, 2), torch.randn(4, 2)).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in similarity.parameters())


def test_a_fixed_temperature_has_no_parameters_and_a_trainable_one_has_a_gradient() -> None:
    assert not list(DotProduct(0.1).parameters()) and DotProduct(0.1).temperature == 0.1
    learned = DotProduct(0.1, trainable=True).temperature
    assert isinstance(learned, Tensor) and learned.requires_grad
    assert learned.item() == pytest.approx(0.1)


def test_float64_codes_stay_float64_and_float32_codes_stay_float32() -> None:
    wide = Anisotropic(3, PRECISION.double(), trainable=False)
    for dtype in (torch.float32, torch.float64):
        a = torch.zeros(2, 3, dtype=dtype)
        assert all(s(a, a).dtype == dtype for s in (wide, Anisotropic(3), DotProduct(0.1, trainable=True)))


class Cosine(Similarity):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.nn.functional.cosine_similarity(a, b, dim=-1)


def test_a_similarity_of_ones_own_needs_only_forward(codes: tuple[Tensor, Tensor]) -> None:
    a, b = codes
    mine = Cosine()
    assert mine.kernel is None and mine.pairwise(a, b).shape == (5, 4)
    torch.testing.assert_close(mine.pairwise(a, b)[2, 3], mine(a[2], b[3]))
    with pytest.raises(ValueError, match="'Cosine' is not one of identica's"):
        similarity_from_dict(mine.to_dict())
    with pytest.raises(NotImplementedError, match="must implement forward"):
        Similarity()(a, a)
    with pytest.raises(NotImplementedError, match="not a rescaling"):
        mine.rescale(a, b)


def test_only_ours_can_be_rebuilt() -> None:
    class Warmer(DotProduct):
        pass

    for ours in (DotProduct(), LpSimilarity(1), Anisotropic(2)):
        assert can_be_rebuilt(ours)
    assert not can_be_rebuilt(Cosine()) and not can_be_rebuilt(Warmer())


def test_numpy_settings_become_plain_ones() -> None:
    yes, two = np.bool_(True), np.int64(2)
    for similarity in (
        DotProduct(np.float32(0.5), yes),  # type: ignore[arg-type]
        LpSimilarity(two, power=yes, trainable=yes),  # type: ignore[arg-type]
        Anisotropic(two, trainable=yes),  # type: ignore[arg-type]
    ):
        assert repr(similarity_from_dict(json.loads(json.dumps(similarity.to_dict())))) == repr(similarity)


def test_mistakes_are_sentences() -> None:
    for p in (0, -1, math.nan, math.inf, "2", None):
        with pytest.raises(ValueError, match="positive, finite p"):
            LpSimilarity(p)  # type: ignore[arg-type]
    for temperature in (0, -1, math.nan, math.inf, "0.1", None):
        with pytest.raises(ValueError, match="temperature must be positive and finite"):
            DotProduct(temperature)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one length along the last axis"):
        LpSimilarity(1)(torch.zeros(2, 3), torch.zeros(2, 4))
    with pytest.raises(ValueError, match="codes of length 3 along the last axis"):
        Anisotropic(3)(torch.zeros(2, 4), torch.zeros(2, 4))
    with pytest.raises(ValueError, match="one number or 3 of them"):
        Anisotropic(3, torch.ones(2))
    with pytest.raises(TypeError, match="is of real numbers"):
        Anisotropic(3, torch.tensor([1.0, 2.0j, 3.0]))
    with pytest.raises(TypeError, match="one number or 3 of them, not 'abc'"):
        Anisotropic(3, "abc")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be positive and finite"):
        Anisotropic(2, torch.tensor([0.0, 1.0]))
    with pytest.raises(ValueError, match="at least 0 and finite"):
        Anisotropic(2, torch.tensor([-1.0, 1.0]), trainable=False)
    for dim in (0, 2.7, "2"):
        with pytest.raises(ValueError, match=f"dim must be a whole number of at least 1, not {dim!r}"):
            Anisotropic(dim)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='link must be "log" or "softplus"'):
        Anisotropic(2, link="exp")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Unknown similarity 'cosine'"):
        similarity_from_dict({"similarity": "cosine"})
    with pytest.raises(ValueError, match="Unknown kernel"):
        Kernel("cosine")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="need a power p"):
        Kernel("lp")


def test_repr() -> None:
    assert repr(DotProduct(0.1)) == "DotProduct(temperature=0.1)"
    assert repr(LpSimilarity(3, 0.2, power=False)) == "LpSimilarity(3, temperature=0.2, power=False)"
    assert repr(Anisotropic(2)) == "Anisotropic(2, precision=1)"
    assert (
        repr(Anisotropic(2, torch.tensor([1.0, 4.0]), trainable=False))
        == "Anisotropic(2, precision=[1, 4], trainable=False)"
    )
