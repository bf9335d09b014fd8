"""The command as a person meets it: in a process of its own, by its output and its exit code."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from identica import __version__, doctor
from identica.cli.app import app, run
from identica.names import no_such, suggest

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"

# Adds two commands that only the world outside can end, then runs the command line as the entry point does.
ENDLESS = """
import time
from identica.cli import main
from identica.cli.app import app

@app.command()
def wait():
    print("waiting", flush=True)
    time.sleep(60)

@app.command()
def chatter():
    while True: print("y" * 1000)

main()
"""


def environment(**changes: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name != "IDENTICA_DEBUG"}
    return inherited | {"PYTHONPATH": str(SRC), "COLUMNS": "100"} | changes


def identica(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "identica", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment(**changes))


def python(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment())


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., object]], None]:
    """Adds a command for the length of one test."""
    monkeypatch.delenv("IDENTICA_DEBUG", raising=False)
    monkeypatch.setattr(app, "registered_commands", list(app.registered_commands))

    def add(function: Callable[..., object]) -> None:
        app.command("under-test")(function)

    return add


def assert_one_sentence(stderr: str) -> None:
    assert stderr.startswith("Error: ") and "Traceback" not in stderr
    assert len(stderr.splitlines()) == 1


# Suggestions


@pytest.mark.parametrize(
    ("word", "nearest"),
    [
        ("doctro", "doctor"),
        ("Doctor", "doctor"),
        ("doc", "doctor"),
        ("repro", "reproduce"),
        ("tabel1", "clica/table1"),
        ("clica/tabl2", "clica/table2"),
        ("zzz", None),
        ("", None),
    ],
)
def test_the_nearest_name_is_suggested(word: str, nearest: str | None) -> None:
    assert suggest(word, ["doctor", "demo", "reproduce", "clica/table1", "clica/table2"]) == nearest


def test_a_name_that_several_papers_have_suggests_them_all() -> None:
    known = ["clica/figure2", "aninfonce/figure2", "aninfonce/figure20"]
    assert no_such("experiment", "Figure2", known).endswith("Did you mean 'clica/figure2' or 'aninfonce/figure2'?")


def test_an_ambiguous_fragment_suggests_nothing() -> None:
    assert suggest("ica", ["clica/table1", "clica/table2"]) is None


def test_the_sentence_for_an_unknown_name_never_leaves_one_alone() -> None:
    assert no_such("command", "zzz", ["demo", "doctor"]).endswith("There are: demo, doctor.")
    assert no_such("run", "zzz", []) == "No such run 'zzz'."


# Help and version


def test_help_explains_and_groups_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    asked = capsys.readouterr().out
    assert "Setting up:" in asked and "identica doctor --json" in asked
    assert run([]) == 0
    assert capsys.readouterr().out == asked


def test_every_command_gives_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    for registered in app.registered_commands:
        assert registered.callback is not None
        name = registered.name or registered.callback.__name__
        assert run([name, "--help"]) == 0
        assert f"  identica {name}" in capsys.readouterr().out.partition("Examples:")[2]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"identica {__version__}\n"


def test_the_command_line_itself_does_not_import_torch() -> None:
    """Help must answer at once. Looks past identica/__init__.py, which may or may not load everything."""
    code = f"""
import sys, types
package = types.ModuleType("identica")
package.__path__ = [{str(SRC / "identica")!r}]
sys.modules["identica"] = package
from identica.cli.app import app, run
assert run(["--help"]) == 0
heavy = {{"torch", "numpy", "scipy", "sklearn", "matplotlib"}} & set(sys.modules)
assert not heavy, heavy
"""
    done = python(code)
    assert done.returncode == 0, done.stderr


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["doctro"], "No such command 'doctro'. Did you mean 'doctor'?"),
        (["--jsno", "doctor"], "No such option '--jsno'. Did you mean 'identica doctor --json'?"),
        (["--json", "doctor"], "No such option '--json'. Did you mean 'identica doctor --json'?"),
        (["doctor", "--jsno"], "No such option '--jsno'. Did you mean '--json'?"),
        (["--vresion"], "No such option '--vresion'. Did you mean '--version'?"),
        (["zzz"], "No such command 'zzz'. There are: "),
        (["doctor", "--zzz"], "No such option '--zzz'."),
    ],
)
def test_a_mistyped_word_gets_the_nearest_right_one(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert err.startswith(f"Error: {sentence}") and "--help'" in err
    assert out == ""


def test_a_mistyped_command_exits_with_2_in_a_shell_too() -> None:
    done = identica("doctro")
    assert done.returncode == 2 and "Did you mean 'doctor'?" in done.stderr and "Traceback" not in done.stderr


def test_wrong_input_is_one_sentence_and_exit_code_2(command, capsys: pytest.CaptureFixture[str]) -> None:
    def raises() -> None:
        raise ValueError("steps must be positive, not -1.")

    command(raises)
    assert run(["under-test"]) == 2
    assert capsys.readouterr().err == "Error: steps must be positive, not -1.\n"


def test_a_missing_file_is_named(command, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command(lambda: (tmp_path / "nowhere").read_text())
    assert run(["under-test"]) == 2
    err = capsys.readouterr().err
    assert_one_sentence(err)
    assert "No such file or directory" in err and "nowhere" in err


def test_a_missing_extra_comes_with_the_command_that_installs_it(
    command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)  # what an interpreter without faiss has
    command(lambda: __import__("faiss"))
    assert run(["under-test"]) == 2
    err = capsys.readouterr().err
    assert_one_sentence(err)
    assert err.rstrip().endswith("-m pip install 'faiss-cpu>=1.8'")


def test_debug_raises_what_was_raised(command, monkeypatch: pytest.MonkeyPatch) -> None:
    command(lambda: int("x"))
    monkeypatch.setenv("IDENTICA_DEBUG", "1")
    with pytest.raises(ValueError, match="invalid literal"):
        run(["under-test"])


def test_a_mistake_of_ours_is_not_dressed_up_as_the_users(command) -> None:
    command(lambda: {}["missing"])
    with pytest.raises(KeyError):
        run(["under-test"])


def test_a_command_may_return_its_exit_code(command) -> None:
    command(lambda: 7)
    assert run(["under-test"]) == 7


@pytest.mark.skipif(os.name == "nt", reason="signals as on Unix")
def test_ctrl_c_ends_with_a_sentence_and_130() -> None:
    # A shell starts its background jobs with SIGINT ignored, and a child inherits that from the tests.
    listening = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    command = [sys.executable, "-c", listening + ENDLESS, "wait"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert_one_sentence(err)


@pytest.mark.skipif(os.name == "nt", reason="pipes as on Unix")
@pytest.mark.parametrize("wordy", ["chatter", "--help", "doctor"])
def test_a_closed_pipe_is_silent(wordy: str) -> None:
    command = [sys.executable, "-c", ENDLESS, wordy]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None and process.stderr is not None
        if wordy == "chatter":  # ends while writing; the others when they flush
            process.stdout.read(10)
        process.stdout.close()
        err = process.stderr.read()
        process.wait(timeout=60)
    assert err == b"" and process.returncode == 1


def test_without_typer_the_command_says_what_to_install() -> None:
    code = "import sys; sys.modules['typer'] = None\nfrom identica.cli import main; main()"
    done = python(code)
    assert done.returncode == 1
    assert_one_sentence(done.stderr)
    assert done.stderr.rstrip().endswith("-m pip install 'typer>=0.12'")


# The doctor


@pytest.fixture(scope="module")
def checkup() -> doctor.Checkup:
    return doctor.examine()


def test_doctor_names_everything_it_looked_at(checkup: doctor.Checkup) -> None:
    done = identica("doctor", PYTHONIOENCODING="ascii")  # a terminal that knows no other letters
    assert done.returncode == (0 if checkup.ok else 1)
    for word in (f"identica {__version__}", "torch", "cpu", "[images]", "reference", "tiled", "C++ compiler"):
        assert word in done.stdout
    lines = done.stdout.splitlines()
    assert all(f"    {advice.command}" in lines for advice in checkup.advice)
    assert done.stderr == ""


def test_doctor_speaks_json(checkup: doctor.Checkup, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--json"]) == (0 if checkup.ok else 1)
    found = json.loads(capsys.readouterr().out)
    assert found["identica"] == __version__
    assert {package["requirement"] for package in found["core"]} == set(doctor.CORE)
    assert [device["name"] for device in found["devices"]] == [device.name for device in checkup.devices]
    assert found["ok"] is checkup.ok


def test_doctor_asks_for_what_the_package_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert list(doctor.CORE) == project["dependencies"]
    extras = {
        name: [requirement.split(";")[0].strip() for requirement in requirements]
        for name, requirements in project["optional-dependencies"].items()
    }
    assert {name: list(packages) for name, packages in doctor.EXTRAS.items()} == extras
    assert set(doctor.PURPOSES) == set(extras)


def test_what_is_missing_old_or_fine_is_told_apart() -> None:
    assert doctor._package("no-such-package>=1", "no_such_module").state == "missing"
    assert doctor._package("numpy>=999", "numpy").state == "too old"
    assert doctor._package("numpy>=1.26", "numpy").state == "ok"
    assert doctor._numbers("2.13.0+cpu") == (2, 13, 0)
    assert doctor._numbers("2.13.0rc1") > doctor._numbers("2.6")


def test_the_advice_is_one_command_a_shell_understands() -> None:
    lacking = (doctor.Package("faiss-cpu>=1.8", "missing"), doctor.Package("pillow>=10", "ok", "13.0"))
    advice = doctor._install("images", lacking)
    assert advice is not None
    assert shlex.split(advice.command)[1:] == ["-m", "pip", "install", "faiss-cpu>=1.8"]
    assert doctor._install("images", lacking[1:]) is None


def test_doctor_survives_a_torch_that_does_not_load() -> None:
    """No torch, no numpy, nothing: the doctor is exactly what one calls then."""
    code = f"""
import sys, types
package = types.ModuleType("identica")
package.__path__ = [{str(SRC / "identica")!r}]
sys.modules["identica"] = package
sys.modules["torch"] = None
from identica.doctor import examine
found = examine()
assert not found.ok and found.core[0].state == "missing", found.core[0]
assert "torch>=2.7" in found.advice[0].command
"""
    done = python(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
def test_doctor_sees_the_gpu(checkup: doctor.Checkup) -> None:
    gpu = checkup.devices[1]
    assert gpu.name == "cuda:0" and gpu.memory is not None and gpu.memory > 1 and gpu.capability is not None
    assert checkup.no_cuda is None
