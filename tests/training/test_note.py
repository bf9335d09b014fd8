"""What a step leaves behind: the fused kernel against torch's operations."""

from __future__ import annotations

import pytest
import torch

from identica.objectives import Terms
from identica.training.step import note

pytest.importorskip("triton")

from identica.training.triton_note import run_note  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("mark", ["here", pytest.param("gpu", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_terms_are_added_up_and_the_first_bad_step_is_kept(mark: str, shape: tuple[int, ...]) -> None:
    device = DEVICE if mark == "gpu" else "cpu"
    if mark == "here" and DEVICE == "cuda":
        pytest.skip("without the interpreter the kernel needs a GPU")

    def fresh() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return (
            torch.zeros(*shape, 5, dtype=torch.float64, device=device),
            torch.full(shape, -1, dtype=torch.int64, device=device),
            torch.zeros((), dtype=torch.int64, device=device),
        )

    ours, theirs = fresh(), [tensor.cpu() for tensor in fresh()]
    generator = torch.Generator().manual_seed(0)
    for step in range(6):
        values = [torch.randn(shape, generator=generator) for _ in range(5)]
        if step in (2, 4):  # of the last seed, or the only one
            values[0].view(-1)[-1] = torch.inf if step == 2 else torch.nan
        run_note(*ours, [value.to(device) for value in values])
        note(theirs[0], theirs[1], theirs[2], Terms(*values, per_item=values[0]))
    for mine, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.cpu(), expected, equal_nan=True)
    assert int(ours[2]) == 6
    assert ours[1].reshape(-1).tolist() == ([2] if shape == () else [-1, -1, 2])
