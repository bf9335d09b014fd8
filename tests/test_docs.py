"""The documents keep their word: examples run and print what is shown, commands exist, links lead somewhere.

A block that must not run is preceded by ``<!-- not run: reason -->`` on a line of its own.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(
    [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + list((ROOT / "docs").glob("*.md"))
)
TIMEOUT = 180
#: They install, clone or move. (`make` is not run either: its targets are looked up in the Makefile.)
NOT_RUN = ("pip ", "python -m pip ", "git ", "cd ")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, where it starts, and the output shown right below it."""

    document: Path
    line: int
    language: str
    text: str
    skipped: bool
    output: str | None = None

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT) if self.document.is_absolute() else self.document}:{self.line}"


def blocks(document: Path, text: str) -> list[Block]:
    """All fenced blocks of a document. A ``text`` block that follows a block at once is that one's output."""
    fence = re.compile(
        r"^(?P<skip><!-- not run: .+? -->\n+)?```(?P<language>\w*)\n(?P<body>.*?)^```$"
        r"(?:\n+```text\n(?P<output>.*?)^```$)?",
        re.MULTILINE | re.DOTALL,
    )
    return [
        Block(
            document,
            text.count("\n", 0, match.start("language")) + 1,
            match["language"],
            match["body"],
            match["skip"] is not None,
            match["output"],
        )
        for match in fence.finditer(text)
    ]


def commands(block: Block) -> list[str]:
    """The command lines of a shell block: prompts and comments removed, continued lines joined."""
    lines = block.text.replace("\\\n", " ").splitlines()
    stripped = [line.strip().removeprefix("$ ") for line in lines]
    return [line for line in stripped if line and not line.startswith("#")]


ALL = [block for path in DOCUMENTS for block in blocks(path, path.read_text(encoding="utf-8"))]
PYTHON = [block for block in ALL if block.language == "python" and not block.skipped]
SHELL = [
    pytest.param(block, line, id=f"{block}: {line.partition(' #')[0].strip()}")
    for block in ALL
    if block.language in ("sh", "bash", "console") and not block.skipped
    for line in commands(block)
    if not line.startswith(NOT_RUN)
]


def run(words: list[str], folder: Path) -> str:
    """Run in a folder of its own, with the package of this checkout; returns what was printed."""
    variables = os.environ | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "100"}
    done = subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, f"{shlex.join(words)} failed:\n{done.stdout}{done.stderr}"
    return done.stdout


def assert_shown(shown: str | None, printed: str) -> None:
    """What a document shows is what was printed; "..." stands for anything."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    if shown is not None and not doctest.OutputChecker().check_output(shown, printed, flags):
        pytest.fail(f"The document shows\n{shown}\nbut the example prints\n{printed}")


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_examples_run_and_print_what_is_shown(block: Block, tmp_path: Path) -> None:
    if ">>>" in block.text:
        example = doctest.DocTestParser().get_doctest(block.text, {}, str(block), str(block.document), block.line)
        assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example).failed == 0
    else:
        assert_shown(block.output, run([sys.executable, "-c", block.text], tmp_path))


@pytest.mark.parametrize(("block", "line"), SHELL)
def test_commands_run(block: Block, line: str, tmp_path: Path) -> None:
    words = shlex.split(line, comments=True)
    shown = block.output if len(commands(block)) == 1 else None
    if words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert words[1] in targets, f"{block} says `{line}`, but the Makefile has only {targets}"
    elif words[0] == "identica":
        assert_shown(shown, run([sys.executable, "-m", "identica", *words[1:]], tmp_path))
    elif words[0] in ("python", "python3"):
        assert_shown(shown, run([sys.executable, *words[1:]], tmp_path))
    else:
        pytest.fail(f"{block}: nobody knows how to check `{line}`; teach this test, or mark the block as not run.")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    assert broken_links(document) == []


def broken_links(document: Path) -> list[str]:
    """Links to files that are not there, and to headings that no document has."""
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)", prose) + re.findall(r'(?:src|href)="([^"]+)"', prose)
    broken = []
    for target in targets:
        if re.match(r"[a-z]+:", target):  # somebody else's page
            continue
        name, _, heading = target.partition("#")
        path = document.parent / name if name else document
        if not path.exists() or (heading and heading not in headings(path)):
            broken.append(target)
    return broken


def headings(path: Path) -> set[str]:
    """The anchors of a document's headings, as the usual web pages make them."""
    lines = path.read_text(encoding="utf-8").splitlines()
    titles = [line.lstrip("#").strip().lower() for line in lines if re.match(r"#+ ", line)]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


def test_the_citation_is_the_version_we_are() -> None:
    from identica import __version__

    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {__version__}\n" in citation
    assert __version__ in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


# The checks themselves


def test_blocks_are_found_with_their_output() -> None:
    shown = "# A\n```python\nprint(1)\n```\n\n```text\n1\n```\n"
    skipped = "<!-- not run: slow -->\n```sh\n$ identica x \\\n  y\n# no\n```\n"
    first, second = blocks(Path("a.md"), shown + skipped)
    assert (first.language, first.text, first.output, first.line) == ("python", "print(1)\n", "1\n", 2)
    assert second.skipped and [line.split() for line in commands(second)] == [["identica", "x", "y"]]


def test_wrong_output_is_caught() -> None:
    assert_shown("R2 1.00\n", "R2 1.00\n")
    assert_shown("R2 0.9...\n", "R2 0.987\n")
    with pytest.raises(pytest.fail.Exception):
        assert_shown("R2 1.00\n", "R2 0.99\n")


def test_broken_links_are_caught(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A title, here\n", encoding="utf-8")
    index = tmp_path / "index.md"
    good = "## Own\n[a](there.md) [b](there.md#a-title-here) [c](#own) [d](https://example.org) `[e](x)`\n"
    index.write_text(good + '[f](gone.md) [g](there.md#no) ![h](gone.png) <img src="gone.svg">', encoding="utf-8")
    assert broken_links(index) == ["gone.md", "there.md#no", "gone.png", "gone.svg"]


def test_the_results_are_those_of_the_receipts() -> None:
    from identica.report.markdown import markdown
    from identica.report.receipts import load
    from identica.report.results import gather

    receipts, notes = load(ROOT / "results")
    assert receipts and not notes
    text = (ROOT / "RESULTS.md").read_text(encoding="utf-8")
    assert text == markdown(gather(receipts)), "RESULTS.md is out of date: run 'identica report' and commit it"
