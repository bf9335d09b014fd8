"""The demo's report in a real browser: no console errors, and something to see."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from identica.experiments.demo import run_demo
from identica.report import write_demo_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the PATH")]


@pytest.mark.parametrize("extra", [[], ["--force-dark-mode"]], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_report_opens_without_errors(tmp_path: Path, extra: list[str], width: int) -> None:
    report = write_demo_report(run_demo(tmp_path, steps=20, quiet=True), tmp_path / "report.html")
    picture = tmp_path / "page.png"
    command = [
        str(CHROMIUM),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--enable-logging=stderr",
    ]
    command += [f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},2400", f"--screenshot={picture}"]
    log = subprocess.run([*command, *extra, report.as_uri()], capture_output=True, text=True, timeout=120).stderr
    assert "CONSOLE" not in log
    assert picture.stat().st_size > 50_000
