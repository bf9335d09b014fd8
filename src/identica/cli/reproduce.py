"""``identica reproduce``: train what is missing of a table or figure, and set ours beside the paper's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from identica.cli.errors import Unfinished

if TYPE_CHECKING:
    from rich.console import Console

    from identica.experiments import Experiment, RowResult, Verdict
    from identica.experiments.receipts.verdicts import Cell

STYLES = {True: "green", False: "yellow", None: ""}


def reproduce(
    experiments: Annotated[
        list[str],
        typer.Argument(metavar="ID...", help="Such as clica/table1; a paper, such as aninfonce; all of them: all."),
    ],
    rows: Annotated[str | None, typer.Option(help="Only these rows: 1,5,11b.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds; by default as many as the paper.")] = None,
    budget: Annotated[str, typer.Option(help="smoke, fast or paper.")] = "fast",
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1; auto takes the GPU where there is one.")] = "auto",
    out: Annotated[Path, typer.Option(help="Folder of the ledgers.")] = Path("results"),
    have: Annotated[list[Path] | None, typer.Option(help="Read results from this folder too.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of data sets such as MNIST; else IDENTICA_DATA.")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Stop after so many, keeping everything; exit code 75 if something is left.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Train again; new lines are added, none removed.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but the paths of the ledgers.")] = False,
) -> None:
    """Reproduce tables and figures: train what is missing, add the results to their ledgers, compare with the papers.

    What is in a ledger already is not trained again. After Ctrl-C, a crash or --minutes the same command continues.

    \b
    Examples:
      identica reproduce clica/table1 --budget smoke      does everything run? Two minutes on two cores
      identica reproduce clica/table1 --rows 1,5 --seeds 5
      identica reproduce clica/table2 --budget paper --rows 1 --seeds 1
      identica reproduce aninfonce/figure3 --data DIR     needs MNIST's official files in that folder
      identica reproduce aninfonce --data DIR --minutes 25     all of a paper, in slices
    """  # noqa: D301 (\b tells click to keep the lines as they are)
    from identica.cli.plain_warnings import plain_warnings
    from identica.experiments import find_all, ledger_path
    from identica.experiments.running.reproduce import reproduce_all
    from identica.experiments.running.time_limit import TimeIsUp

    chosen = find_all(experiments)
    numbers = None if rows is None else [number.strip() for number in rows.split(",") if number.strip()]
    paths = [ledger_path(out, experiment.id) for experiment in chosen]
    with plain_warnings():
        try:
            results = reproduce_all(
                chosen,
                rows=numbers,
                seeds=seeds,
                budget=budget,
                device=device,
                out=out,
                have=have or [],
                data=data,
                minutes=minutes,
                force=force,
                quiet=quiet,
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_interruption(out, paths)) from None
        except TimeIsUp as error:
            raise Unfinished(str(error)) from None
    for experiment, found, path in zip(chosen, results, paths, strict=True):
        if quiet:
            print(path)
        else:
            _print(experiment, found, path)


def _interruption(out: Path, paths: list[Path]) -> str:
    from identica.experiments.running.folders import RunFolders
    from identica.training.checkpoint import FILE_NAME

    written = [path for path in paths if path.exists()]
    kept = [f"what is finished is in {written[0] if len(paths) == 1 else out}"] if written else []
    if any(RunFolders(out).root.rglob(FILE_NAME)):
        kept.append("what was being trained is kept")
    said = ", ".join(kept) or "nothing was saved yet"
    return f"Interrupted: {said}. Run the same command again to continue."


def _print(experiment: Experiment, results: tuple[RowResult, ...], path: Path) -> None:
    from rich.console import Console

    from identica.experiments.catalogue import METRICS

    console = Console(highlight=False)
    metric = METRICS[experiment.metric]
    console.print(f"\n[bold]{experiment.id}[/bold]  {experiment.title} ({experiment.paper}), {metric} in percent")
    if experiment.curves:
        _print_curves(console, experiment, results)
    else:
        _print_table(console, results)
    _print_claims(console, experiment, results)
    for result in results:
        for failure in result.failures:
            console.print(f"Row {result.row.number}, {failure}", markup=False)
    for note in dict.fromkeys(result.row.note for result in results if result.row.note):
        marked = ", ".join(result.row.number for result in results if result.row.note == note)
        console.print(f"Row{'s' if ',' in marked else ''} {marked}: {note}.", markup=False)
    if any(result.budget == "smoke" for result in results):
        console.print("The smoke budget shows that everything runs; it is far too short to reach the paper's figures.")
    console.print(f"Receipts: {path}", markup=False, soft_wrap=True)


def _print_table(console: Console, results: tuple[RowResult, ...]) -> None:
    """Three lines for each row, one for each model; fits into 100 columns."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("Row", "Setting", "Model", "Ours", "Paper", "Verdict"):
        table.add_column(heading, no_wrap=heading not in ("Setting", "Verdict"))
    for result in results:
        setting = result.row.setting
        if len(result.cells) < len(setting):
            setting = (", ".join(setting), *[""] * (len(result.cells) - 1))
        for i, cell in enumerate(result.cells):
            first = result.row.number if i == 0 else ""
            table.add_row(first, setting[i], cell.model, _ours(cell), _paper(cell), _styled(cell.verdict))
        if len(result.cells) > 1:
            table.add_row(*[Text("")] * 6)
    console.print(table)


def _print_claims(console: Console, experiment: Experiment, results: tuple[RowResult, ...]) -> None:
    """What the figure must show, one sentence a line, with the number that decided it."""
    from identica.experiments import claim_results

    for one in claim_results(experiment, results):
        said = "not enough results to tell" if one.found is None else f"{one.found.value:.4g}, {_styled(one.verdict)}"
        console.print(f"{one.claim.says}: {said}")


def _print_curves(console: Console, experiment: Experiment, results: tuple[RowResult, ...]) -> None:
    """One line for each point, and the trend of each curve."""
    from rich import box
    from rich.table import Table

    from identica.experiments import curve_results
    from identica.experiments.clica.transport import transported_mass

    for curve in curve_results(experiment, results):
        if not curve.points:
            continue
        name = next(iter(curve.points[0].row.x))
        reference = curve.points[0].row.conditional.tightness
        console.print(f"\n{curve.name}; {name} of the pairs: {reference:g}")
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in ("Point", f"{name} of the marginal", "Mass to move", "Ours", "Seeds"):
            table.add_column(heading, justify="right")
        for point in curve.points:
            mass = f"{100 * transported_mass(point.row, experiment.dim):.1f} %"
            table.add_row(
                point.row.number,
                f"{point.row.x[name]:g}",
                mass,
                _ours(point["contrastive"]),
                str(len(point.receipts)),
            )
        console.print(table)
        console.print("Trend: ", _styled(curve.verdict) if curve.verdict else "needs points at both ends", sep="")


def _ours(cell: Cell) -> str:
    return "–" if cell.ours is None else str(cell.ours)


def _paper(cell: Cell) -> str:
    return "–" if cell.published is None else str(cell.published)


def _styled(verdict: Verdict | None) -> str:
    if verdict is None:
        return "–"
    style = STYLES[verdict.good]
    return f"[{style}]{verdict.text}[/{style}]" if style else verdict.text
