# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Shadow rays and cones through the grid of distances, on the GPU; ``tracing`` says how, in PyTorch.

A block of rays advances together until its last ray has met the object or passed it. Positions and lengths are in
cells; NX, NY, NZ is the size of the grid.
"""

from __future__ import annotations

import triton
import triton.language as tl

from identica.render import tracing

SLACK = tl.constexpr(tracing.SLACK)
LEAST_STEP = tl.constexpr(tracing.LEAST_STEP)
STRIDE = tl.constexpr(tracing.STRIDE)
RAY_STEPS = tl.constexpr(tracing.RAY_STEPS)
CONE_STEPS = tl.constexpr(tracing.CONE_STEPS)
LEAST_SPARE = tl.constexpr(tracing.LEAST_SPARE)
BLIND = tl.constexpr(tracing.BLIND)
EDGE = tl.constexpr(tracing.EDGE)


@triton.jit
def clip(enter, leave, start, direction, N: tl.constexpr):
    """Where a ray is between two opposite faces of the grid, if it was between ``enter`` and ``leave`` before."""
    inverse = 1.0 / tl.where(tl.abs(direction) < 1e-9, 1e-9, direction)
    a = (EDGE - start) * inverse
    b = (N - EDGE - start) * inverse
    return tl.maximum(enter, tl.minimum(a, b)), tl.minimum(leave, tl.maximum(a, b))


@triton.jit
def occluded(values, start, way, length, active, NX: tl.constexpr, NY: tl.constexpr, NZ: tl.constexpr):
    """Which of the active rays meet the object before their length is over."""
    t, end = clip(length * 0.0 + BLIND, length, start[0], way[0], NX)
    t, end = clip(t, end, start[1], way[1], NY)
    t, end = clip(t, end, start[2], way[2], NZ)
    active = active & (t < end)
    hit = active & (t > end)  # none yet
    least = t * 0.0 + LEAST_STEP
    going = tl.max(active.to(tl.int32), axis=0)
    step = 0
    while going > 0:
        x = (start[0] + way[0] * t).to(tl.int32)
        y = (start[1] + way[1] * t).to(tl.int32)
        z = (start[2] + way[2] * t).to(tl.int32)
        value = tl.load(values + (x * NY + y) * NZ + z, mask=active, other=1.0).to(tl.float32)
        hit = hit | (active & (value < 0.0))
        t += tl.maximum(value - SLACK, least)
        least += STRIDE
        active = active & (value >= 0.0) & (t < end)
        step += 1
        going = tl.where(step < RAY_STEPS, tl.max(active.to(tl.int32), axis=0), 0)
    return hit


@triton.jit
def clear(values, start, way, length, slope, active, NX: tl.constexpr, NY: tl.constexpr, NZ: tl.constexpr):
    """Which of the active cones, of radius slope · t at distance t, surely miss the object."""
    t = length * 0.0 + BLIND
    free = active & (t < 0.0)  # none yet
    going = tl.max(active.to(tl.int32), axis=0)
    step = 0
    while going > 0:
        px = start[0] + way[0] * t
        py = start[1] + way[1] * t
        pz = start[2] + way[2] * t
        x = tl.clamp(px, 0.0, NX - EDGE)
        y = tl.clamp(py, 0.0, NY - EDGE)
        z = tl.clamp(pz, 0.0, NZ - EDGE)
        index = (x.to(tl.int32) * NY + y.to(tl.int32)) * NZ + z.to(tl.int32)
        value = tl.load(values + index, mask=active, other=1.0).to(tl.float32) - SLACK
        away = (px - x) * (px - x) + (py - y) * (py - y) + (pz - z) * (pz - z)
        outside = tl.maximum(value, 0.0)
        value = tl.where(away > 0.0, tl.sqrt(away + outside * outside), value)
        spare = value - slope * t
        t += spare / (1.0 + slope)
        through = t >= length
        free = free | (active & through)
        active = active & (spare > LEAST_SPARE) & (through == 0)
        step += 1
        going = tl.where(step < CONE_STEPS, tl.max(active.to(tl.int32), axis=0), 0)
    return free
