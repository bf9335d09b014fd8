"""Functions that :func:`torch.compile` leaves alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def eager(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A function that runs as it is inside a function that is being compiled, which is compiled around it.

    For what already is a handful of fused kernels. Unlike with :func:`torch.compiler.disable`, whose import takes a
    second, nothing is imported before the function is called while something is compiled.
    """
    left_alone: list[Callable[Arguments, Result]] = []

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if not torch.compiler.is_compiling():
            return function(*args, **kwargs)
        if not left_alone:
            left_alone.append(torch.compiler.disable(function))
        return left_alone[0](*args, **kwargs)

    return call
