"""Shadow rays through the grid of distances, in PyTorch.

A ray looks up the distance at the grid's nearest corner, without interpolating: where that is negative, it has met
the object, and elsewhere it may safely advance by the distance less half a cell's diagonal. One lookup costs a
thirtieth of an interpolation, and the error, half a cell, is far smaller than any penumbra.
Positions and lengths are in cells here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from identica.render.distance import DistanceGrid

#: How much the distance at the nearest corner is taken to be off: less than the half diagonal it can be at most.
SLACK = 0.4
#: The least advance, in cells. Shorter ones only count the same corner again.
LEAST_STEP = 1.0
#: By how much the least advance grows with each step: what a ray has grazed for so long, it will hardly meet.
STRIDE = 0.25
#: Nothing is followed further. A ray is through the whole grid by then; a cone counts as not clear.
RAY_STEPS, CONE_STEPS = 36, 24
#: Along the first cells of their way rays and cones meet nothing: they have only just left the surface.
BLIND = 2.0
#: After so many steps, rays that are done are sorted out.
REST = 3
#: A cone that has less room than this around it is given up, in cells.
LEAST_SPARE = 0.1
#: How near the grid's faces a lookup may come, so that rounding never leads outside.
EDGE = 0.01

Vector = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Tracer:
    """The grid, flat and in units of its cells."""

    values: Tensor
    sizes: tuple[int, int, int]
    low: tuple[float, float, float]
    cell: float
    ends: Tensor

    @staticmethod
    def of(grid: DistanceGrid, device: torch.device) -> Tracer:
        """The tracer of a grid."""
        x, y, z = grid.values.shape
        # Rounded to half precision, in which kernels keep them, so that all of them see the same distances
        values = (grid.values / grid.cell).half().float().flatten().to(device)
        ends = values.new_tensor([[x - EDGE], [y - EDGE], [z - EDGE]])
        return Tracer(values, (x, y, z), grid.low, grid.cell, ends)

    def to_cells(self, points: Vector) -> Tensor:
        """Where points of the object's space are in the grid: corner (i, j, k) owns [i, i + 1) …: ``(3, P)``."""
        low = self.values.new_tensor(self.low)[:, None]
        return (torch.stack(points) - low) / self.cell + 0.5

    def occluded(self, start: Tensor, way: Tensor, length: Tensor) -> Tensor:
        """Numbers of the rays that meet the object before their length is over: ``(3, P)``, ``(3, P)``, ``(P,)``."""
        enter, leave = self._clip(start, way, length)
        rays = (enter < leave).nonzero().squeeze(1)
        state = torch.cat([start, way, enter[None], leave[None]]).index_select(1, rays)
        met = torch.zeros_like(rays, dtype=torch.bool)
        hits = []
        for step in range(RAY_STEPS):
            if not rays.numel():
                break
            t, end = state[6], state[7]
            value = self._at(torch.addcmul(state[:3], state[3:6], t).floor_())
            met |= (value < 0).logical_and_(t < end)
            torch.minimum(t + value.sub_(SLACK).clamp_(min=LEAST_STEP + STRIDE * step), end, out=t)
            if step % REST == REST - 1 or step == RAY_STEPS - 1:  # rays that are done wait at their end till then
                hits.append(rays[met])
                kept = (t < end).logical_and_(met.logical_not_()).nonzero().squeeze(1)
                rays, state = rays.index_select(0, kept), state.index_select(1, kept)
                met = torch.zeros_like(rays, dtype=torch.bool)
        return torch.cat(hits) if hits else rays

    def clear(self, start: Tensor, way: Tensor, length: Tensor, slope: Tensor) -> Tensor:
        """Which cones around rays surely miss the object, ``(P,)``; their radius at distance t is slope · t.

        Everything within the distance at a point is free, so if the cone is that thin there, it is free up to where
        it touches that ball. Cones that come close to the object are given up, be they clear or not.
        """
        free = torch.zeros_like(length, dtype=torch.bool)
        cones = torch.arange(len(length), device=length.device)
        state = torch.cat([start, way, torch.full_like(length, BLIND)[None], length[None], slope[None]])
        for _ in range(CONE_STEPS):
            if not cones.numel():
                break
            t, slope = state[6], state[8]
            spare = self._lower_bound(torch.addcmul(state[:3], state[3:6], t)).addcmul_(slope, t, value=-1.0)
            t += spare / (1.0 + slope)
            through = t >= state[7]
            free[cones[through]] = True
            kept = (spare > LEAST_SPARE).logical_and_(through.logical_not_()).nonzero().squeeze(1)
            cones, state = cones.index_select(0, kept), state.index_select(1, kept)
        return free

    def _at(self, corners: Tensor) -> Tensor:
        """The values at corners ``(3, P)``, whose numbers are whole floats, exact below 2²⁴."""
        (x, y, z), (_, ny, nz) = corners, self.sizes
        return self.values.index_select(0, z.add_(y, alpha=nz).add_(x, alpha=ny * nz).int())

    def _lower_bound(self, points: Tensor) -> Tensor:
        """No more than the distance, anywhere: outside the box, a right angle at its nearest point is the worst."""
        inside = torch.minimum(points.clamp(min=0.0), self.ends)
        away = (points - inside).square_().sum(dim=0)
        value = self._at(inside.floor_()).sub_(SLACK)
        return torch.where(away > 0, away.add_(value.clamp(min=0).square_()).sqrt_(), value)

    def _clip(self, start: Tensor, way: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        """Where rays enter and leave the grid."""
        inverse = torch.where(way.abs() < 1e-9, 1e-9, way).reciprocal_()
        a, b = (EDGE - start).mul_(inverse), (self.ends - start).mul_(inverse)
        enter, leave = torch.minimum(a, b).amax(dim=0), torch.maximum(a, b).amin(dim=0)
        return enter.clamp_(min=BLIND), torch.minimum(leave, length)
