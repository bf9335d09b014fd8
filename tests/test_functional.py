"""The functional forms: thin faces of one computation, and the weighted mean under all of them."""

from __future__ import annotations

import pytest
import torch

from identica import functional
from identica.objectives import AlignUniform, InfoNCE, SpectralContrastive, TriCL
from identica.similarities import DotProduct, LpSimilarity


def test_functions_and_modules_agree(generator: torch.Generator) -> None:
    h, h_pos, h_neg = (torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in (6, 6, 4))
    similarity = DotProduct(0.3)
    assert functional.info_nce(h, h_pos, h_neg, similarity=similarity) == InfoNCE(similarity)(h, h_pos, h_neg)
    assert functional.align_uniform(h, h_pos, alpha=0.4, p=1) == AlignUniform(0.4, 1)(h, h_pos)
    assert functional.spectral_contrastive(h, h_pos) == SpectralContrastive()(h, h_pos)
    tricl = TriCL(3, 0.5)
    found = functional.spectral_contrastive(h, h_pos, importance=tricl.importance, decorrelation=1.0)
    assert found == tricl(h, h_pos)


def test_wrong_settings_are_sentences() -> None:
    h = torch.zeros(3, 2)
    with pytest.raises(ValueError, match='"anchors", "positives" or "both", not \'all\''):
        functional.info_nce(h, h, similarity=DotProduct(), negatives="all")
    with pytest.raises(ValueError, match="Unknown implementation impl='fast'"):
        functional.info_nce(h, h, similarity=DotProduct(), impl="fast")
    with pytest.raises(ValueError, match="alpha weighs uniformity against alignment"):
        functional.align_uniform(h, h, alpha=2.0, p=1)


@pytest.mark.parametrize("impl", ["reference", "tiled"])
def test_partition_of_codes_under_a_similarity(impl: str) -> None:
    a, b = torch.tensor([[0.0], [1.0]]), torch.tensor([[2.0], [4.0]])
    found = functional.partition(LpSimilarity(1, 0.5), a, b, impl=impl)
    expected = torch.logsumexp(torch.tensor([[-4.0, -8.0], [-2.0, -6.0]]), dim=1)
    torch.testing.assert_close(found.log_partition, expected)
    torch.testing.assert_close(found.largest, torch.tensor([-4.0, -2.0]))


def test_weighted_mean_ignores_items_without_weight() -> None:
    x = torch.tensor([1.0, 3.0, torch.inf, torch.nan], requires_grad=True)
    mean = functional.weighted_mean(x, torch.tensor([1.0, 3.0, 0.0, 0.0]))
    assert mean.item() == 2.5
    mean.backward()
    assert x.grad is not None and x.grad.tolist() == [0.25, 0.75, 0.0, 0.0]
    assert functional.weighted_mean(x[:2], None).item() == 2.0
    assert functional.weighted_mean(x, torch.zeros(4)).item() == 0.0


def test_equal_weights_change_nothing_and_their_scale_does_not_matter(generator: torch.Generator) -> None:
    h, h_pos = (torch.randn(6, 3, generator=generator) for _ in range(2))
    loss = InfoNCE(LpSimilarity(2))
    torch.testing.assert_close(loss(h, h_pos, weights=torch.full((6,), 7.0)), loss(h, h_pos))


def test_a_mask_of_true_changes_nothing(generator: torch.Generator) -> None:
    h, h_pos = (torch.randn(6, 3, generator=generator) for _ in range(2))
    for objective in (InfoNCE(LpSimilarity(2)), AlignUniform(0.5, 1), SpectralContrastive()):
        mask = torch.ones(6, 6, dtype=torch.bool)
        torch.testing.assert_close(objective(h, h_pos, mask=mask), objective(h, h_pos))
