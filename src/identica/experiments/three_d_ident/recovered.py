"""A few latents and what a model recovers of them, small enough for a receipt: a report draws both."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from identica.metrics.regression import column_scale, orthonormal_basis
from identica.training import Evaluation

#: Latents in a receipt; of ten factors they take 14 kB.
SHOWN = 128
#: They are kept as whole numbers of this unit.
UNIT = 1e-3


def mapped(evaluation: Evaluation, codes: Tensor) -> Tensor:
    """ẑ = A h + b for codes ``h: (n, k)``, with A and b the least-squares fit to an evaluation's sample: ``(n, d)``."""
    z, h = evaluation.z.double(), evaluation.h.double()
    middle, mean = z.mean(dim=0), h.mean(dim=0)
    scale = column_scale(h - mean)
    basis, whitening = orthonormal_basis((h - mean) / scale)
    return middle + (codes.double() - mean) / scale @ whitening @ (basis.T @ (z - middle))


def recovered(evaluation: Evaluation, latents: Tensor, codes: Tensor) -> dict[str, Any]:
    """True latents ``(n, d)`` and what an affine map makes of their codes ``(n, k)``, as plain data.

    The map is fitted on the evaluation's sample, which must not contain these latents. Raises ValueError for codes
    that are not finite.
    """
    found = mapped(evaluation, codes)
    if not bool(found.isfinite().all()):
        raise ValueError("The codes of the latents to be shown are not finite.")
    return {"unit": UNIT, "true": _whole(latents), "recovered": _whole(found)}


def _whole(values: Tensor) -> list[list[int]]:
    return [[round(value / UNIT) for value in row] for row in values.double().tolist()]
