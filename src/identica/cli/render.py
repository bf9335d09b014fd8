"""``identica render``: pictures of scenes with known factors, as a data set or as one sheet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from torch import Tensor

WHAT = ("3dident", "sheet")
ENGINES = ("ours", "blender")
#: Options that mean nothing to what is drawn, or to who draws it.
WITHOUT_EFFECT = {
    "3dident": ("values",),
    "sheet": ("n", "split", "seed"),
    "ours": ("samples",),
    "blender": ("quality", "device"),
}
#: Latents that are drawn at once.
LATENTS_BLOCK = 4096
#: To the inch of a sheet: with fewer its text could not be read.
LEAST_DOTS = 75


def render(
    context: typer.Context,
    what: Annotated[str, typer.Argument(metavar="WHAT", help="3dident, a data set; or sheet, one figure.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the data set, or file of the sheet.")] = None,
    n: Annotated[int, typer.Option(min=1, help="Images of the data set.")] = 1000,
    split: Annotated[str | None, typer.Option(help="Such as train or test: other latents, a folder below.")] = None,
    resolution: Annotated[int | None, typer.Option(min=16, max=512, help="Pixels: 224, of the sheet 128.")] = None,
    values: Annotated[int, typer.Option(min=2, max=50, help="How many values of each factor the sheet shows.")] = 7,
    seed: Annotated[int, typer.Option(help="Another seed, other latents.")] = 0,
    quality: Annotated[str, typer.Option(help="standard or high, of our own renderer.")] = "standard",
    engine: Annotated[str, typer.Option(help="ours, or blender (needs identica[blender]).")] = "ours",
    samples: Annotated[int, typer.Option(min=1, help="Light paths per pixel, of Blender.")] = 512,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1; auto takes the GPU where there is one.")] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but the path.")] = False,
) -> None:
    """Draw 3DIdent: a teapot with ten factors (place, rotation, spotlight, three hues), all known.

    A data set has the layout of the published one, images/000000.png …, latents.npy (physical units) and
    raw_latents.npy (from -1 to 1); identica.data.ThreeDIdent reads either. Interrupted, even killed, the same command
    goes on where it was, and with a larger --n it adds images. A sheet shows each factor at several values.

    \b
    Examples:
      identica render 3dident --n 1000 --out 3dident --split train
      identica render sheet --out factors.png
      identica render 3dident --n 16 --out compare --engine blender
    """  # noqa: D301 (\b tells click to keep the lines as they are)
    from identica.names import no_such

    for kind, given, known in (("picture", what, WHAT), ("engine", engine, ENGINES)):
        if given not in known:
            raise ValueError(no_such(kind, given, known))
    for one in (what, engine):
        _refuse(context, one)
    size = resolution or (128 if what == "sheet" else 224)
    draw, settings, batch = _renderer(engine, size, quality, samples, device)
    if what == "sheet":
        path = _sheet(out or Path("factors.png"), draw, values, size)
    else:
        if split is not None and (split != Path(split).name or split in ("", ".", "..")):
            raise ValueError(f"--split is the name of a folder below --out, such as train, not {split!r}.")
        path = _data_set((out or Path("3dident")) / (split or ""), draw, settings, batch, n, split, seed, quiet)
    if quiet:
        print(path)
    elif what == "sheet":
        print(f"Sheet in {path}.")


def _refuse(context: typer.Context, what: str) -> None:
    """Options that would do nothing, where they are given: somebody expects something of them."""
    given = [name for name in WITHOUT_EFFECT[what] if context.get_parameter_source(name).name != "DEFAULT"]  # type: ignore[union-attr]
    if given:
        options = ", ".join(f"--{name}" for name in given)
        raise ValueError(f"{options} would change nothing with {what}: leave it out.")


def _renderer(
    engine: str, resolution: int, quality: str, samples: int, device: str
) -> tuple[Callable[[Tensor], Tensor], dict[str, Any], int]:
    """What turns latents into pictures, what it depends on, and after how many pictures they are saved."""
    from identica.experiments.running.provenance import choose_device

    if engine == "blender":
        from identica.render.blender import BlenderScene

        blender = BlenderScene(resolution, samples)
        settings = {"engine": engine, "version": blender.version, "resolution": resolution, "samples": samples}
        return blender.render, settings, 1  # it takes seconds
    from identica.render import VERSION, ThreeDIdentScene

    place = choose_device(device)
    scene = ThreeDIdentScene(resolution, quality)  # type: ignore[arg-type]
    settings = {"engine": engine, "version": VERSION, "resolution": resolution, "quality": quality}
    return lambda latents: scene.render(latents.to(place)), settings, 64


def _sheet(path: Path, draw: Callable[[Tensor], Tensor], values: int, size: int) -> Path:
    """A picture is about an inch wide on it: with a dot for each of its pixels nothing is blown up."""
    from identica.render import FACTORS
    from identica.report.factor_sheet import draw_factor_sheet

    path.parent.mkdir(parents=True, exist_ok=True)
    draw_factor_sheet(path, draw, FACTORS, values=values, dpi=max(LEAST_DOTS, size))
    return path


def _data_set(
    folder: Path,
    draw: Callable[[Tensor], Tensor],
    settings: dict[str, Any],
    batch: int,
    n: int,
    split: str | None,
    seed: int,
    quiet: bool,
) -> Path:
    import torch

    from identica.data import write_three_d_ident
    from identica.distributions import BoxUniform
    from identica.training import derive_seed

    marginal, name = BoxUniform(10, low=-1.0), f"3dident {split or 'images'}"
    # Block by block, so that a smaller data set is the beginning of a larger one.
    blocks = (
        marginal.sample((LATENTS_BLOCK,), generator=derive_seed(seed, f"{name} {start}"))
        for start in range(0, n, LATENTS_BLOCK)
    )
    latents = torch.cat(list(blocks))[:n]
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, and the images need a folder: choose another with --out.")
    begin = time.monotonic()
    with _progress(n, quiet) as on_progress:
        try:
            made = write_three_d_ident(
                folder,
                latents,
                draw,
                settings={**settings, "split": split, "seed": seed},
                batch=batch,
                on_progress=on_progress,
            )
        except KeyboardInterrupt:
            done = len(list((folder / "images").glob("[0-9]*.png")))
            raise KeyboardInterrupt(
                f"Interrupted: {done} of {n} images are in {folder}. Run the same command again to continue."
            ) from None
    if not quiet:
        seconds = time.monotonic() - begin
        rate = f", {made / seconds:.1f} a second" if made else ""
        print(f"{n} images in {folder}: {made} drawn now{rate}, {n - made} were there before.")
    return folder


@contextmanager
def _progress(total: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A bar on stderr that counts images, where somebody can see it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal, transient=True) as progress:
        task = progress.add_task("Drawing", total=total)
        yield lambda done: progress.update(task, completed=done)
