"""The house rules, checked by reading the source: who may import whom, what is loaded when, what is never read.

The order of the rooms is the list in docs/architecture.md and nowhere else.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "identica"
ARCHITECTURE = ROOT / "docs" / "architecture.md"

#: Not rooms: the face (imports anything), the entry point, and the version, which everyone may import.
OUTSIDE = ("__init__", "__main__", "_version")
#: Never imported at all: heavy, and the core promises to do without them.
FORBIDDEN = ("torchvision", "timm")
#: Imported only inside the function that needs them, except in these files (relative to the package).
LAZY: dict[str, tuple[str, ...]] = {
    "triton": ("triton_*.py", "*/triton_*.py"),
    **dict.fromkeys(("PIL", "faiss", "bpy", "tensorboard", "mlflow", "ray"), ()),
}
#: Modules that run code found in a file.
UNSAFE = ("pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib")


# Reading the list and the source


def read_rooms(document: str) -> dict[str, bool]:
    """Room -> whether it is built, in order, from the fenced block marked ``rooms``."""
    block = document.split("```rooms\n")[1].split("```")[0]
    rooms = {}
    for line in filter(str.strip, block.splitlines()):
        name, _, description = line.strip().partition(" ")
        rooms[name.removesuffix("/").removesuffix(".py")] = "(planned)" not in description
    return rooms


def rooms_of(package: Path) -> set[str]:
    """The modules and packages right below ``package``."""
    modules = {path.stem for path in package.glob("*.py")} - set(OUTSIDE)
    return modules | {path.name for path in package.iterdir() if path.is_dir() and any(path.rglob("*.py"))}


def sources(package: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(package.rglob("*.py")):
        yield path.relative_to(package), ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imported(tree: ast.AST, path: Path) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything a file imports, wherever it does so; names relative to it resolved."""
    here = ["identica", *path.with_suffix("").parts]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [] if node.level == 0 else here[: -node.level]
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__") and node.args:
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield node.lineno, name.value


def _called(node: ast.Call) -> str:
    """The last part of the name of what is called: ``torch.load(...)`` -> "load"."""
    return ast.unparse(node.func).rpartition(".")[2]


def at_import(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when the module is imported: not inside functions, not under TYPE_CHECKING."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from at_import(child)


# The rules; each returns the violations as sentences


def upward_imports(package: Path, rooms: dict[str, bool]) -> list[str]:
    """Every room imports only from itself and from rooms above it."""
    order = {room: place for place, room in enumerate(rooms)}
    found = []
    for path, tree in sources(package):
        room = path.parts[0].removesuffix(".py")
        if room in ("__init__", "_version") or room not in order:
            continue
        for line, name in imported(tree, path):
            if name.partition(".")[0] != "identica":
                continue
            target = (name.split(".") + [""])[1]
            if target in ("_version", room):
                continue
            if target not in order:
                found.append(f"{path}:{line} imports {name}: import it from its room, not from the package's face")
            elif order[target] > order[room]:
                found.append(f"{path}:{line} imports {name}, but {target} is below {room} in the list")
    return found


def unlisted_rooms(package: Path, rooms: dict[str, bool]) -> list[str]:
    """The list and the source agree on which rooms there are."""
    there = rooms_of(package)
    built = {room for room, is_built in rooms.items() if is_built}
    return (
        [f"{room} is in the source, but not in the list" for room in sorted(there - set(rooms))]
        + [f"{room} is listed, but not in the source; mark it (planned)" for room in sorted(built - there)]
        + [f"{room} is in the source: drop its (planned)" for room in sorted(there & (set(rooms) - built))]
    )


def early_imports(package: Path) -> list[str]:
    """Optional packages are imported when they are used; torchvision and timm never."""
    found = []
    for path, tree in sources(package):
        top = [node for node in at_import(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        module = ast.Module(body=top, type_ignores=[])  # type: ignore[arg-type]
        for line, name in imported(module, path):
            allowed = LAZY.get(name.partition(".")[0])
            if allowed is not None and not any(fnmatch(path.as_posix(), pattern) for pattern in allowed):
                found.append(f"{path}:{line} imports {name} when it is loaded; import it where it is used")
        found += [
            f"{path}:{line} imports {name}, which nothing here may need"
            for line, name in imported(tree, path)
            if name.partition(".")[0] in FORBIDDEN
        ]
    return found


def unsafe_loads(package: Path) -> list[str]:
    """No file can make us run code by being read."""
    found = []
    for path, tree in sources(package):
        for line, name in imported(tree, path):
            if name.partition(".")[0] in UNSAFE or name == "torch.load":
                found.append(f"{path}:{line} imports {name}, which can run what is in a file")
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            options = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if ast.unparse(node.func) == "torch.load" and options.get("weights_only") != "True":
                found.append(f"{path}:{node.lineno} calls torch.load without weights_only=True")
            if options.get("allow_pickle", "False") != "False":
                found.append(f"{path}:{node.lineno} allows pickled arrays")
    return found


# The house keeps its rules


@pytest.fixture(scope="module")
def rooms() -> dict[str, bool]:
    return read_rooms(ARCHITECTURE.read_text(encoding="utf-8"))


def test_rooms_import_only_from_rooms_above_them(rooms: dict[str, bool]) -> None:
    assert upward_imports(PACKAGE, rooms) == []


def test_the_list_names_every_room(rooms: dict[str, bool]) -> None:
    assert unlisted_rooms(PACKAGE, rooms) == []
    assert list(rooms)[-1] == "cli"


def test_optional_packages_are_imported_only_when_used() -> None:
    assert early_imports(PACKAGE) == []


def test_nothing_runs_code_from_a_file() -> None:
    assert unsafe_loads(PACKAGE) == []


def test_the_entry_point_leads_to_the_command_alone() -> None:
    tree = ast.parse((PACKAGE / "__main__.py").read_text(encoding="utf-8"))
    assert [name for _, name in imported(tree, Path("__main__.py"))] == ["identica.cli.main"]


# The checker catches what it is there to catch


def tree(tmp_path: Path, **files: str) -> Path:
    """A package with the given files; ``a__b`` stands for ``a/b.py``."""
    for name, text in files.items():
        path = tmp_path / "identica" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
    return tmp_path / "identica"


FAKE = {"spaces": True, "distributions": True, "cli": True}


@pytest.mark.parametrize(
    "line",
    [
        "import identica.cli",
        "import identica.cli as command",
        "from identica.cli import main",
        "from identica import cli",
        "from identica import Sphere",
        "import identica",
        "from ..cli import main",
        "from .. import cli",
        "import importlib\nimportlib.import_module('identica.cli')",
        "def later():\n    from identica.cli import main",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from identica.cli import main",
    ],
)
def test_an_import_from_below_is_caught(tmp_path: Path, line: str) -> None:
    package = tree(tmp_path, spaces="", distributions__base=line, cli="")
    assert len(upward_imports(package, FAKE)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "from identica.spaces import Sphere",
        "from identica import spaces",
        "from identica._version import __version__",
        "from identica.distributions.other import x",
        "from . import other",
        "from .other import x",
        "import torch, identicalooking.cli",
    ],
)
def test_an_import_from_above_or_beside_is_fine(tmp_path: Path, line: str) -> None:
    package = tree(tmp_path, spaces="", distributions__base=line, distributions__other="x = 1", cli="")
    assert upward_imports(package, FAKE) == []


def test_rooms_missing_on_either_side_are_caught(tmp_path: Path) -> None:
    package = tree(tmp_path, spaces="", attic__junk="", planned="")
    found = unlisted_rooms(package, {"spaces": True, "cli": True, "planned": False, "later": False})
    assert [sentence.split()[0] for sentence in found] == ["attic", "cli", "planned"]


def test_early_imports_are_caught(tmp_path: Path) -> None:
    package = tree(
        tmp_path,
        kernels__triton_forward="import triton.language as tl",
        mixing__triton_layers="import triton",
        mixing__not_triton_="import triton",
        kernels__tiled="try:\n    import triton\nexcept ImportError:\n    triton = None",
        data__images="class Reader:\n    from PIL import Image",
        data__pairs="def neighbours():\n    import faiss",
        data__late="def crop():\n    import torchvision",
    )
    found = [sentence.split(":")[0] for sentence in early_imports(package)]
    assert sorted(found) == ["data/images.py", "data/late.py", "kernels/tiled.py", "mixing/not_triton_.py"]


@pytest.mark.parametrize(
    "code",
    [
        "import torch\ntorch.load('a.pt')",
        "import torch\ntorch.load('a.pt', weights_only=False)",
        "from torch import load",
        "import pickle",
        "def read():\n    from joblib import load",
        "import numpy as np\nnp.load('a.npy', allow_pickle=True)",
    ],
)
def test_unsafe_loads_are_caught(tmp_path: Path, code: str) -> None:
    assert len(unsafe_loads(tree(tmp_path, data__reader=code))) == 1


def test_safe_loads_are_fine(tmp_path: Path) -> None:
    code = "import numpy as np, torch\ntorch.load('a', weights_only=True)\nnp.load('b', allow_pickle=False)"
    assert unsafe_loads(tree(tmp_path, data__reader=code)) == []


def test_the_list_is_read_in_order() -> None:
    document = "# Rooms\n```rooms\nspaces.py   where\ndata/       sets (planned)\n```\n```text\nother.py\n```"
    assert list(read_rooms(document).items()) == [("spaces", True), ("data", False)]
