"""A kernel that calls some of the shared formulas, for a test."""

from __future__ import annotations

import triton
import triton.language as tl

from identica.render.triton_formulas import reflect, to_srgb


@triton.jit
def probe(nl_ptr, nv_ptr, out, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Reflection for SIZE pairs of cosines."""
    at = tl.arange(0, SIZE)
    nl, nv = tl.load(nl_ptr + at), tl.load(nv_ptr + at)
    tinted, glossy = reflect(nl, nv, nl * nv)
    tl.store(out + at, tinted)
    tl.store(out + SIZE + at, glossy)
    tl.store(out + 2 * SIZE + at, to_srgb(glossy))
