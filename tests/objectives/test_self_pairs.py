"""Self-pairs with a weight: between the definition of InfoNCE and the published protocol, and from one to the other."""

from __future__ import annotations

import pytest
import torch

import identica as idt
from identica.functional import info_nce_terms
from identica.objectives import objective_from_dict

SIMILARITIES = [idt.DotProduct(0.5), idt.LpSimilarity(1, 0.5), idt.LpSimilarity(3, 0.5), idt.Anisotropic(4)]


def codes(n: int = 30) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    return h.requires_grad_(), (h + 0.1 * torch.randn(n, 4, generator=generator, dtype=torch.float64)).detach()


@pytest.mark.parametrize("similarity", SIMILARITIES, ids=str)
def test_weight_one_is_the_published_protocol_and_a_tiny_weight_the_definition(similarity: idt.Similarity) -> None:
    h, h_pos = codes()
    similarity = similarity.double()
    for weight, same_as in ((torch.tensor(1.0), True), (1e-300, False)):
        found = info_nce_terms(h, h_pos, similarity=similarity, self_negatives=weight)
        expected = info_nce_terms(h, h_pos, similarity=similarity, self_negatives=same_as)
        torch.testing.assert_close(found.per_item, expected.per_item)
        gradients = [torch.autograd.grad(terms.loss, h)[0] for terms in (found, expected)]
        torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("similarity", SIMILARITIES, ids=str)
def test_the_weight_multiplies_one_term_of_the_denominator(similarity: idt.Similarity) -> None:
    h, h_pos = codes(7)
    similarity = similarity.double()
    pairs = similarity.pairwise(h, h).exp()
    weights = torch.where(torch.eye(7, dtype=torch.bool), 0.3, 1.0)
    positive = similarity(h, h_pos)
    expected = (positive.exp() + (weights * pairs).sum(dim=1)).log() - positive
    loss = idt.InfoNCE(similarity, self_negatives=0.3)
    torch.testing.assert_close(loss.terms(h, h_pos).per_item, expected)


def test_a_gradual_weight_follows_training_and_is_saved(tmp_path: object) -> None:
    laplace = idt.Conditional(idt.TruncatedLaplace, scale=0.1)
    process = idt.PairProcess(idt.BoxUniform(2), laplace)
    loss = idt.InfoNCE(laplace.similarity(), self_negatives=idt.Gradual(1.0, 0.01, until=0.5))
    config = idt.TrainConfig(steps=8, batch_size=32, eval_every=8, eval_samples=64)
    seen = []

    class Watch(idt.Callback):
        def on_step(self, state: idt.TrainState) -> None:
            seen.append(float(loss.self_negatives.value))

    encoder = idt.MLPEncoder(2, idt.Box(2), hidden=[8])
    run = idt.train(process, encoder, loss, config, quiet=True, callbacks=[Watch()], out=str(tmp_path))
    assert seen == pytest.approx([10 ** (-k / 2) for k in (0, 1, 2, 3, 4, 4, 4, 4)])
    loaded = idt.load(str(tmp_path)).objective
    assert isinstance(loaded, idt.InfoNCE) and isinstance(loaded.self_negatives, idt.Gradual)
    assert float(loaded.self_negatives.value) == pytest.approx(0.01)
    assert objective_from_dict(run.objective.to_dict()).to_dict() == run.objective.to_dict()


def test_plain_numbers_stay_plain() -> None:
    assert idt.InfoNCE(idt.DotProduct(), self_negatives=1).self_negatives is True
    assert idt.InfoNCE(idt.DotProduct(), self_negatives=0.0).self_negatives is False
    assert idt.InfoNCE(idt.DotProduct(), self_negatives=0.5).to_dict()["self_negatives"] == 0.5


def test_what_makes_no_sense_is_a_sentence() -> None:
    with pytest.raises(ValueError, match="a weight of at least 0, not -1"):
        idt.InfoNCE(idt.DotProduct(), self_negatives=-1.0)
    h, h_pos = codes()
    with pytest.raises(ValueError, match="anchors among themselves"):
        idt.InfoNCE(idt.DotProduct(), negatives="positives", self_negatives=0.5)(h, h_pos)
    with pytest.raises(ValueError, match="until is a part of all steps"):
        idt.Gradual(1.0, 0.1, until=2.0)
    with pytest.raises(ValueError, match="end must be positive and finite, not 0"):
        idt.Gradual(1.0, 0.0)
