"""What changes from step to step: learning rates, and gradual numbers such as an annealed temperature."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from identica.gradual import Gradual
from identica.training.config import TrainConfig


class Schedules:
    """Sets the learning rates of ``optimizer`` and gradual numbers for a step.

    On CUDA, where a step is captured once and replayed many times, the values of all steps are tables on the device,
    and the step's number, which lives there too, looks them up: two launches each, and no host.

    ``numbers``: gradual numbers, each with the tensor that holds its value, or those of several seeds.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, numbers: Sequence[tuple[Gradual, Tensor]], config: TrainConfig
    ) -> None:
        self._optimizer, self._numbers, self._config = optimizer, numbers, config
        self._tables: list[tuple[Tensor, Tensor]] = []
        for group in optimizer.param_groups:
            rate, after = group["lr"], group.get("after", 0.0)
            if _on_cuda(rate) and (config.schedule != "constant" or after):
                decay = [config.decay(step, after) for step in range(config.steps + 1)]
                self._tables.append((rate, _table(decay, rate, group["peak_lr"])))
        for number, value in numbers:
            if _on_cuda(value):
                values = [number.value_at(step / config.steps) for step in range(config.steps + 1)]
                self._tables.append((value, _table(values, value)))

    def follow(self, step: int, device_step: Tensor) -> None:
        """Set everything for the given step, whose number ``device_step`` knows on the device."""
        if self._tables:
            index = device_step.clamp_max(self._config.steps).view(1)
            for target, table in self._tables:
                target.copy_(table.index_select(0, index).expand(target.numel()).view(target.shape))
        for group in self._optimizer.param_groups:
            if not isinstance(group["lr"], Tensor):
                group["lr"] = group["peak_lr"] * self._config.decay(step, group.get("after", 0.0))
        for number, value in self._numbers:
            if not _on_cuda(value):
                value.fill_(number.value_at(step / self._config.steps))


def gradual_numbers(module: nn.Module) -> list[tuple[str, Gradual]]:
    """The gradual numbers inside a module, by name."""
    return [(name, part) for name, part in module.named_modules() if isinstance(part, Gradual)]


def _on_cuda(value: object) -> bool:
    return isinstance(value, Tensor) and value.device.type == "cuda"


def _table(values: Sequence[float], like: Tensor, scale: float = 1.0) -> Tensor:
    return (torch.tensor(values, dtype=torch.float64) * scale).to(device=like.device, dtype=like.dtype)
