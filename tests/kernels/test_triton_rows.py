"""The fused rows of InfoNCE against torch operations in float64: on a GPU, or without one in Triton's interpreter.

Without a GPU the shapes are small; ``-m gpu`` runs the same checks over the long list.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import identica.kernels
from identica import _candidates, functional
from identica.functional import Terms, info_nce_terms
from identica.kernels import Partition
from identica.similarities import Anisotropic, DotProduct, Kernel, LpSimilarity, Similarity

pytest.importorskip("triton")

from identica.kernels.triton_rows import RowTerms, info_nce_rows_triton  # noqa: E402

HAS_CUDA = torch.cuda.is_available()
DEVICE = "cuda" if HAS_CUDA else "cpu"
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")  # the interpreter warns of log 0
on_gpu = [pytest.mark.gpu, pytest.mark.skipif(not HAS_CUDA, reason="needs a CUDA device")]

POWERS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
KERNELS = [Kernel("dot"), *(Kernel(name, p) for name in ("lp", "lp_norm") for p in POWERS)]
MAIN = [Kernel("dot"), Kernel("lp", 1.0), Kernel("lp_norm", 3.0)]
LARGE_SHAPES = [(50001, 2, 3), (1000, 3, 33), (77, 1, 2048)]
CASES = [
    *(((37, 3, 10), kernel, True) for kernel in KERNELS),
    *(((37, 3, 10), kernel, False) for kernel in MAIN),
    *((shape, kernel, shape[0] == 1) for shape in [(1, 1, 1), (9, 1, 130)] for kernel in MAIN),
    *(pytest.param((6144, 1, 10), kernel, True, marks=on_gpu) for kernel in KERNELS),
    *(pytest.param(shape, kernel, False, marks=on_gpu) for shape in LARGE_SHAPES for kernel in MAIN),
]
include = pytest.mark.parametrize("include_positive", [True, False])
SIMILARITIES = [
    DotProduct(0.3),
    DotProduct(0.3, trainable=True),
    LpSimilarity(1, 0.5),
    LpSimilarity(3, 0.5, power=False, trainable=True),
    Anisotropic(4, torch.tensor([0.5, 1.0, 2.0, 4.0])),
]
every_similarity = pytest.mark.parametrize("similarity", SIMILARITIES, ids=str)


@pytest.fixture(autouse=True, params=["here", pytest.param("gpu", marks=on_gpu)])
def where(request: pytest.FixtureRequest) -> str:
    """Every test also carries the marker ``gpu``, so that ``-m gpu`` runs all of them on the device."""
    return str(request.param)


class Problem:
    """Codes, log-partitions and counts of a few units; some coordinates and some whole codes coincide."""

    def __init__(self, rows: int, positives: int, dim: int, kernel: Kernel, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        size = (2.0 / dim) ** (1.0 / (kernel.p or 2.0))
        self.a = torch.randn(rows, dim, generator=generator) * size
        self.b = self.a[:, None] + torch.randn(rows, positives, dim, generator=generator) * size
        self.b[::3, 0, : (dim + 1) // 2] = self.a[::3, : (dim + 1) // 2]
        self.b[::5, -1] = self.a[::5]
        self.negatives = 2 * torch.randn(rows, generator=generator)
        self.largest = self.negatives - torch.rand(rows, generator=generator)
        self.kernel = kernel

    def tensors(self, dtype: torch.dtype = torch.float32) -> list[Tensor]:
        tensors = (self.a, self.b, self.negatives, self.largest)
        return [x.to(DEVICE, dtype, copy=True) for x in tensors]


def by_torch(
    a: Tensor, b: Tensor, negatives: Partition, kernel: Kernel, *, include_positive: bool, count: Tensor | int
) -> Terms:
    """The same by the operations that all other devices use: of codes under a similarity that is the kernel."""

    class Given(_candidates.Candidates):
        def partition(self, h: Tensor, h_pos: Tensor) -> Partition:
            return negatives

        def count(self, h: Tensor, h_pos: Tensor) -> Tensor | int:
            return count

    candidates = Given(_candidates._Plain(kernel), None, False, None, None, "reference")
    rows = functional._info_nce_rows(candidates, a, b, include_positive)
    return functional._reduce(rows, rows.log_denominator - rows.alignment, None)


def terms_and_gradients(compute: Any, problem: Problem, dtype: torch.dtype, **settings: Any) -> list[Tensor]:
    a, b, negatives, largest = problem.tensors(dtype)
    leaves = [x.requires_grad_() for x in (a, b, negatives)]
    found = compute(a, b, Partition(negatives, largest), problem.kernel, **settings)
    slopes = torch.linspace(-1.0, 2.0, len(a), device=a.device, dtype=dtype)
    together = torch.autograd.grad(3.0 * found.loss, leaves, retain_graph=True)
    one_by_one = torch.autograd.grad((slopes * found.per_item).sum(), leaves, retain_graph=True)
    both = torch.autograd.grad(0.5 * found.loss + found.per_item.square().sum(), leaves)
    values = [found.loss, found.alignment, found.log_partition, found.accuracy, found.information, found.per_item]
    return [x.detach() for x in (*values, *together, *one_by_one, *both)]


def assert_close_to_float64(problem: Problem, rtol: float = 1e-5, **settings: Any) -> list[Tensor]:
    """Values to ``rtol`` of their size, gradients to ``rtol`` of the norm of the gradient."""
    expected = terms_and_gradients(by_torch, problem, torch.float64, **settings)
    found = terms_and_gradients(info_nce_rows_triton, problem, torch.float32, **settings)
    rows = len(problem.a)
    for index, (ours, theirs) in enumerate(zip(found[:6], expected[:6], strict=True)):
        assert ours.dtype == torch.float32
        # Among many rows, one or two may be a tie in float32 alone, which only the accuracy feels.
        ties = 2 / rows if index == 3 and rows > 1000 else 0.0
        torch.testing.assert_close(ours.double(), theirs, rtol=rtol, atol=rtol + ties)
    for ours, theirs in zip(found[6:], expected[6:], strict=True):
        assert ours.shape == theirs.shape and ours.isfinite().all()
        assert (ours.double() - theirs).norm() <= rtol * theirs.norm() + 1e-6
    return found


@pytest.mark.parametrize(("shape", "kernel", "include_positive"), CASES, ids=str)
def test_terms_and_gradients(shape: tuple[int, int, int], kernel: Kernel, include_positive: bool) -> None:
    problem = Problem(*shape, kernel)
    assert_close_to_float64(problem, include_positive=include_positive, count=shape[0] + 4)


@include
def test_rows_with_counts_of_their_own_and_none_at_all(include_positive: bool) -> None:
    problem = Problem(70, 2, 5, Kernel("lp", 1.0))
    count = torch.arange(70, device=DEVICE) % 7
    empty = (count == 0).cpu()
    problem.negatives[empty] = problem.largest[empty] = -torch.inf
    found = assert_close_to_float64(problem, include_positive=include_positive, count=count)
    assert (found[5].cpu()[empty] == 0).all()  # the loss of each item
    for gradient in found[6:]:
        assert (gradient.cpu()[empty] == 0).all()


def test_a_batch_of_which_no_row_counts() -> None:
    problem = Problem(5, 1, 3, Kernel("dot"))
    problem.negatives[:] = problem.largest[:] = -torch.inf
    for count in (torch.zeros(5, dtype=torch.int64, device=DEVICE), 0):
        found = assert_close_to_float64(problem, include_positive=False, count=count)
        assert all((value == 0).all() for value in found)


def test_without_negatives_the_loss_is_zero() -> None:
    problem = Problem(1, 1, 3, Kernel("lp", 2.0))
    problem.negatives[:] = problem.largest[:] = -torch.inf
    found = assert_close_to_float64(problem, include_positive=True, count=0)
    assert found[0] == 0 and found[3] == 1 and found[4] == 0
    assert all((gradient == 0).all() for gradient in found[6:])


def test_small_losses_keep_their_digits() -> None:
    """Where the positive outweighs all negatives, log(exp s + exp n) − s would be rounding alone."""
    a = torch.ones(4, 1, device=DEVICE)
    b = torch.tensor([[[100.0]], [[100.0]], [[5.0]], [[-60.0]]], device=DEVICE)
    negatives = torch.tensor([90.0, 70.0, 4.0, -60.0], device=DEVICE)
    partition = Partition(negatives, negatives)
    found = info_nce_rows_triton(a, b, partition, Kernel("dot"), include_positive=True, count=3)
    expected = torch.tensor([math.log1p(math.exp(x)) for x in (-10.0, -30.0, -1.0, 0.0)])
    torch.testing.assert_close(found.per_item.cpu(), expected, rtol=1e-5, atol=0)


def test_ties_up_to_rounding_are_wrong() -> None:
    a, b = torch.ones(4, 1, device=DEVICE), torch.tensor([1.0, 1.00001, 2.0, 0.5], device=DEVICE)[:, None, None]
    largest = torch.tensor([1.0, 1.00001 - 1e-6, 1.0, 1.0], device=DEVICE)
    found = info_nce_rows_triton(a, b, Partition(largest, largest), Kernel("dot"), include_positive=True, count=1)
    assert found.accuracy == 0.25


def test_strided_codes() -> None:
    problem = Problem(21, 3, 6, Kernel("lp", 3.0))
    expected = terms_and_gradients(info_nce_rows_triton, problem, torch.float32, include_positive=True, count=4)
    problem.a, problem.b = problem.a.T.contiguous().T, problem.b.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    assert not problem.a.is_contiguous() and not problem.b.is_contiguous()
    found = terms_and_gradients(info_nce_rows_triton, problem, torch.float32, include_positive=True, count=4)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_nan_stays_nan() -> None:
    problem = Problem(40, 1, 5, Kernel("lp", 2.0))
    problem.b[7, 0, 2] = torch.nan
    a, b, negatives, largest = problem.tensors()
    partition = Partition(negatives, largest)
    found = info_nce_rows_triton(a, b, partition, problem.kernel, include_positive=True, count=4)
    assert found.loss.isnan() and found.alignment.isnan() and found.log_partition.isnan()
    assert found.per_item.isnan().nonzero().tolist() == [[7]]


@pytest.mark.parametrize(
    ("kernel", "counted"), [(Kernel("dot"), True), (Kernel("lp", 1.0), False), (Kernel("lp_norm", 2.0), True)], ids=str
)
def test_a_leading_seed_axis(kernel: Kernel, counted: bool) -> None:
    """vmap over seeds, forward and backward, equals each seed alone, bit for bit."""
    problems = [Problem(45, 2, 12, kernel, seed).tensors() for seed in range(3)]
    a, b, negatives, largest = (torch.stack(parts) for parts in zip(*problems, strict=True))
    count = torch.arange(45, device=DEVICE) % 5 if counted else 9
    b = b.movedim(0, 2).contiguous()  # the seeds need not come first

    def compute(a: Tensor, b: Tensor, negatives: Tensor, largest: Tensor) -> RowTerms:
        partition = Partition(negatives, largest)
        return info_nce_rows_triton(a, b, partition, kernel, include_positive=False, count=count)

    def loss(*inputs: Tensor) -> Tensor:
        found = compute(*inputs)
        return found.loss + 0.01 * found.per_item.square().sum()

    in_dims = (0, 2, 0, 0)
    terms = torch.func.vmap(compute, in_dims=in_dims)(a, b, negatives, largest)
    mapped = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1, 2)), in_dims=in_dims)(a, b, negatives, largest)
    leaves = [x.clone().requires_grad_() for x in (a, b, negatives)]
    torch.func.vmap(loss, in_dims=in_dims)(*leaves, largest).sum().backward()
    for seed in range(3):
        alone = [x.detach().clone().requires_grad_() for x in (a[seed], b[:, :, seed], negatives[seed])]
        for ours, theirs in zip(terms, compute(*alone, largest[seed]), strict=True):
            assert torch.equal(ours[seed], theirs)
        expected = torch.autograd.grad(loss(*alone, largest[seed]), alone)
        for ours, leaf, axis, theirs in zip(mapped, leaves, (0, 2, 0), expected, strict=True):
            assert leaf.grad is not None
            assert torch.equal(ours[seed], theirs) and torch.equal(leaf.grad.select(axis, seed), theirs)


def test_one_loss_for_all_seeds_shares_what_is_shared() -> None:
    """Anchors that do not depend on the seed get the sum of the seeds' gradients."""
    problem = Problem(20, 1, 4, Kernel("lp", 3.0))
    a, b, negatives, largest = problem.tensors()
    shifts = torch.tensor([0.0, 0.5], device=DEVICE)
    a.requires_grad_()

    def loss(a: Tensor, shift: Tensor) -> Tensor:
        partition = Partition(negatives + shift, largest)
        return info_nce_rows_triton(a, b, partition, problem.kernel, include_positive=True, count=3).loss

    torch.func.vmap(loss, in_dims=(None, 0))(a, shifts).sum().backward()
    expected = sum(torch.autograd.grad(loss(a, shift), a)[0] for shift in shifts)
    torch.testing.assert_close(a.grad, expected)


def test_second_derivatives_are_refused() -> None:
    a, b, negatives, largest = Problem(5, 1, 3, Kernel("dot")).tensors()
    a.requires_grad_()
    partition = Partition(negatives, largest)
    found = info_nce_rows_triton(a, b, partition, Kernel("dot"), include_positive=True, count=4)
    (gradient,) = torch.autograd.grad(found.loss, a, create_graph=True)
    with pytest.raises(RuntimeError, match='use impl="reference"'):
        gradient.sum().backward()


def test_the_loss_may_be_changed_in_place() -> None:
    a, b, negatives, largest = Problem(5, 1, 3, Kernel("dot")).tensors()
    a.requires_grad_()
    partition = Partition(negatives, largest)
    found = info_nce_rows_triton(a, b, partition, Kernel("dot"), include_positive=True, count=4)
    found.loss.mul_(2.0)
    found.accuracy.zero_()
    found.loss.backward()
    assert a.grad is not None and a.grad.isfinite().all()


# The whole loss


def whole_loss(impl: str, similarity: Similarity, codes: dict[str, Any], dtype: torch.dtype, **settings: Any) -> Any:
    codes = {name: x.to(DEVICE, dtype).requires_grad_() for name, x in codes.items()}
    similarity = similarity.to(DEVICE, dtype)
    found = info_nce_terms(**codes, similarity=similarity, impl=impl, **settings)
    leaves = [*codes.values(), *similarity.parameters()]
    gradients = torch.autograd.grad(found.loss + found.per_item.square().mean(), leaves, allow_unused=True)
    values = [found.loss, found.alignment, found.log_partition, found.accuracy, found.information, found.per_item]
    return [x.detach().double() for x in (*values, *(g for g in gradients if g is not None))]


WHOLE: list[tuple[Similarity, dict[str, Any], bool]] = [
    *((similarity, {}, False) for similarity in SIMILARITIES),
    *(
        (similarity, settings, with_h_neg)
        for similarity in (SIMILARITIES[1], SIMILARITIES[4])
        for settings, with_h_neg in [
            ({"negatives": "both", "include_positive": False}, False),
            ({"negatives": "positives", "self_negatives": True}, False),
            ({"in_batch": True}, True),
            ({}, True),
        ]
    ),
]


@pytest.mark.parametrize(("similarity", "settings", "with_h_neg"), WHOLE, ids=str)
def test_the_whole_loss(similarity: Similarity, settings: dict[str, Any], with_h_neg: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(35, 4, generator=generator)
    codes = {"h": h, "h_pos": h[:, None] + 0.5 * torch.randn(35, 2, 4, generator=generator)}
    if with_h_neg:
        codes["h_neg"] = torch.randn(11, 4, generator=generator)
    expected = whole_loss("reference", similarity, codes, torch.float64, **settings)
    found = whole_loss("triton", similarity, codes, torch.float32, **settings)
    for ours, theirs in zip(found, expected, strict=True):
        # What cancels, such as the gradient of the temperature, is a sum of terms of size 10: hence the absolute part.
        assert (ours - theirs).norm() <= 1e-5 * theirs.norm() + 5e-6


@include
@pytest.mark.parametrize("in_batch", [True, False])
def test_the_whole_loss_under_a_mask(in_batch: bool, include_positive: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    codes = {name: torch.randn(n, 4, generator=generator) for name, n in (("h", 35), ("h_pos", 35), ("h_neg", 11))}
    mask = torch.rand(35, 46 if in_batch else 11, generator=generator) < 0.3
    mask[3] = False
    settings = {"mask": mask.to(DEVICE), "in_batch": in_batch, "include_positive": include_positive}
    expected = whole_loss("reference", LpSimilarity(2), codes, torch.float64, **settings)
    found = whole_loss("triton", LpSimilarity(2), codes, torch.float32, **settings)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours - theirs).norm() <= 1e-5 * theirs.norm() + 1e-6


class Counted:
    """Counts the calls of a function and passes them on."""

    def __init__(self, function: Any) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        self.calls += 1
        return self.function(*arguments, **settings)


def test_what_the_fused_rows_do_not_cover_goes_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(LpSimilarity):
        pass

    counted = Counted(functional.info_nce_rows)
    monkeypatch.setattr(functional, "info_nce_rows", counted)
    h = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    lp = LpSimilarity(1)
    info_nce_terms(h, h + 1, similarity=lp, impl="triton")
    info_nce_terms(h.bfloat16(), h.bfloat16() + 1, similarity=lp, impl="triton")
    assert counted.calls == 2
    weights = torch.ones(6, device=DEVICE)
    info_nce_terms(h, h + 1, similarity=lp, impl="triton", weights=weights)
    info_nce_terms(h, h + 1, similarity=lp, impl="triton", symmetric=True)
    info_nce_terms(h, h + 1, h.expand(6, 6, 3), similarity=lp, impl="triton")
    info_nce_terms(h, h + 1, similarity=Own(1), impl="triton")
    for impl in ("tiled", "reference"):
        info_nce_terms(h, h + 1, similarity=lp, impl=impl)
    info_nce_terms(h.double(), h.double(), similarity=lp)
    info_nce_terms(h.cpu(), h.cpu(), similarity=lp)
    assert counted.calls == 2
    monkeypatch.setattr(identica.kernels, "has_triton", lambda: False)
    info_nce_terms(h, h, similarity=lp)
    assert counted.calls == 2


@pytest.mark.parametrize("marks", [pytest.param(None, marks=on_gpu)])
@every_similarity
def test_captured_without_waiting_and_with_equal_bits(similarity: Similarity, marks: None) -> None:
    """On a GPU: the automatic choice, replayed from a graph, twice the same bits, and no synchronisation."""
    similarity = similarity.float().cuda()
    h = torch.randn(700, 4, generator=torch.Generator().manual_seed(0)).cuda().requires_grad_()
    h_pos = (h + 0.1).detach().requires_grad_()

    def work() -> list[Tensor]:
        found = info_nce_terms(h, h_pos, similarity=similarity)
        gradients = torch.autograd.grad(found.loss, [h, h_pos, *similarity.parameters()])
        return [
            found.loss.detach(),
            found.alignment,
            found.log_partition,
            found.accuracy,
            found.information,
            *gradients,
        ]

    eager = work()
    torch.cuda.set_sync_debug_mode("error")
    try:
        work()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = work()
    for _ in range(2):
        graph.replay()
        assert all(torch.equal(x, y) for x, y in zip(captured, eager, strict=True))
