"""The settings of a training run."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from identica._numbers import as_float, whole_number

Optimizer = Literal["adam", "adamw", "muon"]
Schedule = Literal["constant", "cosine"]
Precision = Literal["fp32", "tf32", "bf16"]


@dataclass(frozen=True)
class TrainConfig:
    """How to train. Checked when made; plain data through :meth:`to_dict`.

    steps, batch_size: how many updates, and how many anchors each sees.
    optimizer, lr: the encoder's optimiser and its peak learning rate. With "muon" all matrices of the encoder but the
        last take steps in which every direction counts alike (:class:`identica.training.muon.Muon`), and Adam has the
        rest: where some factors are much harder to see than others, they are found sooner.
    similarity_lr: the learning rate of what the objective itself learns (temperature, Λ̂); ten times
        ``lr`` unless given, the ratio paper B used.
    similarity_after: that begins to learn after this part of the steps and stays where it started before. A Λ̂ that
        starts below the truth and waits there lets the codes cover the whole sphere first (docs/folds.md).
    schedule: "constant", or "cosine" decay to zero at the last step.
    eval_every, eval_samples: score the encoder on that many fresh latents every so many steps.
    checkpoint_every: write a checkpoint every so many steps (only with ``train(..., out=...)``).
    precision: "fp32"; "tf32" (matrix products on CUDA); "bf16" (the encoder under autocast, the
        objective always in float32).
    compile: on the CPU, pass the encoder through :func:`torch.compile` first. It needs a C++ compiler and takes half a
        minute or so before the first step; on CUDA the whole step is captured as one graph anyway.

    >>> TrainConfig(steps=100).learning_rate(100)
    0.0001
    >>> TrainConfig(steps=100, schedule="cosine").learning_rate(50)
    5e-05
    """

    steps: int = 10_000
    batch_size: int = 6144
    optimizer: Optimizer = "adam"
    lr: float = 1e-4
    similarity_lr: float | None = None
    similarity_after: float = 0.0
    schedule: Schedule = "constant"
    eval_every: int = 1000
    eval_samples: int = 4096
    checkpoint_every: int = 1000
    precision: Precision = "fp32"
    compile: bool = False

    def __post_init__(self) -> None:
        least = {"steps": 1, "batch_size": 1, "eval_every": 1, "eval_samples": 8, "checkpoint_every": 1}
        for name, smallest in least.items():
            object.__setattr__(self, name, whole_number(getattr(self, name), name, smallest))
        for name in ("lr", "similarity_lr"):
            value = getattr(self, name)
            if value is None and name == "similarity_lr":
                continue
            number = as_float(value)
            if not (math.isfinite(number) and number >= 0):
                raise ValueError(f"{name} must be a finite number of at least 0, not {value!r}.")
            object.__setattr__(self, name, number)
        after = as_float(self.similarity_after)
        if not 0 <= after < 1:
            raise ValueError(
                f"similarity_after is a part of the steps, from 0 to below 1, not {self.similarity_after!r}."
            )
        object.__setattr__(self, "similarity_after", after)
        if not isinstance(self.compile, bool):
            raise ValueError(f"compile must be True or False, not {self.compile!r}.")
        for name, allowed in (("optimizer", Optimizer), ("schedule", Schedule), ("precision", Precision)):
            if getattr(self, name) not in get_args(allowed):
                raise ValueError(f"{name} must be one of {', '.join(get_args(allowed))}, not {getattr(self, name)!r}.")

    def decay(self, step: int, after: float = 0.0) -> float:
        """What a learning rate is multiplied with at ``step``: 0 before the part ``after`` of the steps."""
        if step < after * self.steps:
            return 0.0
        if self.schedule == "constant":
            return 1.0
        return 0.5 * (1.0 + math.cos(math.pi * min(step / self.steps, 1.0)))

    def learning_rate(self, step: int) -> float:
        """The encoder's learning rate at ``step``."""
        return self.lr * self.decay(step)

    @property
    def objective_lr(self) -> float:
        """The peak learning rate of the objective's own parameters."""
        return 10.0 * self.lr if self.similarity_lr is None else self.similarity_lr

    def to_dict(self) -> dict[str, Any]:
        """As plain data; settings that came later are left out where they change nothing."""
        settings = dataclasses.asdict(self)
        return settings if self.similarity_after else {k: v for k, v in settings.items() if k != "similarity_after"}

    def differences(self, other: dict[str, Any]) -> list[str]:
        """Which settings differ from those in ``other``, as readable phrases."""
        # A setting that did not exist when the others were written has its default there.
        other = {**dataclasses.asdict(TrainConfig()), **other}
        return [
            f"{name} was {other[name]!r} and is now {value!r}"
            for name, value in dataclasses.asdict(self).items()
            if other[name] != value
        ]


def derive_seed(seed: int, purpose: str) -> int:
    """An independent seed for each purpose of one run, so that no two share a stream of random numbers."""
    digest = hashlib.sha256(f"{seed}:{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
