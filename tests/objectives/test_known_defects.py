"""Mistakes that published contrastive losses have made: each has a check here that the mistake would fail.

Every check runs twice: on our loss, which must pass, and on a small copy of the mistake, which must not.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from identica.objectives import AlignUniform, AnInfoNCE, InfoNCE, Objective, SpectralContrastive, TriCL
from identica.similarities import Anisotropic, DotProduct, LpSimilarity

Loss = Callable[[Tensor, Tensor], Tensor]

POWERS = (0.5, 1, 2, 3)
OURS: list[Objective] = [
    InfoNCE(DotProduct()),
    *(InfoNCE(LpSimilarity(p), impl=impl) for p in POWERS for impl in ("tiled", "reference")),
    AnInfoNCE(4),
    *(AlignUniform(0.5, p) for p in POWERS),
    SpectralContrastive(),
    TriCL(4),
]


def name(objective: Objective) -> str:
    return " ".join(repr(objective).split())


every_loss = pytest.mark.parametrize("loss", OURS, ids=name)


def codes(rows: int = 6, dim: int = 4, seed: int = 0) -> Tensor:
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def fails(check: Callable[[Loss], None], mistake: Loss) -> None:
    """The check is worth something: the mistake does not pass it."""
    with pytest.raises(AssertionError):
        check(mistake)


def lp(a: Tensor, b: Tensor, p: float) -> Tensor:
    return -(a - b).abs().pow(p).sum(dim=-1)


def from_matrix(positive: Tensor, negative: Tensor) -> Tensor:
    """InfoNCE from similarities (B,) and (B, M)."""
    return (torch.logsumexp(torch.cat([positive[:, None], negative], dim=1), dim=1) - positive).mean()


# Combined losses that drop the last latent, or cannot run at all


def depends_on_every_latent(loss: Loss) -> None:
    h, h_pos = codes(), codes(seed=1)
    value = loss(h.requires_grad_(), h_pos.requires_grad_())
    for grad in torch.autograd.grad(value, (h, h_pos)):
        assert (grad.abs().amax(dim=0) > 1e-6).all(), "a latent has no influence on the loss"


@every_loss
def test_no_latent_is_dropped(loss: Objective) -> None:
    depends_on_every_latent(loss)


def test_dropping_the_last_latent_is_noticed() -> None:
    fails(depends_on_every_latent, lambda h, h_pos: InfoNCE(LpSimilarity(1))(h[:, :-1], h_pos[:, :-1]))


def test_alignment_and_uniformity_together_run_and_learn() -> None:
    """Both parts pull on the codes: alignment alone would end in a point, uniformity alone would never end."""
    h, noise = codes(64, 2).mul(0.1).requires_grad_(), codes(64, 2, seed=1) * 0.1
    loss = AlignUniform(0.5, 2)
    optimizer = torch.optim.Adam([h], lr=0.05)
    before = loss(h, h.detach() + noise).item()
    for _ in range(50):
        optimizer.zero_grad()
        loss(h, h + noise).backward()
        optimizer.step()
    assert loss(h, h.detach() + noise).item() < before - 0.1
    assert h.isfinite().all() and h.std() > 0.2


# Negatives that belong to the wrong anchor


def negatives_belong_to_their_anchor(loss: Loss) -> None:
    """Reordering the items reorders nothing but the terms of the mean."""
    h, h_pos = codes(), codes(seed=1)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    torch.testing.assert_close(loss(h[order], h_pos[order]), loss(h, h_pos))
    # One anchor far away: its own loss changes, and it leaves the denominators of the others.
    far = h.clone()
    far[2] += 100.0
    far_pos = h_pos.clone()
    far_pos[2] += 100.0
    rest = [0, 1, 3, 4, 5]
    expected = (5 * loss(h[rest], h_pos[rest])) / 6
    torch.testing.assert_close(loss(far, far_pos), expected)


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("impl", ["tiled", "reference"])
def test_negatives_belong_to_their_anchor(p: float, impl: str) -> None:
    negatives_belong_to_their_anchor(InfoNCE(LpSimilarity(p, 0.2), impl=impl))


def test_negatives_of_the_wrong_anchor_are_noticed() -> None:
    def mistake(h: Tensor, h_pos: Tensor) -> Tensor:
        """Rolled negatives with the axes of anchors and candidates confused: row i holds those of anchor i−1."""
        others = ~torch.eye(len(h), dtype=torch.bool)
        negative = lp(h[None], h[:, None], 0.5)[others].view(len(h), -1).roll(1, dims=0)
        return from_matrix(lp(h, h_pos, 0.5), negative)

    fails(negatives_belong_to_their_anchor, mistake)


def views_are_exchangeable(loss: Loss) -> None:
    """A symmetric loss of both views does not change when they are exchanged, and equals its two halves."""
    h, h_pos = codes(), codes(seed=1)
    precision = torch.tensor([1.0, 2.0, 5.0, 0.5]).double()

    def u(a: Tensor, b: Tensor) -> Tensor:
        return -0.5 * (precision * (a[:, None] - b[None]) ** 2).sum(dim=-1)

    halves = []
    for a, b in ((h, h_pos), (h_pos, h)):
        own, across = u(a, a), u(a, b)
        rows = [
            torch.stack([own[i, j] for j in range(6) if j != i] + [across[i, j] for j in range(6) if j != i])
            for i in range(6)
        ]
        halves.append(from_matrix(across.diagonal(), torch.stack(rows)))
    torch.testing.assert_close(loss(h, h_pos), (halves[0] + halves[1]) / 2)
    torch.testing.assert_close(loss(h, h_pos), loss(h_pos, h))


PRECISION = torch.tensor([1.0, 2.0, 5.0, 0.5])


@pytest.mark.parametrize("impl", ["tiled", "reference"])
def test_negatives_across_views_belong_to_their_anchor(impl: str) -> None:
    views_are_exchangeable(InfoNCE(Anisotropic(4, PRECISION), negatives="both", symmetric=True, impl=impl))


def test_reusing_the_cross_block_untransposed_is_noticed() -> None:
    def mistake(h: Tensor, h_pos: Tensor) -> Tensor:
        def u(a: Tensor, b: Tensor) -> Tensor:
            return -0.5 * (PRECISION * (a[:, None] - b[None]) ** 2).sum(dim=-1)

        others = ~torch.eye(len(h), dtype=torch.bool)
        across = u(h, h_pos)[others].view(len(h), -1)  # the second view's rows would need the transpose
        aligned = u(h, h_pos).diagonal()
        own = [u(view, view)[others].view(len(h), -1) for view in (h, h_pos)]
        first, second = (from_matrix(aligned, torch.cat([block, across], dim=1)) for block in own)
        return (first + second) / 2

    fails(views_are_exchangeable, mistake)


# Each anchor meets itself as a negative


def anchors_do_not_meet_themselves(loss: Loss) -> None:
    h = codes(1)
    assert loss(h, h + 0.5).item() == 0, "a single pair has nothing to be told apart from"
    # Items so far from each other that only a self-pair could contribute.
    apart = 1000.0 * torch.arange(4).double()[:, None].expand(4, 4)
    assert loss(apart, apart + 0.5).item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("impl", ["tiled", "reference"])
def test_anchors_do_not_meet_themselves(p: float, impl: str) -> None:
    anchors_do_not_meet_themselves(InfoNCE(LpSimilarity(p), impl=impl))
    fails(anchors_do_not_meet_themselves, InfoNCE(LpSimilarity(p), self_negatives=True, impl=impl))


def test_rolling_the_batch_does_not_remove_the_self_pair() -> None:
    def mistake(h: Tensor, h_pos: Tensor) -> Tensor:
        return from_matrix(lp(h, h_pos, 1), lp(h[:, None], h.roll(1, dims=0)[None], 1))

    fails(anchors_do_not_meet_themselves, mistake)
    h, h_pos = codes(), codes(seed=1)
    torch.testing.assert_close(InfoNCE(LpSimilarity(1), self_negatives=True)(h, h_pos), mistake(h, h_pos))


# A loss per item that broadcasts to a matrix


@pytest.mark.parametrize("objective", OURS, ids=name)
def test_one_loss_per_item(objective: Objective) -> None:
    h, h_pos = codes(), codes(seed=1)
    terms = objective.terms(h, h_pos)
    assert terms.per_item.shape == (6,) and terms.loss.shape == ()
    torch.testing.assert_close(terms.per_item.mean(), terms.loss)


@pytest.mark.parametrize("impl", ["tiled", "reference"])
def test_the_loss_of_an_item_reaches_its_own_pair_only(impl: str) -> None:
    """(N,) − (N, 1) would be N × N, its mean right and its items wrong; a positive belongs to one item."""
    h, h_pos = codes(), codes(seed=1).requires_grad_()
    per_item = InfoNCE(DotProduct(), impl=impl).terms(h, h_pos).per_item
    for i in range(6):
        (grad,) = torch.autograd.grad(per_item[i], h_pos, retain_graph=True)
        touched = grad.abs().sum(dim=1) > 0
        assert touched.tolist() == [j == i for j in range(6)]


# Sizes and devices fixed in the code


@every_loss
def test_any_batch_size_in_any_order(loss: Objective) -> None:
    for rows in (5, 130, 2):
        assert loss(codes(rows), codes(rows, seed=1)).isfinite()


@every_loss
def test_everything_follows_the_device_of_the_codes(loss: Objective) -> None:
    """On the meta device any tensor that was created on the CPU would be an error."""
    h = torch.zeros(200, 4, device="meta")
    assert copy.deepcopy(loss).to("meta").terms(h, h).loss.device.type == "meta"
