from __future__ import annotations

import pytest
import torch

from identica.metrics import null as null_module
from identica.metrics.null import shuffled_scores, summarise


def test_p_value_counts_the_observed_order_too() -> None:
    shuffled = torch.arange(1.0, 100.0, dtype=torch.float64)  # 1, ..., 99
    assert summarise(shuffled, 1000.0).p_value == 1 / 100
    assert summarise(shuffled, 99.0).p_value == 2 / 100  # a tie counts against
    assert summarise(shuffled, 95.5).p_value == 5 / 100
    assert summarise(shuffled, 0.0).p_value == 1.0
    null = summarise(shuffled, 0.0)
    assert (null.mean, null.permutations) == (50.0, 99)
    assert null.q95 == pytest.approx(94.1)


def test_ties_up_to_rounding_count_against() -> None:
    shuffled = torch.full((99,), 0.3, dtype=torch.float64)
    assert summarise(shuffled, 0.1 + 0.2).p_value == 1.0


def test_rows_are_shuffled_whole_and_within_their_fold(generator: torch.Generator) -> None:
    z = torch.arange(10.0)[:, None] + torch.tensor([0.0, 100.0])
    folds = [torch.tensor([0, 2, 4, 9]), torch.tensor([1, 3, 5, 6, 7, 8])]
    seen: list[torch.Tensor] = []

    def keep(targets: torch.Tensor) -> torch.Tensor:
        seen.append(targets)
        return targets[0]

    scores = shuffled_scores(keep, z, folds, 40, generator)
    assert scores.shape == (40, 2)
    shuffles = torch.cat(seen, dim=1)  # (10, 40, 2)
    assert bool((shuffles[..., 1] - shuffles[..., 0] == 100).all())
    for fold in folds:
        values = shuffles[fold, :, 0]
        assert bool((values.sort(dim=0).values == z[fold, :1]).all())
        assert bool((values != z[fold, :1]).any())


def test_shuffling_in_pieces_gives_all_of_them(generator: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(null_module, "CHUNK", 60)  # three shuffles at a time
    z = torch.rand(10, 2, generator=generator)
    sizes: list[int] = []

    def count(targets: torch.Tensor) -> torch.Tensor:
        sizes.append(targets.shape[1])
        return targets.mean(dim=0)

    scores = shuffled_scores(count, z, [torch.arange(10)], 8, generator)
    assert sizes == [3, 3, 2]
    torch.testing.assert_close(scores, z.mean(dim=0).expand(8, 2))
