"""A device that computes nothing in place of CUDA, for tests on machines without a GPU.

Its tensors have a shape and a type but no contents (torch's device "meta"), Triton kernels are not run, and whatever
has a fused kernel takes it, as on CUDA. What takes place is all that the host does during a step, at full size and in
no time: which way is taken, which kernels are launched, where tensors are made and how large they are. During
:func:`captured` it is an error to look at a value, because that waits for the device, to mix devices, and to bring
anything to the device: none of it can be captured in a CUDA graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Self
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.jit import KernelInterface

import identica.kernels
import identica.training.state
import identica.training.together
import identica.training.vae
from identica.distributions import Conditional
from identica.distributions.fused import computing_by
from identica.encoders import heads, mlp, residual
from identica.objectives import Objective
from identica.processes import PairProcess
from identica.training import TrainConfig, TrainState, schedules
from identica.training.flat_adam import FlatAdam

DEVICE = torch.device("meta")
#: Programs that a launch may have along each axis, and processors that it is spread over.
_MOST_PROGRAMS = (2**31 - 1, 65_535, 65_535)
_PROCESSORS = 132


@dataclass
class Log:
    """What the device was asked to do: Triton kernels by name, torch's operations, and the most numbers in a tensor."""

    launches: list[str] = field(default_factory=list)
    operations: list[str] = field(default_factory=list)
    largest: int = 0


@contextlib.contextmanager
def imagined_cuda() -> Iterator[Log]:
    """While this lasts, ``DEVICE`` is treated as CUDA is."""
    log, placed = Log(), Conditional._placed

    def place(conditional: Conditional, like: Tensor) -> dict[str, Any]:
        """Parameters and tables, from where their values can be looked at."""
        made = placed(conditional, torch.empty(0, dtype=like.dtype))
        return {name: value.to(like.device) if isinstance(value, Tensor) else value for name, value in made.items()}

    replaced: list[tuple[Any, str, Any]] = [
        (torch, "autocast", lambda *device, **settings: contextlib.nullcontext()),
        (torch.cuda, "device_of", lambda tensor: contextlib.nullcontext()),
        (torch.cuda, "get_device_properties", lambda device: SimpleNamespace(multi_processor_count=_PROCESSORS)),
        (identica.kernels, "_choose", lambda anchors, candidates: "triton"),
        (heads, "_is_fused", lambda x, dim, *parameters: True),
        (residual, "product_dtype", lambda x: torch.float32),
        (mlp, "product_dtype", lambda x: torch.float32),
        (schedules, "_on_cuda", lambda value: isinstance(value, Tensor)),
        *((module, "make_optimizer", _flat_adam) for module in _WITH_OPTIMIZERS),
        (KernelInterface, "__getitem__", lambda kernel, grid: _launch(kernel, grid, log)),
        (Conditional, "_placed", place),
        (PairProcess, "_dry_run", _prepare),
    ]
    with contextlib.ExitStack() as stack:
        for patch in replaced:
            stack.enter_context(mock.patch.object(*patch))
        stack.enter_context(computing_by("triton"))
        yield log


@contextlib.contextmanager
def captured(log: Log) -> Iterator[None]:
    """What takes place here, and is logged, could be captured, or an exception says why not."""
    log.launches.clear()
    mapping: Any = torch._C._functorch
    one_by_one = mapping._is_vmap_fallback_enabled()
    mapping._set_vmap_fallback_enabled(False)  # as many launches as seeds is not what mapping is for
    made = [mock.patch.object(torch, name, _only_here(getattr(torch, name))) for name in ("tensor", "as_tensor")]
    try:
        with made[0], made[1], _Watch(log):
            yield
    finally:
        mapping._set_vmap_fallback_enabled(one_by_one)


class Generator(torch.Generator):
    """A generator that says it lives on the device."""

    def __new__(cls, device: Any = None) -> Self:
        return super().__new__(cls)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Where it is not."""
        return DEVICE


@contextlib.contextmanager
def imagined_generators() -> Iterator[None]:
    """Generators made meanwhile live on the device."""
    with mock.patch.object(torch, "Generator", Generator):
        yield


def make_state(encoder: nn.Module, objective: Objective, config: TrainConfig, seed: int) -> TrainState:
    """A run at its first step, on the device."""
    unseen = mock.patch.object(identica.training.state, "describe", lambda part: None)
    with imagined_generators(), unseen:
        return TrainState.create(encoder, objective, config, seed=seed, device=DEVICE)


_WITH_OPTIMIZERS = (identica.training.state, identica.training.together, identica.training.vae)


def _flat_adam(
    of_encoder: Sequence[Tensor], of_objective: Sequence[Tensor], config: TrainConfig, stacked: bool = False
) -> FlatAdam:
    """As :func:`identica.training.state.make_optimizer` on CUDA; Adam does not care whether parameters are stacked."""
    both = ((of_encoder, config.lr, 0.0), (of_objective, config.objective_lr, config.similarity_after))
    groups = [
        {"params": list(parameters), "lr": torch.full((), lr, device=DEVICE), "peak_lr": lr, "after": after}
        for parameters, lr, after in both
        if parameters
    ]
    return FlatAdam(groups)


def _prepare(process: PairProcess) -> None:
    """What is left of a dry run where nothing can be looked at."""
    for conditional in (process.conditional, process.negative_conditional):
        if isinstance(conditional, Conditional):
            conditional.prepare(process.device, process.dtype)


def _only_here(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function, unless it brings numbers to the device."""

    def call(data: Any, *arguments: Any, **settings: Any) -> Tensor:
        made = function(data, *arguments, **settings)
        assert isinstance(data, Tensor) or made.device != DEVICE, f"{function.__name__} brings {data!r} to the device"
        return made

    return call


def _launch(kernel: Any, grid: tuple[int, ...], log: Log) -> Callable[..., None]:
    """Refuses what a launch would refuse, and launches nothing."""
    name = f"{kernel.fn.__module__.rpartition('.')[2]}.{kernel.fn.__name__}"
    assert all(0 < count <= most for count, most in zip(grid, _MOST_PROGRAMS, strict=False)), f"{name}: grid {grid}"

    def launch(*arguments: Any, **settings: Any) -> None:
        elsewhere = [a.device for a in arguments if isinstance(a, Tensor) and a.device != DEVICE]
        assert not elsewhere, f"{name} is given tensors on {elsewhere}"
        assert all(abs(a) < 2**31 for a in arguments if isinstance(a, int)), f"{name} is given {arguments}"
        log.launches.append(name)

    return launch


class _Watch(TorchDispatchMode):
    """Refuses what brings tensors to the device, and looks at what is made there."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self.log = log

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        made = [t for t in pytree.tree_leaves(result) if isinstance(t, Tensor) and t.device == DEVICE]
        # A single number on the host is handed over with the launch.
        uploaded = [tuple(t.shape) for t in given if t.device != DEVICE and t.ndim > 0]
        assert not (made and uploaded), f"{func} brings tensors of the shapes {uploaded} to the device"
        self.log.operations.append(str(func))
        self.log.largest = max([self.log.largest, *(t.numel() for t in made)])
        return result
