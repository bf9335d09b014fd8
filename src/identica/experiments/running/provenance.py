"""Where a result comes from: the machine, the versions, the commit."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

import torch

from identica._devices import usable_device
from identica._version import __version__


def choose_device(name: str) -> torch.device:
    """The device of that name; "auto" is the GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return usable_device(name)


def device_name(device: torch.device) -> str:
    """What a reader of the result should know of it: ``NVIDIA H200``, or ``cpu (x86_64, 2 threads)``."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({platform.machine()}, {torch.get_num_threads()} threads)"


def versions() -> dict[str, str]:
    """Versions of what computes."""
    found = {"identica": __version__, "python": platform.python_version(), "torch": torch.__version__}
    for package in ("numpy", "scipy", "triton"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str | None:
    """The commit of this source: IDENTICA_COMMIT if it is set, else git's answer, with "-dirty" after changes.

    None where the source is not a git checkout of its own.
    """
    if given := os.environ.get("IDENTICA_COMMIT"):
        return given
    root = Path(__file__).resolve().parents[4]  # of src/identica/experiments/running
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
