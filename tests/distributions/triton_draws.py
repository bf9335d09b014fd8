"""What the tests of the fused samplers share: draws by Triton, on a GPU if there is one, else in its interpreter."""

from __future__ import annotations

import pytest
import torch

from identica.distributions import LatentDistribution
from identica.distributions.fused import computing_by

HAS_CUDA = torch.cuda.is_available()
DEVICE = "cuda" if HAS_CUDA else "cpu"
EPS = torch.finfo(torch.float32).eps
on_gpu = [pytest.mark.gpu, pytest.mark.skipif(not HAS_CUDA, reason="needs a CUDA device")]
few_and_many = pytest.mark.parametrize("rows", [20_000, pytest.param(2**20, marks=on_gpu)])
#: The interpreter's numpy warns of the logarithm of 0.
no_numpy_warnings = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def draw(family: LatentDistribution, shape: int | tuple[int, ...] = (), seed: int = 3) -> torch.Tensor:
    """Draws by the fused kernel, on the CPU."""
    with computing_by("triton"):
        return family.to(DEVICE).sample(shape, generator=torch.Generator(DEVICE).manual_seed(seed)).cpu()


def norms(x: torch.Tensor) -> torch.Tensor:
    return x.double().norm(dim=-1)


def in_box(rows: int, dim: int, seed: int = 1) -> torch.Tensor:
    """Locations in the unit box, some of them on its edges."""
    loc = torch.rand(rows, dim, generator=torch.Generator().manual_seed(seed))
    loc[::7], loc[1::7] = loc[::7].round(), (loc[1::7] * 1e-3)
    return loc
