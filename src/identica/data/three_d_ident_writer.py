"""Writing a folder in the layout of 3DIdent, image by image, so that it can be interrupted at any moment."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from identica.data.png import is_whole, write_png
from identica.data.three_d_ident import physical
from identica.render import FACTORS
from identica.training.checkpoint import write_atomically

Render = Callable[[Tensor], Tensor]
SETTINGS = "rendering.json"


def write_three_d_ident(
    folder: str | os.PathLike[str],
    raw_latents: Tensor,
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
        with other settings or other latents is refused.
    threads: that compress images, six milliseconds for one of 224 pixels; all cores unless given.
    on_progress: called with the number of images that are there, first with those found from before.

    Every file is written under another name and renamed when it is whole: killed at any moment, it goes on from there
    when called again.
    """
    folder = Path(folder)
    if raw_latents.ndim != 2 or raw_latents.shape[1] != len(FACTORS) or not len(raw_latents):
        raise ValueError(f"3DIdent has latents of shape (n, {len(FACTORS)}), not {tuple(raw_latents.shape)}.")
    if not bool((raw_latents.abs() <= 1).all()):
        raise ValueError("The latents of 3DIdent lie in [-1, 1]; these do not.")
    (folder / "images").mkdir(parents=True, exist_ok=True)
    raw = raw_latents.detach().cpu().float()
    _keep(folder / SETTINGS, json.dumps(settings or {}, indent=1, sort_keys=True).encode() + b"\n")
    _keep(folder / "raw_latents.npy", _as_npy(raw))
    _keep(folder / "latents.npy", _as_npy(physical(raw)))
    paths = [folder / "images" / f"{number:06d}.png" for number in range(len(raw))]
    missing = [number for number, path in enumerate(paths) if not is_whole(path)]
    done = len(paths) - len(missing)
    on_progress(done)
    with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        for start in range(0, len(missing), batch):
            numbers = missing[start : start + batch]
            images = as_bytes(render(raw_latents[numbers])).permute(0, 2, 3, 1).cpu().numpy()
            list(pool.map(write_png, [paths[number] for number in numbers], np.ascontiguousarray(images)))
            done += len(numbers)
            on_progress(done)
    return len(missing)


def as_bytes(images: Tensor) -> Tensor:
    """Images with values in [0, 1] as bytes, rounded; bytes stay as they are."""
    if images.dtype == torch.uint8:
        return images
    return (images * 255).round_().clamp_(0, 255).to(torch.uint8)


def _as_npy(values: Tensor) -> bytes:
    file = io.BytesIO()
    np.save(file, values.numpy(), allow_pickle=False)
    return file.getvalue()


def _keep(path: Path, content: bytes) -> None:
    """Write a file that must not change afterwards: one that is there already must say the same."""
    if path.exists():
        if path.read_bytes() != content:
            raise ValueError(
                f"{path} was written with other settings: give the ones it was begun with to finish that folder, or "
                "choose another folder."
            )
        return
    write_atomically(path, content)
