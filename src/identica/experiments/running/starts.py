"""Trained encoders that other models of a row start from, kept beside the checkpoints until the row is done.

One file for each seed in the folder of the run that made it, ``OUT/.runs/<hash>/weights-<seed>.safetensors``: a killed
run finds it again, and all models that start there start from the same weights, which receipts name by their digest.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from identica.training.checkpoint import write_atomically

_HEADER = "identica-start"


@dataclass(frozen=True)
class Start:
    """Weights of a trained encoder and where they come from.

    described: the model and its hash (what it depends on), its steps, and a digest of the weights themselves.
    """

    weights: Mapping[str, Tensor]
    described: Mapping[str, Any]


def keep(folder: Path, seed: int, encoder: nn.Module, described: Mapping[str, Any]) -> None:
    """Write the encoder's weights into the folder of the run that trained it."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.detach().cpu().contiguous().clone() for name, value in encoder.state_dict().items()}
    write_atomically(_path(folder, seed), save(weights, {_HEADER: json.dumps(dict(described))}))


def find_start(folder: Path, seed: int) -> Start | None:
    """What was kept of that seed; None if nothing was, or (with a warning) nothing that can be read."""
    path = _path(folder, seed)
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            described = json.loads((file.metadata() or {})[_HEADER])
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        warnings.warn(f"{path} cannot be read ({error}). What it held is trained again.", stacklevel=2)
        path.unlink(missing_ok=True)
        return None
    return Start(weights, {**described, "weights": digest(weights)})


def digest(weights: Mapping[str, Tensor]) -> str:
    """Equal for equal weights, to the bit."""
    hashed = hashlib.sha256()
    for name in sorted(weights):
        hashed.update(name.encode())
        hashed.update(weights[name].detach().cpu().contiguous().numpy().tobytes())
    return hashed.hexdigest()[:16]


def name_of(seeds: Iterable[int], starts: Mapping[int, Start]) -> str:
    """The folder of a run's checkpoints: a run is continued only from the weights that it started from.

    >>> name_of([0, 1], {}), name_of([0], {0: Start({}, {"weights": "ab12"})})
    ('seeds-0-1', 'seeds-0-from-ab12')
    """
    seeds = list(seeds)
    name = f"seeds-{'-'.join(map(str, seeds))}"
    if not starts:
        return name
    digests = [str(starts[seed].described["weights"]) for seed in seeds if seed in starts]
    joined = digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()[:16]
    return f"{name}-from-{joined}"


def _path(folder: Path, seed: int) -> Path:
    return folder / f"weights-{seed}.safetensors"
