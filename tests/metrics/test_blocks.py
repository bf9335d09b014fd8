"""Blocks of equal precision: constructed rotations within blocks are successes, mixtures between them are not."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.stats import ortho_group
from torch import Tensor

from identica.metrics import block_r2, block_scores, linear_r2, mcc, precision_blocks, rotation_mcc

PRECISION = (5.0, 25.0, 5.0, 25.0, 5.0, 25.0)
TIGHT, LOOSE = [1, 3, 5], [0, 2, 4]


def on_sphere(n: int, dim: int, seed: int = 0) -> Tensor:
    z = torch.randn(n, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return z / z.norm(dim=1, keepdim=True)


def rotation(dim: int, seed: int) -> Tensor:
    return torch.tensor(ortho_group.rvs(dim, random_state=seed))


def turned(z: Tensor, blocks: list[list[int]], seed: int = 3) -> Tensor:
    h = z.clone()
    for k, block in enumerate(blocks):
        h[:, block] = z[:, block] @ rotation(len(block), seed + k)
    return h


class TestPrecisionBlocks:
    def test_from_the_highest_to_the_lowest(self) -> None:
        assert precision_blocks(PRECISION) == ((1, 3, 5), (0, 2, 4))
        assert precision_blocks(torch.tensor([1.0, 3.0, 2.0])) == ((1,), (2,), (0,))
        assert precision_blocks(np.full(4, 7.0)) == ((0, 1, 2, 3),)
        assert precision_blocks([0.0, 1.0, 0.0]) == ((1,), (0, 2))

    def test_the_tolerance_is_relative_and_links_neighbours(self) -> None:
        learned = [98.0, 5.02, 102.0, 4.97, 100.0]
        assert precision_blocks(learned, tolerance=0.03) == ((0, 2, 4), (1, 3))
        assert len(precision_blocks(learned)) == 5

    def test_several_have_to_agree(self) -> None:
        first, second = [4.0, 4.0, 1.0, 1.0], [4.0, 1.0, 4.0, 4.0]
        assert precision_blocks(first, second) == ((0,), (1,), (2, 3))
        assert precision_blocks(first, first) == precision_blocks(first)

    @pytest.mark.parametrize(
        ("precisions", "words"),
        [
            ((), "at least one precision"),
            (([1.0, -2.0],), "at least 0 and finite"),
            (([1.0], [1.0, 2.0]), "equally long"),
            (([[1.0]],), "one number per factor"),
        ],
    )
    def test_sentences(self, precisions: tuple[object, ...], words: str) -> None:
        with pytest.raises(ValueError, match=words):
            precision_blocks(*precisions)  # type: ignore[arg-type]

    def test_a_negative_tolerance_gets_a_sentence(self) -> None:
        with pytest.raises(ValueError, match="relative gap"):
            precision_blocks([1.0], tolerance=-0.1)


@pytest.mark.parametrize("seed", range(3))
def test_rotations_within_blocks_are_perfect_whatever_the_mcc(seed: int) -> None:
    z = on_sphere(3000, 6, seed)
    order = [4, 0, 5, 1, 2, 3]
    h = -2.0 * turned(z, [TIGHT, LOOSE], seed)[:, order]
    found = block_scores(z, h, PRECISION)
    assert found.within_r2 == pytest.approx(1.0, abs=1e-9) and found.mcc.score < 0.97
    tight, loose = found.blocks
    assert tight.factors == tuple(TIGHT) and loose.factors == tuple(LOOSE)
    assert (tight.precision, loose.precision) == (25.0, 5.0)
    # column k of h is column order[k] of what was turned
    assert tight.codes == tuple(k for k in range(6) if order[k] in TIGHT)
    assert loose.codes == tuple(k for k in range(6) if order[k] in LOOSE)
    assert tight.r2 == pytest.approx(1.0) and found.content_r2 == tight.r2 and found.style_r2 == loose.r2


def test_block_scores_agree_with_the_scores_they_are_made_of() -> None:
    z = on_sphere(2000, 6)
    h = z @ rotation(6, 1) + 0.05 * torch.randn(2000, 6, generator=torch.Generator().manual_seed(1))
    found = block_scores(z, h, PRECISION, seed=4)
    assert found.r2 == linear_r2(z, h, seed=4) and found.mcc == mcc(z, h)
    groups = block_r2(z, h, {"content": TIGHT, "style": LOOSE}, seed=4).per_block
    assert found.content_r2 == pytest.approx(groups["content"]) and found.style_r2 == pytest.approx(groups["style"])
    assert np.average([b.mcc for b in found.blocks]) == pytest.approx(found.mcc.score)
    for block in found.blocks:
        assert block.within_r2 == linear_r2(z[:, block.factors], h[:, block.codes], seed=4).score


def test_mixing_between_blocks_costs_within_r2_and_not_r2() -> None:
    z = on_sphere(3000, 6)
    found = block_scores(z, z @ rotation(6, 2), PRECISION)
    assert found.r2.score == pytest.approx(1.0) and found.within_r2 < 0.9


def test_a_lost_block_shows_in_its_own_scores_only() -> None:
    """What plain InfoNCE does: content is there, style is not."""
    z = on_sphere(3000, 6)
    h = z.clone()
    h[:, LOOSE] = torch.randn(3000, 3, generator=torch.Generator().manual_seed(1)).double()
    found = block_scores(z, h, PRECISION)
    assert found.content_r2 == pytest.approx(1.0) and found.blocks[0].within_r2 == pytest.approx(1.0)
    assert found.style_r2 < 0.05 and found.blocks[1].within_r2 < 0.05


def test_a_learned_precision_is_in_the_order_of_the_codes() -> None:
    z = on_sphere(3000, 4)
    h = z[:, [2, 0, 3, 1]]
    learned = [24.6, 5.05, 25.3, 4.96]  # of the factors 2, 0, 3, 1
    found = block_scores(z, h, learned, of="codes")
    assert [block.factors for block in found.blocks] == [(2, 3), (0, 1)]
    assert found.blocks[0].precision == pytest.approx(24.95)


def test_an_ensemble_has_smaller_blocks() -> None:
    z = on_sphere(2000, 3)
    found = block_scores(z, z, [[5.0, 5.0, 25.0], [5.0, 9.0, 9.0]])
    assert [block.factors for block in found.blocks] == [(2,), (1,), (0,)]


def test_fewer_codes_than_factors() -> None:
    z = on_sphere(2000, 4)
    found = block_scores(z, z[:, :1], [5.0, 5.0, 9.0, 9.0])
    by_factors = {block.factors: block for block in found.blocks}
    assert by_factors[(0, 1)].codes == (0,) and by_factors[(2, 3)].codes == ()
    assert by_factors[(2, 3)].within_r2 == 0.0 and 0.4 < by_factors[(0, 1)].within_r2 < 0.6
    with pytest.raises(ValueError, match="1 codes cannot say the precision of 4 factors"):
        block_scores(z, z[:, :1], [5.0], of="codes")


def test_the_precision_must_fit() -> None:
    z = on_sphere(100, 3)
    with pytest.raises(ValueError, match="There are 3 factors, but the precision has 2 entries"):
        block_scores(z, z, [1.0, 2.0])
    with pytest.raises(ValueError, match=r"one number per factor, of shape \(d,\), not \(\)"):
        block_scores(z, z, 5.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='"factors" or "codes", not \'code\''):
        block_scores(z, z, [1.0, 2.0, 3.0], of="code")  # type: ignore[arg-type]


def test_more_codes_than_factors_are_refused() -> None:
    """A block could take one code twice, and miss another: perfect codes, repeated, would score 0.75."""
    z = on_sphere(100, 4)
    with pytest.raises(ValueError, match="There are 8 codes for 4 factors"):
        block_scores(z, torch.cat([z, z], dim=1), [5.0, 5.0, 9.0, 9.0])


class TestRotationMCC:
    def test_against_scipys_rotations(self) -> None:
        """Another generator of rotations, other seeds; the standard error of both means is below 0.004."""
        everything = torch.tensor(list(permutations(range(5))))
        tables = [rotation(5, seed).abs() for seed in range(400)]
        scores = [table[torch.arange(5), everything].mean(dim=1).max().item() for table in tables]
        assert rotation_mcc(5).mean == pytest.approx(np.mean(scores), abs=0.02)
        assert rotation_mcc(5).low < np.quantile(scores, 0.1) < np.quantile(scores, 0.9) < rotation_mcc(5).high

    def test_it_falls_with_the_size(self) -> None:
        means = [rotation_mcc(size).mean for size in (1, 2, 3, 5, 10)]
        assert means[0] == pytest.approx(1.0) and means == sorted(means, reverse=True)
        assert means[-1] == pytest.approx(0.59, abs=0.01)  # what the papers' ten rotated factors score

    def test_codes_rotated_in_a_block_score_in_its_range(self) -> None:
        z = on_sphere(5000, 10)
        found = block_scores(z, turned(z, [list(range(5)), list(range(5, 10))]), [5.0] * 5 + [25.0] * 5)
        for block in found.blocks:
            assert block.chance.low - 0.02 < block.mcc < block.chance.high + 0.02
