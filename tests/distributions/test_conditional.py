from __future__ import annotations

import json

import pytest
import torch

import identica as idt

EVERY = [
    idt.Conditional(idt.VonMisesFisher, concentration=3.0),
    idt.Conditional(idt.FisherBingham, precision=(5.0, 5.0, 25.0)),
    idt.Conditional(idt.ProjectedNormal, scale=0.1),
    idt.Conditional(idt.ProjectedLaplace, scale=0.1),
    idt.Conditional(idt.ProjectedGeneralizedNormal, scale=0.1, power=3.0),
    idt.Conditional(idt.GeneralizedNormal, scale=0.1, power=1.5),
    idt.Conditional(idt.TruncatedNormal, scale=0.1),
    idt.Conditional(idt.TruncatedLaplace, scale=0.1, low=-1.0),
    idt.Conditional(idt.TruncatedGeneralizedNormal, scale=0.1, power=3.0),
]


def anchors_for(conditional: idt.Conditional, n: int = 6) -> torch.Tensor:
    on_sphere = "Projected" in repr(conditional) or conditional.family in (idt.VonMisesFisher, idt.FisherBingham)
    marginal = idt.SphereUniform(3) if on_sphere else idt.BoxUniform(3)
    return marginal.sample(n, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("conditional", EVERY, ids=str)
def test_checked_and_unchecked_draw_the_same(conditional: idt.Conditional) -> None:
    anchors = anchors_for(conditional)
    direct = conditional.family(
        anchors, **{k: torch.tensor(v) if isinstance(v, tuple) else v for k, v in conditional.items}
    )
    draws = [
        d.sample((2,), torch.Generator().manual_seed(1))
        for d in (conditional(anchors), conditional.unchecked(anchors), direct)
    ]
    assert draws[0].shape == (2, 6, 3)
    assert torch.equal(draws[0], draws[1])
    if conditional.family is not idt.FisherBingham:  # its prepared bounds take other paths to the same law
        assert torch.equal(draws[0], draws[2])


@pytest.mark.parametrize("conditional", EVERY, ids=str)
def test_plain_data_there_and_back(conditional: idt.Conditional) -> None:
    again = idt.Conditional.from_dict(json.loads(json.dumps(conditional.to_dict())))
    assert again == conditional and hash(again) == hash(conditional)


@pytest.mark.parametrize("conditional", EVERY, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_precision_follows_the_anchors(conditional: idt.Conditional, dtype: torch.dtype) -> None:
    anchors = anchors_for(conditional).to(dtype)
    if "Projected" in repr(conditional) or conditional.family in (idt.VonMisesFisher, idt.FisherBingham):
        anchors = idt.Sphere(3).project(anchors)
    assert conditional.prepare("cpu", dtype).unchecked(anchors).sample().dtype == dtype


@pytest.mark.parametrize("conditional", [c for c in EVERY if "Projected" not in repr(c)], ids=str)
def test_the_matching_similarity_is_the_log_density_up_to_a_constant_per_anchor(conditional: idt.Conditional) -> None:
    """The densities come from log_prob, which other tests compare with quadrature."""
    anchors = anchors_for(conditional, 4).double()
    if conditional.family in (idt.VonMisesFisher, idt.FisherBingham):
        anchors = idt.Sphere(3).project(anchors)
        values = idt.SphereUniform(3, torch.tensor(1.0, dtype=torch.float64)).sample(
            (5, 1), torch.Generator().manual_seed(3)
        )
    else:
        values = idt.BoxUniform(3, torch.tensor(0.0, dtype=torch.float64)).sample(
            (5, 1), torch.Generator().manual_seed(3)
        )
    difference = conditional(anchors).log_prob(values) - conditional.similarity().double()(anchors, values)
    assert difference.shape == (5, 4)
    torch.testing.assert_close(difference, difference[:1].expand_as(difference), rtol=0, atol=1e-6)


def test_without_a_match_there_is_a_sentence() -> None:
    with pytest.raises(ValueError, match="ProjectedNormal has no similarity that matches"):
        idt.Conditional(idt.ProjectedNormal, scale=0.1).similarity()


def test_frozen_equal_and_hashable() -> None:
    a, b = (idt.Conditional(idt.FisherBingham, precision=p) for p in (torch.tensor([1.0, 2.0]), [1.0, 2.0]))
    assert a == b and len({a, b}) == 1
    assert a != idt.Conditional(idt.FisherBingham, precision=[1.0, 3.0])
    with pytest.raises(AttributeError):
        a.family = idt.VonMisesFisher  # type: ignore[misc]
    assert repr(a) == "Conditional(FisherBingham, precision=(1.0, 2.0))"


@pytest.mark.parametrize(
    ("family", "parameters", "words"),
    [
        (idt.VonMisesFisher, {"kappa": 1.0}, "no parameter 'kappa' besides its loc; it has concentration"),
        (idt.VonMisesFisher, {}, "also needs concentration"),
        (idt.TruncatedLaplace, {"scale": "wide"}, "scale must be a number"),
        (idt.SphereUniform, {"radius": 1.0}, "families with a loc"),
        (torch.distributions.Normal, {"scale": 1.0}, "can be used directly in its place"),
    ],
)
def test_mistakes_get_a_sentence(family: type, parameters: dict[str, object], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        idt.Conditional(family, **parameters)


def test_bad_values_and_anchors_get_a_sentence() -> None:
    with pytest.raises(ValueError, match="scale"):
        idt.Conditional(idt.TruncatedLaplace, scale=-0.1)(torch.rand(3, 2))
    with pytest.raises(ValueError, match="loc"):
        idt.Conditional(idt.TruncatedLaplace, scale=0.1)(torch.rand(3, 2) + 2)
    with pytest.raises(ValueError, match="No such family 'Cauchy'"):
        idt.Conditional.from_dict({"family": "Cauchy", "parameters": {}})


def test_tables_are_built_once() -> None:
    conditional = idt.Conditional(idt.TruncatedGeneralizedNormal, scale=0.1, power=3.0)
    conditional.prepare("cpu", torch.float32)
    prepared = conditional._prepared[(torch.device("cpu"), torch.float32)]
    conditional.unchecked(torch.rand(4, 2)).sample()
    assert conditional._prepared[(torch.device("cpu"), torch.float32)] is prepared


def test_whole_numbers_as_anchors_do_not_truncate_the_parameters() -> None:
    conditional = idt.Conditional(idt.VonMisesFisher, concentration=1.7)
    assert conditional(torch.tensor([[1, 0, 0]])).concentration.item() == pytest.approx(1.7)
    assert conditional([[1.0, 0.0, 0.0]]).batch_shape == (1,)  # type: ignore[arg-type]


def test_first_used_in_inference_mode_it_still_has_gradients_later() -> None:
    conditional = idt.Conditional(idt.TruncatedLaplace, scale=0.1)
    with torch.inference_mode():
        conditional(torch.rand(4, 3)).sample()
    anchors = torch.rand(4, 3, requires_grad=True)
    conditional(anchors).rsample().sum().backward()
    assert anchors.grad is not None


@pytest.mark.parametrize("nothing", [[], (), torch.empty(0), [[]]])
def test_parameters_without_a_number_are_a_sentence(nothing: object) -> None:
    with pytest.raises(ValueError, match="precision must be a number or one number per coordinate"):
        idt.Conditional(idt.FisherBingham, precision=nothing)
