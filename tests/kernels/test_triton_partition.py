"""The Triton kernels against the dense float64 reference: on a GPU, or without one in Triton's interpreter.

Without a GPU the shapes are small; ``-m gpu`` runs the same checks over the long list.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import identica.kernels
from identica.kernels import log_partition
from identica.kernels.reference import log_partition_reference
from identica.similarities import Kernel

pytest.importorskip("triton")

from identica.kernels import triton_launch  # noqa: E402
from identica.kernels.triton_launch import Blocks, Problem  # noqa: E402
from identica.kernels.triton_partition import log_partition_triton  # noqa: E402

HAS_CUDA = torch.cuda.is_available()
DEVICE = "cuda" if HAS_CUDA else "cpu"
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")  # the interpreter warns of log 0
on_gpu = [pytest.mark.gpu, pytest.mark.skipif(not HAS_CUDA, reason="needs a CUDA device")]

POWERS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
KERNELS = [Kernel("dot"), *(Kernel(name, p) for name in ("lp", "lp_norm") for p in POWERS)]
MAIN = [Kernel("dot"), *(Kernel("lp", p) for p in (1.0, 2.0, 3.0)), Kernel("lp_norm", 2.0)]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k.name}-{k.p}")
main_kernels = pytest.mark.parametrize("kernel", MAIN, ids=lambda k: f"{k.name}-{k.p}")

SMALL_SHAPES = [(1, 2, 3), (7, 5, 10), (1, 1, 1), (9, 21, 20), (20, 33, 40), (6, 9, 100), (5, 7, 130)]
LARGE_SHAPES = [
    (129, 513, 10),
    (1000, 1000, 33),
    (63, 4097, 512),
    (1, 5000, 10),
    (5000, 1, 10),
    (300, 77, 32),
    (200, 300, 17),
    (100, 130, 128),
    (50, 60, 2048),
]
shapes = pytest.mark.parametrize(
    "shape", [*SMALL_SHAPES, *(pytest.param(shape, marks=on_gpu) for shape in LARGE_SHAPES)], ids=str
)


def codes(rows: int, dim: int, seed: int, kernel: Kernel | None = None) -> Tensor:
    """Codes with similarities of a few units; some coordinates and some whole codes coincide."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, dim, generator=generator)
    values[::3] = (values[::3] * 4).round() / 4
    if rows > 4:
        values[4] = values[0]
    return values * (2.0 / dim) ** (1.0 / (kernel.p if kernel is not None and kernel.p else 2.0))


def values_and_gradients(
    compute: Any, a: Tensor, b: Tensor, kernel: Kernel, itself: bool, **settings: Any
) -> tuple[Tensor, ...]:
    a = a.clone(memory_format=torch.preserve_format).requires_grad_()
    b = a if itself else b.clone(memory_format=torch.preserve_format).requires_grad_()
    found = compute(a, b, kernel, **settings)
    slopes = torch.linspace(-1.0, 2.0, len(a), device=a.device, dtype=found.log_partition.dtype)
    (torch.where(found.log_partition > -torch.inf, found.log_partition, 0.0) * slopes).sum().backward()
    assert a.grad is not None and b.grad is not None
    return found.log_partition.detach(), found.largest, a.grad, b.grad


def assert_close_to_float64(
    a: Tensor,
    b: Tensor,
    kernel: Kernel,
    *,
    itself: bool = False,
    rtol: float = 1e-5,
    mask: Tensor | None = None,
    exclude_diagonal: bool = False,
    **how: Any,
) -> None:
    """Values to ``rtol`` of their size, gradients to ``rtol`` of the norm of the gradient."""
    a, b, mask = a.to(DEVICE), b.to(DEVICE), None if mask is None else mask.to(DEVICE)
    same = {"mask": mask, "exclude_diagonal": exclude_diagonal}
    expected = values_and_gradients(log_partition_reference, a.double(), b.double(), kernel, itself, **same)
    computed = values_and_gradients(partial(log_partition_triton, **how), a, b, kernel, itself, **same)
    for found, wanted in zip(computed[:2], expected[:2], strict=True):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), wanted, rtol=rtol, atol=rtol)
    size = max(1e-6, *(gradient.norm().item() for gradient in expected[2:]))
    for found, wanted in zip(computed[2:], expected[2:], strict=True):
        assert found.dtype == a.dtype and found.isfinite().all()
        assert (found.double() - wanted).norm().item() <= rtol * size


@pytest.fixture
def tf32() -> Iterator[float]:
    """Products in TF32 where there is such a thing, and how far off they may be: the interpreter has none."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield 5e-3 if HAS_CUDA else 1e-5
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize(
    "dim", [33, 40, 70, 100, 128, 129, *(pytest.param(d, marks=on_gpu) for d in (36, 80, 104, 127))]
)
def test_rows_that_stay_with_their_program(dim: int, held: bool, tf32: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one to four chunks; not where there are more, or where a GPU has no room for them."""
    if not held:
        monkeypatch.setattr(triton_launch, "_has_room", lambda x: False)
    a, b = codes(21, dim, 1), codes(13, dim, 2)
    problem = Problem(Kernel("dot"), False, "product")
    assert triton_launch._held(a[None], problem) == (-(-dim // 32) if held and dim <= 128 else 0)
    assert triton_launch._held(a.half()[None], problem) == (dim <= 128)
    mask = torch.rand(21, 13, generator=torch.Generator().manual_seed(0)) < 0.7
    close = partial(assert_close_to_float64, kernel=Kernel("dot"), rtol=tf32)
    close(a, b)
    close(a, b, mask=mask, spans=2)
    close(a, b, mask=mask.T.contiguous().T)
    close(a, a, itself=True, exclude_diagonal=True)


@every_kernel
@shapes
def test_values_and_gradients(shape: tuple[int, int, int], kernel: Kernel) -> None:
    rows, columns, dim = shape
    a, b = codes(rows, dim, 0, kernel), codes(columns, dim, 1, kernel)
    shared = min(rows, columns) // 2
    b[:shared] = a[:shared]
    assert_close_to_float64(a, b, kernel)


@every_kernel
@pytest.mark.parametrize("dim", [3, 40])
def test_codes_against_themselves(dim: int, kernel: Kernel) -> None:
    a = codes(37, dim, 2, kernel)
    assert_close_to_float64(a, a, kernel, itself=True, exclude_diagonal=True)
    mask = torch.rand(37, 37, generator=torch.Generator().manual_seed(0)) < 0.5
    assert_close_to_float64(a, a, kernel, itself=True, mask=mask)


@main_kernels
@pytest.mark.parametrize(("dim", "spans"), [(3, 1), (3, 3), (33, 2)])
def test_any_block_size_and_split(dim: int, kernel: Kernel, spans: int) -> None:
    a, b = codes(29, dim, 3, kernel), codes(70, dim, 4, kernel)
    mask = torch.rand(29, 70, generator=torch.Generator().manual_seed(1)) < 0.6
    mask[5] = False
    mask[:, 7] = False
    blocks = Blocks(16, 32, ahead=spans == 3) if dim == 3 else Blocks(64, 64)
    assert_close_to_float64(b, a, kernel, exclude_diagonal=True, blocks=blocks, spans=spans)
    assert_close_to_float64(a, b, kernel, mask=mask.T.contiguous().T, exclude_diagonal=True, blocks=blocks, spans=spans)
    assert_close_to_float64(a, a, kernel, itself=True, exclude_diagonal=True, blocks=blocks, spans=spans)


@main_kernels
@pytest.mark.parametrize("dim", [3, 40])
def test_strided_codes(dim: int, kernel: Kernel) -> None:
    a, b = codes(dim, 21, 5).T, codes(26, 2 * dim, 6)[::2, ::2]
    assert not a.is_contiguous() and not b.is_contiguous()
    assert_close_to_float64(a, b, kernel)


@main_kernels
@pytest.mark.parametrize("dim", [3, 40])
def test_similarities_far_beyond_the_range_of_exp(dim: int, kernel: Kernel) -> None:
    a = codes(19, dim, 7, kernel) * (1e3 if kernel.name == "lp_norm" else 1e3 ** (1.0 / (kernel.p or 2.0)))
    assert_close_to_float64(a, a, kernel, itself=True, exclude_diagonal=True, rtol=1e-3)
    found = log_partition_triton(1e2 * a.to(DEVICE), a.to(DEVICE), kernel)
    assert found.log_partition.isfinite().all() and found.largest.isfinite().all()


@main_kernels
@pytest.mark.parametrize("dim", [3, 40])
def test_anchors_without_candidates(dim: int, kernel: Kernel) -> None:
    a, b = (codes(n, dim, n).to(DEVICE).requires_grad_() for n in (6, 9))
    found = log_partition_triton(a, b, kernel, mask=torch.zeros(6, 9, dtype=torch.bool, device=DEVICE))
    assert (found.log_partition == -torch.inf).all() and (found.largest == -torch.inf).all()
    found.log_partition.sum().backward()
    assert a.grad is not None and (a.grad == 0).all()
    assert b.grad is not None and (b.grad == 0).all()


@pytest.mark.parametrize("kernel", KERNELS[1:], ids=lambda k: f"{k.name}-{k.p}")
@pytest.mark.parametrize("dim", [3, 40])
def test_codes_that_all_coincide_feel_no_force(dim: int, kernel: Kernel) -> None:
    a = torch.full((8, dim), 0.75, device=DEVICE).requires_grad_()
    found = log_partition_triton(a, a, kernel, exclude_diagonal=True)
    torch.testing.assert_close(found.log_partition.cpu(), torch.full((8,), 7.0).log(), atol=1e-5, rtol=0)
    found.log_partition.sum().backward()
    assert a.grad is not None and a.grad.abs().max() <= 1e-6


@pytest.mark.parametrize("kernel", KERNELS[1:], ids=lambda k: f"{k.name}-{k.p}")
@pytest.mark.parametrize("dim", [2, 40])
def test_close_codes_far_from_the_origin_keep_their_distance(dim: int, kernel: Kernel) -> None:
    near = (codes(12, dim, 8, kernel) * 256).round() / 256  # exact in float32 at that offset
    assert_close_to_float64(near + 1024.0, near + 1024.0, kernel, itself=True, exclude_diagonal=True)


@main_kernels
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dim", [3, 40, *(pytest.param(dim, marks=on_gpu) for dim in (128, 300))])
def test_half_precision(dim: int, dtype: torch.dtype, kernel: Kernel) -> None:
    a, b = codes(33, dim, 9).to(dtype), codes(40, dim, 10).to(dtype)
    expected = values_and_gradients(log_partition_reference, a.double(), b.double(), kernel, False)
    found = values_and_gradients(log_partition_triton, a.to(DEVICE), b.to(DEVICE), kernel, False)
    torch.testing.assert_close(found[0].cpu().double(), expected[0], rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(found[2:], expected[2:], strict=True):
        assert ours.dtype == dtype
        assert (ours.cpu().double() - theirs).norm() <= torch.finfo(dtype).eps * theirs.norm()


@pytest.mark.parametrize(
    ("kernel", "dim"), [(Kernel("dot"), 3), (Kernel("lp", 1.0), 3), (Kernel("lp", 2.0), 40), (Kernel("lp", 3.0), 33)]
)
def test_a_leading_seed_axis(kernel: Kernel, dim: int) -> None:
    """vmap over seeds, forward and backward, equals each seed alone, bit for bit."""
    a = torch.stack([codes(11, dim, seed) for seed in range(2)]).to(DEVICE)
    b = codes(9, dim, 20).to(DEVICE)

    def loss(a: Tensor, b: Tensor) -> Tensor:
        both = log_partition_triton(a, a, kernel, exclude_diagonal=True).log_partition.sum()
        return both + log_partition_triton(a, b, kernel).log_partition.square().sum()

    together = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)), in_dims=(0, None))(a, b)
    for seed in range(2):
        alone = torch.func.grad(loss, argnums=(0, 1))(a[seed], b)
        for ours, theirs in zip(together, alone, strict=True):
            assert torch.equal(ours[seed], theirs)


def test_second_derivatives_are_refused() -> None:
    a = codes(5, 3, 0).to(DEVICE).requires_grad_()
    value = log_partition_triton(a, a, Kernel("lp", 3.0), exclude_diagonal=True).log_partition.sum()
    (gradient,) = torch.autograd.grad(value, a, create_graph=True)
    with pytest.raises(RuntimeError, match='use impl="reference"'):
        gradient.sum().backward()


def test_gradients_only_where_asked() -> None:
    a, b = codes(5, 3, 0).to(DEVICE), codes(6, 3, 1).to(DEVICE)
    for wanted in (a, b):
        leaf = wanted.clone().requires_grad_()
        pair = (leaf, b) if wanted is a else (a, leaf)
        log_partition_triton(*pair, Kernel("lp", 3.0)).log_partition.sum().backward()
        assert leaf.grad is not None and leaf.grad.abs().sum() > 0


def test_double_precision_is_a_sentence() -> None:
    a = torch.zeros(3, 2, dtype=torch.float64, device=DEVICE)
    with pytest.raises(ValueError, match="takes float32, float16 or bfloat16"):
        log_partition_triton(a, a, Kernel("dot"))


def test_the_implementation_is_chosen_by_name() -> None:
    a = codes(6, 3, 0).to(DEVICE)
    found = log_partition(a, a, Kernel("lp", 1.0), exclude_diagonal=True, impl="triton")
    torch.testing.assert_close(found, log_partition(a, a, Kernel("lp", 1.0), exclude_diagonal=True, impl="tiled"))
    empty = log_partition(a, a[:0], Kernel("lp", 1.0), impl="triton")
    assert (empty.log_partition == -torch.inf).all()


def test_without_the_interpreter_the_cpu_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ValueError, match="needs codes on a CUDA device, not on cpu"):
        log_partition_triton(torch.zeros(3, 2), torch.zeros(3, 2), Kernel("dot"))


def test_without_triton_the_choice_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identica.kernels, "has_triton", lambda: False)
    with pytest.raises(ValueError, match="needs the package triton, which is not installed"):
        log_partition(torch.zeros(3, 2), torch.zeros(3, 2), Kernel("dot"), impl="triton")


@pytest.mark.parametrize("marks", [pytest.param(None, marks=on_gpu)])
@main_kernels
@pytest.mark.parametrize("dim", [10, 40])
def test_captured_without_waiting_and_with_equal_bits(dim: int, kernel: Kernel, marks: None) -> None:
    """On a GPU: the automatic choice, replayed from a graph, twice the same bits, and no synchronisation."""
    a = codes(500, dim, 0, kernel).cuda().requires_grad_()
    b = codes(700, dim, 1, kernel).cuda().requires_grad_()

    def work() -> tuple[Tensor, ...]:
        itself = log_partition(a, a, kernel, exclude_diagonal=True).log_partition.mean()
        return torch.autograd.grad(itself + log_partition(a, b, kernel).log_partition.mean(), (a, b))

    eager = work()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.set_sync_debug_mode("error")
    try:
        work()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    with torch.cuda.graph(graph):
        captured = work()
    for _ in range(2):
        graph.replay()
        assert all(torch.equal(x, y) for x, y in zip(captured, eager, strict=True))
