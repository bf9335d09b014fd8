"""Fused kernels or torch operations: the one place that decides, for the samplers here and for the mixing.

On CUDA devices a draw of a few thousand rows takes far less time than the launches of the torch operations it
consists of, so that in float32 one Triton kernel does it all. Everywhere else torch's operations are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from identica._optional import has_triton

#: Numbers that one launch can compute: their places are counted in 32 bits.
MOST_FUSED_NUMBERS = 2**30
#: Kernels that hold whole rows in registers take rows of at most this length.
MOST_FUSED_DIMENSIONS = 2048

Way = Literal["auto", "torch", "triton"]

_way: ContextVar[Way] = ContextVar("identica_way", default="auto")


@contextmanager
def computing_by(way: Way) -> Iterator[None]:
    """Within this context, draw and mix by ``"torch"`` or by ``"triton"`` instead of what ``"auto"`` would choose.

    ``"triton"`` still leaves to torch what the kernels cannot do: float64, and anything with a derivative. On the
    CPU it needs Triton's interpreter (TRITON_INTERPRET=1).

    >>> with computing_by("torch"):
    ...     fused_kernels_apply("cuda", torch.float32)
    False
    """
    if way not in ("auto", "torch", "triton"):
        raise ValueError(f'Draws are computed by "auto", "torch" or "triton", not by {way!r}.')
    token = _way.set(way)
    try:
        yield
    finally:
        _way.reset(token)


def fused_kernels_apply(device: torch.device | str, dtype: torch.dtype, *inputs: Tensor) -> bool:
    """Whether Triton computes a result of this type on this device from the inputs. Looks at no values."""
    way = _way.get()
    if way == "torch" or dtype != torch.float32 or any(map(_wants_derivative, inputs)):
        return False
    return way == "triton" or (torch.device(device).type == "cuda" and has_triton())


def _wants_derivative(tensor: Tensor) -> bool:
    """Whether autograd, forward or backward, or a transform of torch.func watches the tensor."""
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return True
    return (torch.is_grad_enabled() and tensor.requires_grad) or unpack_dual(tensor).tangent is not None
