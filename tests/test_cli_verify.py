"""``identica verify`` as a person meets it. Most tests run two of its exact checks, which take no time."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from identica.cli.app import run
from identica.diagnostics import theory
from identica.diagnostics.theory import Check, Session, marginals, mismatch

SRC = Path(__file__).resolve().parents[1] / "src"
EXACT = (marginals.p_min_is_an_upper_bound, mismatch.p_two_cannot_see_a_rotation)


def broken(session: Session) -> Check:
    return dataclasses.replace(marginals.p_min_is_an_upper_bound(session), measured=-0.3)


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Run these checks only, in a wide terminal."""
    monkeypatch.setenv("COLUMNS", "160")

    def choose(*checks: Callable[[Session], Check]) -> None:
        monkeypatch.setattr(theory, "CHECKS", checks)

    return choose


def test_claims_that_hold_are_listed_with_exit_code_0(only, capsys: pytest.CaptureFixture[str]) -> None:
    only(*EXACT)
    assert run(["verify", "--quick"]) == 0
    out = capsys.readouterr().out
    assert "W, Prop. A.4.2" in out and out.count("holds") == 3 and "Every claim holds." in out


def test_a_claim_that_fails_is_named_with_exit_code_1(only, capsys: pytest.CaptureFixture[str]) -> None:
    only(*EXACT, broken)
    assert run(["verify", "--quick"]) == 1
    out = capsys.readouterr().out
    assert "fails" in out and "1 of 3 claims fail" in out


def test_quiet_prints_nothing_but_failures(only, capsys: pytest.CaptureFixture[str]) -> None:
    only(*EXACT)
    assert run(["verify", "--quick", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    only(*EXACT, broken)
    assert run(["verify", "--quick", "--quiet"]) == 1
    assert "fails" in capsys.readouterr().out


@pytest.mark.parametrize(("out", "page"), [("a.html", "a.html"), ("some/folder", "some/folder/verify.html")])
def test_the_page_goes_where_it_was_asked_for(only, tmp_path: Path, out: str, page: str) -> None:
    only(*EXACT, broken)
    assert run(["verify", "--quick", "--quiet", "--out", str(tmp_path / out)]) == 1
    text = (tmp_path / page).read_text(encoding="utf-8")
    assert text.count('class="exhibit"') == 2 and text.count('class="exhibit fails"') == 1
    assert "http://" not in text and "https://" not in text and "<script" not in text


def test_a_file_in_the_way_is_named_before_anything_is_computed(
    only, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(session: Session) -> Check:
        raise AssertionError("computed before the folder was looked at")

    only(never)
    (tmp_path / "file").write_text("")
    assert run(["verify", "--out", str(tmp_path / "file" / "page.html")]) == 2
    assert "is a file" in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="signals as on Unix")
def test_ctrl_c_says_how_far_it_came() -> None:
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from identica.cli import verify\n"
        "verify.LINE_EVERY = 0.0\n"
        "from identica.cli.app import run\n"
        "import sys; sys.exit(run(['verify']))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(SRC)}
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        assert "checks done" in process.stderr.readline()
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    last = err.strip().splitlines()[-1]
    assert last.startswith(f"Error: Interrupted after 0 of {len(theory.CHECKS)} checks") and "Traceback" not in err


@pytest.mark.slow
def test_the_whole_of_it() -> None:
    command = [sys.executable, "-m", "identica", "verify"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, env=os.environ | {"PYTHONPATH": str(SRC)}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every claim holds." in done.stdout
