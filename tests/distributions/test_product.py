from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Independent, Laplace, Normal

from identica.distributions.box_uniform import BoxUniform
from identica.distributions.product import ProductDistribution
from identica.distributions.projected_normal import ProjectedNormal
from identica.distributions.sphere_uniform import SphereUniform
from identica.spaces import Box, Product, Sphere


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sphere_and_box() -> ProductDistribution:
    return ProductDistribution(SphereUniform(3, radius=2.0), BoxUniform(2, low=-1.0))


def test_draws_live_in_the_product_space():
    product = sphere_and_box()
    space = Product(Sphere(3, radius=2.0), Box(2, low=-1.0))
    draws = product.sample((100, 2), generator=seeded())
    assert draws.shape == (100, 2, space.dim)
    assert space.contains(draws).all()
    assert product.support.check(draws).all()
    assert not product.support.check(draws * 1.01).any()


def test_parts_are_drawn_in_order_from_one_generator():
    generator = seeded()
    expected = [
        SphereUniform(3, radius=2.0).sample(9, generator=generator),
        BoxUniform(2, low=-1.0).sample(9, generator=generator),
    ]
    assert torch.equal(sphere_and_box().sample(9, generator=seeded()), torch.cat(expected, dim=-1))


def test_densities_and_entropies_add():
    product = sphere_and_box()
    draws = product.sample(9, generator=seeded())
    volume = Product(Sphere(3, radius=2.0), Box(2, low=-1.0)).log_volume()
    torch.testing.assert_close(product.log_prob(draws), torch.full((9,), -volume))
    assert product.entropy().item() == pytest.approx(volume, rel=1e-6)
    outside = draws.clone()
    outside[0, 4] = 5.0
    assert product.log_prob(outside)[0] == -math.inf


def test_moments_are_side_by_side():
    product = sphere_and_box()
    torch.testing.assert_close(product.mean, torch.zeros(5))
    torch.testing.assert_close(product.variance, torch.tensor([4 / 3, 4 / 3, 4 / 3, 1 / 3, 1 / 3]))
    torch.testing.assert_close(product.stddev, product.variance.sqrt())
    loc = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    both = ProductDistribution(ProjectedNormal(loc, 0.1), ProjectedNormal(torch.tensor([3.0, 4.0]), 1.0))
    assert torch.equal(both.mode, torch.tensor([[1.0, 0.0, 3.0, 4.0], [0.0, 1.0, 3.0, 4.0]]))


def test_batch_shapes_broadcast():
    loc = SphereUniform(3).sample((4, 1), generator=seeded())
    width = 1.0 + torch.arange(5.0)[:, None]
    product = ProductDistribution(ProjectedNormal(loc, 0.1), BoxUniform(2, high=width), SphereUniform(2))
    assert product.batch_shape == (4, 5)
    assert product.event_shape == (7,)
    draws = product.sample(6, generator=seeded())
    assert draws.shape == (6, 4, 5, 7)
    assert product.log_prob(draws).shape == (6, 4, 5)
    # Every row of every part has its own draw.
    assert len(draws[..., -1].unique()) == draws[..., -1].numel()
    torch.testing.assert_close(
        product.log_prob(draws)[2, 3, 4],
        ProjectedNormal(loc[3, 0], 0.1).log_prob(draws[2, 3, 4, :3]) - 2 * math.log(5.0) - math.log(2 * math.pi),
    )


def test_nested_products_are_flat_vectors():
    inner = sphere_and_box()
    nested = ProductDistribution(inner, BoxUniform(1))
    flat = ProductDistribution(*inner.parts, BoxUniform(1))
    draws = nested.sample(8, generator=seeded())
    assert torch.equal(draws, flat.sample(8, generator=seeded()))
    torch.testing.assert_close(nested.log_prob(draws), flat.log_prob(draws))
    assert nested.support.check(draws).all()


def test_foreign_parts():
    normal = Independent(Normal(torch.zeros(2), torch.ones(2)), 1)
    product = ProductDistribution(SphereUniform(2), normal, BoxUniform(1))
    torch.manual_seed(1)
    first = product.sample(6, generator=seeded())
    torch.manual_seed(2)
    assert torch.equal(first, product.sample(6, generator=seeded()))
    expected = -math.log(2 * math.pi) + normal.log_prob(first[:, 2:4])
    torch.testing.assert_close(product.log_prob(first), expected)
    assert product.support.check(first).all()
    assert product.expand((3,)).sample(generator=seeded()).shape == (3, 5)
    assert product.entropy().item() == pytest.approx(2 * math.log(2 * math.pi) + 1, rel=1e-6)
    with pytest.raises(ValueError, match="Independent, which does not know how to move"):
        product.to("cpu")


def test_gradients_where_every_part_has_them():
    loc = torch.tensor([0.6, 0.8], requires_grad=True)
    shift = torch.zeros(2, requires_grad=True)
    product = ProductDistribution(ProjectedNormal(loc, 0.1), Independent(Laplace(shift, 1.0), 1))
    assert product.has_rsample
    product.rsample(3, generator=seeded()).sum().backward()
    assert loc.grad is not None and shift.grad is not None
    assert torch.equal(shift.grad, torch.full((2,), 3.0))
    assert not product.sample(3, generator=seeded()).requires_grad
    with pytest.raises(NotImplementedError, match="no reparameterised sampler"):
        sphere_and_box().rsample(3)


def test_to_and_expand():
    product = sphere_and_box().to(dtype=torch.float64)
    assert product.dtype == torch.float64
    assert product.sample(2, generator=seeded()).dtype == torch.float64
    wide = sphere_and_box().expand((4, 3))
    assert wide.batch_shape == (4, 3)
    draws = wide.sample(generator=seeded())
    assert draws.shape == (4, 3, 5)
    assert len(draws[..., 0].unique()) == 12
    assert wide.log_prob(draws).shape == (4, 3)


def test_expanding_distributions_made_of_numbers_only():
    for distribution in (SphereUniform(3), BoxUniform(3), BoxUniform(3, high=torch.tensor([1.0, 2.0, 3.0]))):
        expanded = distribution.expand((5, 2))
        assert expanded.batch_shape == (5, 2)
        assert expanded.sample(4, generator=seeded()).shape == (4, 5, 2, 3)


def test_sentences_for_bad_input():
    with pytest.raises(ValueError, match="at least one part"):
        ProductDistribution()
    with pytest.raises(TypeError, match="must be a torch distribution, not Sphere"):
        ProductDistribution(Sphere(3))
    with pytest.raises(ValueError, match="Independent"):
        ProductDistribution(Normal(torch.zeros(3), 1.0))
    two, three = SphereUniform(2, radius=torch.ones(2, 1)), SphereUniform(2, radius=torch.ones(3, 1))
    with pytest.raises(ValueError, match=r"do not broadcast: \(2,\), \(3,\)"):
        ProductDistribution(two, three)
    with pytest.raises(ValueError, match="its last axis must be 5"):
        sphere_and_box().log_prob(torch.zeros(4))


def test_repr_names_the_parts():
    assert repr(sphere_and_box()) == (
        "ProductDistribution(SphereUniform(dim=3, radius=2), BoxUniform(dim=2, low=-1, high=1))"
    )


@pytest.mark.gpu
def test_draws_live_on_the_generators_device():
    generator = torch.Generator("cuda").manual_seed(0)
    normal = Independent(Normal(torch.zeros(2), torch.ones(2)), 1)
    assert ProductDistribution(SphereUniform(2), normal).sample(3, generator=generator).device.type == "cuda"
    moved = sphere_and_box().to("cuda")
    assert moved.sample(3).device.type == "cuda"
    assert moved.mean.device.type == "cuda"
