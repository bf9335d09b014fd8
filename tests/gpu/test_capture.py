"""On a GPU: every sampler can be captured in a CUDA graph, and its replays follow the law of the CPU's draws."""

from __future__ import annotations

import pytest
import torch

import identica as idt
from tests.stat_checks import assert_same_law

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

N = 4096
DIM = 10
ON_SPHERE = [
    idt.Conditional(idt.VonMisesFisher, concentration=1.0),
    idt.Conditional(idt.VonMisesFisher, concentration=1000.0),
    idt.Conditional(idt.FisherBingham, precision=(5.0,) * 5 + (25.0,) * 5),
    idt.Conditional(idt.FisherBingham, precision=(1.0,) * 5 + (200.0,) * 5),
    idt.Conditional(idt.ProjectedNormal, scale=0.05),
    idt.Conditional(idt.ProjectedLaplace, scale=0.05),
    idt.Conditional(idt.ProjectedGeneralizedNormal, scale=0.3, power=3.0),
]
IN_BOX = [
    idt.Conditional(idt.TruncatedNormal, scale=0.05),
    idt.Conditional(idt.TruncatedLaplace, scale=0.05),
    idt.Conditional(idt.TruncatedGeneralizedNormal, scale=0.05, power=3.0),
    idt.Conditional(idt.TruncatedGeneralizedNormal, scale=0.3, power=0.7),
    idt.Conditional(idt.GeneralizedNormal, scale=0.5, power=1.5),
]


@pytest.mark.statistical(false_alarm=1e-6, what="captured GPU draws against CPU draws, two-sample KS")
@pytest.mark.parametrize("conditional", ON_SPHERE + IN_BOX, ids=str)
def test_captured_draws_follow_the_same_law(conditional: idt.Conditional) -> None:
    marginal = idt.SphereUniform(DIM) if conditional in ON_SPHERE else idt.BoxUniform(DIM)
    anchors = marginal.sample(N, torch.Generator().manual_seed(0))
    expected = conditional(anchors).sample(generator=torch.Generator().manual_seed(1))

    on_device = anchors.cuda()
    conditional.prepare("cuda", anchors.dtype)
    generator = torch.Generator("cuda").manual_seed(2)
    conditional.unchecked(on_device).sample(generator=generator)  # warm up outside the capture
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        drawn = conditional.unchecked(on_device).sample(generator=generator)
    graph.replay()
    first = drawn.clone()
    graph.replay()
    assert not torch.equal(first, drawn), "two replays must not repeat each other"
    for draws in (first, drawn):
        features = [
            torch.cat([x - anchors, (x * anchors).sum(-1, keepdim=True)], dim=1) for x in (draws.cpu(), expected)
        ]
        assert_same_law(*features, false_alarm=1e-6 / 2)


def test_draws_live_on_the_generators_device() -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    assert idt.SphereUniform(3).sample(5, generator).device.type == "cuda"
    assert idt.VonMisesFisher(torch.eye(3), 2.0).sample(generator=generator).device.type == "cuda"
