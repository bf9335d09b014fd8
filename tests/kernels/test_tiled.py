"""What only the tiled implementation promises: memory, precision in half, symmetry, and the choice of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import identica.kernels
from identica.kernels import log_partition
from identica.kernels.reference import log_partition_reference
from identica.kernels.tiled import log_partition_tiled
from identica.similarities import Kernel

KERNELS = [Kernel("dot"), *(Kernel("lp", p) for p in (0.5, 1.0, 2.0, 3.0)), Kernel("lp_norm", 2.0)]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k.name}-{k.p}")


class LargestTensor(TorchDispatchMode):
    """Remembers the size of the largest tensor that any operation returned."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.numel = max([self.numel, *sizes])
        return result


@every_kernel
@pytest.mark.parametrize("itself", [True, False])
def test_nothing_is_larger_than_a_tile_or_the_codes(kernel: Kernel, itself: bool) -> None:
    rows, dim, tile = 500, 4, (64, 32)
    a = torch.randn(rows, dim).requires_grad_()
    b = a if itself else torch.randn(rows, dim).requires_grad_()
    with LargestTensor() as watch:
        log_partition_tiled(a, b, kernel, exclude_diagonal=True, tile=tile, workers=0).log_partition.sum().backward()
    assert watch.numel <= max(rows * dim, tile[0] * max(tile))
    with LargestTensor() as watch:
        log_partition_reference(a, b, kernel, exclude_diagonal=True).log_partition.sum().backward()
    assert watch.numel >= rows * rows, "the watch must see the pair matrix of the dense version"


@every_kernel
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("impl", ["tiled", "reference"])
def test_half_precision_is_computed_in_float32(kernel: Kernel, dtype: torch.dtype, impl: str) -> None:
    generator = torch.Generator().manual_seed(0)
    half = (4 * torch.randn(40, 5, generator=generator)).to(dtype).requires_grad_()
    found = log_partition(half, half, kernel, exclude_diagonal=True, impl=impl)
    found.log_partition.sum().backward()
    exact = half.detach().double().requires_grad_()
    expected = log_partition_reference(exact, exact, kernel, exclude_diagonal=True)
    expected.log_partition.sum().backward()
    assert found.log_partition.dtype == torch.float32
    torch.testing.assert_close(found.log_partition.double(), expected.log_partition, rtol=1e-5, atol=1e-4)
    assert half.grad is not None and exact.grad is not None and half.grad.dtype == dtype
    rounding = torch.finfo(dtype).eps * exact.grad.abs().max().item()
    torch.testing.assert_close(half.grad.double(), exact.grad, rtol=torch.finfo(dtype).eps, atol=rounding)


@every_kernel
@pytest.mark.parametrize("impl", ["tiled", "reference"])
def test_autocast_changes_nothing(kernel: Kernel, impl: str) -> None:
    def value_and_gradient(enabled: bool) -> tuple[Tensor, Tensor]:
        a = torch.randn(30, 6, generator=torch.Generator().manual_seed(1)).requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            value = log_partition(a, a, kernel, exclude_diagonal=True, impl=impl).log_partition.sum()
        value.backward()
        assert a.grad is not None
        return value.detach(), a.grad

    torch.testing.assert_close(value_and_gradient(True), value_and_gradient(False), rtol=0, atol=0)


def test_auto_is_dense_for_small_problems_and_tiled_for_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    used = []
    for name, compute in list(identica.kernels.IMPLEMENTATIONS.items()):

        def spy(*args: Any, _name: str = name, _compute: Callable[..., Any] = compute, **settings: Any) -> Any:
            used.append(_name)
            return _compute(*args, **settings)

        monkeypatch.setitem(identica.kernels.IMPLEMENTATIONS, name, spy)
    for rows in (10, 200):
        a = torch.randn(rows, 3)
        log_partition(a, a, Kernel("lp", 1.0))
    assert used == ["reference", "tiled"]


def test_another_implementation_can_slot_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(identica.kernels.IMPLEMENTATIONS, "mine", log_partition_reference)
    a = torch.randn(6, 3)
    found = log_partition(a, a, Kernel("dot"), impl="mine")
    torch.testing.assert_close(found, log_partition(a, a, Kernel("dot"), impl="tiled"))


def test_equal_calls_give_equal_bits() -> None:
    a = torch.randn(300, 5, generator=torch.Generator().manual_seed(2))
    first, second = (log_partition(a, a, Kernel("lp", 3.0), impl="tiled").log_partition for _ in range(2))
    assert torch.equal(first, second)
