"""``identica report``: RESULTS.md and a web page from the receipts in a folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from identica.report.results import Results


def report(
    results: Annotated[Path, typer.Option(help="Folder with the ledgers of results.")] = Path("results"),
    out: Annotated[Path, typer.Option(help="Where the page goes: a folder for report.html, or a .html file.")] = Path(),
    markdown: Annotated[Path | None, typer.Option(help="The same as text; by default RESULTS.md beside it.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but the paths of the two files.")] = False,
) -> None:
    """Turn results into RESULTS.md and a web page: ours beside the papers', with verdicts, figures and learning curves.

    Both are made from the receipts and from nothing else: the same receipts give the same files.

    \b
    Examples:
      identica report
      identica report --results results --out pages
    """  # noqa: D301 (\b tells click to keep the lines as they are)
    from identica.report.markdown import MARK as TEXT_MARK
    from identica.report.markdown import markdown as text_of
    from identica.report.receipts import load
    from identica.report.results import gather
    from identica.report.results_page import MARK as PAGE_MARK
    from identica.report.results_page import page_path, results_page
    from identica.training.checkpoint import write_atomically

    page = page_path(out)
    markdown = page.parent / "RESULTS.md" if markdown is None else markdown
    receipts, notes = load(results)
    gathered = gather(receipts)
    _require_ours(page, PAGE_MARK, "--out")
    _require_ours(markdown, TEXT_MARK, "--markdown")
    for note in (*notes, *gathered.left_out):
        print(f"Warning: {note}", file=sys.stderr)
    files = {markdown: text_of(gathered), page: results_page(gathered, notes)}
    for path, text in files.items():
        write_atomically(path, text.encode("utf-8"))
    if quiet:
        print(*files, sep="\n")
    else:
        _print(gathered, markdown, page)


def _require_ours(path: Path, mark: str, option: str) -> None:
    """Find out, before anything is written, whether the file may be: it is new, or a report made earlier."""
    from identica.training.checkpoint import CheckpointError, require_writable

    if path.is_dir():
        raise ValueError(f"{path} is a folder, and a file is to be written there: choose another {option}.")
    if path.parent.exists() and not path.parent.is_dir():
        raise ValueError(f"{path.parent} is a file, so {path} cannot be written: choose another {option}.")
    try:
        require_writable(path.parent)
    except CheckpointError as error:
        reason = getattr(error.__cause__, "strerror", None) or "it cannot be written to"
        raise ValueError(
            f"The folder {path.parent} cannot hold {path.name} ({reason}): choose another {option}."
        ) from error
    if path.exists() and path.stat().st_size and mark.encode() not in path.read_bytes():
        raise ValueError(
            f"{path} was not made by 'identica report' and is left as it is: choose another {option}, or remove it."
        )


def _print(results: Results, markdown: Path, page: Path) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from identica.report.results import NOT_RUN, seconds_text

    console = Console(highlight=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("Experiment", "Budget", "Verdicts", "Seconds"):
        table.add_column(heading, justify="right" if heading == "Seconds" else "left", no_wrap=heading != "Verdicts")
    for block in (block for section in results.sections for block in section.blocks):
        said = block.tally if block.run else NOT_RUN
        table.add_row(block.experiment.id, block.budget or "–", said, seconds_text(block.seconds) if block.run else "–")
    console.print(table)
    console.print(f"Written: {markdown} and, to open in a browser, {page}", markup=False, soft_wrap=True)
