from __future__ import annotations

import pytest
import torch

from identica.encoders import BoxHead, SphereHead, make_head
from identica.spaces import Box, Euclidean, Product, Space, Sphere

SPACES: list[Space] = [
    Sphere(4),
    Sphere(4, radius=2.5),
    Box(4),
    Box(4, low=-1.0, high=(0.0, 1.0, 2.0, 3.0)),
    Euclidean(4),
    Product(Sphere(2, radius=3.0), Box(2, low=-1.0)),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_heads_end_in_their_space(space: Space, dtype: torch.dtype, generator: torch.Generator) -> None:
    head = make_head(space).to(dtype)
    x = (10 * torch.randn(50, 4, generator=generator)).to(dtype)
    h = head(x)
    assert h.shape == x.shape and h.dtype == dtype
    assert bool(space.contains(h, atol=1e-5 if dtype == torch.float32 else 1e-6).all())


@pytest.mark.parametrize("space", SPACES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gives_finite_float32_codes(
    space: Space, dtype: torch.dtype, generator: torch.Generator
) -> None:
    head = make_head(space).to(dtype)
    weights = torch.randn(20, 4, generator=generator)
    for size in (0.0, torch.finfo(dtype).tiny, 1.0, 2e4):
        x = (torch.randn(20, 4, generator=generator).clamp(-2, 2) * size).to(dtype).requires_grad_()
        h = head(x)
        (h * weights).mean().backward()
        assert h.dtype == torch.float32 and bool(h.isfinite().all())
        assert x.grad is not None and bool(x.grad.isfinite().all())


def test_normalisation_is_exact_where_an_epsilon_would_vanish_or_dominate() -> None:
    directions = torch.tensor([[3.0, 4.0]])
    for size in (1e-20, 1e-12, 1.0, 1e18):
        assert torch.allclose(SphereHead(Sphere(2))(directions * size), torch.tensor([[0.6, 0.8]]), atol=1e-6)
    half = torch.tensor([[6e-8, 0.0]], dtype=torch.float16)  # the smallest float16; its square is zero there
    assert torch.equal(SphereHead(Sphere(2))(half), torch.tensor([[1.0, 0.0]]))


def test_the_zero_row_has_a_code_and_gradient_zero() -> None:
    x = torch.zeros(1, 3, requires_grad=True)
    h = SphereHead(Sphere(3, radius=2.0))(x)
    h.sum().backward()
    assert torch.equal(h.detach(), torch.tensor([[2.0, 0.0, 0.0]]))
    assert x.grad is not None and torch.equal(x.grad, torch.zeros(1, 3))


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_gradients(space: Space, generator: torch.Generator) -> None:
    head = make_head(space, learn_radius=True).double()
    x = torch.randn(3, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(head, (x,))


def test_a_learned_radius_starts_at_the_spaces_and_gets_a_gradient(generator: torch.Generator) -> None:
    head = SphereHead(Sphere(3, radius=2.0), learn_radius=True)
    h = head(torch.randn(5, 3, generator=generator))
    assert torch.allclose(h.norm(dim=1), torch.tensor(2.0))
    h.square().sum().backward()  # Σ r² over five rows: d/d log r = 2 · 5 · r²
    assert head.log_radius.grad is not None and head.log_radius.grad.item() == pytest.approx(40.0, rel=1e-5)
    assert list(SphereHead(Sphere(3)).parameters()) == []


def test_the_bound_is_learned_per_dimension_and_starts_at_the_sides() -> None:
    head = BoxHead(Box(2, low=(-1.0, 0.0), high=(1.0, 5.0)))
    assert torch.allclose(head.bound, torch.tensor([2.0, 5.0]))
    assert torch.allclose(head(torch.zeros(2)), torch.tensor([0.0, 2.5]))
    head(torch.zeros(2)).sum().backward()
    assert head.log_bound.grad is not None and torch.allclose(head.log_bound.grad, torch.tensor([1.0, 2.5]))
    assert [name for name, _ in head.named_parameters()] == ["log_bound"]


def test_a_fixed_bound_is_saved_but_not_trained() -> None:
    head = BoxHead(Box(2, high=3.0), learn_bound=False)
    assert list(head.parameters()) == [] and "log_bound" in head.state_dict()
    assert torch.allclose(head.bound, torch.tensor([3.0, 3.0]))


def test_product_splits(generator: torch.Generator) -> None:
    x = torch.randn(6, 5, generator=generator)
    h = make_head(Product(Sphere(2), Box(2), Euclidean(1)))(x)
    assert torch.equal(h[:, :2], SphereHead(Sphere(2))(x[:, :2]))
    assert torch.equal(h[:, 2:4], torch.sigmoid(x[:, 2:4]))
    assert torch.equal(h[:, 4:], x[:, 4:])


def test_an_unknown_space_is_refused() -> None:
    with pytest.raises(TypeError, match="An encoder ends in"):
        make_head("sphere")  # type: ignore[arg-type]
