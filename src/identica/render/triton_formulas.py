# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""The formulas of ``formulas``, compiled for the GPU from the very same source."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import triton
import triton.language as tl

from identica.render import formulas


def _compile() -> dict[str, Any]:
    """Every function of ``formulas`` as a Triton function: its code, with Triton's language where PyTorch was."""
    compiled: dict[str, Any] = {"xp": tl, "Number": tl.tensor, "Vector": tl.tensor}  # the last two for annotations
    for name, function in vars(formulas).items():
        if isinstance(function, FunctionType) and function.__module__ == formulas.__name__:
            twin = FunctionType(function.__code__, compiled, name, function.__defaults__, function.__closure__)
            twin.__module__ = __name__
            compiled[name] = triton.jit(twin)
    return compiled


_compiled = _compile()

dot = _compiled["dot"]
toward_sun = _compiled["toward_sun"]
toward_square = _compiled["toward_square"]
toward_disk = _compiled["toward_disk"]
square_irradiance = _compiled["square_irradiance"]
disk_irradiance = _compiled["disk_irradiance"]
reflect = _compiled["reflect"]
to_srgb = _compiled["to_srgb"]
