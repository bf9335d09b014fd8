"""The benchmark of the renderer, as far as it can go wrong without a GPU."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "render.py"


def test_a_folder_without_references_is_an_error(tmp_path: Path) -> None:
    """Not an empty table, which looks like a comparison that went well."""
    found = importlib.util.spec_from_file_location("benchmark_of_the_renderer", SCRIPT)
    assert found is not None and found.loader is not None
    benchmark = importlib.util.module_from_spec(found)
    found.loader.exec_module(benchmark)
    for references in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(SystemExit, match="has no folder with latents.npy"):  # a sentence, and the status 1
            benchmark.folders_of(references)
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "latents.npy").touch()
    assert benchmark.folders_of(tmp_path) == [tmp_path / "some"]
