"""Both implementations against a float64 double loop: values and gradients over odd shapes, masks and powers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from identica.kernels import Partition, log_partition
from identica.kernels.reference import log_partition_reference
from identica.kernels.tiled import log_partition_tiled
from identica.similarities import Kernel
from tests.kernels import truth

POWERS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
KERNELS = [Kernel("dot")] + [Kernel(name, p) for name in ("lp", "lp_norm") for p in POWERS]
IMPLEMENTATIONS: dict[str, Callable[..., Partition]] = {
    "reference": log_partition_reference,
    "tiled": log_partition_tiled,
    "small tiles": partial(log_partition_tiled, tile=(4, 3)),
    "wide tiles": partial(log_partition_tiled, tile=(2, 1000)),
    "three workers": partial(log_partition_tiled, tile=(3, 2), workers=3),
    "tall tiles": partial(log_partition_tiled, tile=(1000, 2)),
}
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k.name}-{k.p}")
every_implementation = pytest.mark.parametrize("compute", IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)


_KNOWN: dict[Any, Any] = {}  # the double loop is slow: once per case, whatever implementation is compared


def codes(rows: int, dim: int, seed: int, scale: float = 1.0) -> Tensor:
    """Codes on a coarse grid, so that coordinates, and some whole codes, coincide."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, dim, generator=generator, dtype=torch.float64)
    values[::3] = (values[::3] * 2).round() / 2
    if rows > 4:
        values[4] = values[0]
    return values * scale


def assert_equals_truth(
    compute: Callable[..., Partition],
    anchors: Tensor,
    candidates: Tensor,
    kernel: Kernel,
    *,
    rtol: float = 1e-10,
    itself: bool = False,
    **settings: Any,
) -> None:
    upstream = torch.linspace(-1.0, 2.0, len(anchors), dtype=torch.float64)
    key = (kernel, anchors.shape, candidates.shape, float(anchors.sum()), float(candidates.sum()), str(settings))
    if key not in _KNOWN:
        _KNOWN[key] = truth.log_partition(anchors, candidates, kernel, upstream, **settings)
    value, largest, grad_a, grad_b = (torch.from_numpy(x) for x in _KNOWN[key])
    a = anchors.clone().requires_grad_()
    b = a if itself else candidates.clone().requires_grad_()
    found = compute(a, b, kernel, **settings)
    some = value > -torch.inf
    (found.log_partition[some] * upstream[some].to(found.log_partition.dtype)).sum().backward()
    close = partial(torch.testing.assert_close, rtol=rtol, check_dtype=False)
    close(found.log_partition, value, atol=rtol)
    close(found.largest, largest, atol=rtol)
    size = max(grad_a.abs().max().item(), grad_b.abs().max().item(), 1e-30)
    close(a.grad, grad_a + grad_b if itself else grad_a, atol=10 * rtol * size)
    if not itself:
        close(b.grad, grad_b, atol=10 * rtol * size)


@every_kernel
@every_implementation
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 6, 4), (7, 5, 10), (11, 11, 3)], ids=str)
def test_values_and_gradients(shape: tuple[int, int, int], kernel: Kernel, compute: Callable[..., Partition]) -> None:
    rows, columns, dim = shape
    assert_equals_truth(compute, codes(rows, dim, 0), codes(columns, dim, 0), kernel)


@every_kernel
@every_implementation
@pytest.mark.parametrize("rows", [2, 11])
def test_codes_against_themselves(rows: int, kernel: Kernel, compute: Callable[..., Partition]) -> None:
    a = codes(rows, 3, 1)
    assert_equals_truth(compute, a, a, kernel, itself=True, exclude_diagonal=True)
    assert_equals_truth(compute, a, a, kernel, itself=True)
    mask = torch.rand(rows, rows, generator=torch.Generator().manual_seed(0)) < 0.5
    assert_equals_truth(compute, a, a, kernel, itself=True, mask=mask)


@every_kernel
@every_implementation
def test_masks_and_the_diagonal(kernel: Kernel, compute: Callable[..., Partition]) -> None:
    a, b = codes(9, 3, 2), codes(7, 3, 3)
    mask = torch.rand(9, 7, generator=torch.Generator().manual_seed(1)) < 0.6
    mask[5] = False
    assert_equals_truth(compute, a, b, kernel, exclude_diagonal=True)
    assert_equals_truth(compute, b, a, kernel, exclude_diagonal=True)
    assert_equals_truth(compute, a, b, kernel, mask=mask)
    assert_equals_truth(compute, a, b, kernel, mask=mask, exclude_diagonal=True)


@pytest.mark.parametrize("kernel", [Kernel("dot"), Kernel("lp", 1.0), Kernel("lp", 3.0)], ids=lambda k: f"{k.p}")
@pytest.mark.parametrize("shape", [(129, 513, 10), (33, 33, 3)], ids=str)
def test_larger_odd_shapes(shape: tuple[int, int, int], kernel: Kernel) -> None:
    rows, columns, dim = shape
    a, b = codes(rows, dim, 4).float(), codes(columns, dim, 5).float()
    small = partial(log_partition_tiled, tile=(32, 100))
    assert_equals_truth(small, a.double(), b.double(), kernel)
    assert_equals_truth(small, a, b, kernel, rtol=2e-5)
    assert_equals_truth(log_partition_reference, a, b, kernel, rtol=2e-5)


@pytest.mark.parametrize("shape", [(1, 6, 4), (7, 5, 10), (129, 513, 10), (33, 33, 3)], ids=str)
@pytest.mark.parametrize("far", [0.0, 2.0**20])
def test_squared_distances_in_float64(shape: tuple[int, int, int], far: float) -> None:
    """These are matrix products, in which codes far from the origin would lose six digits more than differences do."""
    rows, columns, dim = shape
    a, b = codes(rows, dim, 4) + far, codes(columns, dim, 5) + far
    assert_tiles = partial(assert_equals_truth, partial(log_partition_tiled, tile=(32, 100)), kernel=Kernel("lp", 2.0))
    assert_tiles(a, b)
    assert_tiles(a, b, mask=torch.rand(rows, columns, generator=torch.Generator().manual_seed(0)) < 0.5)
    assert_tiles(a, a, itself=True, exclude_diagonal=rows > 1)


@pytest.mark.parametrize("value", [1e8, 1e200, torch.nan])
@pytest.mark.parametrize("masked", [True, False])
def test_one_candidate_far_away_leaves_the_others_alone(value: float, masked: bool) -> None:
    a, b = codes(9, 3, 4), codes(7, 3, 5)
    expected = log_partition_reference(a, b, Kernel("lp", 2.0))
    mask = torch.ones(9, 8, dtype=torch.bool)
    mask[:, 7] = not masked
    with_one = torch.cat([b, torch.full((1, 3), value, dtype=torch.float64)])
    if value != value and not masked:
        assert log_partition_tiled(a, with_one, Kernel("lp", 2.0)).log_partition.isnan().all(), "nothing is hidden"
        return
    found = log_partition_tiled(a, with_one, Kernel("lp", 2.0), mask=mask)
    torch.testing.assert_close(found.log_partition, expected.log_partition, rtol=0.0, atol=1e-13)
    torch.testing.assert_close(found.largest, expected.largest, rtol=0.0, atol=1e-13)


def test_coinciding_codes_are_not_above_0() -> None:
    a = 100.0 + codes(64, 10, 6)
    assert log_partition_tiled(a, a, Kernel("lp", 2.0)).largest.max() <= 0.0


@every_kernel
@every_implementation
def test_similarities_far_beyond_the_range_of_exp(kernel: Kernel, compute: Callable[..., Partition]) -> None:
    a = codes(9, 3, 6, scale=1e4 if kernel.p is not None and kernel.p < 2 else 1e2)
    assert_equals_truth(compute, a, a, kernel, itself=True, exclude_diagonal=True)
    low = compute(a.float(), a.float(), kernel, exclude_diagonal=True)
    assert low.log_partition.isfinite().all()


@every_kernel
@every_implementation
def test_an_anchor_without_candidates(kernel: Kernel, compute: Callable[..., Partition]) -> None:
    a, b = codes(4, 3, 7).requires_grad_(), codes(5, 3, 8).requires_grad_()
    mask = torch.zeros(4, 5, dtype=torch.bool)
    found = compute(a, b, kernel, mask=mask)
    assert (found.log_partition == -torch.inf).all() and (found.largest == -torch.inf).all()
    found.log_partition.sum().backward()
    assert a.grad is not None and (a.grad == 0).all()
    assert b.grad is not None and (b.grad == 0).all()


@every_kernel
@pytest.mark.parametrize("impl", ["reference", "tiled", "auto"])
def test_no_candidates_at_all(kernel: Kernel, impl: str) -> None:
    a = codes(3, 2, 0).requires_grad_()
    found = log_partition(a, a.new_zeros(0, 2), kernel, impl=impl)
    assert (found.log_partition == -torch.inf).all() and found.largest.shape == (3,)


@every_kernel
@every_implementation
def test_gradcheck(kernel: Kernel, compute: Callable[..., Partition]) -> None:
    generator = torch.Generator().manual_seed(9)
    a, b = (torch.rand(n, 3, generator=generator, dtype=torch.float64).requires_grad_() for n in (5, 4))
    mask = torch.rand(5, 4, generator=generator) < 0.7
    assert torch.autograd.gradcheck(lambda a, b: compute(a, b, kernel, mask=mask).log_partition[:4], (a, b))
    assert torch.autograd.gradcheck(lambda a: compute(a, a, kernel, exclude_diagonal=True).log_partition, (a,))


@pytest.mark.parametrize("kernel", [Kernel("dot"), Kernel("lp", 2.0), Kernel("lp", 3.0)], ids=lambda k: f"{k.p}")
def test_second_derivatives_need_the_reference(kernel: Kernel) -> None:
    a = codes(4, 3, 10).requires_grad_()
    reference = partial(log_partition, kernel=kernel, exclude_diagonal=True, impl="reference")
    assert torch.autograd.gradgradcheck(lambda a: reference(a, a).log_partition, (a,))
    value = log_partition(a, a, kernel, exclude_diagonal=True, impl="tiled").log_partition.sum()
    (grad,) = torch.autograd.grad(value, a, create_graph=True)
    with pytest.raises(RuntimeError, match='use impl="reference"'):
        grad.sum().backward()


@pytest.mark.parametrize("impl", ["reference", "tiled"])
def test_gradients_only_where_asked(impl: str) -> None:
    a, b = codes(5, 3, 11), codes(6, 3, 12)
    for wanted in (a, b):
        leaf = wanted.clone().requires_grad_()
        pair = (leaf, b) if wanted is a else (a, leaf)
        log_partition(*pair, Kernel("lp", 3.0), impl=impl).log_partition.sum().backward()
        assert leaf.grad is not None and leaf.grad.abs().sum() > 0


@every_kernel
def test_close_codes_far_from_the_origin_keep_their_distance(kernel: Kernel) -> None:
    """In float32 ‖a‖² + ‖b‖² − 2⟨a, b⟩ would lose everything here; the difference loses nothing."""
    if kernel.name == "dot":
        return
    offset = 1024.0
    near = torch.tensor([[0.0, 0.0], [0.25, 0.5], [1.0, -0.75]], dtype=torch.float64)
    a = (near + offset).float()
    for compute in IMPLEMENTATIONS.values():
        found = compute(a, a, kernel, exclude_diagonal=True).log_partition
        exact = log_partition_reference(near, near, kernel, exclude_diagonal=True).log_partition
        torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-6)


def test_unknown_implementations_and_wrong_shapes_are_sentences() -> None:
    a = torch.zeros(3, 2)
    with pytest.raises(ValueError, match="expected one of 'auto', 'reference', 'tiled'"):
        log_partition(a, a, Kernel("dot"), impl="fast")
    with pytest.raises(ValueError, match=r"\(B, d\) and \(M, d\) with one d"):
        log_partition(a, torch.zeros(3, 4), Kernel("dot"))
    with pytest.raises(ValueError, match=r"mask must be a bool tensor of shape \(3, 3\)"):
        log_partition(a, a, Kernel("dot"), mask=torch.ones(3, 3))
    with pytest.raises(ValueError, match="share one floating-point type"):
        log_partition(a, a.double(), Kernel("dot"))
