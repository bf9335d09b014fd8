"""A function on the GPU recorded once as a CUDA graph and replayed: one launch instead of hundreds."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Generic, TypeVar

import torch

Result = TypeVar("Result")

#: Calls before the recording: they compile kernels, build tables and let libraries choose their algorithms.
WARM_UP = 3


class CapturedCall(Generic[Result]):
    """``function`` called as it is a few times, then recorded, then replayed.

    Every call does the work exactly once: the first ones for real, the recording none, each replay once. The
    generators go on through replays as they would without. What cannot be recorded (it waits for the device, or
    its shapes depend on data) goes on being called as it is, after one warning that names the reason.

    The result of a replay lives in the graph's own memory: the next call overwrites it.
    """

    def __init__(self, function: Callable[[], Result], *generators: torch.Generator) -> None:
        self._function, self._generators = function, generators
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Result | None = None

    def __call__(self) -> Result:
        """Do the work once and return the function's result."""
        self._calls += 1
        if self._calls == WARM_UP + 1:
            self._record()
        if self._graph is None:
            return self._apart() if self._calls <= WARM_UP else self._function()
        self._graph.replay()
        assert self._result is not None
        return self._result

    def _apart(self) -> Result:
        """Call on a stream of its own, as a recording will."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            result = self._function()
        torch.cuda.current_stream().wait_stream(stream)
        return result

    def _record(self) -> None:
        before = [generator.get_state() for generator in self._generators]
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        try:
            with torch.cuda.graph(graph):
                self._result = self._function()
            self._graph = graph
        except RuntimeError as error:
            # A recording that broke off leaves the generator believing it is still being recorded.
            for generator, state in zip(self._generators, before, strict=True):
                fresh = torch.Generator(device=generator.device)
                fresh.set_state(state)
                generator.graphsafe_set_state(fresh)
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            warnings.warn(
                f"The training step could not be captured as a CUDA graph and runs without, more slowly: {reason}",
                stacklevel=4,
            )
