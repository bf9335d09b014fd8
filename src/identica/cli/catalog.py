"""``identica catalog``: every experiment there is, and how much of it has been reproduced."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from identica.experiments import Entry, Experiment, Receipt


def catalog(
    experiment: Annotated[
        str | None, typer.Argument(help="List the rows of this one; of a paper, such as aninfonce, its experiments.")
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="Folder with the ledgers of results; by default that of this name.")
    ] = None,
) -> None:
    """List the experiments, and what the ledgers hold of each.

    \b
    Examples:
      identica catalog
      identica catalog clica/table1       its rows: settings, the paper's figures, what theory says
    """  # noqa: D301 (\b tells click to keep the lines as they are)
    from identica.cli.plain_warnings import plain_warnings
    from identica.experiments import catalogue, find_all, ledger_path, read

    if results is not None and not results.is_dir():
        raise ValueError(f"There is no folder {results}: name the one that holds the ledgers, or leave --results out.")
    folder = Path("results") if results is None else results
    with plain_warnings():
        wanted = {one.id for one in find_all(["all" if experiment is None else experiment])}
        chosen = [one for one in catalogue() if one.id in wanted]
        if len(chosen) == 1:
            _print_rows(chosen[0])
        else:
            _print_experiments([(one, read(ledger_path(folder, one.id))) for one in chosen])


def _print_experiments(entries: list[tuple[Experiment, tuple[Receipt, ...]]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("Experiment", "Shows", "Rows", "Results"):
        table.add_column(heading, justify="right" if heading == "Rows" else "left", no_wrap=heading != "Shows")
    for experiment, receipts in entries:
        shows, count = f"{experiment.title} ({experiment.paper})", str(len(experiment.rows))
        table.add_row(experiment.id, shows, count, _status(experiment, receipts))
    Console(highlight=False).print(table)
    print("A, W and B are the papers (docs/experiments.md). 'identica reproduce ID' trains what is missing.")


def _status(experiment: Experiment, receipts: tuple[Receipt, ...]) -> str:
    """``fast 12/14, 5 seeds`` (rows that have results, of all), a line for each budget; or "none yet"."""
    from identica.experiments import results

    lines = []
    for budget in dict.fromkeys(receipt.budget for receipt in receipts):
        counts = [len(result.receipts) for result in results(experiment, receipts, budget) if result.receipts]
        if counts:
            seeds = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
            plural = "" if max(counts) == 1 else "s"
            lines.append(f"{budget} {len(counts)}/{len(experiment.rows)}, {seeds} seed{plural}")
    return "\n".join(lines) or "none yet"


def _print_rows(experiment: Experiment) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from identica.experiments.catalogue import METRICS, model_name

    console = Console(highlight=False)
    console.print(f"{experiment.id}: {experiment.title} ({experiment.paper}; {METRICS[experiment.metric]} in percent)")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("Row", "Latents and pairs → model", "Theory", *map(model_name, experiment.models)):
        table.add_column(heading, overflow="fold")
    for row in experiment.rows:
        table.add_row(row.number, row.label, row.theory, *_published(experiment, row))
    console.print(table)
    for note in dict.fromkeys(row.note for row in experiment.rows if row.note):
        marked = ", ".join(row.number for row in experiment.rows if row.note == note)
        console.print(f"Row{'s' if ',' in marked else ''} {marked}: {note}.")
    for claim in experiment.claims:
        console.print(f"To be shown: {claim.says}.", markup=False)


def _published(experiment: Experiment, row: Entry) -> list[str]:
    figures = [row.published.get(model) for model in experiment.models]
    return ["–" if figure is None else str(figure) for figure in figures]
