"""On a GPU: processes and encoders live there, draw there, and never make the host wait."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from identica.distributions import BoxUniform, SphereUniform
from identica.distributions.conditional import Conditional
from identica.distributions.truncated_generalized_normal import TruncatedGeneralizedNormal
from identica.distributions.truncated_laplace import TruncatedLaplace
from identica.distributions.truncated_normal import TruncatedNormal
from identica.distributions.von_mises_fisher import VonMisesFisher
from identica.encoders import Encoder, MLPEncoder, ResidualEncoder
from identica.mixing import InvertibleMLP
from identica.processes import PairProcess
from identica.spaces import Box, Product, Sphere

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

PROCESSES = {
    "vMF": (SphereUniform(10), Conditional(VonMisesFisher, concentration=10.0)),
    "laplace": (BoxUniform(10), Conditional(TruncatedLaplace, scale=0.05)),
    "normal": (BoxUniform(10), Conditional(TruncatedNormal, scale=0.05)),
    "cubic": (BoxUniform(10), Conditional(TruncatedGeneralizedNormal, scale=0.05, power=3.0)),
}


@pytest.fixture
def no_waiting() -> Iterator[None]:
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", PROCESSES)
def test_sampling_never_waits_and_can_be_captured(name: str, no_waiting: None) -> None:
    marginal, conditional = PROCESSES[name]
    mixing = InvertibleMLP(10, seed=0, candidates=100)
    process = PairProcess(marginal, conditional, mixing, conditional, 3, 2).to("cuda")
    generator = torch.Generator("cuda").manual_seed(0)
    process.sample(512, generator)
    torch.cuda.set_sync_debug_mode("error")
    pairs = process.sample(512, generator)
    torch.cuda.set_sync_debug_mode("default")
    assert all(t.is_cuda for t in (pairs.z, pairs.z_pos, pairs.x, pairs.x_pos, pairs.z_neg, pairs.x_neg))  # type: ignore[union-attr]
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        captured = process.sample(512, generator)
    graph.replay()
    first = captured.x_pos.clone()
    graph.replay()
    assert bool(captured.x_pos.isfinite().all()) and not torch.equal(first, captured.x_pos)
    assert process.space is not None and bool(process.space.contains(captured.z_pos).all())


@pytest.mark.parametrize(
    "encoder",
    [
        ResidualEncoder(10, Box(10)),
        MLPEncoder(10, Sphere(10), learn_radius=True),
        ResidualEncoder(10, Product(Sphere(5), Box(5, low=-1.0, high=(1.0, 2.0, 3.0, 4.0, 5.0)))),
    ],
    ids=["residual", "mlp", "product"],
)
def test_encoding_never_waits(encoder: Encoder, no_waiting: None) -> None:
    encoder = encoder.cuda()
    x = torch.randn(512, 10, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    encoder.prepare(x)
    torch.cuda.set_sync_debug_mode("error")
    encoder(x).square().mean().backward()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        h = encoder(x)
    torch.cuda.set_sync_debug_mode("default")
    assert h.is_cuda and h.dtype == torch.float32 and bool(h.isfinite().all())


def test_the_floor_of_the_loss_is_the_same_on_both_devices() -> None:
    process = PairProcess(*PROCESSES["laplace"])
    there = process.to("cuda").optimal_loss(1024, 4)
    pairs = process.sample(256, 0)
    here = process.loss_at_truth(pairs)
    assert torch.allclose(process.to("cuda").loss_at_truth(pairs.to("cuda")).cpu(), here, atol=1e-10)
    assert there.mean > 0


def test_a_generator_elsewhere_is_refused() -> None:
    process = PairProcess(*PROCESSES["laplace"]).to("cuda")
    with pytest.raises(ValueError, match="The generator lives on cpu"):
        process.sample(4, torch.Generator())
