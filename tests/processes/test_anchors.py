"""Anchors alone, finite sets, scores on another process, and renderers as mixings."""

from __future__ import annotations

import pytest
import torch

from identica.data import AugmentedProcess, GaussianBlur, simclr_with_colour
from identica.distributions import BoxUniform, Conditional, TruncatedNormal
from identica.mixing import RenderedMixing, mixing_from_dict
from identica.processes import AnchorProcess, EvaluatedOn, PairPool, PairProcess
from identica.processes.anchors import FiniteAnchors
from identica.render import VERSION, ThreeDIdentScene
from identica.training import evaluate
from tests.processes.painting import Painting

MARGINAL = BoxUniform(10, low=-1.0)
CONDITIONAL = Conditional(TruncatedNormal, scale=0.1, low=-1.0, high=1.0)


def test_a_renderer_is_a_mixing_of_exact_pairs() -> None:
    scene = Painting()
    pairs = PairProcess(MARGINAL, CONDITIONAL, RenderedMixing(scene)).sample(6, generator=0)
    plain = PairProcess(MARGINAL, CONDITIONAL).sample(6, generator=0)
    assert torch.equal(pairs.z, plain.z) and torch.equal(pairs.z_pos, plain.z_pos)
    assert pairs.x.dtype == torch.uint8 and pairs.x.shape == (6, 3, 8, 8)
    assert torch.equal(pairs.x_pos, scene.render(pairs.z_pos))


def test_pictures_are_drawn_in_parts() -> None:
    z = MARGINAL.sample((7,), generator=torch.Generator().manual_seed(0))
    assert torch.equal(RenderedMixing(Painting(), chunk=3)(z), RenderedMixing(Painting())(z))


def test_a_scene_checks_the_first_pictures_and_no_step_waits_for_a_device() -> None:
    class Strict(Painting):
        def render(self, latents: torch.Tensor, *, check: bool = True) -> torch.Tensor:
            checks.append(check)
            return super().render(torch.zeros(len(latents), 10))

    checks: list[bool] = []
    mixing = RenderedMixing(Strict())
    elsewhere = torch.zeros(2, 10, device="meta")  # a device that one would wait for
    for latents in (elsewhere, elsewhere, torch.zeros(2, 10)):
        mixing(latents)
    assert checks == [True, False, True]


def test_on_the_cpu_all_latents_are_looked_at() -> None:
    mixing = RenderedMixing(ThreeDIdentScene(16))
    mixing(torch.zeros(1, 10))
    for bad in (5.0, torch.nan):
        with pytest.raises(ValueError, match="latents must"):
            mixing(torch.full((1, 10), bad))


def test_latents_that_the_scene_does_not_have_are_refused_when_the_process_is_made() -> None:
    wide = Conditional(TruncatedNormal, scale=0.1, low=-3.0, high=3.0)
    mixing = RenderedMixing(ThreeDIdentScene(16))
    for _ in range(2):  # a refusal is no reason to look away the next time
        with pytest.raises(ValueError, match=r"The mixing failed .* latents must lie in \[-1, 1\], but row 0 has"):
            PairProcess(BoxUniform(10, low=-3.0, high=3.0), wide, mixing)
    assert mixing.to_dict()["version"] == VERSION


def test_wrong_scenes_and_latents_get_a_sentence() -> None:
    with pytest.raises(TypeError, match=r"a scene with a method render\(latents\)"):
        RenderedMixing(torch.exp)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"latents of shape \(n, 10\), not \(2, 9\)"):
        RenderedMixing(Painting())(torch.zeros(2, 9))
    with pytest.raises(ValueError, match="was a renderer"):
        mixing_from_dict(RenderedMixing(Painting()).to_dict())


def test_anchors_alone_are_observed_once() -> None:
    scene = Painting()
    process = AnchorProcess(MARGINAL, RenderedMixing(scene))
    scene.drawn = 0
    pairs = process.to("cpu", torch.float64).sample(5, generator=0)
    assert scene.drawn == 5 and pairs.z.dtype == torch.float64
    assert pairs.x_pos is pairs.x and torch.equal(pairs.x, scene.render(pairs.z))


def test_a_finite_set_is_drawn_without_repetition(generator: torch.Generator) -> None:
    latents = MARGINAL.sample((20,), generator=generator)
    by_tensor = FiniteAnchors(latents, 2 * latents)
    by_function = FiniteAnchors(latents, lambda index: 2 * latents[index])
    by_mixing = FiniteAnchors(latents, mixing=RenderedMixing(Painting()))
    for process in (by_tensor, by_function):
        pairs = process.to("cpu").sample(20, generator=0)
        assert torch.equal(pairs.x, 2 * pairs.z)
        assert torch.equal(pairs.z.sort(dim=0).values, latents.sort(dim=0).values)
    assert by_mixing.sample(45, generator=0).x.shape == (45, 3, 8, 8)
    with pytest.raises(ValueError, match="20 latents and 3 observations"):
        FiniteAnchors(latents, torch.zeros(3, 1))


def test_scores_are_computed_on_the_process_that_is_named_for_them() -> None:
    noise = PairProcess(MARGINAL, CONDITIONAL, lambda z: torch.zeros_like(z) + torch.arange(10.0))
    process = EvaluatedOn(noise, AnchorProcess(MARGINAL)).to("cpu", torch.float64)
    assert evaluate(process, lambda x: x, 200).r2.score == pytest.approx(1.0)
    assert process.to_dict() == noise.to_dict()
    assert float(process.sample(3, torch.Generator().manual_seed(0)).x.std(dim=0).max()) == 0.0


def test_augmented_views_show_one_image_and_know_its_latents() -> None:
    scene = Painting(16)
    process = AugmentedProcess(AnchorProcess(MARGINAL, RenderedMixing(scene)), simclr_with_colour())
    scene.drawn = 0
    pairs = process.sample(6, generator=0)
    assert scene.drawn == 6 and pairs.z is pairs.z_pos
    assert pairs.x.shape == (6, 3, 16, 16) and pairs.x.dtype == torch.float32
    assert not torch.equal(pairs.x, pairs.x_pos)
    assert pairs.x.min() >= 0 and pairs.x.max() <= 1
    plain = AugmentedProcess(process.anchors, GaussianBlur(probability=0.0)).sample(6, generator=0)
    assert torch.equal(plain.x, plain.x_pos) and torch.equal(plain.x, scene.render(plain.z).float() / 255)
    assert torch.equal(plain.z, pairs.z)


def test_only_training_fills_and_renews_the_pool_that_views_are_made_of() -> None:
    """Neither making the process nor moving nor scoring it: the pool follows from the seed of the run alone."""
    scene = Painting(16)
    pool = PairPool(AnchorProcess(MARGINAL, RenderedMixing(scene)), size=500, refresh=5)
    scene.drawn = 0
    process = AugmentedProcess(pool, simclr_with_colour()).to("cpu", torch.float32)
    assert scene.drawn == 2  # a look at whether the augmentation fits
    first = process.sample(20, torch.Generator().manual_seed(1))
    assert scene.drawn == 502
    evaluate(process, lambda x: x.mean(dim=(2, 3)), 100)
    assert scene.drawn == 602
    again = AugmentedProcess(pool, simclr_with_colour()).to("cpu").sample(20, torch.Generator().manual_seed(1))
    other = AugmentedProcess(pool, simclr_with_colour()).to("cpu").sample(20, torch.Generator().manual_seed(2))
    assert torch.equal(first.z, again.z) and torch.equal(first.x, again.x)
    assert not torch.isin(other.z[:, 0], first.z[:, 0]).any()


def test_augmentations_that_do_not_fit_say_so_at_once() -> None:
    vectors = AnchorProcess(MARGINAL)
    with pytest.raises(ValueError, match="Augmentations take floating-point images"):
        AugmentedProcess(vectors, simclr_with_colour())
    with pytest.raises(TypeError, match="is an Augmentation, such as"):
        AugmentedProcess(vectors, torch.exp)  # type: ignore[arg-type]
