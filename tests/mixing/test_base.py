from __future__ import annotations

import pytest
import torch
from torch import nn

from identica.mixing import FunctionMixing, InvertibleMLP, Mixing, as_mixing, mixing_from_dict, same_mixing


def test_none_stays_none_and_mixings_stay_themselves() -> None:
    mixing = InvertibleMLP(2, seed=0, candidates=5)
    assert as_mixing(None) is None
    assert as_mixing(mixing) is mixing


def test_functions_and_modules_become_mixings() -> None:
    z = torch.rand(3, 2)
    assert torch.equal(as_mixing(torch.exp)(z), z.exp())  # type: ignore[misc]
    decoder = nn.Sequential(nn.Linear(2, 8), nn.Unflatten(1, (2, 4)))
    mixing = as_mixing(decoder)
    assert isinstance(mixing, FunctionMixing)
    assert mixing(z).shape == (3, 2, 4)
    assert len(list(mixing.parameters())) == 2  # so that .to() reaches them
    assert mixing.to_dict() == {"mixing": "user function"}


def test_what_is_no_mixing_is_refused() -> None:
    with pytest.raises(TypeError, match="A mixing is"):
        as_mixing(3)  # type: ignore[arg-type]


def test_same_mixing() -> None:
    a, b, c = (InvertibleMLP(2, seed=seed, candidates=5) for seed in (0, 0, 1))
    assert same_mixing(a, b) and same_mixing(None, None)
    assert not same_mixing(a, c) and not same_mixing(a, None)
    b.weights += 1
    assert not same_mixing(a, b)
    assert same_mixing(as_mixing(torch.exp), as_mixing(torch.exp))
    assert not same_mixing(as_mixing(torch.exp), as_mixing(torch.sin))


def test_a_mixing_says_what_it_lacks() -> None:
    with pytest.raises(NotImplementedError, match="must implement forward"):
        Mixing()(torch.zeros(1, 2))
    with pytest.raises(NotImplementedError, match="no inverse"):
        FunctionMixing(torch.exp).inverse(torch.zeros(1, 2))


def test_unknown_descriptions_are_refused() -> None:
    with pytest.raises(ValueError, match="pass it again"):
        mixing_from_dict({"mixing": "user function"})
    with pytest.raises(ValueError, match="Unknown mixing 'spline'"):
        mixing_from_dict({"mixing": "spline"})
