"""The kernels compile for a GPU, where the interpreter, which takes more than the compiler does, has nothing to say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

triton = pytest.importorskip("triton")

#: Of 65,536 registers this leaves a processor of the GPU room for 21 of the one-warp programs that wait for memory.
MOST_REGISTERS = 96


@pytest.mark.slow  # a quarter of a minute of compiling, unless Triton has kept the result
def test_kernels_compile_without_a_gpu() -> None:
    if not (Path(triton.__file__).parent / "backends/nvidia/bin/ptxas").exists():
        pytest.skip("this Triton cannot compile for NVIDIA's GPUs")
    # A process of its own: Triton decides once, when it is first loaded, whether it compiles or interprets.
    command = [sys.executable, "-m", "tests.render.compiled"]
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == 12 and {line["kernel"] for line in lines} == {
        "draw",
        "light_ground",
        "light_object",
        "resolve",
    }
    for line in lines:
        assert line["spilled"] == 0 and line["doubles"] == 0 and 0 < line["registers"] <= MOST_REGISTERS, line
