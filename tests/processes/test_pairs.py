"""Pairs: what they hold, how they are drawn, moved and described, and what cannot be paired."""

from __future__ import annotations

import dataclasses
import json
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.distributions import Independent, MultivariateNormal, Normal, Uniform
from torch.utils import _pytree as pytree

import identica as idt
from identica.distributions import BoxUniform, SphereUniform
from identica.distributions.generalized_normal import GeneralizedNormal
from identica.distributions.product import ProductDistribution
from identica.distributions.truncated_normal import TruncatedNormal
from identica.mixing import InvertibleMLP
from identica.processes import EnsembleProcess, PairProcess, Pairs, space_of
from identica.spaces import Box, Euclidean, Product, Sphere
from tests.processes.parts import LAPLACE, double_loop, make, vmf


class TestPairs:
    def pairs(self, negatives: bool = False) -> Pairs:
        z = torch.arange(6.0).reshape(3, 2)
        extra = z[:, None].repeat(1, 4, 1) if negatives else None
        return Pairs(z, z + 1, 2 * z, 2 * z + 1, extra, extra)

    def test_is_frozen_and_has_a_length(self) -> None:
        pairs = self.pairs()
        assert len(pairs) == 3
        with pytest.raises(dataclasses.FrozenInstanceError):
            pairs.z = pairs.x  # type: ignore[misc]

    @pytest.mark.parametrize(("negatives", "leaves"), [(False, 4), (True, 6)])
    def test_is_a_pytree_of_the_tensors_it_has(self, negatives: bool, leaves: int) -> None:
        pairs = self.pairs(negatives)
        flat, spec = pytree.tree_flatten(pairs)
        assert len(flat) == leaves and all(isinstance(leaf, torch.Tensor) for leaf in flat)
        again = pytree.tree_unflatten(flat, spec)
        assert again.x_pos is pairs.x_pos and again.z_neg is pairs.z_neg
        doubled = pytree.tree_map(lambda t: 2 * t, pairs)
        assert isinstance(doubled, Pairs) and torch.equal(doubled.z_pos, 2 * pairs.z_pos)
        keys = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(pairs)[0]]
        assert keys[:4] == [".z", ".z_pos", ".x", ".x_pos"]

    def test_to_casts_floating_point_only(self) -> None:
        z = torch.zeros(2, 2)
        images = torch.zeros(2, 4, 4, dtype=torch.uint8)
        moved = Pairs(z, z, images, images).to("cpu", torch.float64)
        assert moved.z.dtype == torch.float64 and moved.x.dtype == torch.uint8 and moved.z_neg is None


class TestSampling:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize(
        ("marginal", "conditional"),
        [(SphereUniform(4), vmf()), (BoxUniform(4), LAPLACE), (SphereUniform(4, radius=3.0), vmf())],
    )
    def test_shapes_dtypes_and_supports(self, marginal: Any, conditional: Any, dtype: torch.dtype) -> None:
        mixing = InvertibleMLP(4, seed=0, candidates=50)
        process = PairProcess(marginal, conditional, mixing).to(dtype=dtype)
        pairs = process.sample(200, make())
        for part in (pairs.z, pairs.z_pos, pairs.x, pairs.x_pos):
            assert part.shape == (200, 4) and part.dtype == dtype and not part.requires_grad
        assert process.space is not None
        assert bool(process.space.contains(pairs.z).all()) and bool(process.space.contains(pairs.z_pos).all())
        tolerance = 1e-5 if dtype == torch.float32 else 1e-12
        assert torch.allclose(pairs.x, process.mixing(pairs.z), atol=tolerance)  # type: ignore[misc]
        assert torch.allclose(pairs.x_pos, process.mixing(pairs.z_pos), atol=tolerance)  # type: ignore[misc]

    def test_without_a_mixing_x_is_z(self) -> None:
        pairs = PairProcess(BoxUniform(2), LAPLACE).sample(5, make())
        assert pairs.x is pairs.z and pairs.x_pos is pairs.z_pos and pairs.x_neg is None and pairs.z_neg is None

    def test_hard_negatives_and_several_positives(self) -> None:
        process = PairProcess(
            SphereUniform(3),
            vmf(200.0),
            InvertibleMLP(3, seed=0, candidates=20),
            negative_conditional=vmf(50.0),
            negatives_per_anchor=5,
            positives_per_anchor=2,
        )
        pairs = process.sample(1000, make())
        assert pairs.z_pos.shape == (1000, 2, 3) and pairs.x_pos.shape == (1000, 2, 3)
        assert pairs.z_neg is not None and pairs.x_neg is not None
        assert pairs.z_neg.shape == (1000, 5, 3) and pairs.x_neg.shape == (1000, 5, 3)
        assert process.mixing is not None
        assert torch.allclose(pairs.x_neg[7, 3], process.mixing(pairs.z_neg[7, 3]), atol=1e-5)
        # Row i belongs to anchor i: mean cosine 1 − 1/κ to first order on S².
        for drawn, concentration in ((pairs.z_pos, 200.0), (pairs.z_neg, 50.0)):
            cosine = (pairs.z[:, None] * drawn).sum(dim=-1).mean().item()
            assert cosine == pytest.approx(1 - 1 / concentration, abs=0.1 / concentration)

    def test_equal_generators_equal_pairs(self) -> None:
        process = PairProcess(BoxUniform(3), LAPLACE, InvertibleMLP(3, seed=0, candidates=20))
        before = torch.get_rng_state()
        one, same, number = process.sample(9, make(3)), process.sample(9, make(3)), process.sample(9, 3)
        assert torch.equal(one.z_pos, same.z_pos) and torch.equal(one.x_pos, number.x_pos)
        source = make(3)
        assert not torch.equal(process.sample(9, source).z, process.sample(9, source).z)
        assert torch.equal(torch.get_rng_state(), before)

    def test_views_are_mixed_in_one_call(self) -> None:
        calls = []

        def mixing(z: torch.Tensor) -> torch.Tensor:
            calls.append(tuple(z.shape))
            return z.exp()

        process = PairProcess(BoxUniform(3), LAPLACE, mixing, LAPLACE, 4)
        calls.clear()
        process.sample(10, make())
        assert calls == [(60, 3)]

    def test_decoders_to_images(self) -> None:
        decoder = nn.Sequential(nn.Linear(2, 12), nn.Unflatten(1, (3, 2, 2)))
        process = PairProcess(BoxUniform(2), LAPLACE, decoder, positives_per_anchor=2)
        pairs = process.sample(4, make())
        assert pairs.x.shape == (4, 3, 2, 2) and pairs.x_pos.shape == (4, 2, 3, 2, 2)
        assert not pairs.x.requires_grad
        moved = process.to(dtype=torch.float64)
        assert moved.sample(4, make()).x.dtype == torch.float64
        assert next(decoder.parameters()).dtype == torch.float32  # the user's own module stays as it was

    @pytest.mark.statistical(false_alarm=1e-6, what="mean distance of Laplace pairs around centred anchors")
    def test_positives_follow_the_conditional(self) -> None:
        narrow = BoxUniform(1, low=0.49, high=0.51)
        pairs = PairProcess(narrow, LAPLACE).sample(20_000, make())
        p = stats.kstest((pairs.z_pos - pairs.z)[:, 0].double().numpy(), stats.laplace(scale=0.05).cdf).pvalue
        assert p > 1e-6  # the truncation at ten scales away is invisible

    def test_the_number_of_pairs_is_a_whole_number(self) -> None:
        process = PairProcess(BoxUniform(2), LAPLACE)
        assert len(process.sample(np.int64(3), 0)) == 3 and len(process.sample(0, 0)) == 0  # type: ignore[arg-type]
        for kind in (process, EnsembleProcess(process, process)):
            for n in (-1, 2.0, "2", None):
                with pytest.raises(ValueError, match=f"n must be a whole number of at least 0, not {n!r}"):
                    kind.sample(n, 0)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="n must be a whole number of at least 1, not 2.5"):
            process.optimal_loss(2.5)  # type: ignore[arg-type]

    def test_seeds_are_whole_numbers_that_torch_takes(self) -> None:
        process = PairProcess(BoxUniform(2), LAPLACE)
        assert torch.equal(process.sample(3, np.int64(5)).z, process.sample(3, 5).z)  # type: ignore[arg-type]
        for seed in (-(2**63), 2**64 - 1):
            process.sample(1, seed)
        for seed in (-(2**63) - 1, 2**64):
            with pytest.raises(ValueError, match=rf"seed lies between -2\*\*63 and 2\*\*64 - 1, which {seed} does not"):
                process.sample(1, seed)
        with pytest.raises(TypeError, match="Randomness is a torch.Generator or a whole number"):
            process.sample(1, True)

    def test_numpy_counts_are_saved_as_plain_numbers(self) -> None:
        process = PairProcess(BoxUniform(2), LAPLACE, positives_per_anchor=np.int64(2))  # type: ignore[arg-type]
        assert json.loads(json.dumps(process.to_dict()))["positives_per_anchor"] == 2

    def test_a_generator_elsewhere_is_refused(self) -> None:
        process = PairProcess(BoxUniform(2), LAPLACE)
        process.device = torch.device("meta")
        with pytest.raises(ValueError, match="The generator lives on cpu, the process on meta"):
            process.sample(3, make())


class TestForeignDistributions:
    def test_foreign_marginal_and_user_function(self) -> None:
        marginal = MultivariateNormal(torch.zeros(3), torch.eye(3))
        process = PairProcess(marginal, lambda z: Independent(Normal(z, 0.1), 1))
        before = torch.get_rng_state()
        one, same = process.sample(500, make(1)), process.sample(500, make(1))
        assert torch.equal(one.z_pos, same.z_pos) and torch.equal(torch.get_rng_state(), before)
        assert (one.z_pos - one.z).std().item() == pytest.approx(0.1, rel=0.1)
        assert process.space == Euclidean(3)
        assert process.to(dtype=torch.float64).sample(5, make()).z.dtype == torch.float64

    def test_distributions_over_numbers_become_independent_coordinates(self) -> None:
        process = PairProcess(Uniform(torch.zeros(2), torch.ones(2)), lambda z: Normal(z, 0.01))
        assert process.dim == 2 and process.sample(7, make()).z_pos.shape == (7, 2)
        assert process.space == Box(2)

    def test_a_function_that_returns_one_of_ours(self) -> None:
        process = PairProcess(BoxUniform(2), lambda z: TruncatedNormal(z, 0.1), positives_per_anchor=3)
        pairs = process.sample(50, make())
        assert pairs.z_pos.shape == (50, 3, 2) and bool(Box(2).contains(pairs.z_pos).all())

    def test_products_of_spaces(self) -> None:
        marginal = ProductDistribution(SphereUniform(3), Independent(Uniform(torch.zeros(2), torch.ones(2)), 1))

        def conditional(z: torch.Tensor) -> ProductDistribution:
            return ProductDistribution(vmf(7.0)(z[:, :3]), LAPLACE(z[:, 3:]))

        process = PairProcess(marginal, conditional)
        assert process.space == Product(Sphere(3), Box(2))
        pairs = process.sample(20, make())
        assert bool(process.space.contains(pairs.z_pos).all())
        assert [part["family"] for part in process.to_dict()["marginal"]["parts"]] == [
            "SphereUniform",
            "torch Independent",
        ]
        losses = process.loss_at_truth(pairs)
        z, z_pos = pairs.z.double().numpy(), pairs.z_pos.double().numpy()
        expected = double_loop(z, z_pos, lambda a, b: 7 * a[:3] @ b[:3] - np.abs(a - b)[3:].sum() / 0.05)
        assert np.allclose(losses.numpy(), expected, rtol=1e-5)

    def test_spaces(self) -> None:
        assert space_of(SphereUniform(3, radius=2.0)) == Sphere(3, radius=2.0)
        assert space_of(BoxUniform(2, low=-1.0)) == Box(2, low=-1.0)
        assert space_of(BoxUniform(2, high=torch.tensor([1.0, 2.0]))) == Box(2, high=(1.0, 2.0))
        assert space_of(torch.distributions.Dirichlet(torch.ones(3))) is None


class TestDescriptionAndMoving:
    def test_to_dict_is_plain_data(self) -> None:
        process = PairProcess(
            BoxUniform(2), LAPLACE, InvertibleMLP(2, seed=4, candidates=10), lambda z: Normal(z, 1.0), 2
        )
        data = json.loads(json.dumps(process.to_dict()))
        assert data["marginal"] == {"family": "BoxUniform", "parameters": {"dim": 2, "low": 0.0, "high": 1.0}}
        assert data["conditional"] == {"family": "TruncatedLaplace", "parameters": {"scale": 0.05}}
        assert data["mixing"]["seed"] == 4
        assert data["negative_conditional"] == "user function" and data["negatives_per_anchor"] == 2
        assert PairProcess(BoxUniform(2), LAPLACE).to_dict()["mixing"] is None

    def test_to_returns_a_moved_process_and_leaves_this_one(self) -> None:
        process = PairProcess(BoxUniform(2), LAPLACE, InvertibleMLP(2, seed=0, candidates=10))
        moved = process.to("cpu", torch.float64)
        assert moved.dtype == torch.float64 and process.dtype == torch.float32
        assert process.sample(3, make()).x.dtype == torch.float32
        assert process.to("cpu").mixing is process.mixing  # nothing to move, nothing copied

    def test_repr_names_the_parts(self) -> None:
        text = repr(PairProcess(BoxUniform(2), LAPLACE, None, LAPLACE, 3, 2))
        assert "BoxUniform" in text and "TruncatedLaplace" in text and "negatives_per_anchor=3" in text


class TestErrors:
    """What does not fit together is told when the process is made, not during training."""

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"mixing": InvertibleMLP(3, seed=0, candidates=5)}, "latents of length 3, but the marginal draws"),
            ({"mixing": nn.Linear(5, 5)}, r"The mixing failed on latents of shape \(4, 2\)"),
            ({"mixing": lambda z: z.sum()}, r"returned a tensor of shape \(\)"),
            ({"mixing": lambda z: z[:1]}, r"returned a tensor of shape \(1, 2\)"),
            ({"mixing": lambda z: z.numpy()}, "returned ndarray"),
            ({"mixing": lambda z: (z - 9).log()}, "The mixing returns NaN or infinite"),
            ({"negatives_per_anchor": 2}, "Hard negatives need both"),
            ({"negative_conditional": LAPLACE}, "Hard negatives need both"),
            ({"positives_per_anchor": 0}, "positives_per_anchor must be a whole number of at least 1"),
            ({"conditional": lambda z: Normal(z[:, :1], 1.0)}, "one distribution over vectors of length 2"),
            ({"conditional": lambda z: Normal(z.mean(), 1.0)}, "one distribution over vectors of length 2"),
            ({"marginal": BoxUniform(2, high=4.0)}, "cannot be placed at anchors"),
            ({"marginal": SphereUniform(2)}, "cannot be placed at anchors"),
            ({"marginal": BoxUniform(2, high=torch.ones(3, 2))}, "must be one distribution over vectors"),
            (
                {"conditional": lambda z: GeneralizedNormal(z, torch.inf, 1.0, validate_args=False)},
                "NaN or infin",
            ),
        ],
    )
    def test_parts_that_do_not_fit(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            PairProcess(**({"marginal": BoxUniform(2), "conditional": LAPLACE} | arguments))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"marginal": torch.zeros(2)}, "The marginal must be a distribution"),
            ({"conditional": 0.05}, "must be a Conditional or a function"),
            ({"conditional": None}, "must be a Conditional or a function"),
            ({"conditional": lambda z: z + 1}, "must return a distribution, not Tensor"),
            ({"mixing": 3}, "A mixing is"),
        ],
    )
    def test_things_that_are_no_parts(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(TypeError, match=message):
            PairProcess(**({"marginal": BoxUniform(2), "conditional": LAPLACE} | arguments))


def test_hard_negatives_closer_than_positives_are_warned_of() -> None:
    close = idt.Conditional(idt.FisherBingham, precision=(50.0, 5.0, 5.0))
    pairs = idt.Conditional(idt.FisherBingham, precision=(20.0, 20.0, 20.0))
    with pytest.warns(UserWarning, match="in coordinate 0 Λ⁻ is not below Λ⁺") as warned:
        process = idt.PairProcess(idt.SphereUniform(3), pairs, negative_conditional=close, negatives_per_anchor=2)
    assert warned[0].filename == __file__, "it names the line that made the process"
    for wide, tight in ((vmf(5.0), close), (vmf(5.0), vmf(5.0))):
        with pytest.warns(UserWarning, match="Λ⁻ is not below Λ⁺"):
            idt.PairProcess(idt.SphereUniform(3), wide, negative_conditional=tight, negatives_per_anchor=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        process.to(dtype=torch.float64)  # said once
        idt.PairProcess(idt.SphereUniform(3), close, negative_conditional=None)
        idt.PairProcess(idt.SphereUniform(3), vmf(6.0), negative_conditional=vmf(5.0), negatives_per_anchor=2)
