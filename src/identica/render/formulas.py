"""What light does at a point of the scene, number by number: the formulas that every way of rendering shares.

The functions know no arrays and no vectors, only numbers, which may be tensors of any one shape. They call nothing
but one another and a handful of functions of ``xp``, which are PyTorch's here and those of Triton's language when
``triton_formulas`` compiles these same functions for the GPU. So there is one version of them, and no way for the two
to differ. Constants stand as literals, because a kernel sees no global variables.
"""

from __future__ import annotations

from typing import Any

from identica.render import arithmetic as xp

#: Either a tensor or a block of numbers in a kernel.
Number = Any
Vector = tuple[Number, Number, Number]
#: Of half the spot's cone.
SPOT_COSINE = 0.9537169507482269


def fresnel(cosine: Number, index: float) -> Number:
    """Share of unpolarised light that a dielectric reflects: index of refraction, cosine with the normal."""
    g = xp.sqrt(index * index - 1.0 + cosine * cosine)
    a = (g - cosine) / (g + cosine)
    b = (cosine * (g + cosine) - 1.0) / (cosine * (g - cosine) + 1.0)
    return 0.5 * a * a * (1.0 + b * b)


def velvet(nl: Number, nv: Number, nh: Number, hv: Number) -> Number:
    """Velvet of σ = 0.6, times cosine: ¼ D G / (n·v) with D = exp(−cot²h / σ²) / (π σ² sin⁴h)."""
    cosine2 = xp.clamp(nh * nh, 0.0, 0.99999)
    sine2 = 1.0 - cosine2
    d = xp.exp(-cosine2 / (sine2 * 0.36)) / (1.1309733552923256 * sine2 * sine2)
    g = xp.clamp(2.0 * nh * xp.minimum(nv, nl) / hv, 0.0, 1.0)
    return 0.25 * d * g / nv


def smith(cosine: Number) -> Number:
    """Smith's λ of a Beckmann surface of roughness 0.35, in its rational approximation."""
    # a = 1 / (roughness · tan), and beyond 1.6 the approximation is 0
    a = cosine / (0.35 * xp.sqrt(xp.clamp(1.0 - cosine * cosine, 1e-7, 1.0)))
    a = xp.clamp(a, 1e-5, 1.6)
    return xp.where(a < 1.6, (1.0 - 1.259 * a + 0.396 * a * a) / (a * (3.535 + 2.181 * a)), 0.0)


def beckmann(nl: Number, nv: Number, nh: Number) -> Number:
    """Beckmann's microfacets of roughness 0.35, times cosine: D / (1 + λ(l) + λ(v)) / (4 n·v)."""
    cosine2 = xp.clamp(nh * nh, 1e-4, 1.0)
    d = xp.exp((1.0 - 1.0 / cosine2) / 0.1225) / (0.38484510006474965 * cosine2 * cosine2)
    return 0.25 * d / ((1.0 + smith(nl) + smith(nv)) * nv)


def smoothstep(x: Number) -> Number:
    """0 below 0, 1 above 1, 3x² − 2x³ in between."""
    x = xp.clamp(x, 0.0, 1.0)
    return x * x * (3.0 - 2.0 * x)


def spot_edge(cosine: Number) -> Number:
    """How much of the spot's light goes where: its cone of 35° fades over a tenth of 1 − cos 17.5°."""
    return smoothstep((cosine - 0.9537169507482269) / 0.0046283049251773)


def to_srgb(linear: Number) -> Number:
    """The sRGB curve, clipped to [0, 1]."""
    x = xp.clamp(linear, 0.0, 1.0)
    curve = 1.055 * xp.exp(xp.log(xp.clamp(x, 1e-6, 1.0)) * 0.4166666666666667) - 0.055
    return xp.where(x <= 0.0031308, 12.92 * x, curve)


def dot(a: Vector, b: Vector) -> Number:
    """The inner product."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def toward_sun(a: Number, b: Number, across: Vector, along: Vector, up: Vector) -> Vector:
    """The direction to a point of the sun: (a, b) in the unit disk, and the world's axes x, y, z.

    The factor is the tangent of the sun's angular radius, half of 0.1993, and the directions are all divided by
    their mean length.
    """
    s = 0.09998116101906 * a
    t = 0.09998116101906 * b
    return (
        0.99751027 * (up[0] + s * across[0] + t * along[0]),
        0.99751027 * (up[1] + s * across[1] + t * along[1]),
        0.99751027 * (up[2] + s * across[2] + t * along[2]),
    )


def toward_square(point: Vector, a: Number, b: Number, centre: Vector, across: Vector, along: Vector) -> Vector:
    """From a point to a point of the area light: (a, b) in [−½, ½]²."""
    return (
        centre[0] + a * across[0] + b * along[0] - point[0],
        centre[1] + a * across[1] + b * along[1] - point[1],
        centre[2] + a * across[2] + b * along[2] - point[2],
    )


def toward_disk(middle: Vector, distance: Number, a: Number, b: Number) -> Vector:
    """To a point of the spotlight: (a, b) in the unit disk, of radius ½ and facing who looks.

    ``middle`` is the unit vector to the light's centre, ``distance`` how far that is.
    """
    # Two directions at right angles to a unit vector (Duff et al., 2017)
    sign = xp.where(middle[2] >= 0.0, 1.0, -1.0)
    c = -1.0 / (sign + middle[2])
    d = middle[0] * middle[1] * c
    s = 0.5 * a
    t = 0.5 * b
    return (
        middle[0] * distance + s * (1.0 + sign * middle[0] * middle[0] * c) + t * d,
        middle[1] * distance + s * sign * d + t * (sign + middle[1] * middle[1] * c),
        middle[2] * distance - s * sign * middle[0] - t * middle[1],
    )


def square_irradiance(height: Number, squared: Number, share: float) -> Number:
    """On a surface that faces a sample of the area light, which shines down.

    height: the light's above the surface; squared: the squared distance to the sample; share: of the light's area that
    the sample stands for. To a surface closer than that patch is wide, it is a disk and no point.
    """
    inverse = 1.0 / xp.sqrt(squared + 0.3183098861837907 * share)
    return 12.5 * xp.clamp(height * inverse, 0.0, 1.0) * inverse * inverse


def disk_irradiance(axial: Number, distance: Number, inverse: Number) -> Number:
    """On a surface that faces a point of the spotlight.

    axial: how far from the light it is along the spot's axis; distance: to the light's centre; inverse: 1 / distance
    to the point. The surface sees the light's disk at a slant of distance · inverse.
    """
    return 238.73241463784300 * distance * inverse * inverse * inverse * spot_edge(axial * inverse)


def reflect(nl: Number, nv: Number, lv: Number) -> tuple[Number, Number]:
    """What of a unit of irradiance goes to the camera: times the surface's colour, and whatever its colour.

    From the cosines between normal, light and view. Lambert and velvet, of the surface's colour, are mixed by
    Fresnel(1.4); that and Beckmann, of a grey of 0.8, by Fresnel(1.2). With h ∝ l + v, h·v = √((1 + l·v) / 2) and
    n·h = (n·l + n·v) / 2h·v. A smooth normal may point away from the camera though the surface does not: then only
    Lambert is left.
    """
    facing = xp.where(nv > 0.0, 1.0, 0.0)
    nl = xp.clamp(nl, 0.02, 1.0)
    nv = xp.clamp(xp.abs(nv), 0.0001, 1.0)
    hv = xp.sqrt(xp.clamp(0.5 + 0.5 * lv, 0.0001, 1.0))
    nh = xp.clamp((nl + nv) / (2.0 * hv), 0.0, 1.0)
    inner = fresnel(nv, 1.4)
    outer = fresnel(nv, 1.2)
    matt = (1.0 - inner) * 0.3183098861837907 + inner * facing * velvet(nl, nv, nh, hv) / nl
    return (1.0 - outer) * matt, 0.8 * outer * facing * beckmann(nl, nv, nh) / nl
