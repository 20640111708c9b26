"""The program as one file, which is unpacked where it is started and installed nowhere."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import payments_async

PATHS = [str(Path(payments_async.__file__).parent.parent), *filter(None, sys.path)]


def started(folder: Path, *command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """The demo by a program, in a folder where nothing else is."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [*command, "demo", "--faults", "none"], cwd=folder, env={**environment, **variables},
        capture_output=True, check=False, text=True,
    )  # fmt: skip


@pytest.mark.slow
def test_what_it_starts_finds_the_package_too(tmp_path: Path) -> None:
    """A file of shiv's: only the path of the process itself leads to the package. It names itself in what it prints."""
    program = tmp_path / "payments-async.pyz"
    program.write_text(f"import sys; sys.path[:0] = {PATHS!r}; from payments_async._cli import main; main()")
    done = started(tmp_path, getattr(sys, "_base_executable", sys.executable), "-E", str(program))
    assert (0, "") == (done.returncode, done.stderr)
    assert f"{program} bulk status --journal" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("PyInstaller") is None, reason="PyInstaller is not installed")
def test_a_program_that_brings_its_python(tmp_path: Path) -> None:
    """As the page on versions says to make it."""
    (tmp_path / "payments-async.py").write_text('import runpy; runpy.run_module("payments_async", run_name="__main__")')
    make = [sys.executable, "-m", "PyInstaller", "--log-level", "ERROR", "--collect-all", "payments_async"]
    subprocess.run([*make, "payments-async.py"], cwd=tmp_path, check=True, capture_output=True)
    done = started(tmp_path, str(tmp_path / "dist" / "payments-async" / "payments-async"))
    assert (0, "") == (done.returncode, done.stderr)
