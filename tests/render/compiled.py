"""Compile the renderer's kernels for a GPU that need not be there, as the renderer launches them, and print a table.

python -m tests.render.compiled

Each line is one kernel of one setting as JSON: registers of a thread, bytes that did not fit into them, and whether
the compiler made anything of double precision. Triton must not be told to interpret.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from identica.render import triton_renderer
from identica.render.scene import place
from identica.render.three_d_ident import Quality, settings_of

#: An H200's, as Triton and the assembler name it.
TARGET, ARCHITECTURE = GPUTarget("cuda", 90, 32), "sm_90a"
ASSEMBLER = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
KERNELS = ("draw", "light_ground", "light_object", "resolve")
SETTINGS: tuple[tuple[int, Quality, torch.dtype], ...] = (
    (224, "standard", torch.uint8),
    (64, "standard", torch.float32),
    (224, "high", torch.uint8),
)
_POINTERS = {torch.float32: "*fp32", torch.float16: "*fp16", torch.int32: "*i32", torch.uint8: "*u8"}
_OPTIONS = ("num_warps", "num_stages", "maxnreg")

Launch = tuple[Any, tuple[Any, ...], dict[str, Any]]


class _Recorded:
    """Stands in for a kernel and keeps what it is launched with."""

    def __init__(self, kernel: Any, launches: list[Launch]) -> None:
        self.kernel, self.launches = kernel, launches

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return lambda *arguments, **settings: self.launches.append((self.kernel, arguments, settings))


def launches_of(resolution: int, quality: Quality, dtype: torch.dtype) -> list[Launch]:
    """Every kernel with the arguments that it gets on a GPU."""
    launches: list[Launch] = []
    kernels = {name: getattr(triton_renderer, name) for name in KERNELS}
    try:
        for name, kernel in kernels.items():
            setattr(triton_renderer, name, _Recorded(kernel, launches))
        renderer = triton_renderer.TritonRenderer(resolution, settings_of(quality, resolution), torch.device("cpu"))
        renderer.blocks = triton_renderer.Blocks()
        renderer.render(place(torch.zeros(2, 10)), dtype)
    finally:
        for name, kernel in kernels.items():
            setattr(triton_renderer, name, kernel)
    return launches


def assembly(kernel: Any, arguments: tuple[Any, ...], settings: dict[str, Any]) -> str:
    """The kernel as PTX, compiled for the types of these arguments. Tensors begin at multiples of 16 bytes."""
    given = dict(zip(kernel.arg_names, arguments, strict=False)) | settings
    signature: dict[str, str] = {}
    constants: dict[Any, Any] = {}
    known: dict[Any, Any] = {}
    for place_of, parameter in enumerate(kernel.params):
        value = given[parameter.name]
        if parameter.is_constexpr:
            signature[parameter.name], constants[(place_of,)] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[parameter.name] = _POINTERS[value.dtype]
        else:
            signature[parameter.name] = "i32" if isinstance(value, int) else "fp32"
        if isinstance(value, torch.Tensor) or (isinstance(value, int) and value % 16 == 0):
            known[(place_of,)] = [["tt.divisibility", 16]]
    known = {place_of: facts for place_of, facts in known.items() if place_of not in constants}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=known)
    options = {name: settings[name] for name in _OPTIONS if name in settings}
    return str(triton.compile(source, target=TARGET, options=options).asm["ptx"])


def resources(ptx: str) -> dict[str, int]:
    """What the assembler says that a thread needs."""
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(ptx)
        file.flush()
        command = [str(ASSEMBLER), "-v", f"--gpu-name={ARCHITECTURE}", file.name, "-o", "/dev/null"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    numbers = {"registers": r"Used (\d+) registers", "spilled": r"(\d+) bytes spill stores"}
    return {name: sum(map(int, re.findall(pattern, said))) for name, pattern in numbers.items()}


def table() -> Iterator[dict[str, Any]]:
    """One line for each kernel and setting."""
    for resolution, quality, dtype in SETTINGS:
        for kernel, arguments, settings in launches_of(resolution, quality, dtype):
            ptx = assembly(kernel, arguments, settings)
            line = {"resolution": resolution, "quality": quality, "kernel": kernel.__name__}
            yield {**line, **resources(ptx), "doubles": len(re.findall(r"\.f64", ptx))}


if __name__ == "__main__":
    for line in table():
        print(json.dumps(line), flush=True)
