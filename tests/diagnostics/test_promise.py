from __future__ import annotations

import pytest
import torch

import identica as idt
from identica.diagnostics import promise


def pairs(*precision: float, mixing: object = None, **negatives: object) -> idt.PairProcess:
    conditional = idt.Conditional(idt.FisherBingham, precision=precision)
    return idt.PairProcess(idt.SphereUniform(len(precision)), conditional, mixing, **negatives)  # type: ignore[arg-type]


def test_one_precision_promises_blocks() -> None:
    """B, Thm 3.1."""
    found = promise([25.0] * 3 + [5.0] * 2)
    assert found.level == "block" and found.blocks == ((0, 1, 2), (3, 4))
    assert found.not_separated == ((0, 1), (0, 2), (1, 2), (3, 4))
    assert found.sentence == (
        "Factors 0 to 2; factors 3 and 4 have equal precision: they are identified as blocks, up to a rotation of each."
    )
    assert promise([5.0] * 4).blocks == ((0, 1, 2, 3),)


def test_distinct_entries_promise_single_factors() -> None:
    found = promise(torch.linspace(5.0, 25.0, 10))
    assert found.level == "permutation" and not found.not_separated
    assert found.sentence == "Every two factors differ in precision: every factor is identified, up to order and sign."


def test_an_ensemble_separates_what_some_member_separates() -> None:
    """B, Rem. D.4, on the two Λ of B, Fig. 11: neither they nor any two values tell all twenty factors apart."""
    first, second = [400.0] * 3 + [15.0] * 8 + [250.0] * 9, [400.0] * 3 + [250.0] * 8 + [15.0] * 9
    found = promise([first, second])
    assert found.blocks == ((0, 1, 2), tuple(range(11, 20)), tuple(range(3, 11)))
    assert len(found.not_separated) == 3 + 36 + 28 and "in all 2 Λ" in found.sentence
    third = [float(k) for k in range(1, 21)]
    enough = promise([first, second, third])
    assert enough.level == "permutation" and "at least one of the 3 Λ" in enough.sentence


def test_processes_and_losses_have_precisions() -> None:
    first, second = (5.0, 5.0, 25.0), (5.0, 9.0, 5.0)
    assert promise(pairs(*first)).not_separated == ((0, 1),)
    assert promise(idt.EnsembleProcess(pairs(*first), pairs(*second))).level == "permutation"
    learned = [idt.Anisotropic(3, torch.tensor(values)) for values in (first, second)]
    written = promise(first, tolerance=0.05)
    assert promise(learned[0]) == promise(idt.InfoNCE(learned[0]))
    assert (promise(learned[0]).level, promise(learned[0]).blocks) == (written.level, written.blocks)
    assert promise(idt.EnsembleInfoNCE(learned)).level == "permutation"
    vmf = idt.PairProcess(idt.SphereUniform(3), idt.Conditional(idt.VonMisesFisher, concentration=3.0))
    assert promise(vmf).blocks == ((0, 1, 2),)


def test_learned_precisions_are_equal_if_they_nearly_are() -> None:
    """Those of factors with equal Λ never agree to the last digit: that is no promise of single factors."""
    close = torch.tensor([4.97, 5.04, 25.2])
    found = promise(idt.AnInfoNCE(3, init=close))
    assert found.blocks == ((2,), (0, 1)) and found.sentence == (
        "By the learned Λ̂ codes 0 and 1 have equal precision to 5 %: if training has come to the minimum, they hold a "
        "block of factors, up to a rotation. Every other code is a factor of its own, up to sign."
    )
    assert promise(idt.EnsembleInfoNCE([idt.Anisotropic(3, close), idt.Anisotropic(3, 9.0)])).level == "block"
    apart = promise(idt.AnInfoNCE(2, init=torch.tensor([5.0, 6.0])))
    assert apart.level == "permutation" and "differ in precision by more than 5 %:" in apart.sentence
    fixed = idt.Anisotropic(3, close, trainable=False)  # written down: what differs, differs
    assert promise(fixed).level == promise(idt.AnInfoNCE(3, init=close), tolerance=0).level == "permutation"


def test_hard_negatives_count_by_the_difference() -> None:
    """B, Cor. B.1: equal positives can be told apart by their negatives."""
    process = pairs(
        9.0, 9.0, negative_conditional=idt.Conditional(idt.FisherBingham, precision=(4.0, 1.0)), negatives_per_anchor=2
    )
    assert promise(process).level == "permutation"
    above = idt.Conditional(idt.FisherBingham, precision=(4.0, 10.0))
    with pytest.raises(ValueError, match="in coordinate 1 Λ⁻ is not below Λ⁺"):
        promise(pairs(9.0, 9.0, negative_conditional=above, negatives_per_anchor=2))


def test_anchors_that_are_not_uniform_are_promised_nothing() -> None:
    """B, Thm 3.1 assumes uniform anchors; with others the density ratio is no longer a quadratic form."""
    conditional = idt.Conditional(idt.FisherBingham, precision=(5.0, 10.0, 25.0))
    pole = torch.tensor([1.0, 0.0, 0.0])
    around = idt.PairProcess(idt.VonMisesFisher(pole, 20.0), conditional)
    for source in (around, idt.EnsembleProcess(pairs(5.0, 5.0, 25.0), around)):
        with pytest.raises(ValueError, match="anchors that are uniform on the sphere, not for those of VonMisesFisher"):
            promise(source)
    uniform = idt.PairProcess(idt.VonMisesFisher(pole, 0.0), conditional)
    assert promise(uniform) == promise(pairs(5.0, 10.0, 25.0)) == promise([5.0, 10.0, 25.0])


def test_sentences() -> None:
    with pytest.raises(ValueError, match="at least 0 and finite"):
        promise([5.0, -1.0])
    for source in ([5.0, 0.0], torch.tensor([5.0, 6.0]).diag()):
        with pytest.raises(ValueError, match="asks for positive precisions.*of a diagonal matrix pass the diagonal"):
            promise(source)
    for source in (["5", "25"], [5.0, 25j], [True, False]):
        with pytest.raises(ValueError, match="one real number per factor"):
            promise(source)
    with pytest.raises(TypeError, match="A promise is about precisions"):
        promise("5, 25")
    with pytest.raises(ValueError, match="not numbers beside lists"):
        promise([5.0, [1.0, 2.0]])
    with pytest.raises(ValueError, match="function of the user's"):
        promise(idt.PairProcess(idt.SphereUniform(2), lambda z: idt.VonMisesFisher(z, 3.0)))
    with pytest.raises(ValueError, match="at least two similarities"):
        idt.EnsembleInfoNCE([idt.Anisotropic(2)])
