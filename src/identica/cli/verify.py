"""``identica verify``: the theorems, measured."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from identica.diagnostics.theory import Check, Effort

#: A log gets a line about what is being done at most this often, in seconds.
LINE_EVERY = 5.0


def verify(
    out: Annotated[
        Path | None, typer.Option(help="Also write a page with pictures: a .html file, or a folder for verify.html.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer samples, shorter training: 20 seconds.")] = False,
    seed: Annotated[int, typer.Option(help="Other samples, other mixings, other networks.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only the claims that fail.")] = False,
) -> int:
    """Check the theorems of the paper numerically: what is predicted, what is measured, do they agree.

    Runs on two CPU cores in about two minutes. Exits with 0 if every claim holds, otherwise with 1.

    \b
    Examples:
      identica verify
      identica verify --quick
      identica verify --out verify.html      with pictures
    """  # noqa: D301 (\b tells click to keep the lines as they are)
    page = None if out is None else _page_path(out)
    from identica.diagnostics.theory import CHECKS, FULL, QUICK, Session

    effort, begin, checks = QUICK if quick else FULL, time.monotonic(), []
    try:
        with _progress(len(CHECKS), quiet) as bar:
            session = Session(effort, seed, bar.now)
            for check in CHECKS:
                checks.append(check(session))
                bar.done(len(checks))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"Interrupted after {len(checks)} of {len(CHECKS)} checks; nothing was written."
        ) from None
    seconds = time.monotonic() - begin
    if page is not None:
        from identica.report.verify import write_verify_report

        write_verify_report(checks, page, facts=_facts(effort, seed, seconds), seconds=seconds)
    _print(checks, seconds, page, quiet)
    return 0 if all(check.holds for check in checks) else 1


def _page_path(out: Path) -> Path:
    """Where the page goes; found out before anything is computed whether it can."""
    from identica.training.checkpoint import CheckpointError, require_writable

    page = out if out.suffix.lower() in (".html", ".htm") and not out.is_dir() else out / "verify.html"
    if page.parent.exists() and not page.parent.is_dir():
        raise ValueError(f"{page.parent} is a file, so the page cannot be written to {page}: choose another --out.")
    try:
        require_writable(page.parent)
    except CheckpointError as error:
        reason = getattr(error.__cause__, "strerror", None) or "it cannot be written to"
        raise ValueError(f"The folder {page.parent} cannot hold the page ({reason}): choose another --out.") from error
    return page


def _facts(effort: Effort, seed: int, seconds: float) -> list[tuple[str, str]]:
    return [
        ("Known maps", f"{effort.repeats} batches of {effort.anchors} pairs for each M up to {max(effort.negatives)}"),
        ("Training", f"3 encoders, {effort.steps} steps of {effort.batch_size} pairs each, 3 latents"),
        ("Mixing", "smooth, nonlinear, injective: two rounds of z + Q sin(3 Qᵀz + b)/6, then a linear map"),
        ("Seed", str(seed)),
        ("Time", f"{seconds:.0f} s"),
    ]


class _Bar:
    """What is being done, for a log: a line every few seconds."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._last = total, 0, time.monotonic()

    def now(self, what: str, share: float) -> None:
        """Something is going on; ``share`` of it is done."""
        if time.monotonic() - self._last >= LINE_EVERY:
            self._last = time.monotonic()
            print(f"{self._done}/{self._total} checks done  {what}  {share:.0%}", file=sys.stderr, flush=True)

    def done(self, count: int) -> None:
        """So many checks are done."""
        self._done = count


class _Silent(_Bar):
    def now(self, what: str, share: float) -> None:
        """Nothing is said."""


@contextmanager
def _progress(total: int, quiet: bool) -> Iterator[_Bar]:
    """A bar in a terminal, lines elsewhere, nothing when quiet."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield _Silent(total) if quiet else _Bar(total)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        MofNCompleteColumn(),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
        console=console,
        transient=True,
    ) as progress:
        task = progress.add_task("starting", total=total)

        class Bar(_Bar):
            def now(self, what: str, share: float) -> None:
                progress.update(task, description=f"{what} {share:.0%}", completed=self._done + 0.9 * share)

            def done(self, count: int) -> None:
                super().done(count)
                progress.update(task, completed=count)

        yield Bar(total)


def _print(checks: list[Check], seconds: float, page: Path | None, quiet: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from identica.diagnostics.theory.check import short

    failed = [check for check in checks if not check.holds]
    console = Console(highlight=False)
    shown = failed if quiet else checks
    if shown:
        table = Table(title="The theorems, measured", title_justify="left", show_lines=True)
        table.add_column("Claim, and what was measured", ratio=5)
        table.add_column("Measured", justify="right")
        table.add_column("Predicted", ratio=2)
        table.add_column("Verdict")
        for check in shown:
            claim = Text.assemble((f"{check.theorem}. ", "bold"), f"{check.claim}.\n", (check.quantity, "dim"))
            verdict = Text("holds", "green") if check.holds else Text("fails", "bold red")
            table.add_row(claim, short(check.measured), check.expected, verdict)
        console.print(table)
    for check in failed:
        console.print(
            Text(f"{check.theorem}: {check.claim}. Allowed: {check.tolerance_is}. {check.note}".strip(), "red")
        )
    if not quiet:
        held = "Every claim holds" if not failed else f"{len(failed)} of {len(checks)} claims fail"
        console.print(f"{held}. {seconds:.0f} s in all." + (f" The page, with pictures: {page}" if page else ""))
