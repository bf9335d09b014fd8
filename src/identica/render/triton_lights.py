# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""How bright a block of points is under one of the lights, on the GPU; ``lighting`` and ``shading`` in PyTorch.

Vectors are tuples of three. A light is described by ``centre`` (unused for the sun) and three directions: for the sun
and the area light the world's axes ``across``, ``along``, ``up``, and for the spotlight its ``axis``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from identica.render import formulas, lighting, scene
from identica.render.triton_formulas import (
    disk_irradiance,
    dot,
    reflect,
    square_irradiance,
    toward_disk,
    toward_square,
    toward_sun,
)
from identica.render.triton_tracing import clear, occluded

SUN = tl.constexpr(0)
SQUARE = tl.constexpr(1)
DISK = tl.constexpr(2)
SUN_IRRADIANCE = tl.constexpr(scene.SUN_IRRADIANCE)
SUN_REACH = tl.constexpr(lighting.SUN_REACH)
SUN_SLOPE = tl.constexpr(lighting.SUN_SLOPE)
SQUARE_RADIUS = tl.constexpr(lighting.SQUARE_RADIUS)
SPOT_RADIUS = tl.constexpr(scene.SPOT_RADIUS)
SPOT_COSINE = tl.constexpr(formulas.SPOT_COSINE)


@triton.jit
def middle_of(point, centre, up, LIGHT: tl.constexpr):
    """Direction to the light's middle, distance, and the slope of a cone that holds all of it."""
    if LIGHT == SUN:
        zero = point[0] * 0.0
        return (up[0] + zero, up[1] + zero, up[2] + zero), zero + SUN_REACH, zero + SUN_SLOPE
    else:
        radius = SQUARE_RADIUS if LIGHT == SQUARE else SPOT_RADIUS
        x = centre[0] - point[0]
        y = centre[1] - point[1]
        z = centre[2] - point[2]
        squared = x * x + y * y + z * z
        inverse = 1.0 / tl.sqrt(squared)
        slope = radius / tl.sqrt(tl.maximum(squared - radius * radius, 1e-4))
        return (x * inverse, y * inverse, z * inverse), squared * inverse, slope


@triton.jit
def sample_of(
    point, a, b, middle, distance, centre, across, along, up, axis, SAMPLES: tl.constexpr, LIGHT: tl.constexpr
):
    """Direction to a sample of the light, its distance, and the irradiance on a surface that faces it."""
    if LIGHT == SUN:
        zero = point[0] * 0.0
        return toward_sun(a, b, across, along, up), zero + SUN_REACH, zero + SUN_IRRADIANCE
    else:
        if LIGHT == SQUARE:
            to = toward_square(point, a, b, centre, across, along)
        else:
            to = toward_disk(middle, distance, a, b)
        squared = dot(to, to)
        inverse = 1.0 / tl.sqrt(squared)
        if LIGHT == SQUARE:
            weight = square_irradiance(dot(to, up), squared, 1.0 / SAMPLES)
        else:
            weight = disk_irradiance(-dot(to, axis), distance, inverse)
        return (to[0] * inverse, to[1] * inverse, to[2] * inverse), squared * inverse, weight


@triton.jit
def gather(
    values, patterns, variant, point, start, normal, view, middle, distance, centre, across, along, up, axis,
    active, any_near, CELL: tl.constexpr, NX: tl.constexpr, NY: tl.constexpr, NZ: tl.constexpr,
    SAMPLES: tl.constexpr, VARIANTS: tl.constexpr, SHADOWS: tl.constexpr, LIGHT: tl.constexpr,
):  # fmt: skip
    """Means over the light's samples: irradiance, and if any light is near, brightness with each one's reflection."""
    total = point[0] * 0.0
    tinted = point[0] * 0.0
    glossy = point[0] * 0.0
    nv = dot(normal, view)
    for k in range(SAMPLES):
        a = tl.load(patterns + k * VARIANTS + variant)
        b = tl.load(patterns + (SAMPLES + k) * VARIANTS + variant)
        way, length, weight = sample_of(point, a, b, middle, distance, centre, across, along, up, axis, SAMPLES, LIGHT)
        nl = dot(normal, way)
        weight *= tl.maximum(nl, 0.0)
        if SHADOWS:
            hidden = occluded(values, start, way, length * (1.0 / CELL), active & (weight > 0.0), NX, NY, NZ)
            weight = tl.where(hidden, 0.0, weight)
        total += weight
        if any_near > 0:
            first, second = reflect(nl, nv, dot(way, view))
            tinted += weight * first
            glossy += weight * second
    return total * (1.0 / SAMPLES), tinted * (1.0 / SAMPLES), glossy * (1.0 / SAMPLES)


@triton.jit
def lit(
    values, patterns, few_patterns, variant, point, start, normal, view, centre, across, along, up, axis,
    wanted, known_tinted, known_glossy, NEAR: tl.constexpr, CELL: tl.constexpr,
    NX: tl.constexpr, NY: tl.constexpr, NZ: tl.constexpr, SAMPLES: tl.constexpr, FEW: tl.constexpr,
    VARIANTS: tl.constexpr, KNOWN: tl.constexpr, LIGHT: tl.constexpr,
):  # fmt: skip
    """What the surface's colour is multiplied by, and what is added whatever its colour.

    wanted: which points count. KNOWN: the brightness without shadows is given. ``start``: where rays begin, in cells.
    """
    middle, distance, slope = middle_of(point, centre, up, LIGHT)
    nl = dot(normal, middle)
    reached = wanted & (nl > -slope)
    if LIGHT == DISK:
        cosine = -dot(middle, axis)
        sine = tl.sqrt(tl.maximum(1.0 - cosine * cosine, 0.0))
        reached = reached & (cosine + sine * slope > SPOT_COSINE)
    tinted = known_tinted
    glossy = known_glossy
    if tl.max(reached.to(tl.int32), axis=0) > 0:
        near = slope > NEAR
        any_near = tl.max((reached & near).to(tl.int32), axis=0)
        first, second = reflect(nl, dot(normal, view), dot(middle, view))
        if not KNOWN:
            total, tinted, glossy = gather(
                values, few_patterns, variant, point, start, normal, view, middle, distance, centre, across, along,
                up, axis, reached, any_near, CELL, NX, NY, NZ, FEW, VARIANTS, False, LIGHT,
            )  # fmt: skip
            tinted = tl.where(near, tinted, total * first)
            glossy = tl.where(near, glossy, total * second)
        free = clear(values, start, middle, distance * (1.0 / CELL), slope, reached, NX, NY, NZ)
        hidden = reached & (free == 0)
        if tl.max(hidden.to(tl.int32), axis=0) > 0:
            total, some, other = gather(
                values, patterns, variant, point, start, normal, view, middle, distance, centre, across, along,
                up, axis, hidden, any_near, CELL, NX, NY, NZ, SAMPLES, VARIANTS, True, LIGHT,
            )  # fmt: skip
            tinted = tl.where(hidden, tl.where(near, some, total * first), tinted)
            glossy = tl.where(hidden, tl.where(near, other, total * second), glossy)
    return tl.where(reached, tinted, 0.0), tl.where(reached, glossy, 0.0)
