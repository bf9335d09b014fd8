from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import identica as idt
from identica.metrics import overlap, similarity_histogram


def codes(n: int = 50, dim: int = 3, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(n, dim, generator=generator)
    return h, h + 0.3 * torch.randn(n, dim, generator=generator)


def cosines(a: torch.Tensor, b: torch.Tensor) -> np.ndarray:
    return torch.nn.functional.cosine_similarity(a[:, None].double(), b[None].double(), dim=-1).numpy()


def test_counts_are_numpys() -> None:
    h, h_pos = codes()
    found = similarity_histogram(h, h_pos, bins=20)
    table = cosines(h, h)
    others = table[~np.eye(len(h), dtype=bool)]
    expected = np.histogram(others, bins=20, range=(-1, 1))[0]
    own = np.histogram(np.diagonal(cosines(h, h_pos)), bins=20, range=(-1, 1))[0]
    assert np.abs(np.array(found.negatives) - expected).sum() <= 2  # a float32 cosine may fall beside an edge
    assert np.abs(np.array(found.positives) - own).sum() <= 2
    assert sum(found.negatives) == 50 * 49 and sum(found.positives) == 50
    assert found.edges == pytest.approx(np.linspace(-1, 1, 21).tolist())


@pytest.mark.parametrize("at_once", [1, 7, 64, 10**6])
def test_tiles_do_not_matter(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    h, h_pos = (x.double() for x in codes(33))
    whole = similarity_histogram(h, h_pos)
    monkeypatch.setattr(overlap, "_PAIRS_AT_ONCE", at_once)
    assert similarity_histogram(h, h_pos) == whole


class NothingLarge(TorchDispatchMode):
    largest = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):  # type: ignore[no-untyped-def]
        result = function(*arguments, **(keywords or {}))
        if isinstance(result, torch.Tensor):
            self.largest = max(self.largest, result.numel())
        return result


def test_no_matrix_of_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "_PAIRS_AT_ONCE", 1000)
    h, h_pos = codes(500)
    with NothingLarge() as watch:
        similarity_histogram(h, h_pos)
    assert watch.largest <= 3000 < 500 * 500


def test_given_negatives_and_several_positives() -> None:
    h, _ = codes(10)
    shared, own = torch.randn(7, 3), torch.randn(10, 4, 3)
    found = similarity_histogram(h, torch.randn(10, 2, 3), shared)
    assert sum(found.positives) == 20 and sum(found.negatives) == 70
    assert sum(similarity_histogram(h, h, own).negatives) == 40
    expanded = shared.expand(10, 7, 3)
    assert similarity_histogram(h, h, expanded).negatives == similarity_histogram(h, h, shared).negatives


def test_any_similarity_with_a_range_of_its_own() -> None:
    h, h_pos = (x.double() for x in codes())
    u = idt.LpSimilarity(2, temperature=0.5)
    found = similarity_histogram(h, h_pos, similarity=u, low=-10.0, high=0.0, bins=10)
    below = (u(h, h_pos) < -9.0).sum().item()
    assert found.positives[0] == below and sum(found.positives) == 50
    with pytest.raises(ValueError, match="Give the range"):
        similarity_histogram(h, h_pos, similarity=u)


def test_overlap_is_one_for_the_same_and_zero_for_apart() -> None:
    h = torch.nn.functional.normalize(torch.randn(2000, 2, generator=torch.Generator().manual_seed(0)), dim=-1)
    same = similarity_histogram(h, h.roll(1, dims=0), bins=10)
    assert same.overlap > 0.95
    assert similarity_histogram(torch.eye(4), torch.eye(4)).overlap == 0.0
    first, second = same.densities
    assert sum(first) * 0.2 == pytest.approx(1.0) and sum(second) * 0.2 == pytest.approx(1.0)


def test_without_negatives_or_positives_there_is_no_overlap_to_speak_of() -> None:
    one, none = torch.eye(3)[:1], torch.eye(3)[:0]
    for found in (
        similarity_histogram(one, one),
        similarity_histogram(none, none),
        similarity_histogram(one, one, none),
    ):
        assert math.isnan(found.overlap) and sum(found.negatives) == 0


def test_narrow_pairs_in_many_dimensions_do_not_overlap() -> None:
    """B, Fig. 8: what the histograms are for."""
    overlaps = []
    for precision in (5.0, 25.0, 75.0):
        process = idt.PairProcess(idt.SphereUniform(20), idt.Conditional(idt.FisherBingham, precision=precision))
        pairs = process.sample(500, 0)
        overlaps.append(similarity_histogram(pairs.z, pairs.z_pos).overlap)
    assert overlaps[0] > 0.3 > overlaps[1] > overlaps[2] and overlaps[2] < 0.01


def test_wrong_shapes_get_a_sentence() -> None:
    with pytest.raises(ValueError, match="h must be"):
        similarity_histogram(torch.zeros(3, 2), torch.zeros(4, 2))
    with pytest.raises(ValueError, match="h_neg must be"):
        similarity_histogram(torch.zeros(3, 2), torch.zeros(3, 2), torch.zeros(3, 5))
    with pytest.raises(ValueError, match=r"h_neg must be \(M, 2\) or \(3, M, 2\), not \(4, 5, 2\)"):
        similarity_histogram(torch.zeros(3, 2), torch.zeros(3, 2), torch.zeros(4, 5, 2))
    with pytest.raises(ValueError, match="h_pos holds NaN or infinite"):
        similarity_histogram(torch.zeros(3, 2), torch.full((3, 2), torch.nan))
