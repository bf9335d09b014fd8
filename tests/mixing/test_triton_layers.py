"""The mixing in one kernel against float64: in Triton's interpreter with few rows, on a GPU with many."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from identica.distributions.fused import computing_by
from identica.mixing import InvertibleMLP

pytest.importorskip("triton")

HAS_CUDA = torch.cuda.is_available()
DEVICE = "cuda" if HAS_CUDA else "cpu"
on_gpu = [pytest.mark.gpu, pytest.mark.skipif(not HAS_CUDA, reason="needs a CUDA device")]


@pytest.fixture(autouse=True)
def by_triton() -> Iterator[None]:
    with computing_by("triton"):
        yield


def latents(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(DEVICE)


def refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, using the kernel fails."""
    monkeypatch.setattr("identica.mixing.triton_layers.mix", None)


@pytest.mark.parametrize("rows", [1, 100, pytest.param(2**20 + 3, marks=on_gpu)])
@pytest.mark.parametrize(
    ("dim", "depth", "slope"), [(1, 1, 0.2), (3, 2, 0.05), (10, 3, 0.2), (17, 4, 1.5), (32, 3, 0.2)]
)
def test_values_are_those_of_float64(dim: int, depth: int, slope: float, rows: int) -> None:
    mixing = InvertibleMLP(dim, depth, slope, seed=3, candidates=20).to(DEVICE)
    z = latents(rows, dim)
    x = mixing(z)
    expected = mixing(z.double())  # float64 is left to torch
    assert x.dtype == torch.float32 and expected.dtype == torch.float64
    # TF32, with its eleven bits, would miss this a thousandfold.
    size = expected.norm(dim=-1, keepdim=True)
    assert ((x.double() - expected).abs() / size).max() < 1e-6


def test_leading_shapes_and_strides() -> None:
    mixing = InvertibleMLP(5, seed=0, candidates=20).to(DEVICE)
    z = latents(5, 4, 3).transpose(0, 2)
    assert not z.is_contiguous()
    x = mixing(z)
    assert x.shape == (3, 4, 5)
    torch.testing.assert_close(x, mixing(z.double()).float(), rtol=1e-5, atol=1e-6)
    assert mixing(z[:0]).shape == (0, 4, 5)


def test_the_kernel_is_used_and_torch_where_it_does_not_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = (InvertibleMLP(dim, seed=0, candidates=5).to(DEVICE) for dim in (4, 33))
    z = latents(6, 4)
    refuse(monkeypatch)
    with pytest.raises(TypeError):
        small(z)
    large(latents(6, 33))
    small(z.double())
    with computing_by("torch"):
        small(z)
    if not HAS_CUDA:
        with computing_by("auto"):
            small(z)


def test_derivatives_are_left_to_torch() -> None:
    mixing = InvertibleMLP(4, seed=0, candidates=20).to(DEVICE)
    z, tangent = latents(6, 4), latents(6, 4) + 1.0
    leaf = z.clone().requires_grad_()
    mixing(leaf).sum().backward()
    assert leaf.grad is not None
    with torch.no_grad():
        assert not mixing(leaf).requires_grad
    _, forward = torch.func.jvp(mixing, (z,), (tangent,))
    jacobians = torch.func.vmap(torch.func.jacrev(mixing))(z)
    torch.testing.assert_close(forward, (jacobians @ tangent[:, :, None])[:, :, 0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(leaf.grad, jacobians.sum(dim=1), rtol=1e-4, atol=1e-5)
    with torch.autograd.forward_ad.dual_level():
        dual = mixing(torch.autograd.forward_ad.make_dual(z, tangent))
        seen = torch.autograd.forward_ad.unpack_dual(dual).tangent
    torch.testing.assert_close(seen, forward)
