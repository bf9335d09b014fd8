"""Dataclasses of tensors as pytrees: several of them can be stacked, sliced or mapped over as one."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from torch.utils import _pytree as pytree

Class = TypeVar("Class", bound=type)


def pytree_dataclass(cls: Class) -> Class:
    """Register a dataclass with ``torch.utils._pytree``; fields that are None are no leaves.

    >>> import torch
    >>> @pytree_dataclass
    ... @dataclasses.dataclass(frozen=True)
    ... class Flipped:
    ...     applied: torch.Tensor
    >>> pytree.tree_map(lambda leaf: leaf[:1], Flipped(torch.tensor([True, False])))
    Flipped(applied=tensor([True]))
    """
    names = tuple(field.name for field in dataclasses.fields(cls))

    def flatten(value: Any) -> tuple[list[Any], tuple[str, ...]]:
        present = tuple(name for name in names if getattr(value, name) is not None)
        return [getattr(value, name) for name in present], present

    def unflatten(leaves: Any, present: Any) -> Any:
        return cls(**{**dict.fromkeys(names), **dict(zip(present, leaves, strict=True))})

    pytree.register_pytree_node(cls, flatten, unflatten, serialized_type_name=f"identica.{cls.__qualname__}")
    return cls
