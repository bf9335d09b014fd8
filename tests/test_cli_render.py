"""``identica render`` as a person meets it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib.image
import pytest
import torch

from identica.cli.app import run
from identica.data import ThreeDIdent
from identica.render import FACTORS, VERSION, ThreeDIdentScene
from identica.report.factor_sheet import draw_factor_sheet, traversal

SMALL = ("--resolution", "16", "--device", "cpu")


@pytest.fixture(autouse=True)
def _one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IDENTICA_DEBUG", raising=False)


def test_a_data_set_is_written_and_continued(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["render", "3dident", "--n", "3", "--out", str(tmp_path), "--split", "train", *SMALL]
    assert run(arguments) == 0
    assert "3 images in" in capsys.readouterr().out
    data = ThreeDIdent(tmp_path, split="train")
    assert len(data) == 3 and data.size == (16, 16)
    assert torch.equal(data.images(), ThreeDIdentScene(16).render(data.raw_latents))

    (tmp_path / "train" / "images" / "000001.png").unlink()
    assert run([*arguments, "--quiet"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "train")
    assert torch.equal(ThreeDIdent(tmp_path, split="train").images(), data.images())
    settings = json.loads((tmp_path / "train" / "rendering.json").read_text())
    assert (settings["resolution"], settings["version"]) == (16, VERSION)


def test_a_data_set_grows(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("identica.cli.render.LATENTS_BLOCK", 4)
    arguments = ["render", "3dident", "--out", str(tmp_path), *SMALL, "--n"]
    assert run([*arguments, "3"]) == 0
    first = ThreeDIdent(tmp_path)
    assert run([*arguments, "6"]) == 0
    assert "6 images in" in (said := capsys.readouterr().out) and "3 drawn now" in said
    larger = ThreeDIdent(tmp_path)
    assert len(larger) == 6 and torch.equal(larger.raw_latents[:3], first.raw_latents)
    assert torch.equal(larger.images(), ThreeDIdentScene(16).render(larger.raw_latents))
    assert run([*arguments, "5"]) == 2
    assert "has 6 latents already, more than 5: choose another folder" in capsys.readouterr().err


@pytest.mark.parametrize("split", ["../elsewhere", "..", "a/b", "/tmp", ""])
def test_a_split_is_a_name_and_not_a_path(split: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["render", "3dident", "--n", "1", "--out", str(tmp_path / "out"), "--split", split, *SMALL]) == 2
    assert "--split is the name of a folder below --out" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_splits_and_seeds_have_latents_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    latents = []
    for name, more in (("a", ["--split", "train"]), ("b", ["--split", "test"]), ("c", ["--seed", "1"])):
        assert run(["render", "3dident", "--n", "1", "--out", str(tmp_path / name), *SMALL, *more, "--quiet"]) == 0
        latents.append(ThreeDIdent(Path(capsys.readouterr().out.strip())).raw_latents)
    assert len({tuple(row[0].tolist()) for row in latents}) == 3


def test_mistakes_get_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["render", "3dident", "--n", "1", "--out", str(tmp_path / "set"), *SMALL, "--quiet"]) == 0
    (tmp_path / "file").write_text("")
    capsys.readouterr()
    for arguments, said in (
        (["render", "teapot"], "No such picture 'teapot'. There are: 3dident, sheet."),
        (["render", "sheet", "--engine", "povray"], "There are: ours, blender."),
        (["render", "sheet", "--out", str(tmp_path / "a.txt"), "--values", "2", *SMALL], "a .png, .pdf or .svg file"),
        (["render", "3dident", "--n", "1", "--out", str(tmp_path / "file"), *SMALL], "is a file, and the images need"),
        (
            ["render", "3dident", "--n", "1", "--out", str(tmp_path / "set"), *SMALL, "--seed", "1"],
            "other settings (seed was 0 and is now 1)",
        ),
        (["render", "sheet", "--quality", "best", *SMALL], "quality must be one of standard, high"),
    ):
        assert run(arguments) == 2
        error = capsys.readouterr().err
        assert error.startswith("Error: ") and said in error


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sheet", "--n", "5"], "--n would change nothing with sheet"),
        (["sheet", "--split", "test", "--seed", "0"], "--split, --seed would change nothing with sheet"),
        (["3dident", "--values", "7"], "--values would change nothing with 3dident"),
        (["3dident", "--samples", "16"], "--samples would change nothing with ours"),
        (["3dident", "--engine", "blender", "--quality", "high"], "--quality would change nothing with blender"),
    ],
)
def test_options_without_effect_are_refused(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["render", *arguments, "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_blender_is_asked_for_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bpy", None)
    assert run(["render", "sheet", "--engine", "blender", "--out", str(tmp_path / "a.png")]) == 2
    error = capsys.readouterr().err
    assert error.startswith('Error: The engine "blender" needs the package bpy: install it with')
    assert "leave out --engine to use our own renderer" in error


def test_blender_saves_every_image_when_it_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It takes seconds for each: a killed command must not lose a minute's work."""
    from identica.render import blender

    class Interrupted:
        version = "4.2"

        def __init__(self, resolution: int, samples: int) -> None:
            self.drawn = 0

        def render(self, latents: torch.Tensor) -> torch.Tensor:
            self.drawn += len(latents)
            if self.drawn > 2:
                raise KeyboardInterrupt
            return torch.zeros(len(latents), 3, 16, 16, dtype=torch.uint8)

    monkeypatch.setattr(blender, "BlenderScene", Interrupted)
    assert run(["render", "3dident", "--n", "5", "--out", str(tmp_path), "--engine", "blender"]) != 0
    assert "2 of 5 images" in capsys.readouterr().err
    assert len(list((tmp_path / "images").iterdir())) == 2


def test_a_sheet_shows_every_factor_at_every_value(tmp_path: Path) -> None:
    """In a scene that is black but for the factor that moves, each row brightens from left to right."""
    moved: list[torch.Tensor] = []

    def render(latents: torch.Tensor) -> torch.Tensor:
        moved.append(latents)
        return ((latents.abs().amax(dim=1) + 0.1).clamp(max=1))[:, None, None, None].expand(-1, 3, 4, 4)

    draw_factor_sheet(tmp_path / "sheet.png", render, FACTORS, values=3)
    assert moved[0].shape == (30, 10) and torch.equal(moved[0], traversal(3))
    assert [sorted(set(moved[0][3 * k : 3 * k + 3, k].tolist())) for k in range(10)] == [[-1.0, 0.0, 1.0]] * 10
    assert matplotlib.image.imread(tmp_path / "sheet.png").shape[2] == 4
    with pytest.raises(ValueError, match="10 factors, and 2 names"):
        draw_factor_sheet(tmp_path / "sheet.png", render, ("a", "b"))


def test_a_sheet_of_small_pictures_is_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["render", "sheet", "--out", str(tmp_path / "sheet.png"), "--values", "2", *SMALL]) == 0
    assert capsys.readouterr().out == f"Sheet in {tmp_path / 'sheet.png'}.\n"
    assert matplotlib.image.imread(tmp_path / "sheet.png").shape[:2] == (75 * 114 // 10, 75 * 36 // 10)


@pytest.mark.slow
def test_blender_draws_a_data_set(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """For real: a picture of each latent, in a folder that names Blender's version, and nothing said but the path."""
    bpy = pytest.importorskip("bpy")
    arguments = ["render", "3dident", "--out", str(tmp_path), "--engine", "blender", "--samples", "16", "--quiet"]
    capfd.readouterr()
    for n in ("1", "3"):
        assert run([*arguments, "--resolution", "48", "--n", n]) == 0
        assert capfd.readouterr().out == f"{tmp_path}\n"
    data = ThreeDIdent(tmp_path)
    ours = ThreeDIdentScene(48, quality="high").render(data.raw_latents)
    error = ((ours.double() - data.images().double()) / 255).square().mean(dim=(1, 2, 3))
    assert -10 * error.log10().max() > 34  # measured: 36.9; a grey world would leave 25
    settings = json.loads((tmp_path / "rendering.json").read_text())
    assert settings["version"] == bpy.app.version_string and settings["samples"] == 16
