"""Statistical tests with a stated false-alarm rate.

Every function here fails a correct sampler with probability at most ``false_alarm`` over the choice of
seed; the seeds are fixed, so a test that passes once passes always, until the sampler changes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy import stats

FALSE_ALARM = 1e-6


def assert_law(draws: torch.Tensor, cdf: Callable[[np.ndarray], np.ndarray], false_alarm: float = FALSE_ALARM) -> None:
    """One-sample Kolmogorov-Smirnov: ``draws: (n,)`` follow the exact one-dimensional law ``cdf``."""
    p_value = stats.kstest(draws.double().cpu().numpy(), cdf).pvalue
    assert p_value > false_alarm, f"KS rejects the law: p = {p_value:.2e}"


def assert_same_law(a: torch.Tensor, b: torch.Tensor, false_alarm: float = FALSE_ALARM) -> None:
    """Two-sample Kolmogorov-Smirnov on each column of ``a: (n, k)`` and ``b: (m, k)``, Bonferroni-corrected."""
    a, b = (x.double().cpu().numpy().reshape(len(x), -1) for x in (a, b))
    p_values = [stats.ks_2samp(a[:, j], b[:, j]).pvalue for j in range(a.shape[1])]
    worst = min(p_values) * a.shape[1]
    assert worst > false_alarm, f"two-sample KS rejects equality: corrected p = {worst:.2e}"


def assert_mean(draws: torch.Tensor, expected: torch.Tensor, false_alarm: float = FALSE_ALARM) -> None:
    """Each column of ``draws: (n, k)`` has the expected mean: z-test with the sample's own deviation."""
    draws = draws.double().reshape(len(draws), -1)
    expected = torch.as_tensor(expected).double().reshape(-1)
    error = draws.std(dim=0) / len(draws) ** 0.5
    z = ((draws.mean(dim=0) - expected) / error.clamp_min(1e-300)).abs().max().item()
    limit = stats.norm.isf(false_alarm / (2 * draws.shape[1]))
    assert z < limit, f"a mean is {z:.1f} standard errors off (limit {limit:.1f})"
