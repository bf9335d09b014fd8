"""How fast 3DIdent is drawn, and how close to Blender's pictures of the same latents.

    python benchmarks/render.py --device cuda --references DIR      everything, on a GPU
    python benchmarks/render.py --device cpu --references DIR       on the CPU, with all of PyTorch's threads
    python benchmarks/render.py --only speed                        parts of it: psnr, high, speed, parts
    python benchmarks/render.py --only blender --references DIR     Blender itself, where bpy is installed

DIR is a folder of reference pictures, or holds some, each with NN.png and latents.npy (N, 10) in [−1, 1]; the table has
a line for each folder. Speed is pictures a second, median over repetitions, of fresh random latents, warm; on a GPU
everything stays there. ``parts`` says where a GPU's time goes, kernel by kernel. ``blender`` draws the references again
with Cycles, if there are any, and ``--fresh`` random latents with Cycles and with our renderer; it takes minutes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch is loaded: idle threads sleep instead of spinning

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from identica.render import ThreeDIdentScene  # noqa: E402

#: Pictures at once and repetitions, by device.
BATCH = {"cuda": 1024, "cpu": 16}
REPETITIONS = {"cuda": 7, "cpu": 3}
RESOLUTIONS = (224, 128, 64)
PARTS = ("psnr", "high", "speed", "parts")
#: Only where it is asked for: it needs Blender.
ALL_PARTS = (*PARTS, "blender")


def read_references(folder: Path) -> tuple[Tensor, Tensor]:
    """Latents ``(N, 10)`` and pictures ``(N, 3, H, W)`` of a folder."""
    from PIL import Image

    pictures = [np.asarray(Image.open(path).convert("RGB")) for path in sorted(folder.glob("[0-9]*.png"))]
    latents = torch.from_numpy(np.load(folder / "latents.npy", allow_pickle=False)).float()
    return latents, torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2)


def psnr(ours: Tensor, theirs: Tensor) -> Tensor:
    """Peak signal-to-noise ratio of each picture, in dB: ``(N,)``."""
    error = (ours.double() - theirs.double()).square().mean(dim=(1, 2, 3))
    return 10.0 * (255.0**2 / error).log10()


def folders_of(references: Path) -> list[Path]:
    """Those with reference pictures, or the folder itself; without any there is nothing to compare with."""
    found = sorted(path.parent for pattern in ("latents.npy", "*/latents.npy") for path in references.glob(pattern))
    if not found:
        raise SystemExit(f"{references} has no folder with latents.npy and pictures NN.png: nothing to compare with.")
    return found


def compare(folders: list[Path], quality: str, device: str) -> None:
    for folder in folders:
        latents, pictures = read_references(folder)
        scene = ThreeDIdentScene(pictures.shape[-1], quality=quality)  # type: ignore[arg-type]
        say_psnr(quality, folder.name, scene.render(latents.to(device)).cpu(), pictures)


def say_psnr(who: str, what: str, ours: Tensor, theirs: Tensor) -> None:
    values = psnr(ours, theirs)
    each = " ".join(f"{value:.1f}" for value in values)
    print(f"{who:<9} {what:<14} mean {values.mean():.2f}  min {values.min():.2f} dB   {each}", flush=True)


def blender(folders: list[Path], fresh: int, samples: int, device: str) -> None:
    """Cycles against the references, then our renderer against Cycles on latents that nothing was fitted to."""
    from identica.render.blender import BlenderScene

    def draw(latents: Tensor, resolution: int) -> Tensor:
        scene = BlenderScene(resolution, samples)
        scene.render(latents[:0])  # builds it
        begin = time.perf_counter()
        pictures = scene.render(latents)
        seconds = (time.perf_counter() - begin) / len(latents)
        print(f"Blender {scene.version}, {samples} samples, {resolution}²: {seconds:.2f} s an image", flush=True)
        return pictures

    for folder in folders:
        latents, pictures = read_references(folder)
        say_psnr("blender", folder.name, draw(latents, pictures.shape[-1]), pictures)
    latents = torch.rand(fresh, 10, generator=torch.Generator().manual_seed(0)) * 2 - 1
    theirs = draw(latents, RESOLUTIONS[0])
    for quality in ("standard", "high"):
        ours = ThreeDIdentScene(RESOLUTIONS[0], quality=quality).render(latents.to(device)).cpu()  # type: ignore[arg-type]
        say_psnr(quality, "fresh", ours, theirs)


def speed(resolution: int, quality: str, device: str, batch: int, repetitions: int) -> None:
    scene = ThreeDIdentScene(resolution, quality=quality)  # type: ignore[arg-type]
    generator = torch.Generator(device).manual_seed(0)

    def draw() -> float:
        latents = torch.rand(batch, 10, generator=generator, device=device) * 2 - 1
        synchronize(device)
        begin = time.perf_counter()
        scene.render(latents, check=False)
        synchronize(device)
        return time.perf_counter() - begin

    begin = time.perf_counter()
    draw()
    first = time.perf_counter() - begin
    seconds = statistics.median(draw() for _ in range(repetitions))
    rate = batch / seconds
    print(
        f"{quality:<9} {resolution:>4}²  {rate:>10,.1f} images/s   (batch {batch}, first call {first:.1f} s)",
        flush=True,
    )


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def parts(resolution: int, batch: int) -> None:
    """Milliseconds of each kernel for a batch, from the profiler."""
    scene = ThreeDIdentScene(resolution)
    latents = torch.rand(batch, 10, generator=torch.Generator("cuda").manual_seed(0), device="cuda") * 2 - 1
    scene.render(latents, check=False)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        scene.render(latents, check=False)
        torch.cuda.synchronize()
    events = sorted(profile.key_averages(), key=lambda event: -event.self_device_time_total)
    for event in events[:8]:
        micro = event.self_device_time_total
        print(f"  {resolution:>3}²  {event.key[:40]:<40} {micro / 1e3:8.3f} ms   {micro / batch:7.2f} µs an image")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--references", type=Path, help="a folder of folders with reference pictures")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--resolutions", default=",".join(map(str, RESOLUTIONS)))
    parser.add_argument("--batch", type=int)
    parser.add_argument("--samples", type=int, default=128, help="light paths per pixel, of Blender")
    parser.add_argument("--fresh", type=int, default=8, help="random latents that Blender draws")
    arguments = parser.parse_args()
    chosen, device = arguments.only.split(","), arguments.device
    if unknown := [part for part in chosen if part not in ALL_PARTS]:
        parser.error(f"--only takes some of {', '.join(ALL_PARTS)}, separated by commas, not {', '.join(unknown)}")
    if not arguments.references and arguments.only != parser.get_default("only") and {"psnr", "high"} & {*chosen}:
        parser.error("to compare pictures there have to be some: --references DIR")
    resolutions = [int(number) for number in arguments.resolutions.split(",")]
    batch = arguments.batch or BATCH[device]
    folders = folders_of(arguments.references) if arguments.references else []
    where = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"3DIdent on {where}, PyTorch {torch.__version__}")
    for part, quality in (("psnr", "standard"), ("high", "high")):
        if part in chosen:
            compare(folders, quality, device)
    if "blender" in chosen:
        blender(folders, arguments.fresh, arguments.samples, device)
    if "speed" in chosen:
        for resolution in resolutions:
            speed(resolution, "standard", device, batch * (4 if resolution <= 64 else 1), REPETITIONS[device])
    if "parts" in chosen and device == "cuda":
        for resolution in resolutions:
            parts(resolution, batch)


if __name__ == "__main__":
    main()
