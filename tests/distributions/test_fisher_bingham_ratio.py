from __future__ import annotations

import pytest
import torch

import identica as idt
from identica.distributions.fisher_bingham_ratio import precision_of, ratio_precision


def pairs(*precision: float) -> idt.Conditional:
    return idt.Conditional(idt.FisherBingham, precision=precision if len(precision) > 1 else precision[0])


def test_the_ratio_of_the_densities_is_that_of_the_difference() -> None:
    """log p⁺ − log p⁻ and −½ dᵀ(Λ⁺−Λ⁻)d differ by a function of the anchor alone."""
    positive, negative = pairs(9.0, 20.0, 40.0), pairs(4.0, 10.0, 15.0)
    anchors = idt.Sphere(3).project(torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).double())
    values = idt.Sphere(3).project(torch.randn(6, 1, 3, generator=torch.Generator().manual_seed(1)).double())
    log_ratio = positive(anchors).log_prob(values) - negative(anchors).log_prob(values)
    gap = values - anchors
    rest = log_ratio + 0.5 * (ratio_precision(positive, negative, 3) * gap * gap).sum(dim=-1)
    torch.testing.assert_close(rest, rest[:1].expand_as(rest))


def test_one_number_stands_for_all_and_von_mises_fisher_has_one() -> None:
    vmf = idt.Conditional(idt.VonMisesFisher, concentration=3.0)
    assert precision_of(vmf, 2).tolist() == [3.0, 3.0]
    assert ratio_precision(pairs(150.0), pairs(100.0), 3).tolist() == [50.0] * 3
    assert ratio_precision(pairs(5.0, 9.0), None, 2).tolist() == [5.0, 9.0]
    assert ratio_precision(pairs(5.0, 9.0), vmf, 2).tolist() == [2.0, 6.0]


def test_sentences() -> None:
    with pytest.raises(ValueError, match=r"in coordinates 1, 2 Λ⁻ is not below Λ⁺.*\[4.0, 0.0, -5.0\]"):
        ratio_precision(pairs(5.0, 10.0, 20.0), pairs(1.0, 10.0, 25.0), 3)
    with pytest.raises(ValueError, match="precision of 0 in coordinate 0 say nothing of it"):
        ratio_precision(pairs(0.0, 1.0), None, 2)
    with pytest.raises(ValueError, match="have a precision"):
        precision_of(idt.Conditional(idt.ProjectedNormal, scale=0.1), 3)
    with pytest.raises(ValueError, match="at least 0 and finite"):
        precision_of(pairs(-1.0, 2.0), 2)
    with pytest.raises(ValueError, match="one precision, or 3 of them"):
        precision_of(pairs(1.0, 2.0), 3)
    with pytest.raises(ValueError, match="draws from an approximation"):
        precision_of(idt.Conditional(idt.FisherBingham, precision=(1.0, 2.0), method="shell"), 2)
