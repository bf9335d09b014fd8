import torch

from identica.diagnostics import block_identification, identification
from identica.metrics import block_scores, linear_r2, mcc


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


def block_verdict(z: torch.Tensor, h: torch.Tensor, precision: list[float]) -> tuple[str, str]:
    found = block_identification(block_scores(z, h, precision))
    return found.level, found.sentence


def test_a_low_mcc_within_blocks_is_the_success_it_is() -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.nn.functional.normalize(torch.randn(4000, 10, generator=generator), dim=1)
    turns = [torch.linalg.qr(torch.randn(5, 5, generator=generator))[0] for _ in range(2)]
    h = torch.cat([z[:, :5] @ turns[0], z[:, 5:] @ turns[1]], dim=1)
    level, sentence = block_verdict(z, h, [5.0] * 5 + [25.0] * 5)
    assert level == "block" and "of 5 and 5 factors" in sentence
    assert "random rotations of these blocks score 0.73 on average" in sentence
    assert verdict(z, h)[0] == "affine"  # what the two scores alone would say
    assert block_verdict(z, h, [5.0] * 10)[0] == "block"
    assert block_verdict(z, h[:, [9, 0, 1, 2, 3, 4, 5, 6, 7, 8]], [5.0] * 5 + [25.0] * 5)[0] == "block"


def test_mixed_blocks_lost_factors_and_single_factors_are_what_they_are() -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.nn.functional.normalize(torch.randn(4000, 4, generator=generator), dim=1)
    turn = torch.linalg.qr(torch.randn(4, 4, generator=generator))[0]
    precision = [5.0, 5.0, 25.0, 25.0]
    assert block_verdict(z, z @ turn, precision)[0] == "affine"
    assert block_verdict(z, z[:, [3, 1, 2, 0]], precision)[0] == "permutation"
    lost = torch.cat([z[:, 2:], torch.randn(4000, 2, generator=generator)], dim=1)
    assert block_verdict(z, lost, precision)[0] == "none"


def test_one_factor_decides_however_many_are_recovered() -> None:
    """A mean over many factors hides one that is lost or mixed."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(4000, 64, generator=generator)
    lost = torch.cat([torch.randn(4000, 1, generator=generator), z[:, 1:]], dim=1)
    level, sentence = verdict(z, lost)
    assert level == "none" and "1 of 64 factors" in sentence and "least of all factor 0" in sentence
    assert linear_r2(z, lost).score > 0.98 and mcc(z, lost).score > 0.98
    cos, sin = 0.75**0.5, 0.5
    mixed = z.clone()
    mixed[:, 3], mixed[:, 9] = cos * z[:, 3] - sin * z[:, 9], sin * z[:, 3] + cos * z[:, 9]
    level, sentence = verdict(z, mixed)
    assert level == "affine" and "so that 2 of 64 factors have no code of their own" in sentence
    precision = [5.0] * 4 + [25.0] * 60
    assert block_verdict(z, mixed, precision)[0] == "affine"  # 3 and 9 are of different blocks
    assert block_verdict(z, mixed, [25.0] * 64)[0] == "block"
    assert block_verdict(z, lost, [25.0] * 64)[0] == "none"
