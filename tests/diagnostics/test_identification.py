import torch

from identica.diagnostics import identification
from identica.metrics import linear_r2, mcc


def verdict(z: torch.Tensor, h: torch.Tensor) -> tuple[str, str]:
    found = identification(linear_r2(z, h), mcc(z, h))
    return found.level, found.sentence


def test_three_verdicts() -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.rand(2000, 4, generator=generator)
    rotation, _ = torch.linalg.qr(torch.randn(4, 4, generator=generator))
    assert verdict(z, -2 * z[:, [2, 0, 3, 1]] + 1)[0] == "permutation"
    level, sentence = verdict(z, z @ rotation)
    assert level == "affine" and "no single code is a factor" in sentence
    level, sentence = verdict(z, torch.cat([z[:, :3], torch.rand(2000, 1, generator=generator)], dim=1))
    assert level == "none" and "1 of 4 factors" in sentence
