"""Pairs of a finite set: the nearest by every search, never the same twice, as spread out as the paper's were."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import Tensor

from identica.distributions import BoxUniform, Conditional, TruncatedNormal
from identica.mixing import RenderedMixing
from identica.processes import PairProcess, Pairs, Prefetched, SnappedProcess
from identica.processes import nearest as module
from identica.processes.nearest import make_search, with_none_missing
from tests.processes.painting import Painting

CONDITIONAL = Conditional(TruncatedNormal, scale=0.1, low=-1.0, high=1.0)
EXACT = PairProcess(BoxUniform(10, low=-1.0), CONDITIONAL, RenderedMixing(Painting()))


def latents(n: int, seed: int = 0, dim: int = 10) -> Tensor:
    return 2 * torch.rand(n, dim, generator=torch.Generator().manual_seed(seed)) - 1


@pytest.mark.parametrize("name", ["exact", "tree"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_two_nearest_are_found(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", 900)  # several parts
    points, queries = latents(300).to(dtype), latents(50, seed=1).to(dtype)
    distances = (queries.double()[:, None] - points.double()).square().sum(dim=2)
    found = make_search(points, name)(queries)  # type: ignore[arg-type]
    assert torch.equal(found, distances.argsort(dim=1)[:, :2])


def test_close_neighbours_are_told_apart_far_from_the_origin() -> None:
    """‖p‖² − 2⟨q, p⟩ alone would drown the differences in rounding."""
    points = torch.tensor([[1000.0, 0.0], [1000.0, 0.01], [1000.0, 0.02], [0.0, 0.0]])
    found = make_search(points, "exact")(torch.tensor([[1000.0, 0.009]]))
    assert found.tolist() == [[1, 0]]


@pytest.mark.parametrize("name", ["exact", "tree", "faiss"])
def test_two_points_are_enough(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    if name == "faiss":
        pytest.importorskip("faiss")
    points = torch.tensor([[0.0], [1.0]])
    assert make_search(points, name)(torch.tensor([[0.9]])).tolist() == [[1, 0]]  # type: ignore[arg-type]
    assert capfd.readouterr() == ("", "")  # faiss would warn


def test_faiss_is_asked_for_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs the package faiss: install it .*identica\[images\]"):
        make_search(latents(10), "faiss")


@pytest.mark.parametrize(("count", "share"), [(60, 1.0), (5000, 0.85), (20_000, 0.98)])
def test_faiss_finds_nearly_all(count: int, share: float) -> None:
    """The more points, the more lists are looked into; at 60 there is one. Measured: 1, 0.91 and 0.995."""
    faiss = pytest.importorskip("faiss")
    threads = faiss.omp_get_max_threads()
    points, queries = latents(count), latents(200, seed=1)
    nearest = torch.cdist(queries.double(), points.double()).argsort(dim=1)[:, :2]
    found = make_search(points, "faiss", threads=1)(queries.double())
    assert found.shape == (200, 2) and found.dtype == torch.int64
    assert (found[:, 0] == nearest[:, 0]).double().mean() >= share
    assert (found[:, 0] != found[:, 1]).all()
    assert faiss.omp_get_max_threads() == threads
    assert torch.equal(found, make_search(points, "faiss", threads=2)(queries))


def test_what_an_approximate_search_does_not_find_is_looked_up() -> None:
    points, queries = latents(30), latents(5, seed=1)
    exact = make_search(points, "exact")(queries)
    found = exact.clone()
    found[1, 1] = found[3, 0] = found[3, 1] = -1
    assert torch.equal(with_none_missing(found, queries, points), exact)
    other = exact.flip(1)  # what was found, however well, stays
    assert torch.equal(with_none_missing(other, queries, points), other)


def brute_force(z: Tensor, z_pos: Tensor, points: Tensor) -> tuple[list[int], list[int]]:
    """The authors' rule, pair by pair."""
    anchors, positives = [], []
    for a, b in zip(z, z_pos, strict=True):
        near_a = (points - a).square().sum(dim=1).argsort()
        near_b = (points - b).square().sum(dim=1).argsort()
        anchors.append(int(near_a[0]))
        positives.append(int(near_b[1] if near_b[0] == near_a[0] else near_b[0]))
    return anchors, positives


@pytest.mark.parametrize("search", ["exact", "tree", "faiss"])
def test_both_views_go_to_the_nearest_and_never_to_the_same(search: str) -> None:
    if search == "faiss":
        pytest.importorskip("faiss")
    points = latents(40)
    process = SnappedProcess(EXACT, points, search=search)  # type: ignore[arg-type]
    drawn = EXACT.sample(60, generator=3)
    anchors, positives = brute_force(drawn.z, drawn.z_pos, points)
    assert any(a == b for a, b in zip(anchors, (points[:, None] - drawn.z_pos).square().sum(2).argmin(0), strict=True))
    pairs = process.sample(60, generator=3)
    assert torch.equal(pairs.z, points[anchors]) and torch.equal(pairs.z_pos, points[positives])
    assert not (pairs.z == pairs.z_pos).all(dim=1).any()
    assert torch.equal(pairs.x, Painting().render(pairs.z)) and torch.equal(pairs.x_pos, Painting().render(pairs.z_pos))


def test_given_observations_take_the_place_of_the_mixing() -> None:
    points, seen = latents(40), torch.arange(40.0)[:, None]
    for observations in (seen, lambda index: seen[index]):
        process = SnappedProcess(EXACT, points, observations).to("cpu", torch.float64)
        pairs = process.sample(20, generator=0)
        assert torch.equal(points.double()[pairs.x[:, 0].long()], pairs.z)
        assert torch.equal(points.double()[pairs.x_pos[:, 0].long()], pairs.z_pos)


def test_snapping_to_few_points_spreads_the_pairs_out() -> None:
    """With 250,000 points in ten dimensions 0.264 per coordinate was measured; with fewer it must be more."""
    pairs = SnappedProcess(PairProcess(BoxUniform(10, low=-1.0), CONDITIONAL), latents(20_000), search="tree").sample(
        300, generator=0
    )
    spread = (pairs.z_pos - pairs.z).square().mean().sqrt().item()
    assert 0.264 < spread < 0.45


def test_descriptions_tell_sets_apart_and_wrong_ones_get_a_sentence() -> None:
    one, other = SnappedProcess(EXACT, latents(5)), SnappedProcess(EXACT, latents(5, seed=1))
    assert one.to_dict() == SnappedProcess(EXACT, latents(5)).to_dict() != other.to_dict()
    with pytest.raises(ValueError, match=r"\(N, 10\), not of shape \(5, 9\)"):
        SnappedProcess(EXACT, latents(5, dim=9))
    for search in ("exact", "tree"):
        with pytest.raises(ValueError, match="finite latents, but row 3 has NaN or infinity"):
            SnappedProcess(EXACT, latents(5).index_fill(0, torch.tensor([3]), torch.nan), search=search)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="5 latents and 4 observations"):
        SnappedProcess(EXACT, latents(5), torch.zeros(4, 2))
    with pytest.raises(ValueError, match="search is one of auto, exact, tree, faiss"):
        SnappedProcess(EXACT, latents(5), search="fast")  # type: ignore[arg-type]
    several = PairProcess(BoxUniform(2), Conditional(TruncatedNormal, scale=0.1), positives_per_anchor=2)
    with pytest.raises(TypeError, match="one positive for each anchor"):
        SnappedProcess(several, latents(5, dim=2))


# Ahead of time, on a thread


class Logged:
    """Notes the batches as they are drawn."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def sample(self, n: int, generator: torch.Generator) -> Pairs:
        self.sizes.append(n)
        z = torch.rand(n, 2, generator=generator)
        return Pairs(z, z, z, z)

    def to(self, *_: object) -> Logged:
        return self

    def to_dict(self) -> dict[str, str]:
        return {}


def drawn_with(ahead: int, evaluate_at: int | None = None, resume_at: int | None = None) -> tuple[Tensor, Logged]:
    source, log = torch.Generator().manual_seed(5), Logged()
    process, batches = Prefetched(log, ahead), []
    for step in range(6):
        if step == evaluate_at:
            process.sample(9, torch.Generator().manual_seed(99))
        if step == resume_at:  # as a checkpoint does: the state alone survives
            state, process, source = source.get_state(), Prefetched(log, ahead), torch.Generator()
            source.set_state(state)
        batches.append(process.sample(4, source).z)
    return torch.stack(batches), log


def test_prefetching_does_not_change_what_is_drawn() -> None:
    expected, log = drawn_with(1)
    for settings in ({"ahead": 3}, {"ahead": 3, "evaluate_at": 3}, {"ahead": 3, "resume_at": 4}):
        assert torch.equal(drawn_with(**settings)[0], expected)  # type: ignore[arg-type]
    assert len({tuple(batch.flatten().tolist()) for batch in expected}) == 6


def test_a_number_seeds_a_batch_of_its_own() -> None:
    log = Logged()
    process = Prefetched(log, 3)
    first, again = process.sample(4, 5), process.sample(4, 5)
    assert torch.equal(first.z, again.z) and torch.equal(first.z, drawn_with(1)[0][0])
    assert log.sizes == [4, 4] and process._pool is None
    with pytest.raises(TypeError, match="a torch.Generator or a whole number"):
        process.sample(4, "5")  # type: ignore[arg-type]


def test_batches_are_drawn_ahead_of_time_but_not_for_evaluations() -> None:
    _, log = drawn_with(3, evaluate_at=3)
    assert log.sizes.count(9) == 1
    import time

    deadline = time.monotonic() + 10
    while log.sizes.count(4) < 9 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert log.sizes.count(4) == 9  # six that were asked for, three that would have come next
