"""Spaces: membership, projection, volume, and plain-data round trips."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from identica.spaces import Box, Euclidean, Product, Space, Sphere, space_from_dict

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)

radii = st.floats(1e-3, 1e3)


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    dim = draw(st.integers(1, 6))
    if draw(st.booleans()):
        low = draw(st.floats(-50, 50))
        return Box(dim, low, low + draw(st.floats(0.1, 20)))
    low_edges = draw(st.lists(st.floats(-50, 50), min_size=dim, max_size=dim))
    sides = draw(st.lists(st.floats(0.1, 20), min_size=dim, max_size=dim))
    return Box(dim, tuple(low_edges), tuple(a + b for a, b in zip(low_edges, sides, strict=True)))


simple_spaces = st.one_of(
    st.builds(Sphere, st.integers(2, 40), radii), boxes(), st.builds(Euclidean, st.integers(1, 10))
)
spaces = st.one_of(simple_spaces, st.lists(simple_spaces, min_size=1, max_size=4).map(lambda s: Product(*s)))


def points(space: Space, seed: int, spread: float, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = spread * torch.randn(4, 3, space.dim, generator=generator, dtype=torch.float64)
    return x.to(dtype)


seeds = st.integers(0, 2**31)
spreads = st.sampled_from([1e-6, 0.1, 1.0, 30.0, 1e4])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(spaces, seeds, spreads, st.sampled_from([torch.float64, torch.float32]))
def test_projection_lands_in_the_space_and_stays(space: Space, seed: int, spread: float, dtype: torch.dtype) -> None:
    x = points(space, seed, spread, dtype)
    projected = space.project(x)
    assert projected.shape == x.shape and projected.dtype == dtype
    inside = space.contains(projected)
    assert inside.shape == (4, 3) and bool(inside.all())
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(space.project(projected), projected, rtol=8 * eps, atol=8 * eps * 1e-3)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.one_of(boxes(), st.builds(Sphere, st.integers(2, 6), radii)), seeds)
def test_projection_is_the_nearest_point(space: Space, seed: int) -> None:
    """No other point of the space is closer: compare with many random ones."""
    x = points(space, seed, 5.0)
    others = space.project(points(space, seed + 1, 30.0)).reshape(-1, space.dim)
    distance = (x - space.project(x)).norm(dim=-1, keepdim=True)
    assert bool((distance <= torch.cdist(x.reshape(-1, space.dim), others).reshape(4, 3, -1) + 1e-9).all())


@settings(max_examples=60, deadline=None, derandomize=True)
@given(spaces)
def test_round_trip_through_plain_data(space: Space) -> None:
    assert space_from_dict(space.to_dict()) == space
    assert space_from_dict(json.loads(json.dumps(space.to_dict()))) == space
    assert hash(space_from_dict(space.to_dict())) == hash(space)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(2, 300), radii, seeds, st.sampled_from(DTYPES))
def test_sphere_honours_its_radius(dim: int, radius: float, seed: int, dtype: torch.dtype) -> None:
    """Half precision included; forgetting the radius, as the reference code does, would fail."""
    sphere = Sphere(dim, radius)
    projected = sphere.project(points(sphere, seed, 1.0, dtype))
    norm = projected.double().norm(dim=-1)
    tolerance = 4 * torch.finfo(dtype).eps * radius + torch.finfo(dtype).smallest_normal * math.sqrt(dim)
    torch.testing.assert_close(norm, torch.full_like(norm, radius), rtol=0.0, atol=tolerance)
    if abs(radius - 1) > 0.05:
        assert not bool(sphere.contains(projected / radius).any())


@pytest.mark.parametrize("dtype", DTYPES)
def test_sphere_projects_tiny_and_huge_rows(dtype: torch.dtype) -> None:
    info = torch.finfo(dtype)
    x = torch.tensor([[3.0, 4.0], [3.0, 4.0]], dtype=torch.float64) / 4
    x = (x * torch.tensor([[info.max], [info.smallest_normal]], dtype=torch.float64)).to(dtype)
    expected = torch.tensor([0.6, 0.8], dtype=dtype).expand(2, 2)
    torch.testing.assert_close(Sphere(2).project(x), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sphere_projects_zero_and_passes_gradients(dtype: torch.dtype) -> None:
    x = torch.zeros(2, 3, dtype=dtype)
    x[1] = torch.tensor([1.0, 2.0, 2.0])
    x.requires_grad_()
    projected = Sphere(3, 2.0).project(x)
    assert torch.equal(projected[0].detach(), torch.tensor([2.0, 0.0, 0.0], dtype=dtype))
    projected.sum().backward()
    assert x.grad is not None and bool(torch.isfinite(x.grad).all())
    # d/dx of R Σ x_i / |x| is R (1 − Σ x_i x / |x|²) / |x|
    expected = 2.0 / 3.0 * (1 - 5.0 / 9.0 * torch.tensor([1.0, 2.0, 2.0], dtype=dtype))
    torch.testing.assert_close(x.grad[1], expected, rtol=0.0, atol=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_points_are_members(dtype: torch.dtype) -> None:
    for space in (Sphere(64, 3.0), Box(64, -1.0, 2.0), Euclidean(64), Product(Sphere(32), Box(32))):
        projected = space.project(points(space, 0, 2.0, dtype))
        assert projected.dtype == dtype and bool(space.contains(projected).all())


# ------------------------------------------------------------------------------------------------- volumes


@pytest.mark.parametrize(
    "space, volume",
    [
        (Sphere(2), 2 * math.pi),
        (Sphere(3), 4 * math.pi),
        (Sphere(3, 2.0), 16 * math.pi),
        (Sphere(4, 0.5), 2 * math.pi**2 / 8),
        (Sphere(6), math.pi**3),
        (Box(3), 1.0),
        (Box(3, -1.0, 1.0), 8.0),
        (Box(2, (0.0, 1.0), (3.0, 1.5)), 1.5),
        (Product(Sphere(2, 3.0), Box(2, 0.0, 2.0)), 6 * math.pi * 4),
    ],
)
def test_volume_against_closed_forms(space: Space, volume: float) -> None:
    assert space.log_volume() == pytest.approx(math.log(volume), rel=1e-13, abs=1e-13)


def test_infinite_volume() -> None:
    assert Euclidean(3).log_volume() == math.inf
    assert Product(Sphere(3), Euclidean(2)).log_volume() == math.inf


@pytest.mark.statistical(false_alarm=1e-6, what="surface area of the sphere from a thin shell hit by box points")
def test_sphere_volume_by_monte_carlo(generator: torch.Generator) -> None:
    """Area ≈ volume of the shell between r (1 ± 0.05), up to a known factor, by counting points of a cube."""
    sphere, n = Sphere(4, 2.0), 200_000
    low, high = 1.9, 2.1
    norm = (4.2 * torch.rand(n, 4, generator=generator, dtype=torch.float64) - 2.1).norm(dim=-1)
    share = ((norm > low) & (norm < high)).double().mean().item()
    shell = share * 4.2**4
    area = shell / ((high**4 - low**4) / 4) * 2.0**3  # the shell is ∫ area(s) ds with area(s) ∝ s³
    relative_error = math.sqrt((1 - share) / (share * n))
    assert abs(area / math.exp(sphere.log_volume()) - 1) < 4.9 * relative_error


# ------------------------------------------------------------------------------------------ the single spaces


def test_box_edges_and_membership() -> None:
    box = Box(2, (0.0, -1.0), (1.0, 3.0))
    x = torch.tensor([[0.5, 0.0], [1.0, 3.0], [1.1, 0.0], [0.5, -1.2]])
    assert box.contains(x).tolist() == [True, True, False, False]
    assert box.contains(x, atol=0.15).tolist() == [True, True, True, False]
    assert box.project(x).tolist() == [[0.5, 0.0], [1.0, 3.0], [1.0, 0.0], [0.5, -1.0]]
    low, high = box.edges(x.double())
    assert low.dtype == torch.float64 and low.tolist() == [0.0, -1.0] and high.tolist() == [1.0, 3.0]
    assert Box(2, torch.tensor([0.0, -1.0]), [1, 3]) == box


def test_sphere_membership() -> None:
    sphere = Sphere(2, 2.0)
    x = torch.tensor([[0.0, 2.0], [0.0, 2.1], [2.0, 2.0], [0.0, 0.0]])
    assert sphere.contains(x).tolist() == [True, False, False, False]
    assert sphere.contains(x, atol=0.2).tolist() == [True, True, False, False]


def test_euclidean_membership() -> None:
    x = torch.tensor([[0.0, 1e30], [math.nan, 0.0], [math.inf, 0.0]])
    assert Euclidean(2).contains(x).tolist() == [True, False, False]
    assert Euclidean(2).project(x) is x


def test_product() -> None:
    product = Product(Sphere(2), Box(1), Euclidean(3))
    assert product.dim == 6 and product.dims == (2, 1, 3)
    x = torch.tensor([3.0, 4.0, 2.0, 7.0, 8.0, 9.0])
    assert [part.tolist() for part in product.split(x)] == [[3.0, 4.0], [2.0], [7.0, 8.0, 9.0]]
    torch.testing.assert_close(product.project(x), torch.tensor([0.6, 0.8, 1.0, 7.0, 8.0, 9.0]))
    assert product.contains(
        torch.tensor([[0.6, 0.8, 1.0, 7.0, 8.0, 9.0], [0.6, 0.8, 1.5, 7.0, 8.0, 9.0]])
    ).tolist() == [True, False]
    assert repr(product) == "Product(Sphere(dim=2, radius=1.0), Box(dim=1, low=0.0, high=1.0), Euclidean(dim=3))"
    nested = Product(product, Sphere(3))
    assert nested.dim == 9 and space_from_dict(nested.to_dict()) == nested
    assert Product(Sphere(2), Box(1)) != Product(Box(1), Sphere(2))


def test_whole_numbers_are_points_too() -> None:
    box = Box(2, 0.5, 1.5)
    assert not box.contains(torch.tensor([0, 1])) and box.contains(torch.tensor([1, 1]))
    for space in (box, Box(2, (0.5, 0.5), 1.5)):
        assert space.project(torch.tensor([0, 3])).tolist() == [0.5, 1.5]
    assert [edge.tolist() for edge in box.edges(torch.tensor([0, 1]))] == [[0.5, 0.5], [1.5, 1.5]]
    assert Sphere(2, 5.0).contains(torch.tensor([[3, 4], [3, 3]])).tolist() == [True, False]
    assert Sphere(2, 10.0).project(torch.tensor([3, 4])).tolist() == pytest.approx([6.0, 8.0])
    product = Product(Sphere(2), Box(1, 0.25, 0.75))
    assert product.project(torch.tensor([0, 2, 1])).tolist() == [0.0, 1.0, 0.75]


def test_arrays_and_lists_are_points_too() -> None:
    array = np.array([[0.5, 0.5], [2.0, 0.5]])
    array.setflags(write=False)
    for space in (Box(2), Euclidean(2), Product(Box(1), Box(1))):
        for points_ in (array, array.tolist()):
            expected = torch.tensor(array)
            assert torch.equal(space.contains(points_), space.contains(expected))
            assert torch.equal(space.project(points_).double(), space.project(expected))
    assert Sphere(2).project([3, 4]).tolist() == pytest.approx([0.6, 0.8])
    for bad in ("ab", None, [[1.0], [1.0, 2.0]]):
        with pytest.raises(TypeError, match="holds vectors of numbers, which this .* is not; pass a tensor"):
            Box(2).contains(bad)  # type: ignore[arg-type]


def test_numpy_settings_become_plain_ones() -> None:
    box = Box(np.int64(2), low=np.array([0.0, -1.0]), high=np.float32(2.0))  # type: ignore[arg-type]
    assert box == Box(2, (0.0, -1.0), 2.0)
    sphere = Sphere(np.int64(3), np.float32(2.0))  # type: ignore[arg-type]
    assert sphere == Sphere(3, 2.0)
    for space in (box, sphere, Euclidean(np.int32(4))):  # type: ignore[arg-type]
        assert space_from_dict(json.loads(json.dumps(space.to_dict()))) == space


def test_a_sphere_has_no_point_for_rows_without_a_direction() -> None:
    rows = torch.tensor([[math.inf, 0.0], [math.nan, 1.0], [0.0, 1.0]])
    assert Sphere(2).project(rows).isnan().tolist() == [[True, True], [True, True], [False, False]]


# ------------------------------------------------------------------------------------------------ mistakes


@pytest.mark.parametrize("dim", [0, -1, 2.0, True, "3"])
def test_bad_dim(dim: object) -> None:
    for kind in (Sphere, Box, Euclidean):
        with pytest.raises(ValueError, match="dim must be a whole number"):
            kind(dim)  # type: ignore[arg-type]


def test_a_sphere_needs_two_dimensions() -> None:
    with pytest.raises(ValueError, match="at least 2, not 1"):
        Sphere(1)


@pytest.mark.parametrize("radius", [0.0, -1.0, math.inf, math.nan, "a", None])
def test_bad_radius(radius: object) -> None:
    with pytest.raises(ValueError, match=f"radius of a sphere must be positive and finite, not {radius!r}"):
        Sphere(3, radius)  # type: ignore[arg-type]


def test_bad_boxes() -> None:
    with pytest.raises(ValueError, match="low has 3 entries, but the box has 2 dimensions"):
        Box(2, (0.0, 0.0, 0.0))
    for low, high in ((1.0, 1.0), (2.0, 1.0), (-math.inf, 0.0), (0.0, math.nan)):
        with pytest.raises(ValueError, match="low < high"):
            Box(2, low, high)
    for word in ("ab", "0", None):
        with pytest.raises(ValueError, match=f"finite edges with low < high in every dimension, not low={word!r}"):
            Box(2, word)  # type: ignore[arg-type]


def test_bad_products() -> None:
    for arguments in ((), (Sphere(3), 2)):
        with pytest.raises(ValueError, match="at least one space"):
            Product(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("space", [Sphere(3), Box(3), Euclidean(3), Product(Sphere(2), Box(1))])
def test_wrong_length(space: Space) -> None:
    for x in (torch.ones(2, 4), torch.tensor(1.0)):
        for method in (space.contains, space.project):
            with pytest.raises(ValueError, match="holds vectors of length 3.*pass a tensor of shape"):
                method(x)


def test_unknown_space() -> None:
    with pytest.raises(ValueError, match="Unknown space 'torus': expected sphere, box"):
        space_from_dict({"space": "torus"})
