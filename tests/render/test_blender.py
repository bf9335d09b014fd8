"""Blender as the second engine: what surrounds it anywhere, the pictures where it is installed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from identica.render import ThreeDIdentScene
from identica.render.blender import BlenderScene, _interrupted_afterwards, _silent


@pytest.fixture(autouse=True)
def _usual_interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def latents_of(count: int, seed: int = 0) -> Tensor:
    return 2 * torch.rand(count, 10, generator=torch.Generator().manual_seed(seed)) - 1


def decibels(one: Tensor, other: Tensor) -> Tensor:
    """Peak signal-to-noise ratio of each picture: ``(B,)``."""
    return -10 * ((one.double() - other.double()) / 255).square().mean(dim=(1, 2, 3)).log10()


def test_what_is_written_from_c_is_not_heard(capfd: pytest.CaptureFixture[str]) -> None:
    with _silent():
        os.write(1, b"Fra:1 Mem:10.87M")
        os.write(2, b"trouble")
    with pytest.raises(ZeroDivisionError), _silent():
        raise ZeroDivisionError
    os.write(1, b"path")
    assert capfd.readouterr() == ("path", "trouble")


def test_an_interrupt_waits_for_the_picture() -> None:
    done = False
    with pytest.raises(KeyboardInterrupt), _interrupted_afterwards():
        signal.raise_signal(signal.SIGINT)
        done = True
    assert done and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with _interrupted_afterwards():  # the next picture is not interrupted again
        pass


@pytest.mark.parametrize(("outcome", "written"), [("CANCELLED", True), ("FINISHED", False)])
def test_a_picture_that_was_not_drawn_is_an_error(
    outcome: str, written: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not the one before."""
    path = tmp_path / "0.png"

    def render(write_still: bool) -> set[str]:
        if written:
            path.touch()
        return {outcome}

    fake: Any = SimpleNamespace(
        app=SimpleNamespace(version_string="4.2.0"),
        context=SimpleNamespace(scene=SimpleNamespace(render=SimpleNamespace())),
        ops=SimpleNamespace(render=SimpleNamespace(render=render)),
    )
    monkeypatch.setattr("identica.render.blender._blender", lambda: fake)
    with pytest.raises(RuntimeError, match=f"Blender 4.2.0 has drawn no picture: {outcome}."):
        BlenderScene(16, samples=1)._draw(path)


@pytest.mark.slow
def test_both_engines_draw_the_same() -> None:
    """On fresh latents; measured were 47 dB and more. Light from the world, for one, would leave 26."""
    pytest.importorskip("bpy")
    latents = latents_of(4)
    theirs = BlenderScene(224, samples=128).render(latents)
    assert theirs.shape == (4, 3, 224, 224) and theirs.dtype == torch.uint8
    assert decibels(ThreeDIdentScene(224).render(latents), theirs).min() > 45


@pytest.mark.slow
def test_scenes_take_turns(capfd: pytest.CaptureFixture[str]) -> None:
    """Blender has one scene: a picture does not depend on who drew before, nor on what else is drawn."""
    pytest.importorskip("bpy")
    latents = latents_of(2, seed=1)
    one, other = BlenderScene(32, samples=4), BlenderScene(24, samples=1)
    first = one.render(latents)
    assert other.render(latents[:1]).shape == (1, 3, 24, 24)
    assert torch.equal(one.render(latents.flip(0)).flip(0), first)
    assert not torch.equal(first[0], first[1])
    assert one.render(latents[:0]).shape == (0, 3, 32, 32)
    assert capfd.readouterr().out == ""


@pytest.mark.slow
def test_nothing_shines_but_the_lights() -> None:
    """The same picture without lights is black, whatever worlds are like in this version of Blender.

    But for the denoiser, which makes up to two grey values of nothing.
    """
    bpy = pytest.importorskip("bpy")
    scene = BlenderScene(16, samples=1)
    scene.render(latents_of(0))
    bpy.context.scene.cycles.use_denoising = False
    for light in bpy.data.lights:
        light.energy = 0.0
    assert int(scene.render(latents_of(1)).max()) == 0
    BlenderScene._current = None  # others build theirs
