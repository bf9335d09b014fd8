"""A batch of pairs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.types import Device
from torch.utils import _pytree as pytree


@dataclass(frozen=True, eq=False)
class Pairs:
    """A batch of pairs: latents and what is seen of them.

    z, x: anchors, ``(n, d)`` and ``(n, ...)``; without a mixing x is z.
    z_pos, x_pos: their positives, the same shapes, or ``(n, P, ...)`` with P > 1 positives per anchor.
    z_neg, x_neg: hard negatives of each anchor, ``(n, M, ...)``, or None.

    A pytree: ``torch.utils._pytree.tree_map`` and the like see its tensors.
    """

    z: Tensor
    z_pos: Tensor
    x: Tensor
    x_pos: Tensor
    z_neg: Tensor | None = None
    x_neg: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x)

    def to(self, device: Device = None, dtype: torch.dtype | None = None) -> Pairs:
        """The same pairs on another device or, where they are floating-point numbers, in another precision."""
        return pytree.tree_map(lambda t: t.to(device=device, dtype=dtype if t.is_floating_point() else None), self)


_FIELDS = tuple(field.name for field in dataclasses.fields(Pairs))


def _flatten(pairs: Pairs) -> tuple[list[Any], tuple[str, ...]]:
    present = tuple(name for name in _FIELDS if getattr(pairs, name) is not None)
    return [getattr(pairs, name) for name in present], present


def _flatten_with_keys(pairs: Pairs) -> tuple[list[tuple[pytree.KeyEntry, Any]], tuple[str, ...]]:
    leaves, present = _flatten(pairs)
    return [(pytree.GetAttrKey(name), leaf) for name, leaf in zip(present, leaves, strict=True)], present


def _unflatten(leaves: Any, present: Any) -> Pairs:
    return Pairs(**{**dict.fromkeys(_FIELDS), **dict(zip(present, leaves, strict=True))})


pytree.register_pytree_node(
    Pairs,
    _flatten,
    _unflatten,
    serialized_type_name="identica.Pairs",
    flatten_with_keys_fn=_flatten_with_keys,
)
