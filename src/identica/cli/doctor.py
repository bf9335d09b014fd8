"""``identica doctor``: what this machine offers, and how to install what it lacks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from identica.doctor import Checkup, Package

Row = tuple[str, str, str]
STYLES = {"ok": "green", "missing": "yellow", "too old": "red", "broken": "red", "no": "yellow"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")] = False,
) -> int:
    """Show versions, devices, extras and kernels, and how to install what is missing.

    Exits with 0 when everything the core needs is here, otherwise with 1. Missing extras are fine:
    they are needed only by the commands that ask for them.

    \b
    Examples:
      identica doctor
      identica doctor --json > doctor.json
    """  # noqa: D301 (\b tells click to keep the lines as they are)
    from identica.doctor import examine

    checkup = examine()
    if as_json:
        print(json.dumps(asdict(checkup), indent=2))
    else:
        _print(checkup)
    return 0 if checkup.ok else 1


def _print(checkup: Checkup) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)  # never break a command that one wants to copy
    console.print(Text(f"identica {checkup.identica}, Python {checkup.python}, {checkup.platform}", "bold"))
    for title, rows in _sections(checkup):
        console.print(Text(f"\n{title}", "bold"))
        for name, state, detail in rows:
            console.print(Text.assemble(f"  {name:<16}", (f"{state:<9}", STYLES.get(state, "")), detail))
    if checkup.advice:
        console.print(Text("\nTo install what is missing", "bold"))
        for advice in checkup.advice:
            console.print(Text.assemble("  ", advice.gives, "\n    ", (advice.command, "cyan")))


def _sections(checkup: Checkup) -> Iterator[tuple[str, list[Row]]]:
    """The findings as titled lists of (name, state, detail)."""
    yield "Core", [_row(package) for package in checkup.core]
    devices = []
    for device in checkup.devices:
        memory = f", {device.memory} GiB" if device.memory is not None else ""
        capability = f", compute capability {device.capability}" if device.capability else ""
        devices.append((device.name, "ok", device.description + memory + capability))
    if checkup.no_cuda is not None:
        devices.append(("cuda", "no", checkup.no_cuda))
    yield "Devices", devices
    extras = []
    for extra in checkup.extras:
        lacking = [package.name for package in extra.packages if package.state != "ok"]
        lacks = f" (lacks {', '.join(lacking)})" if lacking else ""
        extras.append((f"[{extra.name}]", "missing" if lacking else "ok", extra.purpose + lacks))
    yield "Extras", extras
    yield "Kernels", [(k.name, "ok" if k.available else "no", k.detail) for k in checkup.kernels]
    yield (
        "For torch.compile and triton",
        [(c.name, "ok" if c.available else "no", c.detail) for c in checkup.compilers],
    )


def _row(package: Package) -> Row:
    return package.name, package.state, " ".join(part for part in (package.version, package.detail) if part)
