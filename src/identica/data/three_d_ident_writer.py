"""Writing a folder in the layout of 3DIdent, image by image, so that it can be interrupted at any moment."""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from identica._numbers import whole_number
from identica.data.png import Pixels, is_whole, write_png
from identica.data.three_d_ident import physical, read_array
from identica.render import check_latents
from identica.training.checkpoint import is_alive, write_atomically

Render = Callable[[Tensor], Tensor]
SETTINGS = "rendering.json"
_DESK = ".writing."
#: By which a renderer's numbers may leave [0, 1].
_ROUNDING = 1e-3
_WHAT_TO_DO = "give the ones it was begun with to finish that folder, or choose another folder."


def write_three_d_ident(
    folder: str | os.PathLike[str],
    raw_latents: Tensor | npt.NDArray[np.floating[Any]],
    render: Render,
    *,
    settings: dict[str, Any] | None = None,
    batch: int = 64,
    threads: int | None = None,
    on_progress: Callable[[int], None] = lambda done: None,
) -> int:
    """Render ``raw_latents: (n, 10)`` into ``folder``; returns how many images were still to be made.

    render: latents ``(b, 10)`` to images ``(b, 3, H, W)``, bytes or numbers in [0, 1].
    settings: what the images depend on besides the latents, as plain data; kept beside them. A folder that was begun
        with other settings or other latents is refused, and so is one that was not written here. More latents that
        begin with those of before make it larger.
    threads: that compress images, six milliseconds for one of 224 pixels; all cores unless given.
    on_progress: called with the number of images that are there, first with those found from before.

    Every file is written elsewhere and renamed when it is whole: killed at any moment, it goes on from there when
    called again, and what was half written is cleared away.
    """
    folder, raw, batch = Path(folder), _checked(raw_latents), whole_number(batch, "batch, the images drawn at once,")
    threads = None if threads is None else whole_number(threads, "threads")
    _begin(folder, raw.detach().cpu().float(), settings or {})
    paths = [folder / "images" / f"{number:06d}.png" for number in range(len(raw))]
    missing = [number for number, path in enumerate(paths) if not is_whole(path)]
    done = len(paths) - len(missing)
    on_progress(done)
    if not missing:
        return 0
    with _desk(folder) as desk, ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:

        def write(path: Path, pixels: Pixels) -> None:
            write_png(desk / path.name, pixels)
            os.replace(desk / path.name, path)

        for start in range(0, len(missing), batch):
            numbers = missing[start : start + batch]
            images = as_bytes(_checked_images(render(raw[numbers]), len(numbers))).permute(0, 2, 3, 1).cpu().numpy()
            list(pool.map(write, [paths[number] for number in numbers], np.ascontiguousarray(images)))
            done += len(numbers)
            on_progress(done)
    return len(missing)


def as_bytes(images: Tensor) -> Tensor:
    """Images with values in [0, 1] as bytes, rounded; bytes stay as they are."""
    if images.dtype == torch.uint8:
        return images
    return (images * 255).round_().clamp_(0, 255).to(torch.uint8)


def _checked_images(images: Any, count: int) -> Tensor:
    """What a user's function has drawn, or a sentence before any of it is written."""
    if not isinstance(images, Tensor) or images.ndim != 4 or images.shape[:2] != (count, 3):
        got = f"a tensor of shape {tuple(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
        raise ValueError(f"render has to make images of shape ({count}, 3, H, W) out of {count} latents, not {got}.")
    if images.is_floating_point() and not bool(((images >= -_ROUNDING) & (images <= 1 + _ROUNDING)).all()):
        raise ValueError("render has to make bytes, or numbers from 0 to 1; these have others, or NaN.")
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise ValueError(f"render has to make bytes (torch.uint8), or numbers from 0 to 1, not {images.dtype}.")
    return images


def _checked(raw_latents: Tensor | npt.NDArray[np.floating[Any]]) -> Tensor:
    raw = torch.from_numpy(raw_latents) if isinstance(raw_latents, np.ndarray) else raw_latents
    check_latents(raw)
    if not len(raw):
        raise ValueError("A data set has at least one row of latents; these have none.")
    return raw


def _as_npy(values: Tensor) -> bytes:
    file = io.BytesIO()
    np.save(file, values.numpy(), allow_pickle=False)
    return file.getvalue()


# The folder, which may be there already


def _begin(folder: Path, raw: Tensor, settings: dict[str, Any]) -> None:
    """Everything but the images: compare what is there, then write what is not."""
    described = json.dumps(settings, indent=1, sort_keys=True)
    arrays = {"raw_latents.npy": _as_npy(raw), "latents.npy": _as_npy(physical(raw))}
    _require_the_same(folder, json.loads(described), arrays)
    (folder / "images").mkdir(parents=True, exist_ok=True)
    _clear_half_written(folder)
    # The settings come first: whatever lies beside them was written here
    for name, content in {SETTINGS: f"{described}\n".encode(), **arrays}.items():
        path = folder / name
        if not path.exists() or (name in arrays and path.read_bytes() != content):  # missing, or fewer latents
            write_atomically(path, content)


def _require_the_same(folder: Path, settings: dict[str, Any], arrays: dict[str, bytes]) -> None:
    """Refuse a folder that was begun otherwise, or elsewhere, before anything is written into it."""
    path = folder / SETTINGS
    if not path.exists():
        found = [name for name in arrays if (folder / name).exists()]
        found += ["images"] if any((folder / "images").glob("*.png")) else []
        if found:
            raise ValueError(
                f"{folder} holds {' and '.join(found)} but no {SETTINGS}: nobody can tell how they were made. Choose "
                "another folder."
            )
        return
    if differences := _differences(path, settings):
        raise ValueError(f"{path} was written with other settings ({'; '.join(differences)}): {_WHAT_TO_DO}")
    for name, content in arrays.items():
        if (folder / name).exists():
            _require_beginning(folder / name, content)


def _require_beginning(path: Path, content: bytes) -> None:
    """The latents of before are the first of those of now."""
    if path.read_bytes() == content:
        return
    now = np.load(io.BytesIO(content), allow_pickle=False)
    try:
        before = read_array(path)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read ({error}): delete it with its folder, or choose another.") from error
    both = min(len(before), len(now)) if before.ndim == 2 else 0
    if not both or not np.array_equal(before[:both], now[:both]):
        raise ValueError(f"{path} was written from other latents: {_WHAT_TO_DO}")
    if len(before) > len(now):
        raise ValueError(f"{path} has {len(before)} latents already, more than {len(now)}: choose another folder.")


def _differences(path: Path, settings: dict[str, Any]) -> list[str]:
    """``["resolution was 64 and is now 224"]``."""
    try:
        before = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} cannot be read ({error}): delete it with its folder, or choose another.") from error
    if not isinstance(before, dict):
        raise ValueError(f"{path} holds no settings: choose another folder.")
    both = ((name, before.get(name), settings.get(name)) for name in sorted(before.keys() | settings.keys()))
    return [f"{name} was {_said(old)} and is now {_said(new)}" for name, old, new in both if old != new]


def _said(value: Any) -> str:
    return "not given" if value is None else str(value)


@contextmanager
def _desk(folder: Path) -> Iterator[Path]:
    """A folder where this process writes images, to be moved to their places when they are whole."""
    with tempfile.TemporaryDirectory(prefix=f"{_DESK}{os.getpid()}.", dir=folder) as name:
        yield Path(name)


def _clear_half_written(folder: Path) -> None:
    """Remove what killed writers left; what a living one writes is its own."""
    for left in folder.glob(f"{_DESK}*.*"):
        if not is_alive(left.name.split(".")[-2]):
            shutil.rmtree(left, ignore_errors=True)
    for name in (SETTINGS, "raw_latents.npy", "latents.npy"):
        for left in folder.glob(f".{name}.*.*"):
            if not is_alive(left.name.split(".")[-2]):
                left.unlink(missing_ok=True)
