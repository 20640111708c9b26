"""Runs the real command against a sandbox: in this process, in one of its own, or on a terminal."""

import asyncio
import logging
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from cli.commands import Ran, Run, checked, is_asked, on_terminal, surroundings
from typer.testing import CliRunner

from payments_async._cli.app import app
from payments_async.sandbox import Sandbox


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's data folder, where the accounts' own journals are, is one of the test alone."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "data" / "payments-async"


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A service in this process."""
    async with Sandbox() as service:
        yield service


@pytest.fixture
def run(sandbox: Sandbox) -> Iterator[Run]:
    """Run a command in a thread and a loop of its own, in a pipe. No secret is ever in what it says."""
    log, show = logging.getLogger("payments_async"), warnings.showwarning
    before = (log.handlers, log.level, log.propagate)

    async def run(*arguments: str, typed: str = "", **settings: str | None) -> Ran:
        environment: dict[str, str | None] = dict(surroundings(sandbox, settings))
        environment |= {name: None for name, value in settings.items() if value is None}
        result = await asyncio.to_thread(CliRunner().invoke, app, arguments, input=typed, env=environment)
        return checked(sandbox, settings, Ran(result.exit_code, result.stdout, result.stderr))

    yield run
    log.handlers, log.level, log.propagate = before
    warnings.showwarning = show


@pytest.fixture
def run_process(sandbox: Sandbox) -> Run:
    """Run a command in a process of its own, in a pipe."""

    async def run(*arguments: str, typed: str = "", **settings: str | None) -> Ran:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "payments_async",
            *arguments,
            env=surroundings(sandbox, settings),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(typed.encode()), 120)
        return checked(sandbox, settings, Ran(process.returncode or 0, out.decode(), err.decode()))

    return run


@pytest.fixture
def run_on_terminal(sandbox: Sandbox) -> Run:
    """Run a command on a terminal, where somebody types."""

    async def run(
        *arguments: str,
        typed: str = "",
        meanwhile: Callable[[], object] | None = None,
        when: Callable[[str], bool] = is_asked,
        ahead: str = "",
        **settings: str | None,
    ) -> Ran:
        environment = surroundings(sandbox, settings)
        ran = await asyncio.to_thread(on_terminal, arguments, typed, environment, meanwhile, when, ahead)
        return checked(sandbox, settings, ran)

    return run
