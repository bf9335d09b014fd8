"""Full precision for a while: settings come back, whichever of torch's names they were given by."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor

from identica._products import full_products

CUDA = torch.device("cuda")


def test_products_on_cuda_are_those_of_float32_for_a_while() -> None:
    before = torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    try:
        with pytest.raises(KeyError), full_products(CUDA):
            assert torch.get_float32_matmul_precision() == "highest" and not torch.backends.cudnn.allow_tf32
            raise KeyError
        assert torch.get_float32_matmul_precision() == "high" and torch.backends.cudnn.allow_tf32
        with full_products(torch.device("cpu")):
            assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = before


def test_autocast_pauses_where_there_is_one() -> None:
    a = torch.ones(2, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (a @ a).dtype == torch.bfloat16
        with full_products(a.device):
            assert (a @ a).dtype == torch.float32
    with full_products(torch.device("meta")):
        assert (a.to("meta") @ a.to("meta")).shape == (2, 2)


def test_newer_names_are_not_mixed_with_older_ones() -> None:
    """In a process of its own: torch does not forget which names were used."""
    script = """
import torch
from identica._products import full_products

matmul, conv = torch.backends.cuda.matmul, torch.backends.cudnn.conv
matmul.fp32_precision = conv.fp32_precision = "tf32"
with full_products(torch.device("cuda")):
    assert matmul.fp32_precision == conv.fp32_precision == "ieee"
assert matmul.fp32_precision == conv.fp32_precision == "tf32"
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_it_can_be_compiled_as_a_whole() -> None:
    def product(a: Tensor) -> Tensor:
        with full_products(CUDA):
            return a @ a

    found = torch.compile(product, backend="eager", fullgraph=True)(torch.ones(2, 2))
    assert torch.equal(found, torch.full((2, 2), 2.0))
