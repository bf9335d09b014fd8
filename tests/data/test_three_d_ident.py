"""The layout of 3DIdent: written, interrupted, finished, read, and every way it can be wrong."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from identica.data import DataFileError, ThreeDIdent, write_three_d_ident
from identica.data.png import write_png

RAW = 2 * torch.rand(7, 10, generator=torch.Generator().manual_seed(0)) - 1


def painted(latents: Tensor) -> Tensor:
    """A picture of 6×5 pixels whose colours are the first three latents."""
    return ((latents[:, :3] + 1) / 2)[:, :, None, None].expand(-1, 3, 6, 5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_three_d_ident(tmp_path / "set", RAW, painted, batch=3)
    return tmp_path / "set"


def test_what_is_written_is_read(folder: Path) -> None:
    data = ThreeDIdent(folder)
    assert len(data) == 7 and data.size == (6, 5)
    assert torch.equal(data.raw_latents, RAW)
    units = torch.tensor([3.0] * 3 + [math.pi / 2] * 7)
    assert torch.allclose(data.latents, RAW * units)
    images = data.images()
    assert images.shape == (7, 3, 6, 5) and images.dtype == torch.uint8
    assert torch.equal(images[..., 0, 0], ((RAW[:, :3] + 1) * 127.5).round().to(torch.uint8))
    image, latents = data[-1]
    assert torch.equal(image, images[6]) and torch.equal(latents, RAW[6])
    assert torch.equal(data.images([4, 1]), images[[4, 1]])
    assert sorted(path.name for path in (folder / "images").iterdir()) == [f"{k:06d}.png" for k in range(7)]
    with pytest.raises(IndexError, match="none with the number 7"):
        data[7]


def test_the_normalisation_is_computed_from_the_images(folder: Path) -> None:
    data = ThreeDIdent(folder)
    pixels = data.images().double() / 255
    mean, deviation = data.normalisation
    assert mean == pytest.approx(pixels.mean(dim=(0, 2, 3)).tolist())
    assert deviation == pytest.approx(pixels.std(dim=(0, 2, 3), correction=0).tolist())


def test_a_split_is_a_folder_below(folder: Path) -> None:
    assert len(ThreeDIdent(folder.parent, split="set")) == 7


def test_shorter_numbers_are_read_in_their_order(folder: Path) -> None:
    for path in (folder / "images").iterdir():
        path.rename(path.with_name(f"{int(path.stem)}.png"))
    write_png(folder / "images" / "10.png", np.zeros((6, 5, 3), np.uint8))
    with pytest.raises(DataFileError, match="8 images, but none with the number 7"):
        ThreeDIdent(folder)
    (folder / "images" / "10.png").unlink()
    assert torch.equal(ThreeDIdent(folder).images()[:, 0, 0, 0], ((RAW[:, 0] + 1) * 127.5).round().to(torch.uint8))


def test_an_image_that_cannot_be_read_is_named(folder: Path) -> None:
    path = folder / "images" / "000003.png"
    path.write_bytes(path.read_bytes()[:45])
    with pytest.raises(DataFileError, match=r"000003\.png cannot be read"):
        ThreeDIdent(folder).images()
    write_png(path, np.zeros((8, 8, 3), np.uint8))
    with pytest.raises(DataFileError, match=r"000003\.png has 8×8 pixels, others have 6×5"):
        ThreeDIdent(folder).images()


def test_wrong_counts_are_told(folder: Path) -> None:
    (folder / "images" / "000006.png").unlink()
    with pytest.raises(DataFileError, match="6 images, 7 rows of raw_latents.npy, 7 rows of latents.npy"):
        ThreeDIdent(folder)


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("raw_latents.npy", np.full((7, 10), 1.01), r"the x of image 0 is 1.01, expected a number between -1 and 1"),
        (
            "latents.npy",
            np.full((7, 10), 3.0),
            r"the rotation about x of image 0 is 3.0, expected .* -1.5708 and 1.5708",
        ),
        ("latents.npy", np.full((7, 10), np.nan), "the x of image 0 is nan"),
        ("latents.npy", np.zeros((7, 9)), r"holds \(7, 9\), expected at least one row of 10 factors"),
        ("latents.npy", np.zeros((7, 10), dtype="U3"), "expected numbers"),
    ],
)
def test_latents_outside_their_range_are_named(folder: Path, name: str, values: np.ndarray, said: str) -> None:
    np.save(folder / name, values)
    with pytest.raises(DataFileError, match=said):
        ThreeDIdent(folder)


def test_both_files_must_say_the_same(folder: Path) -> None:
    latents = np.load(folder / "latents.npy")
    np.save(folder / "latents.npy", latents.astype(np.float64) * (1 + 1e-7))  # rounding
    assert len(ThreeDIdent(folder)) == 7
    latents[[2, 5]] = latents[[5, 2]]
    np.save(folder / "latents.npy", latents)
    with pytest.raises(DataFileError, match=r"the x of image 2 is .* in latents.npy, expected .*: 3 times the"):
        ThreeDIdent(folder)


def test_pickles_are_refused(folder: Path) -> None:
    np.save(folder / "latents.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DataFileError, match="cannot be read as an array of numbers"):
        ThreeDIdent(folder)


def test_what_is_missing_is_named(folder: Path) -> None:
    with pytest.raises(DataFileError, match="There is no folder"):
        ThreeDIdent(folder / "nowhere")
    (folder / "latents.npy").unlink()
    with pytest.raises(DataFileError, match="holds no latents.npy; 'identica render 3dident' makes"):
        ThreeDIdent(folder)


# Writing


def test_only_what_is_missing_is_rendered_again(folder: Path) -> None:
    whole = ThreeDIdent(folder).images()
    (folder / "images" / "000002.png").unlink()
    cut = folder / "images" / "000005.png"
    cut.write_bytes(cut.read_bytes()[:-5])
    seen, progress = [], []

    def render(latents: Tensor) -> Tensor:
        seen.append(latents)
        return painted(latents)

    assert write_three_d_ident(folder, RAW, render, on_progress=progress.append) == 2
    assert torch.equal(torch.cat(seen), RAW[[2, 5]]) and progress == [5, 7]
    assert torch.equal(ThreeDIdent(folder).images(), whole)


@pytest.mark.parametrize("killed", [None, "raw_latents.npy"])
def test_more_latents_make_it_larger(folder: Path, killed: str | None) -> None:
    """Also where the one who made it larger was killed after the first file."""
    more = torch.cat([RAW, -RAW])
    if killed:
        np.save(folder / killed, more.numpy())
    assert write_three_d_ident(folder, more, painted) == 7
    data = ThreeDIdent(folder)
    assert torch.equal(data.raw_latents, more)
    assert torch.equal(data.images()[:, 0, 0, 0], ((more[:, 0] + 1) * 127.5).round().to(torch.uint8))


def test_a_folder_begun_with_other_settings_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="raw_latents.npy has 7 latents already, more than 6"):
        write_three_d_ident(folder, RAW[:6], painted)
    for other in (RAW.flip(0), torch.cat([RAW[1:], RAW])):
        with pytest.raises(ValueError, match="raw_latents.npy was written from other latents"):
            write_three_d_ident(folder, other, painted)
    with pytest.raises(ValueError, match=r"rendering.json .* other settings \(size was not given and is now 64\)"):
        write_three_d_ident(folder, RAW, painted, settings={"size": 64, "split": None})
    whole = (folder / "latents.npy").read_bytes()
    for damaged in (whole[:-9], b"PK\x03\x04 no archive", b"", whole[:20]):
        (folder / "latents.npy").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"latents.npy cannot be read \(.*: delete it"):
            write_three_d_ident(folder, RAW, painted)
        with pytest.raises(DataFileError, match="latents.npy cannot be read as an array of numbers"):
            ThreeDIdent(folder)
    (folder / "latents.npy").write_bytes(whole)
    (folder / "rendering.json").write_text("{")
    with pytest.raises(ValueError, match="rendering.json cannot be read"):
        write_three_d_ident(folder, RAW, painted)


@pytest.mark.parametrize("kept", ["images/000003.png", "raw_latents.npy", "latents.npy"])
def test_a_folder_from_elsewhere_is_refused_and_left_alone(folder: Path, kept: str) -> None:
    """A picture that lies there is not one of these latents, only because it has the right name."""
    for path in [*folder.iterdir(), *(folder / "images").iterdir()]:
        if path.is_file() and path != folder / kept:
            path.unlink()
    with pytest.raises(ValueError, match=rf"holds {kept.split('/')[0]} but no rendering.json"):
        write_three_d_ident(folder, RAW, painted)
    assert [path for path in folder.rglob("*") if path.is_file()] == [folder / kept]


def test_what_killed_writers_left_is_cleared_away_and_what_living_ones_write_is_not(folder: Path) -> None:
    nobody = subprocess.Popen([sys.executable, "-c", ""])
    nobody.wait()
    for process in (nobody.pid, os.getpid()):
        (folder / f".writing.{process}.abc").mkdir()
        (folder / f".writing.{process}.abc" / "000001.png").write_bytes(b"half")
        (folder / f".latents.npy.{process}.abc").write_bytes(b"half")
    write_three_d_ident(folder, RAW, painted)
    left = sorted(path.name for path in folder.glob(".*"))
    assert left == [f".latents.npy.{os.getpid()}.abc", f".writing.{os.getpid()}.abc"]


def test_latents_that_are_none_get_a_sentence(tmp_path: Path) -> None:
    for latents, said in (
        (RAW[:, :9], r"the shape \(B, 10\), .*, not \(7, 9\)"),
        (2 * RAW, r"lie in \[-1, 1\], but row 0"),
        (RAW[:0], "at least one row"),
        (RAW.tolist(), "a tensor of floating numbers, not list"),
    ):
        with pytest.raises(ValueError, match=said):
            write_three_d_ident(tmp_path / "set", latents, painted)  # type: ignore[arg-type]
    assert not (tmp_path / "set").exists()


def test_images_that_are_none_get_a_sentence_and_are_not_written(tmp_path: Path) -> None:
    for render, said in (
        (lambda z: painted(z)[:2], r"shape \(7, 3, H, W\) out of 7 latents, not a tensor of shape \(2, 3, 6, 5\)"),
        (lambda z: painted(z)[:, :1], r"not a tensor of shape \(7, 1, 6, 5\)"),
        (lambda z: painted(z).numpy(), "not ndarray"),
        (lambda z: 200 * painted(z), "numbers from 0 to 1; these have others, or NaN"),
        (lambda z: painted(z) * torch.nan, "or NaN"),
        (lambda z: painted(z).long(), "not torch.int64"),
    ):
        with pytest.raises(ValueError, match=said):
            write_three_d_ident(tmp_path / "set", RAW, render)  # type: ignore[arg-type]
    assert not list((tmp_path / "set" / "images").iterdir())
    for setting in ("batch", "threads"):
        with pytest.raises(ValueError, match=setting):
            write_three_d_ident(tmp_path / "set", RAW, painted, **{setting: 0})  # type: ignore[arg-type]


def test_an_index_that_is_none_gets_a_sentence(folder: Path) -> None:
    data = ThreeDIdent(folder)
    with pytest.raises(TypeError, match=r"for several, data.images\(\[0, 1\]\)"):
        data[0:2]  # type: ignore[index]
    with pytest.raises(IndexError, match="There are 7 images, and none with the number 9"):
        data.images([9])


def test_one_number_is_one_image(folder: Path) -> None:
    write_png(folder / "images" / "0.png", np.zeros((6, 5, 3), np.uint8))
    with pytest.raises(DataFileError, match="holds 0.png and 000000.png, one number for two images"):
        ThreeDIdent(folder)


def test_latents_may_be_an_array(folder: Path) -> None:
    assert write_three_d_ident(folder, RAW.numpy(), painted) == 0


KILLED = """
import sys, time, torch
from identica.data import write_three_d_ident
def painted(latents):
    time.sleep(0.02)
    return ((latents[:, :3] + 1) / 2)[:, :, None, None].expand(-1, 3, 64, 64)
raw = 2 * torch.rand(400, 10, generator=torch.Generator().manual_seed(0)) - 1
write_three_d_ident(sys.argv[1], raw, painted, batch=4)
"""


def test_killed_while_writing_it_goes_on_from_there(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], env=os.environ | {"OMP_NUM_THREADS": "1"})
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("images/0*.png"))) < 8:
        assert process.poll() is None and time.monotonic() < deadline, "it ended before it could be killed"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    there = len(list(tmp_path.glob("images/0*.png")))
    raw = 2 * torch.rand(400, 10, generator=torch.Generator().manual_seed(0)) - 1
    with pytest.raises(DataFileError, match="It is incomplete"):
        ThreeDIdent(tmp_path)
    done = write_three_d_ident(
        tmp_path, raw, lambda latents: ((latents[:, :3] + 1) / 2)[:, :, None, None].expand(-1, 3, 64, 64)
    )
    assert 0 < done <= 400 - there and not list(tmp_path.glob("**/.*"))
    assert torch.equal(ThreeDIdent(tmp_path).images()[..., 0, 0], ((raw[:, :3] + 1) * 127.5).round().to(torch.uint8))
