"""Checkpoints: one safetensors file, its header holding everything that is not a tensor as JSON.

One file, so that tensors and settings can never disagree; written beside its destination, synced to
disk and renamed, so that whoever looks finds the old checkpoint or the new one, never half of one.
Reading never runs code from the file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from identica._version import __version__
from identica.training.config import TrainConfig
from identica.training.state import Record, TrainState, describe

if TYPE_CHECKING:
    from identica.training.run import TrainingRun

FORMAT = "identica-checkpoint"
#: 1: one run; 2: several that are trained together; 3: a model alone, which cannot be trained on. A file says which.
FORMAT_VERSION = 3
FILE_NAME = "checkpoint.safetensors"
#: What the header of every file holds, and that of one from which a run goes on.
_MODEL_KEYS = ("config", "encoder", "objective", "seed", "step", "seconds", "history")
_KEYS = (*_MODEL_KEYS, "started_with", "optimizer", "device", "summed_steps")


#: Tensors by name, and everything else as plain data.
Run = tuple[dict[str, Tensor], dict[str, Any]]


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the message says why and what to do."""


def checkpoint_path(out: str | os.PathLike[str]) -> Path:
    """The checkpoint inside a run's folder; a path to a file is taken as it is."""
    path = Path(out)
    return path if path.suffix == ".safetensors" else path / FILE_NAME


def require_writable(out: Path) -> None:
    """Find out before training, not after it, whether the folder can be written to; clear away half-written files."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=out):
            pass
        for left in out.glob(f".{FILE_NAME}.*.*"):
            if not is_alive(left.name.split(".")[-2]):  # whoever was writing it was killed
                left.unlink(missing_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"The output folder {out} cannot be written to ({error.strerror or error}); choose another with out=."
        ) from error


def is_alive(process: str) -> bool:
    """Whether a process with that number runs, ours or not."""
    try:
        os.kill(int(process), 0)
    except (ValueError, ProcessLookupError):
        return False
    except OSError:
        pass  # it exists, but is not ours
    return True


def write_atomically(path: Path, content: bytes) -> None:
    """Replace ``path`` with ``content``, or leave it untouched and raise OSError."""
    name = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    # os.open rather than mkstemp: the file gets the permissions that files usually get here.
    handle = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the rename itself must survive a power cut
    finally:
        os.close(folder)


def save_checkpoint(path: Path, states: Sequence[TrainState], config: TrainConfig) -> None:
    """Write everything that :func:`restore` needs to continue bit by bit.

    Runs that are trained together share one file, so that it always holds all of them at the same step.
    """
    contents = [_content(state, config) for state in states]
    if len(contents) == 1:
        _write(path, 1, *contents[0])
    else:
        tensors = {f"{k}.{name}": value for k, (part, _) in enumerate(contents) for name, value in part.items()}
        _write(path, 2, tensors, {"runs": [settings for _, settings in contents]})


def save_model(path: Path, run: TrainingRun) -> None:
    """Write a model without the state of its training. A checkpoint, which has more, and a foreign file stay."""
    if path.suffix != ".safetensors" or path.is_dir():
        kind = "a folder" if path.is_dir() else "another name"
        raise CheckpointError(f"A model is saved in a file whose name ends in .safetensors; {str(path)!r} is {kind}.")
    if path.exists() and any(_can_go_on(data) for _, data in read_checkpoints(path)):
        raise CheckpointError(f"{path} is a checkpoint, from which training can go on: save the model as another file.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, 3, *_model_content(run, run.config))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written ({error.strerror or error}): choose another file.") from error


def _write(path: Path, version: int, tensors: dict[str, Tensor], data: dict[str, Any]) -> None:
    header = {"format": FORMAT, "format_version": version, **data}
    # clone: safetensors refuses tensors that share memory, and views of larger ones.
    own = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    write_atomically(path, to_bytes(own, {FORMAT: json.dumps(header)}))


def _model_content(model: TrainState | TrainingRun, config: TrainConfig) -> Run:
    """A model's tensors, and everything else of it as plain data."""
    tensors = {
        **{f"encoder.{k}": v for k, v in model.encoder.state_dict().items()},
        **{f"objective.{k}": v for k, v in model.objective.state_dict().items()},
    }
    data = {
        "versions": {"identica": __version__, "torch": torch.__version__},
        "config": config.to_dict(),
        "encoder": describe(model.encoder),
        "objective": describe(model.objective),
        "seed": model.seed,
        "step": model.step,
        "seconds": model.seconds,
        "history": [dataclasses.asdict(record) for record in model.history],
        "diverged": model.diverged,
    }
    return tensors, data


def _content(state: TrainState, config: TrainConfig) -> Run:
    """The same of a run that goes on, with all that it needs for that."""
    tensors, data = _model_content(state, config)
    optimizer, groups = _flat_optimizer(state.optimizer)
    tensors |= {f"optimizer.{k}": v for k, v in optimizer.items()}
    tensors |= {"generator": state.generator.get_state(), "sums": state.sums}
    data |= {
        "started_with": state.started_with,
        "optimizer": groups,
        "device": state.device.type,
        "summed_steps": state.summed_steps,
    }
    return tensors, data


def read_checkpoint(path: Path, seed: int | None = None) -> Run:
    """Tensors and settings of one run, or a sentence why it cannot be used; of several runs, that of ``seed``."""
    runs = read_checkpoints(path)
    seeds = [data["seed"] for _, data in runs]
    if seed is None and len(runs) > 1:
        raise CheckpointError(f"{path} holds the seeds {', '.join(map(str, seeds))}, trained together: pass seed=.")
    if seed is not None and seed not in seeds:
        raise CheckpointError(f"{path} does not hold the seed {seed}, but {', '.join(map(str, seeds))}.")
    return runs[0 if seed is None else seeds.index(seed)]


def read_checkpoints(path: Path) -> list[Run]:
    """Tensors and settings of each run in a checkpoint, or a sentence why it cannot be used."""
    if not path.is_file():
        raise CheckpointError(f"There is no checkpoint at {path}.")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path} is not a complete safetensors file ({error}). It was truncated or comes from something else; "
            "delete it to start afresh, or restore it from a copy."
        ) from error
    try:
        data = json.loads(header[FORMAT])
        version = int(data["format_version"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is a safetensors file, but not a checkpoint of this library.") from error
    if version > FORMAT_VERSION:
        raise CheckpointError(
            f"{path} was written by a newer version of this library (format {version}, identica "
            f"{data.get('versions', {}).get('identica')}; this one reads formats up to {FORMAT_VERSION}): "
            "upgrade identica."
        )
    if "runs" not in data:
        return [_checked(path, tensors, data, version)]
    return [_checked(path, _under(tensors, f"{k}."), run, version) for k, run in enumerate(data["runs"])]


def _can_go_on(data: Mapping[str, Any]) -> bool:
    """Whether there is more than a model: the state of its training."""
    return "optimizer" in data


def _checked(path: Path, tensors: dict[str, Tensor], data: dict[str, Any], version: int) -> Run:
    whole = version < 3
    missing = [key for key in (_KEYS if whole else _MODEL_KEYS) if key not in data]
    missing += [key for key in ("generator", "sums") if whole and key not in tensors]
    try:
        TrainConfig(**data.get("config", {}))
        [Record(**record) for record in data.get("history", [])]
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"The header of {path} is damaged: {error}") from error
    if missing:
        raise CheckpointError(f"The header of {path} is damaged: it lacks {', '.join(missing)}.")
    return tensors, data


def restore(path: Path, states: Sequence[TrainState], config: TrainConfig) -> None:
    """Bring the states to the moment the checkpoint was written. Refuses runs with other settings."""
    runs = read_checkpoints(path)
    if not all(_can_go_on(data) for _, data in runs):
        raise CheckpointError(
            f"{path} holds a model that was saved without the state of its training, so training cannot go on from it. "
            "Use identica.load for the model, or another output folder for a new run."
        )
    if len(runs) != len(states):
        raise CheckpointError(
            f"The checkpoint at {path} holds {len(runs)} runs that were trained together, not {len(states)}. "
            "Use the same settings to resume it, or another output folder for a new run."
        )
    for state, run in zip(states, runs, strict=True):
        _restore(path, state, run, config)


def _restore(path: Path, state: TrainState, run: Run, config: TrainConfig) -> None:
    tensors, data = run
    differences = config.differences(data["config"])
    if state.seed != data["seed"]:
        differences.append(f"seed was {data['seed']} and is now {state.seed}")
    if state.device.type != data["device"]:
        differences.append(f"the device was {data['device']} and is now {state.device.type}")
    differences += [
        f"the {name} is a different one"
        for name, description in state.started_with.items()
        if data["started_with"].get(name) != description
    ]
    if differences:
        raise CheckpointError(
            f"The checkpoint at {path} belongs to a run with other settings ({'; '.join(differences)}). "
            "Use the same settings to resume it, or another output folder for a new run."
        )
    try:
        state.encoder.load_state_dict(_under(tensors, "encoder."))
        state.objective.load_state_dict(_under(tensors, "objective."))
        _load_optimizer(state.optimizer, _under(tensors, "optimizer."), data["optimizer"])
    except (RuntimeError, KeyError, ValueError) as error:
        raise CheckpointError(f"The weights in {path} do not fit this encoder and objective: {error}") from error
    state.generator.set_state(tensors["generator"])
    state.sums.copy_(tensors["sums"])
    state.step, state.summed_steps = data["step"], data["summed_steps"]
    state.device_step.fill_(state.step)
    state.seconds, state.diverged = data["seconds"], data.get("diverged")
    state.history[:] = [Record(**record) for record in data["history"]]


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


#: Settings of the optimiser's groups that are not saved.
_OWN = ("lr", "capturable")


def _flat_optimizer(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """The optimiser's tensors by name, and its settings but for those that follow from step and device."""
    state = optimizer.state_dict()
    tensors = {f"{index}.{key}": value for index, entry in state["state"].items() for key, value in entry.items()}
    return tensors, [{k: v for k, v in group.items() if k not in _OWN} for group in state["param_groups"]]


def _load_optimizer(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], groups: list[dict[str, Any]]
) -> None:
    entries: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, key = name.split(".", 1)
        entries.setdefault(int(index), {})[key] = value
    own = [{key: group[key] for key in _OWN} for group in optimizer.param_groups]
    optimizer.load_state_dict({"state": entries, "param_groups": groups})
    for group, settings in zip(optimizer.param_groups, own, strict=True):
        group.update(settings)
