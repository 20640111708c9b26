"""Standard output and standard error that cannot be written: what was paid is told, and the exit status says so."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bulk.files import row, write_csv
from cli.commands import Ran, surroundings

from payments_async.sandbox import Sandbox

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no file here is always full")
CANNOT = "standard output cannot be written (No space left on device); the rest of it follows here"


@pytest.fixture
def payroll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The command that sends a file of three, in a folder of our own."""
    monkeypatch.chdir(tmp_path)
    write_csv(Path("p.csv"), *(row(request_id=f"RUN-{n}", amount=f"{n}000") for n in (1, 2, 3)))
    return "bulk", "run", "p.csv", "--batch-id", "p", "--journal", "j.sqlite", "--new-journal", "--yes"


def gone() -> int:
    """The end of a pipe that has no reader."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


async def ran(
    sandbox: Sandbox, *arguments: str, out: int = subprocess.PIPE, err: int = subprocess.PIPE, full: str = ""
) -> Ran:
    """Run a command in a process; standard output (o) or error (e) is a full disk."""
    disk = os.open("/dev/full", os.O_WRONLY)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "payments_async", *arguments),
        env=surroundings(sandbox, {}),
        stdin=subprocess.DEVNULL,
        stdout=disk if "o" in full else out,
        stderr=disk if "e" in full else err,
    )
    os.close(disk)
    said, errors = await asyncio.wait_for(process.communicate(), 120)
    return Ran(process.returncode or 0, (said or b"").decode(), (errors or b"").decode())


@pytest.mark.slow
@pytest.mark.parametrize("full", ["o", "oe", "e"])
async def test_a_run_goes_on_where_a_disk_is_full(sandbox: Sandbox, payroll: tuple[str, ...], full: str) -> None:
    """It sends what it was asked to send, and tells of it where that can be done."""
    told = await ran(sandbox, *payroll, full=full)
    assert (6 if "o" in full else 0, 3) == (told.status, len(sandbox.ledger))
    if full == "o":
        assert (CANNOT in told.said, "on the way 3 6,000" in told.said) == (True, True)
    if full == "e":
        assert "on the way 3 6,000" in told.said


@pytest.mark.slow
async def test_the_document_of_a_run_is_told_elsewhere(sandbox: Sandbox, payroll: tuple[str, ...]) -> None:
    """Whether the disk is full, or the reader of a pipe has gone while the orders were sent."""
    full = await ran(sandbox, *payroll, "--json", full="o")
    assert (6, 3) == (full.status, len(sandbox.ledger))
    assert 3 == json.loads(full.err[full.err.index("\n{") :])["sent"]
    pipe = gone()
    left = await ran(sandbox, *payroll, "--json", out=pipe)
    os.close(pipe)
    assert (6, 3) == (left.status, len(sandbox.ledger))
    assert "standard output cannot be written (Broken pipe)" in left.said


@pytest.mark.slow(covered=True)
@pytest.mark.parametrize("command", ["account", "transactions", "--version", "--help"])
async def test_every_command_says_that_a_disk_is_full(sandbox: Sandbox, command: str) -> None:
    """And what it had to say: none of it ends as an error of the program."""
    told = await ran(sandbox, command, full="o")
    assert (6, True) == (told.status, told.err.startswith(f"payments-async: {CANNOT}\n"))
    assert len(told.err.splitlines()) > 1
    assert not [words for words in ("Traceback", "report it") if words in told.err]


@pytest.mark.slow
async def test_a_list_ends_with_its_reader(sandbox: Sandbox) -> None:
    """Nothing that was done is lost, so it is not told elsewhere."""
    pipe = gone()
    told = await ran(sandbox, "transactions", out=pipe)
    os.close(pipe)
    assert (5, "") == (told.status, told.err)


@pytest.mark.slow
async def test_a_run_whose_reader_has_gone_before_it_says_so(sandbox: Sandbox, payroll: tuple[str, ...]) -> None:
    """It sends nothing, ends as one that was stopped, and not as an error of the program, with a word about it."""
    pipe = gone()
    told = await ran(sandbox, *payroll, out=pipe)
    os.close(pipe)
    assert (5, 0) == (told.status, len(sandbox.ledger))
    assert "stopped: the reader of standard output has gone" in told.err


@pytest.mark.slow
async def test_a_terminal_that_lacks_a_letter_ends_no_run(
    sandbox: Sandbox, payroll: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch, an order or a name with such a letter is told with its number in place of it."""
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    told = await ran(sandbox, *payroll[:4], "müller", *payroll[5:])
    assert (0, 3) == (told.status, len(sandbox.ledger))
    assert "batch m\\xfcller" in told.said
