# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""The kernels that light the ground and the object and put the picture together.

A scene's parameters, one row of numbers: the world's axes in the object's space (9), there also the camera (3), the
area light's centre (3), the spotlight's (3) and its axis (3); the colours of object, spotlight and ground (9); the
projection (12) and its depths (2); the scene's location in the world (3).
"""

from __future__ import annotations

import triton
import triton.language as tl

from identica.render import raster
from identica.render.triton_formulas import dot, to_srgb
from identica.render.triton_lights import lit
from identica.render.triton_raster import corner, planes, project

EMPTY = tl.constexpr(raster.EMPTY)
MARGIN = tl.constexpr(raster.MARGIN)
TRIANGLE_MASK = tl.constexpr((1 << raster.TRIANGLE_BITS) - 1)


@triton.jit
def load3(pointer):
    """Three numbers that follow one another."""
    return tl.load(pointer), tl.load(pointer + 1), tl.load(pointer + 2)


@triton.jit
def store_mix(out, plane, at, mask, colour, spot, sun, square, disk):
    """Write three planes of colour: what sun, area light and spotlight give to a surface of a colour."""
    for channel in tl.static_range(3):
        white = colour[channel] * (sun[0] + square[0]) + sun[1] + square[1]
        value = white + spot[channel] * (colour[channel] * disk[0] + disk[1])
        tl.store(out + channel * plane + at, value, mask=mask)


@triton.jit
def light_ground(
    scenes, values, disk_patterns, square_patterns, few_disk, variants, points, views, known, out,
    low_x, low_y, low_z, count, PARAMETERS: tl.constexpr, NEAR: tl.constexpr, CELL: tl.constexpr,
    NX: tl.constexpr, NY: tl.constexpr, NZ: tl.constexpr, SAMPLES: tl.constexpr, SPOT_FEW: tl.constexpr,
    VARIANTS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The ground's colour at its count × count points: ``out (B, 3, count, count)``; grid: (tiles, scenes).

    points, views: (3, count²), in the world. known: (4, count²), sun and area light without shadows.
    """
    number = tl.program_id(1).to(tl.int64)
    scene = scenes + number * PARAMETERS
    lane = tl.arange(0, BLOCK)
    across_tiles = (count + WIDTH - 1) // WIDTH
    column = (tl.program_id(0) % across_tiles) * WIDTH + lane % WIDTH
    row = (tl.program_id(0) // across_tiles) * (BLOCK // WIDTH) + lane // WIDTH
    mask = (column < count) & (row < count)
    at = tl.where(mask, row * count + column, 0)
    total = count * count
    across = load3(scene)
    along = load3(scene + 3)
    up = load3(scene + 6)
    location = load3(scene + 44)
    x = tl.load(points + at) - location[0]
    y = tl.load(points + total + at) - location[1]
    z = tl.load(points + 2 * total + at) - location[2]
    point = (
        x * across[0] + y * along[0] + z * up[0],
        x * across[1] + y * along[1] + z * up[1],
        x * across[2] + y * along[2] + z * up[2],
    )
    x = tl.load(views + at)
    y = tl.load(views + total + at)
    z = tl.load(views + 2 * total + at)
    view = (
        x * across[0] + y * along[0] + z * up[0],
        x * across[1] + y * along[1] + z * up[1],
        x * across[2] + y * along[2] + z * up[2],
    )
    zero = x * 0.0
    normal = (up[0] + zero, up[1] + zero, up[2] + zero)
    start = (
        (point[0] - low_x) * (1.0 / CELL) + 0.5,
        (point[1] - low_y) * (1.0 / CELL) + 0.5,
        (point[2] - low_z) * (1.0 / CELL) + 0.5,
    )
    variant = tl.load(variants + at)
    square_centre = load3(scene + 12)
    sun = lit(
        values, disk_patterns, few_disk, variant, point, start, normal, view, square_centre, across, along, up, up,
        mask, tl.load(known + at), tl.load(known + total + at), NEAR, CELL, NX, NY, NZ, SAMPLES, SPOT_FEW, VARIANTS,
        True, 0,
    )  # fmt: skip
    square = lit(
        values, square_patterns, few_disk, variant, point, start, normal, view, square_centre, across, along, up, up,
        mask, tl.load(known + 2 * total + at), tl.load(known + 3 * total + at), NEAR, CELL, NX, NY, NZ, SAMPLES,
        SPOT_FEW, VARIANTS, True, 1,
    )  # fmt: skip
    disk = lit(
        values, disk_patterns, few_disk, variant, point, start, normal, view, load3(scene + 15), across, along, up,
        load3(scene + 18), mask, zero, zero, NEAR, CELL, NX, NY, NZ, SAMPLES, SPOT_FEW, VARIANTS, False, 2,
    )  # fmt: skip
    colour = load3(scene + 27)
    store_mix(out + number * 3 * total, total, at, mask, colour, load3(scene + 24), sun, square, disk)


@triton.jit
def light_object(
    scenes, values, disk_patterns, square_patterns, few_sun, few_square, few_disk, corners, normals, triangles,
    keys, frames, order, spread, spread_first, ground, out, low_x, low_y, low_z, side, count,
    PARAMETERS: tl.constexpr, LIFT: tl.constexpr, NEAR: tl.constexpr, CELL: tl.constexpr,
    NX: tl.constexpr, NY: tl.constexpr, NZ: tl.constexpr, SAMPLES: tl.constexpr, SUN_FEW: tl.constexpr,
    SQUARE_FEW: tl.constexpr, SPOT_FEW: tl.constexpr, VARIANTS: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """What the object adds to the ground behind it, where it is seen: ``out (B, 3, side, side)``.

    Grid: (programs, scenes); the programs of a scene share the tiles of the object's frame. Nothing is written where
    the key is EMPTY.
    """
    number = tl.program_id(1).to(tl.int64)
    scene = scenes + number * PARAMETERS
    keys += number * side * side
    frames += number * 4
    height: tl.constexpr = BLOCK // WIDTH
    plane = side * side
    lane = tl.arange(0, BLOCK)
    left = tl.load(frames)
    top = tl.load(frames + 1)
    tiles_across = (-tl.load(frames + 2) - left + WIDTH) // WIDTH  # none or fewer if nothing was drawn
    tiles_down = (-tl.load(frames + 3) - top + height) // height
    tiles = tl.maximum(tiles_across, 0) * tl.maximum(tiles_down, 0)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        column = left + (tile % tiles_across) * WIDTH + lane % WIDTH
        row = top + (tile // tiles_across) * height + lane // WIDTH
        mask = (column < side) & (row < side)
        at = tl.where(mask, row * side + column, 0)
        key = tl.load(keys + at, mask=mask, other=EMPTY)
        mask = key != EMPTY
        if tl.max(mask.to(tl.int32), axis=0) > 0:
            triangle = tl.where(mask, key & TRIANGLE_MASK, 0)
            point, normal, view = surface_at(scene, corners, normals, triangle, triangles, column, row)
            across = load3(scene)
            along = load3(scene + 3)
            up = load3(scene + 6)
            start = (
                (point[0] + LIFT * normal[0] - low_x) * (1.0 / CELL) + 0.5,
                (point[1] + LIFT * normal[1] - low_y) * (1.0 / CELL) + 0.5,
                (point[2] + LIFT * normal[2] - low_z) * (1.0 / CELL) + 0.5,
            )
            variant = tl.load(order + (row % 4) * 4 + column % 4)
            zero = point[0] * 0.0
            square_centre = load3(scene + 12)
            sun = lit(
                values, disk_patterns, few_sun, variant, point, start, normal, view, square_centre, across, along,
                up, up, mask, zero, zero, NEAR, CELL, NX, NY, NZ, SAMPLES, SUN_FEW, VARIANTS, False, 0,
            )  # fmt: skip
            square = lit(
                values, square_patterns, few_square, variant, point, start, normal, view, square_centre, across,
                along, up, up, mask, zero, zero, NEAR, CELL, NX, NY, NZ, SAMPLES, SQUARE_FEW, VARIANTS, False, 1,
            )  # fmt: skip
            disk = lit(
                values, disk_patterns, few_disk, variant, point, start, normal, view, load3(scene + 15), across,
                along, up, load3(scene + 18), mask, zero, zero, NEAR, CELL, NX, NY, NZ, SAMPLES, SPOT_FEW, VARIANTS,
                False, 2,
            )  # fmt: skip
            colour = load3(scene + 21)
            spot = load3(scene + 24)
            for channel in tl.static_range(3):
                white = colour[channel] * (sun[0] + square[0]) + sun[1] + square[1]
                value = white + spot[channel] * (colour[channel] * disk[0] + disk[1])
                behind = ground_at(
                    ground + (number * 3 + channel) * count * count, spread, spread_first, column, row, mask, count
                )
                tl.store(out + (number * 3 + channel) * plane + at, value - behind, mask=mask)


@triton.jit
def surface_at(scene, corners, normals, triangle, triangles, column, row):
    """Point, normal towards the camera and direction to it, of a triangle at a sample, in the object's space."""
    every = triangle >= 0
    p = corner(corners, triangle, triangles, every, 0)
    q = corner(corners, triangle, triangles, every, 1)
    r = corner(corners, triangle, triangles, every, 2)
    a = project(scene, p)
    b = project(scene, q)
    c = project(scene, r)
    bx, by, cx, cy, _ = planes(a, b, c)
    dx = column - a[0]
    dy = row - a[1]
    v = dx * bx + dy * by
    w = dx * cx + dy * cy
    u = (1.0 - v - w) * a[2]
    v = v * b[2]
    w = w * c[2]
    scale = 1.0 / (u + v + w)
    u *= scale
    v *= scale
    w *= scale
    point = (u * p[0] + v * q[0] + w * r[0], u * p[1] + v * q[1] + w * r[1], u * p[2] + v * q[2] + w * r[2])
    camera = load3(scene + 9)
    x = camera[0] - point[0]
    y = camera[1] - point[1]
    z = camera[2] - point[2]
    inverse = 1.0 / tl.sqrt(x * x + y * y + z * z)
    view = (x * inverse, y * inverse, z * inverse)
    e = (q[0] - p[0], q[1] - p[1], q[2] - p[2])
    f = (r[0] - p[0], r[1] - p[1], r[2] - p[2])
    face = (e[1] * f[2] - e[2] * f[1], e[2] * f[0] - e[0] * f[2], e[0] * f[1] - e[1] * f[0])
    i = corner(normals, triangle, triangles, every, 0)
    j = corner(normals, triangle, triangles, every, 1)
    k = corner(normals, triangle, triangles, every, 2)
    x = u * i[0] + v * j[0] + w * k[0]
    y = u * i[1] + v * j[1] + w * k[1]
    z = u * i[2] + v * j[2] + w * k[2]
    inverse = tl.where(dot(face, view) < 0.0, -1.0, 1.0) / tl.sqrt(x * x + y * y + z * z)
    return point, (x * inverse, y * inverse, z * inverse), view


@triton.jit
def ground_at(ground, spread, spread_first, column, row, mask, count):
    """The ground's colour at a sample, interpolated from four by four of its points."""
    x = tl.load(spread_first + column, mask=mask, other=0)
    y = tl.load(spread_first + row, mask=mask, other=0)
    value = mask.to(tl.float32) * 0.0
    for i in range(4):  # not unrolled: each load would cost the compiler half a second
        line = value * 0.0
        for j in range(4):
            weight = tl.load(spread + column * 4 + j, mask=mask, other=0.0)
            line += weight * tl.load(ground + (y + i) * count + x + j, mask=mask, other=0.0)
        value += tl.load(spread + row * 4 + i, mask=mask, other=0.0) * line
    return value


@triton.jit
def resolve(
    keys, frames, difference, ground, weights, ground_weights, ground_first, out, SIDE: tl.constexpr,
    RESOLUTION: tl.constexpr, SUPERSAMPLING: tl.constexpr, COUNT: tl.constexpr, TAPS: tl.constexpr,
    BYTES: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The picture, ``out (B, 3, RESOLUTION, RESOLUTION)``: filtered ground, and what the object adds to it.

    Grid: (tiles, scenes). ground_weights: (RESOLUTION, TAPS), from the point ground_first: (RESOLUTION,) on.
    """
    number = tl.program_id(1).to(tl.int64)
    height: tl.constexpr = BLOCK // WIDTH
    across_tiles: tl.constexpr = (RESOLUTION + WIDTH - 1) // WIDTH
    lane = tl.arange(0, BLOCK)
    first_column = (tl.program_id(0) % across_tiles) * WIDTH
    first_row = (tl.program_id(0) // across_tiles) * height
    column = first_column + lane % WIDTH
    row = first_row + lane // WIDTH
    mask = (column < RESOLUTION) & (row < RESOLUTION)
    x = tl.load(ground_first + column, mask=mask, other=0)
    y = tl.load(ground_first + row, mask=mask, other=0)
    red = mask.to(tl.float32) * 0.0
    green = red
    blue = red
    points: tl.constexpr = COUNT * COUNT
    ground += number * 3 * points
    for i in range(TAPS):
        vertical = tl.load(ground_weights + row * TAPS + i, mask=mask, other=0.0)
        for j in range(TAPS):
            weight = vertical * tl.load(ground_weights + column * TAPS + j, mask=mask, other=0.0)
            at = (y + i) * COUNT + x + j
            red += weight * tl.load(ground + at, mask=mask, other=0.0)
            green += weight * tl.load(ground + points + at, mask=mask, other=0.0)
            blue += weight * tl.load(ground + 2 * points + at, mask=mask, other=0.0)
    frames += number * 4
    # In samples: the filter reaches one and a half pixels beyond a pixel's centre
    left = (first_column + MARGIN - 1) * SUPERSAMPLING
    top = (first_row + MARGIN - 1) * SUPERSAMPLING
    wide: tl.constexpr = (WIDTH + 2) * SUPERSAMPLING
    high: tl.constexpr = (height + 2) * SUPERSAMPLING
    in_frame = (left <= -tl.load(frames + 2)) & (left + wide > tl.load(frames))
    in_frame = in_frame & (top <= -tl.load(frames + 3)) & (top + high > tl.load(frames + 1))
    plane: tl.constexpr = SIDE * SIDE
    if in_frame:
        keys += number * plane
        difference += number * 3 * plane
        for i in range(3 * SUPERSAMPLING):
            vertical = tl.load(weights + i)
            for j in range(3 * SUPERSAMPLING):
                weight = vertical * tl.load(weights + j)
                at = ((row + MARGIN - 1) * SUPERSAMPLING + i) * SIDE + (column + MARGIN - 1) * SUPERSAMPLING + j
                seen = mask & (tl.load(keys + at, mask=mask, other=EMPTY) != EMPTY)
                red += weight * tl.load(difference + at, mask=seen, other=0.0)
                green += weight * tl.load(difference + plane + at, mask=seen, other=0.0)
                blue += weight * tl.load(difference + 2 * plane + at, mask=seen, other=0.0)
    pixels: tl.constexpr = RESOLUTION * RESOLUTION
    out += number * 3 * pixels
    at = row * RESOLUTION + column
    store_pixel(out + at, red, mask, BYTES)
    store_pixel(out + pixels + at, green, mask, BYTES)
    store_pixel(out + 2 * pixels + at, blue, mask, BYTES)


@triton.jit
def store_pixel(pointer, linear, mask, BYTES: tl.constexpr):
    """Write a value in sRGB, as a byte or as it is."""
    value = to_srgb(linear)
    if BYTES:
        tl.store(pointer, (value * 255.0 + 0.5).to(tl.uint8), mask=mask)
    else:
        tl.store(pointer, value, mask=mask)
