"""Whole networks as one differentiable function on CUDA devices, made of the fused layers of ``triton_layers``.

A layer there is one launch forward and one backward besides the product that gives the gradient of its weights;
PyTorch's own takes two forward and four backward, each a pass through memory. Used where a lower precision than
float32 was asked for: TF32 (:func:`torch.set_float32_matmul_precision`), or bfloat16 under autocast.

Both functions take a leading axis of seeds, with one set of weights for each, and know it as the mapped axis of
:func:`torch.func.vmap`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from identica._eager import eager
from identica._optional import has_triton
from identica._seed_axis import seeds_first

#: Activations that the fused residual network knows.
FUSED_ACTIVATIONS = ("gelu", "leaky_relu")


def product_dtype(x: Tensor) -> torch.dtype | None:
    """What the fused layers would multiply in for inputs ``x``, or None where they are not to be used."""
    if x.device.type != "cuda" or not has_triton():
        return None
    if torch.is_autocast_enabled("cuda"):
        return torch.bfloat16 if torch.get_autocast_dtype("cuda") == torch.bfloat16 else None
    allowed = x.dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest"
    return torch.float32 if allowed else None


@eager
def perceptron(
    x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], slope: float, dtype: torch.dtype
) -> Tensor:
    """Linear layers with leaky ReLUs between them: ``(..., dim_in) -> (..., dim_out)`` in float32."""
    rows = x.reshape(-1, x.shape[-1])
    layers = [part for layer in zip(weights, biases, strict=True) for part in layer]
    return _Perceptron.apply(rows, slope, dtype, *layers)[0].unflatten(0, x.shape[:-1])


@eager
def residual_network(x: Tensor, layers: Sequence[tuple[Tensor, Tensor]], activation: str, dtype: torch.dtype) -> Tensor:
    """S x + R b_K(… b_1(Q x)) with blocks b(h) = h + V a(U h): ``(..., dim_in) -> (..., dim_out)`` in float32.

    ``layers``: weight and bias of S, Q, then U, V of each block, then R. ``activation``: "gelu" or "leaky_relu".
    """
    rows = x.reshape(-1, x.shape[-1])
    flat = [part for layer in layers for part in layer]
    return _ResidualNetwork.apply(rows, activation, dtype, *flat)[0].unflatten(0, x.shape[:-1])


class _SeedsFirst(torch.autograd.Function):
    """A function of rows and parameters with an optional leading axis of seeds, which is also its mapped axis.

    A subclass computes with that axis: ``run(x, setting, dtype, parameters) -> (y, kept)`` and
    ``pull_back(dy, kept, ...)``. What the gradient needs are further outputs, without gradients of their own.
    """

    @classmethod
    def compute(cls, x: Tensor, setting: Any, dtype: torch.dtype, parameters: tuple[Tensor, ...]) -> tuple[Any, ...]:
        if x.ndim == 3:
            return cls.run(x, setting, dtype, parameters)
        outputs = cls.run(x[None], setting, dtype, tuple(p[None] for p in parameters))
        return tuple(output[0] for output in outputs)

    @classmethod
    def run(cls, x: Tensor, setting: Any, dtype: torch.dtype, parameters: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        raise NotImplementedError

    @classmethod
    def gradients(
        cls, dy: Tensor, kept: tuple[Tensor, ...], sizes: list[torch.Size], setting: Any, needs_x: bool
    ) -> tuple[Tensor | None, list[Tensor]]:
        raise NotImplementedError

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, ctx.setting, ctx.dtype, *parameters = inputs
        ctx.x_dtype = x.dtype
        ctx.sizes = [parameter.shape for parameter in parameters]
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*output[1:])
        ctx.set_materialize_grads(False)

    @classmethod
    def pull_back(cls, ctx: Any, dy: Tensor) -> tuple[Any, ...]:
        kept, sizes, alone = ctx.saved_tensors, ctx.sizes, dy.ndim == 2
        if alone:
            dy, kept = dy[None], tuple(tensor[None] for tensor in kept)
            sizes = [torch.Size((1, *size)) for size in sizes]
        dx, gradients = cls.gradients(dy, kept, sizes, ctx.setting, ctx.needs_input_grad[0])
        if alone:
            dx, gradients = None if dx is None else dx[0], [gradient[0] for gradient in gradients]
        return None if dx is None else dx.to(ctx.x_dtype), None, None, *gradients

    @classmethod
    def mapped(cls, info: Any, in_dims: tuple[Any, ...], inputs: tuple[Any, ...]) -> tuple[Any, Any]:
        outputs = cls.apply(*seeds_first(info.batch_size, in_dims, inputs))
        return outputs, (0,) * len(outputs)


class _Perceptron(_SeedsFirst):
    """Outputs: y, then the input of each layer, then each weight turned."""

    @staticmethod
    def forward(x: Tensor, slope: float, dtype: torch.dtype, *parameters: Tensor) -> tuple[Any, ...]:
        return _Perceptron.compute(x, slope, dtype, parameters)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, *_: Any) -> tuple[Any, ...]:
        return _Perceptron.pull_back(ctx, dy)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, Any]:
        return _Perceptron.mapped(info, in_dims, inputs)

    @classmethod
    def run(cls, x: Tensor, setting: float, dtype: torch.dtype, parameters: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        from identica.encoders import triton_layers as layers

        weights, biases = parameters[::2], parameters[1::2]
        inputs, turned = [layers.run_pack_rows(x, dtype)[0]], []
        for weight, bias in zip(weights, biases, strict=True):
            straight, transposed = layers.run_pack_weight(weight, dtype)
            turned.append(transposed)
            last = len(turned) == len(weights)
            activation = layers.NONE if last else layers.LEAKY_RELU
            y, _ = layers.run_forward(
                inputs[-1],
                straight,
                bias.contiguous(),
                activation=activation,
                slope=setting,
                out_dtype=torch.float32 if last else None,
                is_operand=not last,
            )
            inputs.append(y)
        return inputs.pop()[..., : biases[-1].shape[-1]], *inputs, *turned

    @classmethod
    def gradients(
        cls, dy: Tensor, kept: tuple[Tensor, ...], sizes: list[torch.Size], setting: float, needs_x: bool
    ) -> tuple[Tensor | None, list[Tensor]]:
        from identica.encoders import triton_layers as layers

        count = len(sizes) // 2
        inputs, turned = kept[:count], kept[count:]
        aside = _Aside(dy)
        dz, sums = layers.run_pack_rows(dy, inputs[0].dtype, sums=True)
        gradients: list[Tensor] = []
        dx = None
        for k in reversed(range(count)):
            assert sums is not None
            gradients[:0] = aside.of_layer(dz, inputs[k], sums, sizes[2 * k])
            if k > 0:
                activation: dict[str, Any] = {"seen": inputs[k], "activation": layers.LEAKY_RELU, "slope": setting}
                dz, sums = layers.run_backward(dz, turned[k], **activation)
            elif needs_x:
                dx = layers.run_backward(dz, turned[0], is_operand=False)[0][..., : sizes[0][-1]]
        aside.join()
        return dx, gradients


class _ResidualNetwork(_SeedsFirst):
    """Outputs: y, then the input, the codes between the blocks, each block's U h and a(U h), each weight turned."""

    @staticmethod
    def forward(x: Tensor, activation: str, dtype: torch.dtype, *parameters: Tensor) -> tuple[Any, ...]:
        return _ResidualNetwork.compute(x, activation, dtype, parameters)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, *_: Any) -> tuple[Any, ...]:
        return _ResidualNetwork.pull_back(ctx, dy)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, Any]:
        return _ResidualNetwork.mapped(info, in_dims, inputs)

    @classmethod
    def run(cls, x: Tensor, setting: str, dtype: torch.dtype, parameters: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        from identica.encoders import triton_layers as layers

        packed = [layers.run_pack_weight(weight, dtype) for weight in parameters[::2]]
        straight, turned = zip(*packed, strict=True)
        biases = [bias.contiguous() for bias in parameters[1::2]]
        activation: dict[str, Any] = {
            "activation": layers.ACTIVATIONS[setting],
            "slope": layers.DEFAULT_SLOPE,
            "keeps_pre": True,
        }
        v, _ = layers.run_pack_rows(x, dtype)
        skipped, _ = layers.run_forward(v, straight[0], biases[0], is_operand=False)
        codes = [layers.run_forward(v, straight[1], biases[1])[0]]
        before, after = [], []
        for k in range(2, len(packed) - 1, 2):
            a, z = layers.run_forward(codes[-1], straight[k], biases[k], **activation)
            assert z is not None
            before.append(z)
            after.append(a)
            codes.append(layers.run_forward(a, straight[k + 1], biases[k + 1], added=codes[-1])[0])
        y, _ = layers.run_forward(
            codes[-1], straight[-1], biases[-1], added=skipped, out_dtype=torch.float32, is_operand=False
        )
        return y[..., : biases[-1].shape[-1]], v, *codes, *before, *after, *turned

    @classmethod
    def gradients(
        cls, dy: Tensor, kept: tuple[Tensor, ...], sizes: list[torch.Size], setting: str, needs_x: bool
    ) -> tuple[Tensor | None, list[Tensor]]:
        from identica.encoders import triton_layers as layers

        count = len(sizes) // 2
        blocks = (count - 3) // 2
        v, codes, rest = kept[0], kept[1 : blocks + 2], kept[blocks + 2 :]
        before, after, turned = rest[:blocks], rest[blocks : 2 * blocks], rest[2 * blocks :]
        size = sizes[::2]  # of the weights
        aside = _Aside(dy)
        dz, sums = layers.run_pack_rows(dy, v.dtype, sums=True)
        assert sums is not None
        of_skip = aside.of_layer(dz, v, sums, size[0])
        gradients = aside.of_layer(dz, codes[-1], sums, size[-1])
        dh, dh_sums = layers.run_backward(dz, turned[-1])
        for block in reversed(range(blocks)):
            k = 2 + 2 * block
            activation: dict[str, Any] = {"activation": layers.ACTIVATIONS[setting], "slope": layers.DEFAULT_SLOPE}
            gradients[:0] = aside.of_layer(dh, after[block], dh_sums, size[k + 1])
            du, du_sums = layers.run_backward(dh, turned[k + 1], seen=before[block], **activation)
            gradients[:0] = aside.of_layer(du, codes[block], du_sums, size[k])
            dh, dh_sums = layers.run_backward(du, turned[k], added=dh)
        gradients[:0] = of_skip + aside.of_layer(dh, v, dh_sums, size[1])
        dx = None
        if needs_x:
            through_skip, _ = layers.run_backward(dz, turned[0], is_operand=False)
            dx = layers.run_backward(dh, turned[1], added=through_skip, is_operand=False)[0][..., : size[0][-1]]
        aside.join()
        return dx, gradients


class _Aside:
    """Does what nothing waits for until the end, the gradients of weights, on a stream beside the current one.

    The products above and below fill the device, but not to the last block of their last wave, and the small kernels
    between them leave it empty: two chains of work fill each other's gaps.
    """

    def __init__(self, like: Tensor) -> None:
        self._stream = torch.cuda.Stream(like.device) if like.device.type == "cuda" else None
        self._kept: list[Any] = []

    def of_layer(self, dz: Tensor, x: Tensor, sums: Tensor, size: torch.Size) -> list[Tensor]:
        """Gradients of a layer's weight and bias, see :func:`_of_layer`."""
        if self._stream is None:
            return _of_layer(dz, x, sums, size)
        self._kept.append((dz, x, sums))  # their memory must not be given to others before the work is done
        self._stream.wait_stream(torch.cuda.current_stream(dz.device))
        with torch.cuda.stream(self._stream):
            return _of_layer(dz, x, sums, size)

    def join(self) -> None:
        """From here on the current stream may use the results."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)
            self._kept.clear()


def _of_layer(dz: Tensor, x: Tensor, sums: Tensor, size: torch.Size) -> list[Tensor]:
    """Gradients of a layer's weight, ``size`` = (seeds, out, in), and bias from those of its outputs."""
    _, out, inner = size
    if dz.dtype == torch.float32:  # cuBLAS splits one long product better than several at a time
        weight = dz.new_empty(len(dz), dz.shape[2], x.shape[2])
        for seed in range(len(dz)):
            torch.mm(dz[seed].T, x[seed], out=weight[seed])
    else:
        weight = torch.bmm(dz.mT, x)
    return [
        weight[:, :out, :inner].to(torch.float32, copy=True, memory_format=torch.contiguous_format),
        sums[:, :out].contiguous(),
    ]
