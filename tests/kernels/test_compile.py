"""Inside a compiled function the all-pairs kernels run as they are, and the rest is compiled around them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import identica as idt
from identica._eager import eager

IMPLEMENTATIONS = ["reference", "tiled", "triton"]


@pytest.mark.slow  # torch.compile itself takes most of the time
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_a_compiled_loss_is_the_loss(impl: str, compiler: None) -> None:
    if impl == "triton":
        pytest.importorskip("triton")
    device = "cuda" if impl == "triton" and torch.cuda.is_available() else "cpu"
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(300, 5, generator=generator).to(device).requires_grad_()
    h_pos = (h.detach() + 0.1 * torch.randn(300, 5, generator=generator).to(device)).requires_grad_()
    loss = idt.InfoNCE(idt.LpSimilarity(1, 0.5, trainable=True), impl=impl).to(device)

    def twice(a: Tensor, b: Tensor) -> Tensor:
        return loss(1.5 * a, 1.5 * b) + loss(a, b)

    parameters = [h, h_pos, *loss.parameters()]
    found = torch.compile(twice)(h, h_pos)
    expected = twice(h, h_pos)
    torch.testing.assert_close(found, expected)
    for ours, theirs in zip(
        torch.autograd.grad(found, parameters), torch.autograd.grad(expected, parameters), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_outside_of_compilation_nothing_is_between() -> None:
    def double(x: int) -> int:
        """Twice x."""
        return 2 * x

    assert eager(double)(3) == 6 and eager(double).__doc__ == "Twice x."
