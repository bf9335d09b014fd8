"""What all families share: seeds, shapes, precisions, and sentences for what cannot be."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Gamma, Independent, Normal

from identica.distributions.base import LatentDistribution, as_loc, as_parameter, as_size, require_positive
from identica.distributions.box_uniform import BoxUniform
from identica.distributions.fisher_bingham import FisherBingham
from identica.distributions.foreign import sample_with
from identica.distributions.generalized_normal import GeneralizedNormal
from identica.distributions.product import ProductDistribution
from identica.distributions.projected_generalized_normal import ProjectedGeneralizedNormal
from identica.distributions.projected_laplace import ProjectedLaplace
from identica.distributions.projected_normal import ProjectedNormal
from identica.distributions.sphere_uniform import SphereUniform
from identica.distributions.truncated_generalized_normal import TruncatedGeneralizedNormal
from identica.distributions.truncated_laplace import TruncatedLaplace
from identica.distributions.truncated_normal import TruncatedNormal
from identica.distributions.von_mises_fisher import VonMisesFisher

Build = Callable[[torch.Tensor], LatentDistribution]
#: Every family as a function of a location on the unit sphere and in the unit box.
FAMILIES: dict[str, Build] = {
    "SphereUniform": lambda loc: SphereUniform(2, loc.abs().amax(dim=-1, keepdim=True)),
    "BoxUniform": lambda loc: BoxUniform(2, low=loc - 1),
    "VonMisesFisher": lambda loc: VonMisesFisher(loc, 3.0),
    "FisherBingham": lambda loc: FisherBingham(loc, [1.0, 5.0]),
    "ProjectedNormal": lambda loc: ProjectedNormal(loc, 0.3),
    "ProjectedLaplace": lambda loc: ProjectedLaplace(loc, 0.3),
    "ProjectedGeneralizedNormal": lambda loc: ProjectedGeneralizedNormal(loc, 0.3, 3.0),
    "GeneralizedNormal": lambda loc: GeneralizedNormal(loc, 0.3, 3.0),
    "TruncatedNormal": lambda loc: TruncatedNormal(loc, 0.3),
    "TruncatedLaplace": lambda loc: TruncatedLaplace(loc, 0.3),
    "TruncatedGeneralizedNormal": lambda loc: TruncatedGeneralizedNormal(loc, 0.3, 3.0),
    "ProductDistribution": lambda loc: ProductDistribution(BoxUniform(1, loc[..., :1] - 1), VonMisesFisher(loc, 1.0)),
}
every_family = pytest.mark.parametrize("name", FAMILIES)
ON_SPHERE = ("VonMisesFisher", "FisherBingham", "ProjectedNormal", "ProjectedLaplace", "ProjectedGeneralizedNormal")


def make(name: str, loc: tuple[float, ...] = (0.6, 0.8), dtype: torch.dtype = torch.float32) -> LatentDistribution:
    return FAMILIES[name](torch.tensor(loc, dtype=dtype))


@every_family
def test_a_number_seeds_a_generator(name: str) -> None:
    distribution = make(name)
    expected = distribution.sample(4, generator=torch.Generator().manual_seed(7))
    assert torch.equal(distribution.sample(4, generator=7), expected)
    assert torch.equal(sample_with(distribution, 4, 7), expected)
    if distribution.has_rsample:
        assert torch.equal(distribution.rsample(4, generator=7), expected)


def test_a_number_seeds_a_foreign_distribution() -> None:
    normal = Independent(Normal(torch.zeros(2), 1.0), 1)
    assert torch.equal(sample_with(normal, 3, 5), sample_with(normal, 3, torch.Generator().manual_seed(5)))


@pytest.mark.parametrize("wrong", (np.random.default_rng(0), "0", 0.5))
def test_other_randomness_gets_a_sentence(wrong: Any) -> None:
    for draw in (BoxUniform(2).sample, BoxUniform(2).rsample, SphereUniform(2).sample):
        with pytest.raises(TypeError, match="Randomness is a torch.Generator or a whole number"):
            draw(3, generator=wrong)
    with pytest.raises(TypeError, match="Randomness is"):
        sample_with(Normal(0.0, 1.0), 3, wrong)


@every_family
@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16))
def test_half_precision_is_refused(name: str, dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match="works in float32 and float64, not torch"):
        make(name, dtype=dtype)
    with pytest.raises(ValueError, match="works in float32 and float64, not torch"):
        make(name).to(dtype)


@every_family
def test_whole_numbers_become_floating_point_numbers(name: str) -> None:
    distribution = FAMILIES[name](torch.tensor([1, 0]))
    assert distribution.dtype == torch.float32 and distribution.sample(2, generator=0).dtype == torch.float32


@every_family
def test_precision_may_come_first(name: str) -> None:
    assert make(name).to(torch.float64).dtype == torch.float64
    assert make(name).to(torch.float64).sample(2, generator=0).dtype == torch.float64


@pytest.mark.parametrize("wrong", (None, "a", ["a", "b"], torch.zeros(2, dtype=torch.complex64)), ids=str)
def test_parameters_that_are_not_numbers_get_a_sentence(wrong: Any) -> None:
    with pytest.raises(TypeError, match="loc of Family must be"):
        as_loc(wrong, "Family")
    with pytest.raises(TypeError, match="scale of Family must be"):
        as_parameter(wrong, torch.zeros(2), "scale", "Family")
    with pytest.raises(TypeError, match="radius of SphereUniform must be"):
        SphereUniform(2, wrong)
    with pytest.raises(TypeError, match="high of BoxUniform must be"):
        BoxUniform(2, high=wrong)


def test_lists_keep_the_precision_of_loc() -> None:
    loc = torch.zeros(2, dtype=torch.float64)
    assert as_parameter([0.1, 0.2], loc, "scale", "Family").tolist() == [0.1, 0.2]
    assert as_parameter(np.array([0.1, 0.2]), loc, "scale", "Family").tolist() == [0.1, 0.2]


@pytest.mark.parametrize("wrong", (math.inf, math.nan, -1.0, 0.0))
def test_the_sentence_shows_the_offending_entry(wrong: float) -> None:
    with pytest.raises(ValueError, match=rf"positive and finite, not a tensor with an entry {wrong:g}\."):
        require_positive(torch.tensor([2.0, wrong]), "scale", "Family")
    with pytest.raises(ValueError, match=rf"positive and finite, not {wrong:g}\."):
        require_positive(torch.tensor(wrong), "scale", "Family")
    if wrong != 0.0:
        with pytest.raises(ValueError, match=f"not negative, not a tensor with an entry {wrong:g}"):
            FisherBingham(torch.tensor([0.6, 0.8]), [0.5, wrong])
        with pytest.raises(ValueError, match=f"not negative, not {wrong:g}. For a pull away"):
            VonMisesFisher(torch.tensor([0.6, 0.8]), wrong)


@pytest.mark.parametrize("what", ("mean", "variance", "mode", "entropy", "cdf", "icdf"))
@every_family
def test_what_a_family_does_not_have_gets_a_sentence(name: str, what: str) -> None:
    distribution = make(name)
    try:
        found = getattr(distribution, what)
        if callable(found):
            found(*([torch.full((distribution.dim,), 0.5)] if what in ("cdf", "icdf") else []))
    except NotImplementedError as error:
        assert f"has no closed-form {what}; estimate" in str(error)


def test_shapes() -> None:
    assert as_size(3) == as_size(np.int64(3)) == as_size((3,)) == as_size([np.int32(3)]) == (3,)
    assert as_size(()) == () and as_size(torch.Size((2, 0))) == (2, 0)
    assert SphereUniform(3).sample(np.int64(4), generator=0).shape == (4, 3)
    for draw in (SphereUniform(3).sample, BoxUniform(3).rsample):
        for wrong in (2.5, "3", None, (2, 1.5)):
            with pytest.raises(TypeError, match="whole number"):
                draw(wrong, generator=0)
        for negative in (-1, (2, -1)):
            with pytest.raises(ValueError, match="no negative numbers"):
                draw(negative, generator=0)


@every_family
def test_expanding(name: str) -> None:
    expanded = make(name).expand(4)
    assert expanded.batch_shape == (4,) and expanded.sample(generator=0).shape == (4, expanded.dim)
    assert expanded.expand((5, 4)).batch_shape == (5, 4)
    for wrong in ((3,), (), (4, 3)):
        with pytest.raises(ValueError, match=r"has batch shape \(4,\), which does not expand to"):
            expanded.expand(wrong)


def test_rsample_says_which_part_has_none_and_why() -> None:
    with pytest.raises(NotImplementedError, match="SphereUniform has no reparam.*nothing but its radius"):
        SphereUniform(3).rsample(2)
    with pytest.raises(NotImplementedError, match="its part SphereUniform has none, because nothing but its radius"):
        ProductDistribution(BoxUniform(2), SphereUniform(3)).rsample(2)
    loc = torch.tensor([0.6, 0.8])
    with pytest.raises(NotImplementedError, match="its part VonMisesFisher has none, because its draws come from"):
        ProductDistribution(BoxUniform(2), VonMisesFisher(loc, 1.0)).rsample(2)
    counts = Independent(torch.distributions.Poisson(torch.ones(2)), 1)
    with pytest.raises(NotImplementedError, match="its part Independent has none. Use sample"):
        ProductDistribution(Independent(Gamma(torch.ones(2), 1.0), 1), counts).rsample(2)


@pytest.mark.parametrize("name", ("BoxUniform", "TruncatedNormal", "TruncatedLaplace", "TruncatedGeneralizedNormal"))
def test_nan_values_have_a_nan_density(name: str) -> None:
    x = torch.tensor([[math.nan, 0.5], [math.nan, 9.0], [0.5, 9.0], [math.inf, 0.5], [0.5, 0.5]])
    found = make(name).log_prob(x)
    assert found[:2].isnan().all() and (found[2:4] == -math.inf).all() and found[4].isfinite()


@pytest.mark.parametrize("name", (*ON_SPHERE, "SphereUniform"))
def test_nan_values_are_not_on_the_sphere(name: str) -> None:
    with pytest.raises(ValueError, match="not on it"):
        make(name).log_prob(torch.tensor([math.nan, 0.5]))


@pytest.mark.parametrize(
    "name", ("BoxUniform", "GeneralizedNormal", "TruncatedNormal", "TruncatedLaplace", "TruncatedGeneralizedNormal")
)
def test_probabilities_and_values_may_be_in_another_precision(name: str) -> None:
    distribution = make(name)
    q = torch.tensor([[0.3, 0.7], [0.0, 1.0]], dtype=torch.float64)
    x = distribution.icdf(q)
    assert x.dtype == torch.float32
    torch.testing.assert_close(x, distribution.icdf(q.float()))
    torch.testing.assert_close(distribution.cdf(x.double()).float(), q.float(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("radius", (1e-25, 1e20))
@pytest.mark.parametrize("name", ON_SPHERE)
def test_tiny_and_huge_spheres_in_single_precision(name: str, radius: float) -> None:
    unit = torch.tensor([[0.6, 0.8], [-1.0, 0.0]])
    build: dict[str, Build] = {
        "VonMisesFisher": FAMILIES["VonMisesFisher"],
        "FisherBingham": lambda loc: FisherBingham(loc, [0.0, 1e-38]),
        "ProjectedNormal": lambda loc: ProjectedNormal(loc, 0.3 * radius),
        "ProjectedLaplace": lambda loc: ProjectedLaplace(loc, 0.3 * radius),
        "ProjectedGeneralizedNormal": lambda loc: ProjectedGeneralizedNormal(loc, 0.3 * radius, 3.0),
    }
    distribution = build[name](radius * unit)
    torch.testing.assert_close(distribution.radius, torch.full((2, 1), radius), rtol=1e-6, atol=0.0)  # type: ignore[attr-defined]
    x = distribution.sample(100, generator=0)
    torch.testing.assert_close((x.double() / radius).norm(dim=-1), torch.ones(100, 2).double(), rtol=1e-5, atol=0.0)
    assert distribution.log_prob(x).isfinite().all()
    assert SphereUniform(2, radius).log_prob(x).isfinite().all()
    assert not distribution.support.check(1.01 * x).any()


def test_gradient_of_the_radius() -> None:
    loc = torch.tensor([[0.6, 0.8], [3e-3, -1e-3], [-2e5, 1e6]], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(VonMisesFisher(loc, 1.0).radius.sum(), loc)
    torch.testing.assert_close(slope, loc.detach() / loc.detach().norm(dim=-1, keepdim=True))
