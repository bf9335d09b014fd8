"""Shared by all tests: explicit generators, and the list of statistical tests with their false-alarm rates."""

from __future__ import annotations

import os

# Before torch is loaded: idle OpenMP threads sleep instead of spinning (see identica.cli).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest  # noqa: E402
import torch  # noqa: E402

if not torch.cuda.is_available():
    # Triton reads this when it is first imported: without a GPU its kernels run in the interpreter.
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20260101)


@pytest.fixture(scope="session")
def compiler() -> None:
    """Skips where torch.compile cannot compile anything, be it for want of a C++ compiler or for a space in a path."""
    try:
        torch.compile(lambda x: x.sin() + 1.0)(torch.zeros(64))
    except Exception as error:
        pytest.skip(f"torch.compile does not work here: {type(error).__name__}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--list-statistical",
        action="store_true",
        help="print every statistical test with its stated false-alarm rate, as a table, and run nothing",
    )


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--list-statistical"):
        return
    rows: dict[str, tuple[float, str, int]] = {}
    for item in items:
        mark = item.get_closest_marker("statistical")
        if mark is not None:
            name = item.nodeid.split("[")[0]
            rate, what = mark.kwargs["false_alarm"], mark.kwargs["what"]
            rows[name] = (rate, what, rows.get(name, (0, "", 0))[2] + 1)
    print("| test | cases | false alarms per case | what is compared |\n|---|---|---|---|")
    for name, (rate, what, cases) in sorted(rows.items()):
        print(f"| `{name}` | {cases} | {rate:g} | {what} |")
    items.clear()
