"""The fused heads against the heads in torch operations: on a GPU, or without one in Triton's interpreter."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor

from identica.encoders import BoxHead, MLPEncoder, SphereHead, make_head
from identica.encoders import heads as heads_in_torch
from identica.spaces import Box, Product, Sphere

pytest.importorskip("triton")

from identica.encoders.triton_heads import fused_head, plain_head  # noqa: E402

HAS_CUDA = torch.cuda.is_available()
DEVICE = "cuda" if HAS_CUDA else "cpu"
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")  # the interpreter warns of 1 / 0
on_gpu = [pytest.mark.gpu, pytest.mark.skipif(not HAS_CUDA, reason="needs a CUDA device")]
SHAPES = [(1, 2), (5,), (77, 10), (3, 4, 7), (300, 3), (2, 1500)]
LARGE_SHAPES = [(6144, 10), (50001, 3), (33, 4096)]
shapes = pytest.mark.parametrize(
    "shape", [*SHAPES, *(pytest.param(shape, marks=on_gpu) for shape in LARGE_SHAPES)], ids=str
)
kinds = pytest.mark.parametrize("kind", ["sphere", "box"])


@pytest.fixture(autouse=True, params=["here", pytest.param("gpu", marks=on_gpu)])
def where(request: pytest.FixtureRequest) -> str:
    """Every test also carries the marker ``gpu``, so that ``-m gpu`` runs all of them on the device."""
    return str(request.param)


def parameters(kind: str, dim: int) -> tuple[Tensor, Tensor | None]:
    """The log of the scale, and the low corner of a box."""
    if kind == "sphere":
        return torch.tensor(math.log(2.5)), None
    return torch.linspace(-1.0, 1.0, dim), torch.linspace(-2.0, 3.0, dim)


def inputs(*shape: int, seed: int = 0) -> Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def codes_and_gradients(compute: object, x: Tensor, log_scale: Tensor, low: Tensor | None) -> tuple[Tensor, ...]:
    assert callable(compute)
    x, log_scale = x.detach().clone().requires_grad_(), log_scale.detach().clone().requires_grad_()
    h = compute(x, log_scale, low)
    slopes = torch.linspace(-1.0, 2.0, h.numel(), device=h.device, dtype=h.dtype).cos().view(h.shape)
    (h * slopes).sum().backward()
    assert x.grad is not None and log_scale.grad is not None
    return h.detach(), x.grad, log_scale.grad


def in_float64(x: Tensor, log_scale: Tensor, low: Tensor | None) -> Tensor:
    """The heads as they are, in double precision."""
    dim = x.shape[-1]
    head = SphereHead(Sphere(dim)) if low is None else BoxHead(Box(dim))
    found = {"log_radius": log_scale} if low is None else {"log_bound": log_scale, "low": low}
    return torch.func.functional_call(head, found, (x,))


def assert_close_to_float64(x: Tensor, log_scale: Tensor, low: Tensor | None) -> None:
    on_cpu = [None if t is None else t.double() for t in (x, log_scale, low)]
    expected = codes_and_gradients(in_float64, *on_cpu)  # type: ignore[arg-type]
    on_device = [None if t is None else t.to(DEVICE) for t in (x, log_scale, low)]
    found = codes_and_gradients(fused_head, *on_device)  # type: ignore[arg-type]
    assert found[0].dtype == torch.float32 and found[1].dtype == x.dtype and found[2].dtype == log_scale.dtype
    assert [t.shape for t in found] == [t.shape for t in expected]
    rounding = 1e-5 if x.dtype == torch.float32 else torch.finfo(x.dtype).eps
    torch.testing.assert_close(found[0].double().cpu(), expected[0], rtol=1e-5, atol=1e-6)
    assert (found[1].double().cpu() - expected[1]).norm() <= rounding * expected[1].norm()
    assert (found[2].double().cpu() - expected[2]).norm() <= 1e-5 * expected[2].norm() + 1e-5


@kinds
@shapes
def test_codes_and_gradients(shape: tuple[int, ...], kind: str) -> None:
    assert_close_to_float64(inputs(*shape), *parameters(kind, shape[-1]))


@kinds
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gives_float32_codes(dtype: torch.dtype, kind: str) -> None:
    log_scale, low = parameters(kind, 10)
    assert_close_to_float64(inputs(33, 10).to(dtype), log_scale, low)


@kinds
def test_strided_inputs_and_slopes(kind: str) -> None:
    """As under a product of spaces: the inputs and slopes are columns of wider ones."""
    log_scale, low = (None if t is None else t.to(DEVICE) for t in parameters(kind, 3))
    assert log_scale is not None
    wide = inputs(40, 7).to(DEVICE).requires_grad_()
    copied = wide.detach()[:, 2:5].contiguous().requires_grad_()
    h = torch.cat([wide[:, :2], fused_head(wide[:, 2:5], log_scale, low)], dim=1)
    (h * inputs(40, 5, seed=1).to(DEVICE)).sum().backward()
    (fused_head(copied, log_scale, low) * inputs(40, 5, seed=1).to(DEVICE)[:, 2:]).sum().backward()
    assert wide.grad is not None and copied.grad is not None
    assert torch.equal(wide.grad[:, 2:5], copied.grad)
    turned = inputs(3, 40).to(DEVICE).T
    straight = fused_head(turned.contiguous(), log_scale, low)
    torch.testing.assert_close(fused_head(turned, log_scale, low), straight, rtol=1e-6, atol=0)  # sums in another order


def test_tiny_and_huge_rows_have_a_direction() -> None:
    for size in (1e-40, 1e-30, 1e-12, 1.0, 1e18, 5e37):
        x = torch.tensor([[3.0, -4.0]]) * size
        found = fused_head(x.to(DEVICE), torch.zeros((), device=DEVICE), None)
        torch.testing.assert_close(
            found.cpu(), torch.tensor([[0.6, -0.8]]), atol=1e-6 if size > 1e-37 else 1e-3, rtol=0
        )


def test_the_zero_row_has_a_code_and_gradient_zero() -> None:
    x = torch.tensor([[0.0, 0.0, 0.0], [0.0, 2.0, 0.0]], device=DEVICE, requires_grad=True)
    log_radius = torch.tensor(math.log(2.0), device=DEVICE, requires_grad=True)
    h = fused_head(x, log_radius, None)
    torch.testing.assert_close(h.cpu(), torch.tensor([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0]]))
    (h * torch.tensor([[3.0, 5.0, 7.0], [1.0, 1.0, 1.0]], device=DEVICE)).sum().backward()
    assert x.grad is not None and log_radius.grad is not None
    torch.testing.assert_close(x.grad.cpu(), torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 1.0]]))
    assert log_radius.grad.item() == pytest.approx(3.0 * 2.0 + 2.0, rel=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_rows_without_a_direction_are_nan(bad: float) -> None:
    x = torch.tensor([[bad, 1.0, 2.0], [bad, 0.0, 0.0], [bad] * 3, [1.0, 2.0, 2.0]])
    found = fused_head(x.to(DEVICE), torch.zeros((), device=DEVICE), None).cpu()
    assert found[:3].isnan().all()
    torch.testing.assert_close(found[3], x[3] / 3)


@kinds
@pytest.mark.parametrize("shared", [True, False])
def test_a_leading_seed_axis(kind: str, shared: bool) -> None:
    """vmap over seeds, forward and backward, equals each seed alone."""
    x = inputs(3, 21, 5).to(DEVICE).requires_grad_()
    one, low = (None if t is None else t.to(DEVICE) for t in parameters(kind, 5))
    assert one is not None
    log_scale = one.clone() if shared else torch.stack([one, one + 0.5, one - 0.25])
    log_scale.requires_grad_()
    weights = inputs(21, 5, seed=2).to(DEVICE)

    def loss(x: Tensor, log_scale: Tensor) -> Tensor:
        return (fused_head(x, log_scale, low) * weights).square().sum()

    in_dims = (0, None if shared else 0)
    torch.func.vmap(loss, in_dims=in_dims)(x, log_scale).sum().backward()
    mapped = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)), in_dims=in_dims)(x.detach(), log_scale.detach())
    assert x.grad is not None and log_scale.grad is not None
    for seed in range(3):
        alone = [t.detach().clone().requires_grad_() for t in (x[seed], log_scale if shared else log_scale[seed])]
        loss(*alone).backward()
        assert alone[0].grad is not None and alone[1].grad is not None
        assert torch.equal(x.grad[seed], alone[0].grad) and torch.equal(mapped[0][seed], alone[0].grad)
        # Blocks are added up by torch, whose order of summation may depend on the number of seeds.
        torch.testing.assert_close(mapped[1][seed], alone[1].grad)
        if not shared:
            torch.testing.assert_close(log_scale.grad[seed], alone[1].grad)
    if shared:
        torch.testing.assert_close(log_scale.grad, mapped[1].sum(dim=0))


@kinds
def test_second_derivatives_are_those_of_the_torch_head(kind: str) -> None:
    found = []
    for compute in (fused_head, plain_head):
        x = inputs(6, 4).to(DEVICE).requires_grad_()
        log_scale, low = (None if t is None else t.to(DEVICE) for t in parameters(kind, 4))
        assert log_scale is not None
        log_scale.requires_grad_()
        first = torch.autograd.grad(compute(x, log_scale, low).pow(3).sum(), (x, log_scale), create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), (x, log_scale)))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-4)


def test_a_fixed_size_costs_no_gradient() -> None:
    x = inputs(6, 4).to(DEVICE).requires_grad_()
    log_scale, low = (None if t is None else t.to(DEVICE) for t in parameters("box", 4))
    assert log_scale is not None
    fused_head(x, log_scale, low).sum().backward()
    assert x.grad is not None and log_scale.grad is None


@pytest.mark.parametrize("marks", [pytest.param(None, marks=on_gpu)])
@pytest.mark.parametrize(
    "head", [SphereHead(Sphere(6, 2.0), True), BoxHead(Box(6, -1.0)), make_head(Product(Sphere(3), Box(3)))]
)
def test_on_a_gpu_heads_are_fused_captured_and_repeatable(
    head: torch.nn.Module, marks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = copy.deepcopy(head).cuda()
    x = inputs(6000, 6).cuda().requires_grad_()

    def work() -> tuple[Tensor, ...]:
        h = head(x)
        return (h.detach(), *torch.autograd.grad(h.square().sum() + h.sum(), [x, *head.parameters()]))

    eager = work()
    torch.cuda.set_sync_debug_mode("error")
    try:
        work()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = work()
    graph.replay()
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(captured, eager, strict=True))
    monkeypatch.setattr(heads_in_torch, "has_triton", lambda: False)
    for ours, theirs in zip(eager, work(), strict=True):
        assert (ours - theirs).norm() <= 1e-5 * theirs.norm()


@pytest.mark.parametrize("marks", [pytest.param(None, marks=on_gpu)])
def test_on_a_gpu_codes_under_autocast_are_float32(marks: None) -> None:
    encoder = MLPEncoder(5, Sphere(3), hidden=[16], seed=0).cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        h = encoder(inputs(9, 5).cuda())
    assert h.dtype == torch.float32
    torch.testing.assert_close(h.norm(dim=1), torch.ones(9, device="cuda"), rtol=1e-6, atol=0)
    h.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters())
