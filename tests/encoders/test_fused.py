"""Fused networks against the same networks layer by layer, in Triton's interpreter and (``-m gpu``) on the GPU."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import identica as idt
from identica.encoders.fused import product_dtype

pytest.importorskip("triton")

DEVICES = [pytest.param("cpu", id="interpreter"), pytest.param("cuda", marks=pytest.mark.gpu)]
#: The interpreter multiplies in float32, the GPU in TF32 or bfloat16: of the values, and of the gradients, where a unit
#: so close to its kink that rounding moves it to the other side contributes another slope.
TOLERANCE = {("cpu", "fp32"): (1e-5, 4e-5), ("cuda", "fp32"): (4e-3, 8e-2), ("cuda", "bf16"): (3e-2, 2e-1)}


def make_encoder(kind: str, device: str) -> nn.Module:
    if kind == "perceptron":
        encoder: nn.Module = idt.MLPEncoder(7, idt.Euclidean(3), hidden=[70, 130, 20], negative_slope=0.1, seed=1)
    else:
        encoder = idt.ResidualEncoder(7, idt.Euclidean(3), width=70, blocks=2, activation=kind, whiten=False, seed=1)
        with torch.no_grad():  # the last matrices of the blocks start at zero, which would hide mistakes
            for k, parameter in enumerate(encoder.parameters()):
                noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(k))
                parameter.add_(0.1 * noise)
    return encoder.to(device)


def fused(encoder: nn.Module, x: Tensor, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    for module in ("mlp", "residual"):
        monkeypatch.setattr(f"identica.encoders.{module}.product_dtype", lambda _: dtype)
    result: Tensor = encoder(x)
    monkeypatch.undo()
    return result


def gradients(value: Tensor, encoder: nn.Module, x: Tensor, weights: Tensor) -> dict[str, Tensor]:
    encoder.zero_grad()
    x.grad = None
    (value * weights).sum().backward()
    return {"x": x.grad, **{name: p.grad for name, p in encoder.named_parameters()}}  # type: ignore[dict-item]


def assert_close(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    """Up to a relative error in norm."""
    assert actual.dtype == torch.float32
    error = (actual.double().cpu() - expected.double().cpu()).norm() / expected.norm().cpu()
    assert error <= tolerance


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", ["perceptron", "gelu", "leaky_relu"])
@pytest.mark.parametrize("rows", [1, 300])
def test_values_and_gradients(
    device: str, precision: str, kind: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device == "cpu" and precision == "bf16":
        pytest.skip("the interpreter does not multiply bfloat16")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 7, generator=generator).to(device).requires_grad_()
    weights = torch.randn(rows, 3, generator=generator).to(device)
    encoder = make_encoder(kind, device)
    dtype = torch.float32 if precision == "fp32" else torch.bfloat16
    y = fused(encoder, x, dtype, monkeypatch)
    found = gradients(y, encoder, x, weights)
    exact = copy.deepcopy(encoder).double()
    x = x.detach().double().requires_grad_()
    truth = exact(x)
    expected = gradients(truth, exact, x, weights.double())
    of_values, of_gradients = TOLERANCE[device, precision]
    assert_close(y.detach(), truth.detach(), of_values)
    for name, gradient in expected.items():
        assert_close(found[name], gradient, 4 * of_values if kind == "gelu" else of_gradients)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["perceptron", "gelu"])
def test_a_leading_axis_of_seeds_is_the_same_as_one_after_the_other(
    device: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoders = [make_encoder(kind, device) for _ in range(3)]
    with torch.no_grad():
        for k, encoder in enumerate(encoders):
            for parameter in encoder.parameters():
                parameter.mul_(1.0 + 0.1 * k)
    x = torch.randn(3, 40, 7, generator=torch.Generator().manual_seed(0)).to(device)
    alone = [fused(encoder, x[k], torch.float32, monkeypatch) for k, encoder in enumerate(encoders)]
    for y in alone:
        y.square().sum().backward()
    parameters, buffers = torch.func.stack_module_state(encoders)

    def call(p: dict[str, Tensor], b: dict[str, Tensor], rows: Tensor) -> Tensor:
        result: Tensor = torch.func.functional_call(encoders[0], (p, b), (rows,))
        return result

    for module in ("mlp", "residual"):
        monkeypatch.setattr(f"identica.encoders.{module}.product_dtype", lambda _: torch.float32)
    together = torch.func.vmap(call)(parameters, buffers, x)
    together.square().sum().backward()
    for k, encoder in enumerate(encoders):
        torch.testing.assert_close(together[k], alone[k], rtol=1e-4, atol=1e-5)
        for name, parameter in encoder.named_parameters():
            assert parameter.grad is not None
            scale = float(parameter.grad.abs().max())
            torch.testing.assert_close(parameters[name].grad[k], parameter.grad, rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["perceptron", "residual"])
def test_wide_inputs_such_as_images(device: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """1100 numbers are no multiple of 64 and, padded, no power of two."""
    if kind == "perceptron":
        encoder: nn.Module = idt.MLPEncoder(1100, idt.Euclidean(3), hidden=[70], seed=1)
    else:
        encoder = idt.ResidualEncoder(1100, idt.Euclidean(3), width=70, blocks=1, whiten=False, seed=1)
    encoder = encoder.to(device)
    x = torch.rand(70, 1100, generator=torch.Generator().manual_seed(0)).to(device)
    weights = torch.randn(70, 3, generator=torch.Generator().manual_seed(1)).to(device)
    leaf = x.clone().requires_grad_()
    y = fused(encoder, leaf, torch.float32, monkeypatch)
    found = gradients(y, encoder, leaf, weights)
    exact, leaf = copy.deepcopy(encoder).double(), x.double().requires_grad_()
    truth = exact(leaf)
    expected = gradients(truth, exact, leaf, weights.double())
    of_values, of_gradients = TOLERANCE[device, "fp32"]
    assert_close(y.detach(), truth.detach(), of_values)
    for name, gradient in expected.items():
        if gradient.norm() > 0:  # the last matrices of the blocks start at zero
            assert_close(found[name], gradient, of_gradients)


def test_the_cpu_and_full_precision_go_layer_by_layer() -> None:
    x = torch.zeros(1, 7)
    assert product_dtype(x) is None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert product_dtype(x) is None


@pytest.mark.gpu
def test_only_where_a_lower_precision_was_asked_for() -> None:
    x = torch.zeros(1, 7, device="cuda")
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        assert product_dtype(x) is None
        torch.set_float32_matmul_precision("high")
        assert product_dtype(x) == torch.float32
        assert product_dtype(x.double()) is None
    finally:
        torch.set_float32_matmul_precision(before)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert product_dtype(x) == torch.bfloat16
    with torch.autocast("cuda", dtype=torch.float16):
        assert product_dtype(x) is None


def nearest_tf32(x: Tensor) -> Tensor:
    """Ten bits of mantissa besides the leading one, halves away from zero, by exact arithmetic in float64."""
    mantissa, exponent = torch.frexp(x.double())
    scaled = mantissa * 2.0**11
    nearest = scaled.sign() * (scaled.abs() + 0.5).floor()
    return torch.ldexp(nearest / 2.0**11, exponent).float()


def test_operands_are_rounded_to_the_nearest_tf32_number(monkeypatch: pytest.MonkeyPatch) -> None:
    from identica.encoders import triton_layers

    x = torch.randn(1, 50, 7, generator=torch.Generator().manual_seed(0)) * 1e3
    x[0, 0, :5] = torch.tensor([0.0, -1.0, 1.0 + 2**-11, -1.0 - 2**-11, 1.0 + 2**-12])
    assert torch.equal(triton_layers.run_pack_rows(x, torch.float32)[0][..., :7], x), (
        "the interpreter needs no rounding"
    )
    monkeypatch.setattr(triton_layers, "rounds", lambda _: True)
    packed, sums = triton_layers.run_pack_rows(x, torch.float32, sums=True)
    assert torch.equal(packed[..., :7], nearest_tf32(x)) and not torch.equal(packed[..., :7], x)
    assert sums is not None
    torch.testing.assert_close(sums[:, :7], x.sum(dim=1))
    straight, turned = triton_layers.run_pack_weight(x, torch.float32)
    assert torch.equal(straight[:, :50, :7], nearest_tf32(x)) and torch.equal(turned, straight.mT)
    special = torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0]).view(torch.int32)
    special[0] = 0x7FFFFFFF  # the NaN that a GPU makes
    out = triton_layers.run_pack_rows(special.view(torch.float32)[None, None], torch.float32)[0][0, 0, :4]
    assert out[0].isnan() and out[1:].tolist() == [torch.inf, -torch.inf, 0.0]


@pytest.mark.gpu
def test_products_in_tf32_are_not_biased(monkeypatch: pytest.MonkeyPatch) -> None:
    """Positive numbers times positive numbers: cut off, the product would be too small by 5e-4 or more."""
    encoder = idt.MLPEncoder(10, idt.Euclidean(4), hidden=[256, 256], seed=0)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.abs_()
    encoder.cuda()
    x = torch.rand(4096, 10, generator=torch.Generator().manual_seed(0)).cuda()
    y = fused(encoder, x, torch.float32, monkeypatch).double()
    exact = encoder.double()(x.double())
    assert abs(float(((y - exact) / exact).mean())) < 5e-5


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("inner", [64, 128, 192, 320, 512])
def test_gradient_below_a_layer_whatever_its_width(inner: int, device: str) -> None:
    """With nothing to add or to multiply with, the sums of the matrix units are rounded as they come."""
    from identica.encoders import triton_layers

    generator = torch.Generator().manual_seed(inner)
    dz, turned = (torch.randn(2, n, inner, generator=generator).to(device) for n in (200, 128))
    dx, sums = triton_layers.run_backward(dz, turned)
    expected = dz.double() @ turned.double().mT
    assert_close(dx, expected, 4e-3)
    assert_close(sums, expected.sum(dim=1), 4e-3)
