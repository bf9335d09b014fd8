"""R² of a map that was fitted elsewhere."""

from __future__ import annotations

import pytest
import torch

from identica.metrics import shifted_r2


def test_r2_of_a_map_fitted_elsewhere() -> None:
    generator = torch.Generator().manual_seed(0)
    z, z_new = (torch.randn(400, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    turn = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64))[0]
    codes = lambda x: x @ turn + 2.0  # noqa: E731
    assert shifted_r2(z, codes(z), (z_new, codes(z_new))).score == pytest.approx(1.0)
    # A map that is off by a constant c in the new place loses c²/variance.
    off = torch.tensor([0.0, 0.0, 3.0], dtype=torch.float64)
    expected = 1.0 - (9.0 / z_new[:, 2].var(correction=0).item()) / 3
    assert shifted_r2(z, z, (z_new, z_new + off)).score == pytest.approx(expected)
    nothing = torch.zeros(400, 2)
    assert shifted_r2(z, nothing, (z_new, nothing)).score == pytest.approx(0.0, abs=0.05)


def test_other_codes_than_those_fitted_on_get_a_sentence() -> None:
    z = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="2 factors and 1 codes, those fitted on 2 and 2"):
        shifted_r2(z, z, (z, z[:, :1]))
    with pytest.raises(TypeError, match=r"test is a tuple \(z, h\)"):
        shifted_r2(z, z, z)  # type: ignore[arg-type]
