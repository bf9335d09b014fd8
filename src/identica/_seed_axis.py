"""The axis that :func:`torch.func.vmap` maps a fused kernel over: the seeds, always in front."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def seeds_first(seeds: int, in_dims: tuple[Any, ...], inputs: tuple[Any, ...]) -> list[Any]:
    """The inputs of a mapped function, every tensor with the mapped axis first; those without one are expanded."""

    def moved(item: Any, axis: int | None) -> Any:
        if not isinstance(item, Tensor):
            return item
        return item.expand(seeds, *item.shape) if axis is None else item.movedim(axis, 0)

    return [moved(item, axis) for item, axis in zip(inputs, in_dims, strict=True)]
