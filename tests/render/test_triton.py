"""The kernels draw what PyTorch draws: in Triton's interpreter at a tiny size, and on a GPU at a real one."""

from __future__ import annotations

import pytest
import torch

from identica.render import formulas
from identica.render.scene import place
from identica.render.torch_renderer import Settings, TorchRenderer

triton = pytest.importorskip("triton")

from identica.render.triton_renderer import Blocks, TritonRenderer, band, parameters  # noqa: E402

TINY = Settings(supersampling=1, ground_step=4, object_samples=2, ground_samples=2, cell=0.0968, near=0.15)


def psnr(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(-10.0 * (a.double() - b.double()).square().mean().log10())


def latents_of(count: int) -> torch.Tensor:
    return torch.rand(count, 10, generator=torch.Generator().manual_seed(2)) * 2 - 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="the interpreter is not used where there is a GPU")
@pytest.mark.parametrize("tiles_of_a_gpu", [False, True])
def test_interpreted_kernels_draw_what_pytorch_draws(tiles_of_a_gpu: bool) -> None:
    placement = place(latents_of(1))
    renderer = TritonRenderer(16, TINY, torch.device("cpu"))
    if tiles_of_a_gpu:  # but for what only says how many programs there are, each of which takes its time here
        renderer.blocks = Blocks(triangles=1024, sharers=3)
    try:
        torch.set_default_dtype(torch.float64)  # which is nothing to the kernels
        got = renderer.render(placement, torch.float32)
    finally:
        torch.set_default_dtype(torch.float32)
    want = TorchRenderer(16, TINY, torch.device("cpu")).render(placement, torch.float32)
    assert got.shape == want.shape == (1, 3, 16, 16)
    assert psnr(got, want) > 60.0


@pytest.mark.gpu
@pytest.mark.parametrize("quality", ["standard", "high"])
def test_a_gpu_draws_what_a_cpu_draws(quality: str) -> None:
    from identica.render import ThreeDIdentScene

    scene, latents = ThreeDIdentScene(64, quality=quality), latents_of(16)  # type: ignore[arg-type]
    got = scene.render(latents.cuda(), dtype=torch.float32)
    want = scene.render(latents, dtype=torch.float32)
    assert got.device.type == "cuda"
    assert min(psnr(a, b) for a, b in zip(got.cpu(), want, strict=True)) > 50.0
    assert (scene.render(latents.cuda()) == scene.render(latents.cuda())).all()


def test_parameters_project_as_pytorch_does() -> None:
    """The rows of numbers that kernels get: the projection of the origin is that of the scene's location."""
    placement = place(latents_of(3))
    numbers = parameters(placement, resolution=64, supersampling=2)
    assert numbers.shape == (3, 48)
    column, row, depth = (numbers[:, 30 + 4 * k + 3] for k in range(3))
    from identica.render import raster

    for k in range(3):
        screen = raster.project(torch.zeros(1, 3), placement.rotation[k], placement.location[k], 64, 2)[:, 0]
        torch.testing.assert_close(torch.stack([column[k] / depth[k], row[k] / depth[k], 1 / depth[k]]), screen)


def test_bands() -> None:
    matrix = torch.tensor([[0.0, 1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 3.0], [4.0, 5.0, 6.0, 0.0, 0.0]])
    first, weights = band(matrix)
    rebuilt = torch.zeros_like(matrix)
    rebuilt.scatter_(1, first.long()[:, None] + torch.arange(weights.shape[1]), weights)
    assert weights.shape == (3, 3) and (rebuilt == matrix).all()


@pytest.mark.skipif(torch.cuda.is_available(), reason="the interpreter is not used where there is a GPU")
def test_one_source_of_formulas() -> None:
    """What Triton compiles is the very text that PyTorch runs, and gives the same numbers."""
    from tests.render.triton_probe import probe

    generator = torch.Generator().manual_seed(0)
    nl, nv = torch.rand(2, 64, generator=generator)
    out = torch.empty(3, 64)
    probe[(1,)](nl, nv, out, SIZE=64)
    tinted, glossy = formulas.reflect(nl, nv, nl * nv)
    torch.testing.assert_close(out, torch.stack([tinted, glossy, formulas.to_srgb(glossy)]))
