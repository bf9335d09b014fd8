"""The truth is the optimum: exactly on finite worlds, within the sampling error on continuous ones."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import Tensor

from identica.distributions import BoxUniform, SphereUniform
from identica.distributions.conditional import Conditional
from identica.distributions.fisher_bingham import FisherBingham
from identica.distributions.truncated_laplace import TruncatedLaplace
from identica.distributions.truncated_normal import TruncatedNormal
from identica.distributions.von_mises_fisher import VonMisesFisher
from identica.objectives import AlignUniform, InfoNCE, Objective, SpectralContrastive, TriCL
from identica.processes import PairProcess
from identica.similarities import Anisotropic, LpSimilarity, Similarity

FALSE_ALARM = 1e-6

# Finite worlds: every pair of points of a grid is a row, weighted by its probability, and the negatives are
# the whole grid. The loss is then an expectation without any sampling.


def on_all_pairs(loss: Objective, h: Tensor, joint: Tensor) -> Tensor:
    """The expected loss of codes ``h: (n, d)`` under the distribution ``joint: (n, n)`` over pairs."""
    n = len(h)
    anchors, positives = h.repeat_interleave(n, dim=0), h.repeat(n, 1)
    return loss(anchors, positives, h, weights=joint.flatten())


def grid(n: int, dim: int) -> Tensor:
    axis = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    return torch.cartesian_prod(*[axis] * dim).view(-1, dim)


def joint_of(similarity: Similarity, z: Tensor) -> tuple[Tensor, Tensor]:
    """Uniform anchors with p(z⁺|z) ∝ exp(u): the joint over pairs and the entropy of z⁺ given z."""
    with torch.no_grad():
        conditional = similarity.double().pairwise(z, z).softmax(dim=1)
    entropy = torch.special.entr(conditional).sum(dim=1).mean()
    return conditional / len(z), entropy


def bend(z: Tensor) -> Tensor:
    return z + 0.1 * torch.sin(math.pi * z)


def stretch(z: Tensor) -> Tensor:
    return torch.cat([z[..., :1] * 1.15, z[..., 1:]], dim=-1)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("kind", ["info_nce", "align_uniform"])
def test_in_a_box_the_latents_over_the_scale_are_the_optimum(kind: str, p: float) -> None:
    """A, Prop. 3 and Thm 3: both losses are cross-entropies, minimal at the truth and only at its isometries."""
    z, scale = grid(7, 2), 0.3
    joint, entropy = joint_of(LpSimilarity(p, scale**p), z)
    if kind == "info_nce":
        loss: Objective = InfoNCE(LpSimilarity(p), include_positive=False)
        floor = entropy
    else:
        loss = AlignUniform(0.5, p)
        floor = (entropy - math.log(len(z))) / 2
    truth = (z / scale).requires_grad_()
    value = on_all_pairs(loss, truth, joint)
    assert value.item() == pytest.approx(floor.item(), rel=1e-9)
    (slope,) = torch.autograd.grad(value, truth)
    assert slope.abs().max() < 1e-10, "no single code can move downhill"
    with torch.no_grad():
        mirrored = torch.stack([1 - z[:, 1], z[:, 0]], dim=1) / scale
        assert on_all_pairs(loss, mirrored, joint).item() == pytest.approx(floor.item(), rel=1e-9)
        for wrong in (stretch(z), bend(z), 0.9 * z, z[:, [0, 0]], torch.zeros_like(z)):
            assert on_all_pairs(loss, wrong / scale, joint) > floor + 1e-4


def test_the_true_precision_is_the_optimum() -> None:
    """B, Thm 3.1: Λ̂ = Λ; shrinking it, or exchanging two of its entries, costs."""
    z, precision = grid(7, 2), torch.tensor([5.0, 25.0])
    joint, entropy = joint_of(Anisotropic(2, precision, trainable=False), z)

    def value(precision: Tensor) -> tuple[float, float]:
        loss = InfoNCE(Anisotropic(2, precision), include_positive=False).double()
        found = on_all_pairs(loss, z, joint)
        found.backward()
        (parameter,) = loss.parameters()
        assert parameter.grad is not None
        return found.item(), parameter.grad.abs().max().item()

    floor, slope = value(precision)
    assert floor == pytest.approx(entropy.item(), rel=1e-6) and slope < 1e-6
    for wrong in (0.8 * precision, 1.2 * precision, precision.flip(0), torch.tensor([5.0, 20.0])):
        assert value(wrong)[0] > floor + 1e-3


# The spectral losses on a circle, where everything is known: von Mises pairs have the eigenfunctions 1,
# √2 cos, √2 sin, … with eigenvalues 1, A, A, …, A = I₁(κ)/I₀(κ).

CONCENTRATION = 2.0
RESULTANT = float(special.i1e(CONCENTRATION) / special.i0e(CONCENTRATION))


def circle(n: int = 24) -> tuple[Tensor, Tensor]:
    """Points of the unit circle and the joint of von Mises pairs."""
    angle = 2 * math.pi * torch.arange(n, dtype=torch.float64) / n
    z = torch.stack([angle.cos(), angle.sin()], dim=1)
    conditional = (CONCENTRATION * z @ z.T).softmax(dim=1)
    return z, conditional / n


def eigenfunctions(z: Tensor) -> Tensor:
    return torch.cat([torch.ones(len(z), 1, dtype=z.dtype), math.sqrt(2) * z], dim=1)


def linear_r2(z: Tensor, h: Tensor) -> float:
    residual = z - h @ torch.linalg.lstsq(h, z).solution
    return 1 - (residual.square().sum() / (z - z.mean(dim=0)).square().sum()).item()


def minimised(loss: Objective, joint: Tensor, h: Tensor) -> float:
    """Move every code of ``h`` freely, and the loss's parameters, to a minimum; returns its value."""
    h.requires_grad_()
    optimizer = torch.optim.LBFGS(
        [h, *loss.parameters()], max_iter=400, tolerance_grad=1e-10, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = on_all_pairs(loss, h, joint)
        value.backward()
        return value

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return closure().item()


def test_spectral_codes_are_the_leading_eigenfunctions() -> None:
    z, joint = circle()
    floor = -(1 + 2 * RESULTANT**2)
    loss = SpectralContrastive()
    truth = (eigenfunctions(z) * torch.tensor([1.0, RESULTANT, RESULTANT], dtype=torch.float64).sqrt()).requires_grad_()
    value = on_all_pairs(loss, truth, joint)
    assert value.item() == pytest.approx(floor, rel=1e-9)
    (slope,) = torch.autograd.grad(value, truth)
    assert slope.abs().max() < 1e-9
    with torch.no_grad():
        rotation = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(0)).double())[0]
        assert on_all_pairs(loss, truth @ rotation, joint).item() == pytest.approx(floor, rel=1e-9)
        for wrong in (stretch(truth), bend(truth), 0.9 * truth, truth[:, :2], truth[:, 1:]):
            assert on_all_pairs(loss, wrong, joint) > floor + 1e-3
    start = torch.randn(len(z), 3, generator=torch.Generator().manual_seed(1)).double()
    assert minimised(loss, joint, start) == pytest.approx(floor, abs=1e-6)
    assert linear_r2(z, start.detach()) > 1 - 1e-4


def test_tricl_finds_eigenfunctions_and_their_importance() -> None:
    z, joint = circle()
    floor = -(1 + 2 * RESULTANT**2)
    importance = torch.tensor([1.0, RESULTANT, RESULTANT])
    loss = TriCL(3, init=importance).double()
    truth = eigenfunctions(z).requires_grad_()
    value = on_all_pairs(loss, truth, joint)
    assert value.item() == pytest.approx(floor, rel=1e-6)
    for slope in torch.autograd.grad(value, [truth, loss.log_importance]):
        assert slope.abs().max() < 1e-6
    with torch.no_grad():
        mixed = truth[:, [1, 0, 2]]  # the constant and a latent exchanged, but not their importances
        for wrong in (stretch(truth), bend(truth), mixed):
            assert on_all_pairs(loss, wrong, joint) > floor + 1e-3
    start = torch.randn(len(z), 3, generator=torch.Generator().manual_seed(2)).double()
    fresh = TriCL(3).double()
    assert minimised(fresh, joint, start) == pytest.approx(floor, abs=1e-5)
    found = fresh.importance.detach().sort(descending=True).values
    torch.testing.assert_close(found, importance.double(), atol=0.01, rtol=0)
    order = fresh.importance.argsort(descending=True)
    constant, latents = start.detach()[:, order[0]], start.detach()[:, order[1:]]
    assert constant.std() < 0.05 * constant.mean().abs() and linear_r2(z, latents) > 1 - 1e-3


# Continuous worlds: sampled batches, compared pair by pair


PROCESSES: dict[str, tuple[SphereUniform | BoxUniform, Conditional]] = {
    "circle, vMF": (SphereUniform(2), Conditional(VonMisesFisher, concentration=4.0)),
    "sphere, vMF": (SphereUniform(3), Conditional(VonMisesFisher, concentration=10.0)),
    "sphere, anisotropic": (SphereUniform(3), Conditional(FisherBingham, precision=(2.0, 8.0, 30.0))),
    "box, Laplace": (BoxUniform(2), Conditional(TruncatedLaplace, scale=0.1)),
    "box, normal": (BoxUniform(3), Conditional(TruncatedNormal, scale=0.15)),
}
every_process = pytest.mark.parametrize("name", PROCESSES)
BATCHES, BATCH = 40, 128


def draw(name: str) -> list[tuple[Tensor, Tensor]]:
    marginal, conditional = PROCESSES[name]
    generator = torch.Generator().manual_seed(7)
    batches = []
    for _ in range(BATCHES):
        z = marginal.sample(BATCH, generator)
        batches.append((z, conditional(z).sample(generator=generator)))
    return batches


#: How unlikely a cost must be by chance before we believe it: 5.6 standard errors with 40 batches. A test of power:
#: what a right implementation risks is not this, but that its true cost, 13 standard errors or more in every case
#: below (over several seeds), comes out below 5.6. For the noncentral t law that has a probability of about 1e-11.
SIGNIFICANT = 1e-6


def assert_costs(differences: list[float]) -> None:
    """The expectation of these batch means is above 0."""
    p_value = stats.ttest_1samp(np.array(differences), 0.0, alternative="greater").pvalue
    assert p_value < SIGNIFICANT, f"no cost can be seen: p = {p_value:.1e}"


@every_process
@pytest.mark.statistical(
    false_alarm=FALSE_ALARM, what="InfoNCE at the truth minus the posterior's entropy against 0, t-test"
)
def test_at_the_truth_the_loss_is_the_entropy_of_the_posterior(name: str) -> None:
    """B, Eq. 22. The posterior over which candidate is the positive comes from the densities alone."""
    _, conditional = PROCESSES[name]
    loss = InfoNCE(conditional.similarity())
    differences = []
    for z, z_pos in draw(name):
        of_candidates = conditional(z[:, None]).log_prob(z[None].expand(BATCH, -1, -1)).fill_diagonal_(-torch.inf)
        logits = torch.cat([conditional(z).log_prob(z_pos)[:, None], of_candidates], dim=1)
        entropy = torch.special.entr(logits.softmax(dim=1)).sum(dim=1).mean()
        with torch.no_grad():
            differences.append((loss(z, z_pos) - entropy).item())
    p_value = stats.ttest_1samp(np.array(differences), 0.0).pvalue
    assert p_value > FALSE_ALARM, f"the loss at the truth is not the entropy: p = {p_value:.1e}"


@every_process
def test_at_the_truth_the_loss_is_the_floor_of_the_process(name: str) -> None:
    """Item by item: what the densities say and what the similarity says are one number."""
    marginal, conditional = PROCESSES[name]
    process = PairProcess(marginal, conditional).to(dtype=torch.float64)
    pairs = process.sample(BATCH, torch.Generator().manual_seed(3))
    for settings in ({}, {"self_negatives": True}, {"include_positive": False}):
        loss = InfoNCE(conditional.similarity(), **settings).double()
        found = loss.terms(pairs.z, pairs.z_pos).per_item
        torch.testing.assert_close(found, process.loss_at_truth(pairs, **settings), rtol=1e-6, atol=1e-6)


def test_with_hard_negatives_the_floor_is_at_the_difference_of_the_precisions() -> None:
    """B, Cor. B.1: Λ = Λ⁺ − Λ⁻."""
    precision, hard = (9.0, 20.0, 40.0), (4.0, 10.0, 15.0)
    process = PairProcess(
        SphereUniform(3),
        Conditional(FisherBingham, precision=precision),
        negative_conditional=Conditional(FisherBingham, precision=hard),
        negatives_per_anchor=8,
    ).to(dtype=torch.float64)
    pairs = process.sample(BATCH, torch.Generator().manual_seed(4))
    difference = torch.tensor(precision) - torch.tensor(hard)
    loss = InfoNCE(Anisotropic(3, difference, trainable=False))
    found = loss.terms(pairs.z, pairs.z_pos, pairs.z_neg).per_item
    torch.testing.assert_close(found, process.loss_at_truth(pairs), rtol=1e-6, atol=1e-6)


def on_sphere(move: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda z: torch.nn.functional.normalize(move(z), dim=-1)


def squeeze(z: Tensor) -> Tensor:
    return torch.cat([z[..., :1] * 2.0, z[..., 1:]], dim=-1)


@every_process
@pytest.mark.parametrize("move", [squeeze, lambda z: z + 0.3 * torch.sin(3 * z)], ids=["stretch", "bend"])
@pytest.mark.statistical(
    false_alarm=1e-8, what="power: moving the codes costs ≥ 13 standard errors, the paired t-test asks for 5.6"
)
def test_moving_the_codes_away_from_the_truth_costs(name: str, move: Callable[[Tensor], Tensor]) -> None:
    marginal, conditional = PROCESSES[name]
    moved = on_sphere(move) if isinstance(marginal, SphereUniform) else move
    loss = InfoNCE(conditional.similarity())
    with torch.no_grad():
        costs = [(loss(moved(z), moved(z_pos)) - loss(z, z_pos)).item() for z, z_pos in draw(name)]
    assert_costs(costs)


@every_process
def test_isometries_cost_nothing(name: str) -> None:
    marginal, conditional = PROCESSES[name]
    loss = InfoNCE(conditional.similarity())
    z, z_pos = (x.double() for x in draw(name)[0])
    flip = torch.ones(z.shape[1], dtype=z.dtype)
    flip[0] = -1
    offset = torch.zeros_like(flip)
    if isinstance(marginal, BoxUniform):
        offset[0] = 1
    with torch.no_grad():
        torch.testing.assert_close(loss.double()(z * flip + offset, z_pos * flip + offset), loss.double()(z, z_pos))


@pytest.mark.parametrize("factor", [0.5, 2.0])
@pytest.mark.statistical(
    false_alarm=1e-8, what="power: a wrong precision costs ≥ 20 standard errors, the paired t-test asks for 5.6"
)
def test_a_wrong_precision_costs(factor: float) -> None:
    precision = torch.tensor([2.0, 8.0, 30.0])
    right, wrong = (InfoNCE(Anisotropic(3, f * precision, trainable=False)) for f in (1.0, factor))
    costs = [(wrong(z, z_pos) - right(z, z_pos)).item() for z, z_pos in draw("sphere, anisotropic")]
    assert_costs(costs)
