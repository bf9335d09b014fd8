"""What went wrong, as one sentence on stderr, and the exit code that goes with it."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer

from identica.doctor import how_to_install
from identica.names import suggest

MISUSE = 2
UNFINISHED = 75
INTERRUPTED = 130


class Interrupted(Exception):
    """The user pressed Ctrl-C."""


class Unfinished(Exception):
    """Nothing went wrong, but the time that was given is up, and the same command would go on."""


def report(error: Exception) -> int:
    """Say what went wrong and return the exit code; an error that is not the user's is raised again.

    With IDENTICA_DEBUG set, errors in the input are raised again too, for their traceback.
    """
    if isinstance(error, Interrupted):
        _say(str(error) or "Interrupted.")
        return INTERRUPTED
    if isinstance(error, Unfinished):
        print(error, file=sys.stderr)
        return UNFINISHED
    if isinstance(error, typer.Abort):
        _say("Stopped at the prompt.")
        return 1
    if isinstance(error, BrokenPipeError):
        _close_stdout_quietly()
        return 1
    if hasattr(error, "format_message"):  # click's usage errors, under whichever name typer carries them
        _say(_usage_sentence(error))
        return int(getattr(error, "exit_code", MISUSE))
    sentence = _input_sentence(error)
    if sentence is None or os.environ.get("IDENTICA_DEBUG"):
        raise error
    _say(sentence)
    return MISUSE


def _say(sentence: str) -> None:
    print(f"Error: {sentence}", file=sys.stderr)


def _usage_sentence(error: Any) -> str:
    """The message of a usage error, with the nearest option for a mistyped one and where to look further."""
    sentence = error.format_message().rstrip()
    sentence += "" if sentence.endswith((".", "?", "!")) else "."
    context = getattr(error, "ctx", None)
    if context is None:
        return sentence
    mistyped = getattr(error, "option_name", None)
    if mistyped is not None and hasattr(error, "possibilities"):  # NoSuchOption
        options = _options(context)
        nearest = options.get(suggest(mistyped, options) or "")
        sentence = f"No such option '{mistyped}'." + (f" Did you mean '{nearest}'?" if nearest else "")
    return f"{sentence}\nTry '{context.command_path} --help'."


def _options(context: Any) -> dict[str, str]:
    """Every option that may be meant here, and how it is written: an option of a command comes after that command.

    Before any command that is ``--version`` for ``--version``, and ``identica doctor --json`` for ``--json``.
    """
    group = context.command
    options = {name: name for name in _option_names(group, context)}
    for command in group.list_commands(context) if hasattr(group, "list_commands") else ():
        for name in _option_names(group.get_command(context, command), context):
            options.setdefault(name, f"{context.command_path} {command} {name}")
    return options


def _option_names(command: Any, context: Any) -> list[str]:
    names = [name for parameter in command.get_params(context) for name in (*parameter.opts, *parameter.secondary_opts)]
    return [name for name in names if name.startswith("-")]


def _input_sentence(error: Exception) -> str | None:
    """The sentence for an error that the user's input can cause; None for any other."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        ours = error.__cause__ is not None  # raised by us with a sentence of its own, in place of Python's
        return str(error) if ours else how_to_install(error.name)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: '{error.filename}'." if error.filename is not None else f"{error.strerror}."
    if isinstance(error, ValueError | OSError | FloatingPointError):
        return str(error) or f"{type(error).__name__} without a message; IDENTICA_DEBUG=1 shows where."
    return None


def _close_stdout_quietly() -> None:
    """The reader of our output has gone: what is still buffered goes nowhere, instead of failing at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
