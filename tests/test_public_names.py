"""The face of the package: every promised name is there, and type checkers see the same list."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import identica


def test_every_name_resolves() -> None:
    for name in identica.__all__:
        assert getattr(identica, name) is not None
    assert sorted(dir(identica)) == sorted(identica.__all__)


def test_the_stub_lists_the_same_names() -> None:
    stub = ast.parse((Path(identica.__file__).parent / "__init__.pyi").read_text())
    listed = [alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(map(str, listed)) == sorted(identica.__all__)


def test_a_mistyped_name_gets_a_suggestion() -> None:
    with pytest.raises(AttributeError, match="Did you mean 'InfoNCE'"):
        _ = identica.InfoNCEE


def test_importing_the_package_does_not_load_torch() -> None:
    code = "import sys, identica; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
