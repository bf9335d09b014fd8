# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""The depth buffer on the GPU; ``raster`` says how, in PyTorch. Each lane draws one triangle."""

from __future__ import annotations

import triton
import triton.language as tl

from identica.render import raster

TRIANGLE_BITS = tl.constexpr(raster.TRIANGLE_BITS)
DEPTH_LEVELS = tl.constexpr(raster.DEPTH_LEVELS)
#: Where a scene's projection begins among its parameters: three rows of four.
PROJECTION = tl.constexpr(30)
#: And the inverse depths that its depth levels begin and end with.
DEPTHS = tl.constexpr(42)


@triton.jit
def corner(corners, triangle, count, inside, K: tl.constexpr):
    """A corner of triangles in the object's space; ``corners``: (9, T), x y z of the first corner, then the others."""
    x = tl.load(corners + (3 * K) * count + triangle, mask=inside, other=0.0)
    y = tl.load(corners + (3 * K + 1) * count + triangle, mask=inside, other=0.0)
    z = tl.load(corners + (3 * K + 2) * count + triangle, mask=inside, other=0.0)
    return x, y, z


@triton.jit
def project(scene, point):
    """Column and row in samples, and the inverse depth."""
    m = scene + PROJECTION
    depth = tl.load(m + 8) * point[0] + tl.load(m + 9) * point[1] + tl.load(m + 10) * point[2] + tl.load(m + 11)
    inverse = 1.0 / tl.maximum(depth, 0.1)
    column = tl.load(m) * point[0] + tl.load(m + 1) * point[1] + tl.load(m + 2) * point[2] + tl.load(m + 3)
    row = tl.load(m + 4) * point[0] + tl.load(m + 5) * point[1] + tl.load(m + 6) * point[2] + tl.load(m + 7)
    return column * inverse, row * inverse, inverse


@triton.jit
def planes(a, b, c):
    """The slopes of the second and the third barycentric coordinate over the screen."""
    area = (b[0] - a[0]) * (c[1] - a[1]) - (c[0] - a[0]) * (b[1] - a[1])
    proper = tl.abs(area) >= 1e-9
    inverse = 1.0 / tl.where(proper, area, 1.0)
    return (
        (c[1] - a[1]) * inverse,
        (a[0] - c[0]) * inverse,
        (a[1] - b[1]) * inverse,
        (b[0] - a[0]) * inverse,
        proper,
    )


@triton.jit
def draw(
    scenes, corners, keys, frames, count,
    PARAMETERS: tl.constexpr, SIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Draw triangles into the depth buffers ``keys: (B, SIDE, SIDE)``; grid: (triangle blocks, scenes).

    ``frames: (B, 4)`` gets the least column and row that any triangle touches, and the least negative of both.
    """
    number = tl.program_id(1).to(tl.int64)
    scene = scenes + number * PARAMETERS
    keys += number * SIDE * SIDE
    frames += number * 4
    triangle = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = triangle < count
    a = project(scene, corner(corners, triangle, count, valid, 0))
    b = project(scene, corner(corners, triangle, count, valid, 1))
    c = project(scene, corner(corners, triangle, count, valid, 2))
    bx, by, cx, cy, proper = planes(a, b, c)
    left = tl.maximum(tl.ceil(tl.minimum(a[0], tl.minimum(b[0], c[0]))), 0.0)
    right = tl.minimum(tl.floor(tl.maximum(a[0], tl.maximum(b[0], c[0]))), SIDE - 1.0)
    top = tl.maximum(tl.ceil(tl.minimum(a[1], tl.minimum(b[1], c[1]))), 0.0)
    bottom = tl.minimum(tl.floor(tl.maximum(a[1], tl.maximum(b[1], c[1]))), SIDE - 1.0)
    active = valid & proper & (left <= right) & (top <= bottom)
    # Relaxed: read by later kernels alone. Otherwise each would wait for all memory and empty the cache beside it.
    tl.atomic_min(frames, tl.min(tl.where(active, left, 1e6), axis=0).to(tl.int32), sem="relaxed")
    tl.atomic_min(frames + 1, tl.min(tl.where(active, top, 1e6), axis=0).to(tl.int32), sem="relaxed")
    tl.atomic_min(frames + 2, tl.min(tl.where(active, -right, 1e6), axis=0).to(tl.int32), sem="relaxed")
    tl.atomic_min(frames + 3, tl.min(tl.where(active, -bottom, 1e6), axis=0).to(tl.int32), sem="relaxed")
    nearest = tl.load(scene + DEPTHS)
    scale = (DEPTH_LEVELS - 1.0) / (nearest - tl.load(scene + DEPTHS + 1))
    column = left
    row = top
    going = tl.max(active.to(tl.int32), axis=0)
    while going > 0:
        dx = column - a[0]
        dy = row - a[1]
        v = dx * bx + dy * by
        w = dx * cx + dy * cy
        u = 1.0 - v - w
        inverse = u * a[2] + v * b[2] + w * c[2]
        inside = active & (u >= 0.0) & (v >= 0.0) & (w >= 0.0)
        level = tl.clamp((nearest - inverse) * scale, 0.0, DEPTH_LEVELS - 1.0).to(tl.int32)
        at = (row * SIDE + column).to(tl.int32)
        tl.atomic_min(keys + at, (level << TRIANGLE_BITS) + triangle, mask=inside, sem="relaxed")
        column += 1.0
        wrapped = column > right
        row = tl.where(wrapped, row + 1.0, row)
        column = tl.where(wrapped, left, column)
        active = active & (row <= bottom)
        going = tl.max(active.to(tl.int32), axis=0)
