"""On a GPU: the losses equal the CPU's, never wait for the device, can be captured, and survive TF32."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from identica.kernels import log_partition
from identica.objectives import AlignUniform, AnInfoNCE, InfoNCE, Objective, SpectralContrastive, TriCL
from identica.similarities import DotProduct, Kernel, LpSimilarity

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

KERNELS = [Kernel("dot"), *(Kernel(n, p) for n in ("lp", "lp_norm") for p in (0.5, 1.0, 1.5, 2.0, 3.0, 4.0))]
OBJECTIVES: list[Objective] = [
    InfoNCE(DotProduct(0.1, trainable=True)),
    *(InfoNCE(LpSimilarity(p, 0.2), impl=impl) for p in (1, 2, 3) for impl in ("tiled", "reference")),
    InfoNCE(LpSimilarity(1), negatives="both", symmetric=True),
    AnInfoNCE(5),
    AlignUniform(0.5, 1),
    SpectralContrastive(),
    TriCL(5),
]


def codes(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@contextmanager
def no_waiting() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k.name}-{k.p}")
@pytest.mark.parametrize("impl", ["tiled", "reference"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_log_partition_equals_the_cpus(kernel: Kernel, impl: str, dtype: torch.dtype) -> None:
    a, b = codes(129, 7), codes(300, 7, seed=1)
    b[:50] = a[:50]
    mask = torch.rand(129, 300, generator=torch.Generator().manual_seed(2)) < 0.8
    on_cpu = [x.to(dtype).double().clone().requires_grad_() for x in (a, b)]
    on_gpu = [x.to("cuda", dtype).detach().requires_grad_() for x in (a, b)]
    expected = log_partition(*on_cpu, kernel, exclude_diagonal=True, mask=mask, impl="reference").log_partition
    found = log_partition(*on_gpu, kernel, exclude_diagonal=True, mask=mask.cuda(), impl=impl).log_partition
    expected.sum().backward()
    found.sum().backward()
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(found.double().cpu(), expected, rtol=1e-5, atol=1e-4)
    for ours, theirs in zip(on_gpu, on_cpu, strict=True):
        assert ours.grad is not None and theirs.grad is not None
        size = theirs.grad.abs().max().item()
        torch.testing.assert_close(ours.grad.double().cpu(), theirs.grad, rtol=1e-4 + eps, atol=(1e-5 + eps) * size)


def test_tf32_does_not_touch_distances() -> None:
    """Narrow kernels far from the origin: expanded squares in TF32 would give noise for gradients."""
    h = (codes(2000, 10) + 50).float()
    torch.set_float32_matmul_precision("high")
    try:
        for p in (1.0, 2.0, 3.0):
            exact, ours = h.double().detach().requires_grad_(), h.cuda().detach().requires_grad_()
            for x, impl in ((exact, "tiled"), (ours, "tiled")):
                log_partition(x, x, Kernel("lp", p), exclude_diagonal=True, impl=impl).log_partition.sum().backward()
            assert ours.grad is not None and exact.grad is not None
            torch.testing.assert_close(
                ours.grad.double().cpu(), exact.grad, rtol=1e-3, atol=1e-4 * exact.grad.abs().max().item()
            )
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: " ".join(repr(o).split()))
def test_a_captured_step_repeats_the_eager_one(objective: Objective) -> None:
    objective = copy.deepcopy(objective).cuda()
    h, h_pos = (codes(700, 5, seed=s).float().cuda().requires_grad_() for s in (0, 1))
    parameters = [h, h_pos, *objective.parameters()]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), no_waiting():  # warm up outside the capture
        eager = objective.terms(h, h_pos)
        expected = torch.autograd.grad(eager.loss, parameters)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = objective.terms(h, h_pos)
        gradients = torch.autograd.grad(captured.loss, parameters)
    graph.replay()
    torch.testing.assert_close(captured.loss, eager.loss)
    torch.testing.assert_close(gradients, expected)
    with torch.no_grad():
        h.mul_(0.5)
    graph.replay()
    torch.testing.assert_close(captured.loss, objective(h, h_pos), rtol=1e-5, atol=1e-5)
