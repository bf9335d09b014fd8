"""The command itself: its sections, its help, and how it speaks when something is wrong.

To add a command, write a small function with type hints in a file of its own, put what it needs from the
library into imports inside the function, and register it at the end of this file.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperGroup

from identica._version import __version__
from identica.cli.catalog import catalog
from identica.cli.demo import demo
from identica.cli.doctor import doctor
from identica.cli.errors import Interrupted
from identica.cli.errors import report as report_error
from identica.cli.render import render
from identica.cli.report import report
from identica.cli.reproduce import reproduce
from identica.cli.verify import verify
from identica.names import no_such

LEARNING = "Learning"
REPRODUCING = "Reproducing the papers"
SETTING_UP = "Setting up"

INTRODUCTION = """\
Learn representations that are provably the data's own factors, and know when that promise holds.

State how pairs of observations arise (latents, a conditional, a mixing), train an encoder with a
contrastive objective, and score what it recovered against the truth.
"""

EXAMPLES = """\
\b
Examples:
  identica demo              recover the factors of a nonlinear mixture, in a minute and a half
  identica render sheet      the factors of 3DIdent in one picture
  identica catalog           the papers' tables and figures, and what was reproduced
  identica reproduce clica/table1 --budget smoke
  identica report            RESULTS.md and a web page from the results
  identica verify            the theorems, measured, in two minutes
  identica doctor            what is installed here, what is missing and how to get it
  identica doctor --json     the same for a script or a bug report
  identica doctor --help     every command explains itself

\b
Environment:
  IDENTICA_DEBUG=1           show the traceback of an error instead of one sentence
  IDENTICA_DATA=DIR          folder of data sets, for 'identica reproduce' without --data
"""


class CommandGroup(TyperGroup):
    """Commands listed by section, in the order they were added; a mistyped one gets the nearest suggested.

    Everything here goes through methods that click has had for years: older versions of typer build on
    click, newer ones carry a copy of it under another name, so neither can be imported by name.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that ``args`` begins with."""
        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            ctx.fail(no_such("command", args[0], self.list_commands(ctx)))
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Plain text, the same in every terminal, log and version of typer (the oldest insist on boxes)."""
        super(TyperGroup, self).format_help(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """One list of commands for each section."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            if not command.hidden:
                section = getattr(command, "rich_help_panel", None) or "Commands"
                sections.setdefault(section, []).append((name, command.get_short_help_str(limit=200)))
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl(rows)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; Ctrl-C leaves as an exception of ours, which typer does not swallow."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interruption:
            raise Interrupted(*interruption.args) from None


app = typer.Typer(
    name="identica",
    cls=CommandGroup,
    help=INTRODUCTION,
    epilog=EXAMPLES,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"identica {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 fine, 2 wrong input, 75 out of time, 130 interrupted."""
    try:
        outcome = typer.main.get_command(app).main(
            args=None if arguments is None else list(arguments), prog_name="identica", standalone_mode=False
        )
        sys.stdout.flush()
    except Exception as error:
        return report_error(error)
    return outcome if isinstance(outcome, int) else 0


app.command(rich_help_panel=LEARNING)(demo)
app.command(rich_help_panel=LEARNING)(render)
app.command(rich_help_panel=REPRODUCING)(catalog)
app.command(rich_help_panel=REPRODUCING)(reproduce)
app.command(rich_help_panel=REPRODUCING)(report)
app.command(rich_help_panel=REPRODUCING)(verify)
app.command(rich_help_panel=SETTING_UP)(doctor)
