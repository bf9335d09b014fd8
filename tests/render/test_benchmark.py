"""The benchmark of the renderer, as far as it can go wrong without a GPU."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "render.py"


@pytest.fixture(scope="module")
def benchmark() -> Any:
    found = importlib.util.spec_from_file_location("benchmark_of_the_renderer", SCRIPT)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_a_folder_without_references_is_an_error(tmp_path: Path, benchmark: Any) -> None:
    """Not an empty table, which looks like a comparison that went well."""
    for references in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(SystemExit, match="has no folder with latents.npy"):  # a sentence, and the status 1
            benchmark.folders_of(references)
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "latents.npy").touch()
    assert benchmark.folders_of(tmp_path) == benchmark.folders_of(tmp_path / "some") == [tmp_path / "some"]


def test_so_is_nothing_to_do(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for only, sentence in (("speeed", "takes some of psnr, high, speed, parts"), ("psnr", "--references DIR")):
        monkeypatch.setattr("sys.argv", ["render.py", "--only", only])
        with pytest.raises(SystemExit):
            benchmark.main()
        assert sentence in capsys.readouterr().err
