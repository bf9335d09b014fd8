"""What this machine offers identica: versions, devices, optional packages, kernels, compilers.

:func:`examine` looks; it changes nothing and never fails because something is missing. ``identica doctor``
prints what it found.

>>> examine().identica == __version__
True
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import sys
import sysconfig
import warnings
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType

from identica._version import __version__

#: What the core needs, and what each extra adds: the requirement as pip takes it, and the module it brings.
#: The same list as in pyproject.toml, here because a checkout that was never installed has no metadata.
CORE = {
    "torch>=2.7": "torch",
    "numpy>=1.26": "numpy",
    "scipy>=1.11": "scipy",
    "scikit-learn>=1.4": "sklearn",
    "matplotlib>=3.8": "matplotlib",
    "typer>=0.12": "typer",
    "rich>=13": "rich",
    "jinja2>=3.1": "jinja2",
    "safetensors>=0.4": "safetensors",
}
EXTRAS = {
    "images": {"pillow>=10": "PIL", "faiss-cpu>=1.8": "faiss"},
    "blender": {"bpy>=4.2": "bpy"},
    "track": {"tensorboard>=2.16": "tensorboard", "mlflow>=2.12": "mlflow"},
    "scale": {"ray>=2.30": "ray"},
    "dev": {
        "pytest>=8": "pytest",
        "pytest-timeout>=2.3": "pytest_timeout",
        "pytest-xdist>=3.6": "xdist",
        "hypothesis>=6.100": "hypothesis",
        "ruff>=0.6": "ruff",
        "mypy>=1.11": "mypy",
        "triton>=3.3": "triton",
    },
}
PURPOSES = {
    "images": "image data, nearest-neighbour pairs",
    "blender": "scenes rendered by Blender",
    "track": "TensorBoard and MLflow logs",
    "scale": "many machines",
    "dev": "tests, linters, types",
}
LINUX_ONLY = ("triton>=3.3",)
PYTHONS = ((3, 11), (3, 12))


@dataclass(frozen=True)
class Package:
    """One package: ``state`` is "ok", "missing", "too old" or "broken"; ``detail`` says why where it helps."""

    requirement: str
    state: str
    version: str | None = None
    detail: str = ""

    @property
    def name(self) -> str:
        """The name without the version range."""
        return self.requirement.split(">=")[0]


@dataclass(frozen=True)
class Extra:
    """A group of optional packages, as in ``identica[images]``."""

    name: str
    purpose: str
    packages: tuple[Package, ...]


@dataclass(frozen=True)
class Device:
    """Somewhere tensors can live. Memory in GiB; ``capability`` as in "9.0" for CUDA devices."""

    name: str
    description: str
    memory: float | None = None
    capability: str | None = None


@dataclass(frozen=True)
class Feature:
    """Something that is available here or not, with the reason or the place."""

    name: str
    available: bool
    detail: str


@dataclass(frozen=True)
class Advice:
    """What to do about something missing: the command, and what it gives."""

    gives: str
    command: str


@dataclass(frozen=True)
class Checkup:
    """All findings; ``ok`` when everything the core needs is here."""

    identica: str
    python: str
    platform: str
    ok: bool
    core: tuple[Package, ...]
    devices: tuple[Device, ...]
    no_cuda: str | None
    extras: tuple[Extra, ...]
    kernels: tuple[Feature, ...]
    compilers: tuple[Feature, ...]
    advice: tuple[Advice, ...]


def examine() -> Checkup:
    """Look at this machine. Imports torch if it is there, which takes a second or two."""
    core = tuple(_package(requirement, module) for requirement, module in CORE.items())
    extras = tuple(
        Extra(name, PURPOSES[name], tuple(_package(*item) for item in packages.items() if _applies(item[0])))
        for name, packages in EXTRAS.items()
    )
    torch, trouble = _import_torch()
    if trouble is not None and core[0].state == "ok":
        core = (Package(core[0].requirement, "broken", core[0].version, trouble), *core[1:])
    devices, no_cuda = _devices(torch)
    return Checkup(
        identica=__version__,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        ok=_python_fits() and all(package.state == "ok" for package in core),
        core=core,
        devices=devices,
        no_cuda=no_cuda,
        extras=extras,
        kernels=_kernels(has_torch=torch is not None, has_cuda=no_cuda is None),
        compilers=_compilers(),
        advice=_advice(core, extras),
    )


def _applies(requirement: str) -> bool:
    return requirement not in LINUX_ONLY or sys.platform == "linux"


def _package(requirement: str, module: str) -> Package:
    name, least = requirement.split(">=")
    try:
        found = importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # a half-removed package
        found = False
    if not found:
        return Package(requirement, "missing")
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:  # on the path without having been installed
        return Package(requirement, "ok", None, "version unknown")
    if _numbers(version) < _numbers(least):
        return Package(requirement, "too old", version, f"needs {least} or newer")
    return Package(requirement, "ok", version)


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: "2.13.0+cpu" -> (2, 13, 0)."""
    return tuple(int(part) for part in re.findall(r"\d+", re.match(r"[\d.]*", version)[0]))  # type: ignore[index]


def _python_fits() -> bool:
    return PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[-1]


def _import_torch() -> tuple[ModuleType | None, str | None]:
    try:
        return importlib.import_module("torch"), None
    except Exception as error:  # a torch whose libraries do not load fails in many ways
        return None, f"import fails: {error}".splitlines()[0]


def _devices(torch: ModuleType | None) -> tuple[tuple[Device, ...], str | None]:
    """The devices, and why there is no CUDA device if there is none."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if torch is None:
        return (Device("cpu", f"{cores} cores"),), "torch is not there to ask"
    devices = [Device("cpu", f"{cores} cores, torch uses {torch.get_num_threads()} threads")]
    with warnings.catch_warnings(record=True) as raised:  # torch explains an unusable driver in a warning
        warnings.simplefilter("always")
        usable = torch.cuda.is_available()
    if not usable:
        reasons = [str(warning.message).splitlines()[0] for warning in raised]
        built = torch.version.cuda
        default = f"torch is built for CUDA {built}, but finds no device" if built else "torch is built without CUDA"
        return tuple(devices), reasons[0] if reasons else default
    for index in range(torch.cuda.device_count()):
        seen = torch.cuda.get_device_properties(index)
        memory = round(seen.total_memory / 2**30, 1)
        devices.append(Device(f"cuda:{index}", seen.name, memory, f"{seen.major}.{seen.minor}"))
    return tuple(devices), None


def _kernels(has_torch: bool, has_cuda: bool) -> tuple[Feature, ...]:
    """The implementations of the log-partition over all pairs (``impl=`` of :mod:`identica.kernels`)."""
    if not any((Path(__file__).parent / "kernels").glob("*triton*.py")):
        triton = Feature("triton", False, f"identica {__version__} has no triton kernel yet")
    elif importlib.util.find_spec("triton") is None:
        triton = Feature("triton", False, "triton is not installed")
    elif not has_cuda:
        triton = Feature("triton", False, "no CUDA device")
    else:
        triton = Feature("triton", True, "on CUDA devices")
    return (
        Feature("reference", has_torch, "dense, on any device" if has_torch else "needs torch"),
        Feature("tiled", has_torch, "in blocks, on any device" if has_torch else "needs torch"),
        triton,
    )


def _compilers() -> tuple[Feature, ...]:
    """What torch.compile (C++) and triton (C) build with."""
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    return (
        _compiler("C++ compiler", "CXX", ("c++", "g++", "clang++")),
        _compiler("C compiler", "CC", ("cc", "gcc", "clang")),
        Feature("Python headers", headers.is_file(), str(headers)),
    )


def _compiler(name: str, variable: str, usual: tuple[str, ...]) -> Feature:
    tried = (os.environ[variable].split()[0],) if os.environ.get(variable, "").split() else usual
    found = next((path for path in map(shutil.which, tried) if path), None)
    return Feature(name, found is not None, found or f"none of {', '.join(tried)} on the path")


def _advice(core: tuple[Package, ...], extras: tuple[Extra, ...]) -> tuple[Advice, ...]:
    """One pip command for the core and one for each extra that lacks something."""
    advice = [_install("what the core needs", core)]
    advice += [_install(f"identica[{extra.name}]: {extra.purpose}", extra.packages) for extra in extras]
    found = [one for one in advice if one is not None]
    if not _python_fits():
        spelled = " or ".join(".".join(map(str, version)) for version in PYTHONS)
        found.insert(0, Advice(f"a Python that identica supports, {spelled}", f"python{spelled[:4]} -m venv .venv"))
    return tuple(found)


def _install(gives: str, packages: tuple[Package, ...]) -> Advice | None:
    lacking = [package for package in packages if package.state != "ok"]
    if not lacking:
        return None
    again = ["--force-reinstall"] if any(package.state == "broken" for package in lacking) else []
    return Advice(gives, _pip_install(*again, *(package.requirement for package in lacking)))


def _pip_install(*words: str) -> str:
    """The command for exactly this Python, quoted for a shell."""
    return shlex.join([sys.executable or "python", "-m", "pip", "install", *words])


def how_to_install(module: str) -> str | None:
    """The sentence for a module that could not be imported, or None if it is none that identica may need.

    >>> print(how_to_install("faiss.contrib"))  # doctest: +ELLIPSIS
    The package 'faiss-cpu' is not installed; install it with: ... -m pip install 'faiss-cpu>=1.8'
    """
    needed = [CORE, *EXTRAS.values()]
    requirements = {name: requirement for packages in needed for requirement, name in packages.items()}
    requirement = requirements.get(module.split(".")[0])
    if requirement is None:
        return None
    name = requirement.split(">=")[0]
    return f"The package '{name}' is not installed; install it with: {_pip_install(requirement)}"
