"""``identica demo``: watch a contrastive encoder recover the factors of a nonlinear mixture."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from identica.experiments.demo import Demo


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the checkpoints and the report.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="Another mixing, another network, other data.")] = 0,
    steps: Annotated[int | None, typer.Option(min=1, help="Fewer training steps, for a quick look.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run that was interrupted.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but the path of the report.")] = False,
) -> None:
    """Recover hidden factors from pairs, once with the objective that theory asks for and once without.

    Trains on two CPU cores in about a minute and a half, prints the scores and writes a report.

    \b
    Examples:
      identica demo
      identica demo --seed 3 --out runs/other
      identica demo --resume          continue after Ctrl-C or a crash
    """  # noqa: D301 (\b tells click to keep the lines as they are)
    from identica.experiments.demo import run_demo
    from identica.report.demo import write_demo_report

    begin = time.monotonic()
    _require_folder(out)
    try:
        result = run_demo(out, seed=seed, steps=steps, resume=resume, quiet=quiet)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_interruption(out)) from None
    report = write_demo_report(result, out / "report.html")
    if quiet:
        print(report)
        return
    _print(result)
    print(f"\n{time.monotonic() - begin:.0f} s in all. The report, with pictures: {report}")


def _require_folder(out: Path) -> None:
    """Find out before any training whether the results can be written there."""
    from identica.training.checkpoint import CheckpointError, require_writable

    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file, and the results need a folder: choose another with --out.")
    try:
        require_writable(out)
    except CheckpointError as error:
        reason = getattr(error.__cause__, "strerror", None) or "it cannot be written to"
        raise ValueError(f"The folder {out} cannot hold the results ({reason}): choose another with --out.") from error


def _interruption(out: Path) -> str:
    from identica.training.checkpoint import FILE_NAME

    if any(out.glob(f"*/{FILE_NAME}")):
        return f"Interrupted. What was trained so far is kept in {out}: run the same command with --resume to continue."
    return "Interrupted before anything was saved."


def _print(result: Demo) -> None:
    from rich.console import Console
    from rich.table import Table

    from identica.diagnostics import identification

    table = Table(title="How much of the five hidden factors was recovered", title_justify="left")
    table.add_column("Model")
    table.add_column("R² (linear)", justify="right")
    table.add_column("MCC", justify="right")
    table.add_column("Seconds", justify="right")
    for row in result.rows:
        seconds = f"{row.run.seconds:.1f}" if row.run else "–"
        table.add_row(row.title, f"{row.evaluation.r2.score:.4f}", f"{row.evaluation.mcc.score:.4f}", seconds)
    console = Console(highlight=False)
    console.print(table)
    for name in ("matched", "mismatched"):
        row = result[name]
        console.print(f"\n[bold]{row.title}.[/bold] {identification(row.evaluation.r2, row.evaluation.mcc).sentence}")
