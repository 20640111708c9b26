"""What the machine lacks: a clear end of every command, nothing lost, nothing paid twice."""

import asyncio
import errno
import resource
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path

import pytest
from bulk.files import row, write_csv
from cli.commands import Ran, surroundings

from payments_async._cli.live_view import LiveView
from payments_async._cli.screen import Screen
from payments_async._cli.shortage import FEWEST, remedy_of_shortage
from payments_async.bulk import RunProgress
from payments_async.journal import Progress, State
from payments_async.sandbox import Sandbox

LIMIT = 64  # of open files
BATCH = ("--batch-id", "p", "--journal", "j.sqlite")
RUN = ("bulk", "run", "p.csv", *BATCH, "--new-journal", "--yes", "--concurrency", "5")


@pytest.fixture(autouse=True)
def payroll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of six, in a folder of our own."""
    monkeypatch.chdir(tmp_path)
    names = ["Amber", "Bea", "Cleo", "Dora", "Edna", "Flora"]
    rows = (row(request_id=f"R-{n}", amount=f"{n}000", name=name) for n, name in enumerate(names, 1))
    write_csv(Path("p.csv"), *({**one, "phone_number": f"+25677200000{n}"} for n, one in enumerate(rows, 1)))


def journals() -> list[Path]:
    """The journals that were made here."""
    return list(Path().glob("*.sqlite*"))


def allow_files(limit: int) -> None:
    """Let a process open so many files at once."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))


# Opens files until no more than so many can be opened, and becomes the command that follows.
LEAVE = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
        os.set_inheritable(held[-1], True)
except OSError:
    for number in held[len(held) - int(sys.argv[1]):]:
        os.close(number)
os.execv(sys.executable, [sys.executable, '-m', 'payments_async', *sys.argv[2:]])
"""


# A command whose event loop loses the answer of a commit, as where it has no memory for the call.
LOSE = """
import asyncio, runpy, sys
from functools import partial
from payments_async._cli import shortage
run, left = asyncio.Handle._run, int(sys.argv.pop(1))
shortage._PATIENCE = float(sys.argv.pop(1))

def lost(handle):
    global left
    if getattr(getattr(handle._callback, 'func', None), '__name__', '') == '_committed':
        left -= 1
        if left == 0:
            handle._loop.call_exception_handler({'message': 'lost', 'exception': MemoryError(), 'handle': handle})
            return
    run(handle)

asyncio.Handle._run = lost
runpy.run_module('payments_async', run_name='__main__', alter_sys=True)
"""


def allow(what: int, most: int) -> None:
    """Let a process have so much of something."""
    resource.setrlimit(what, (most, most))


async def ran(
    sandbox: Sandbox,
    *arguments: str,
    before: Callable[[], None] | None = None,
    by: tuple[str, ...] = ("-m", "payments_async"),
    **more: str,
) -> Ran:
    """A command in a process of its own, under some limit. It ends without a traceback, whatever it lacks.

    Args:
        by: What Python is given to begin it.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *by, *arguments),
        env=surroundings(sandbox, more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=before,
    )
    out, err = await asyncio.wait_for(process.communicate(), 120)
    told = Ran(process.returncode or 0, out.decode(), err.decode())
    assert not [words for words in ("Traceback", "report it") if words in told.said], told.said
    assert told.status in (0, 2, 3, 4, 5)
    return told


@pytest.mark.parametrize("command", ["bulk run", "pay", "--version"])
async def test_a_process_that_may_open_too_few_files_begins_nothing(sandbox: Sandbox, command: str) -> None:
    """It says how many it needs, and which limit that is."""
    told = await ran(sandbox, *command.split(), before=partial(allow_files, 14))
    assert (5, []) == (told.status, journals())
    assert f"this program may open 14 files at once, and needs {FEWEST}: raise that limit (ulimit -n)" in told.err


@pytest.mark.parametrize("command", ["bulk plan p.csv", "fleet worker"])
async def test_a_command_that_has_no_memory_says_so(sandbox: Sandbox, command: str) -> None:
    """As much as Python itself needs, and no more: it is not even imported."""
    told = await ran(sandbox, *command.split(), before=partial(allow, resource.RLIMIT_AS, 40 * 2**20))
    assert (5, True) == (told.status, "the system gives this program too little memory" in told.err)


@pytest.mark.slow
async def test_a_run_whose_event_loop_has_lost_a_call_for_want_of_memory_ends(sandbox: Sandbox) -> None:
    """Though what waits for that call is never woken; the same command pays the others, and nobody twice."""
    told = await ran(sandbox, *RUN, by=("-c", LOSE, "5", "0.5"))
    assert (5, True) == (told.status, "the system gives this program too little memory" in told.err)
    while 4 == (again := await ran(sandbox, *RUN)).status:
        sandbox.advance(3600)
    assert (0, 6, []) == (again.status, len(sandbox.ledger), sandbox.duplicates())


@pytest.mark.slow(covered=True)
async def test_a_run_may_have_fewer_connections_than_it_asks_for(sandbox: Sandbox) -> None:
    """It refuses before anything is sent: with failing connections it would wait and wait."""
    told = await ran(sandbox, *RUN[:-1], "50", before=partial(allow_files, LIMIT))
    assert (2, 0) == (told.status, len(sandbox.ledger))
    assert "--concurrency 50: this program may have 24 connections; raise its limit of open files" in told.err
    assert 0 == (await ran(sandbox, *RUN, before=partial(allow_files, LIMIT))).status


@pytest.mark.slow
async def test_runs_with_ever_more_open_files_pay_each_order_once(sandbox: Sandbox) -> None:
    """Wherever a file cannot be opened, the same command goes on; at last all are paid, and none twice."""
    for free in (5, 11):
        told = await ran(sandbox, *RUN, by=("-c", LEAVE, str(free)))
        known = ("this program may open 64 files at once: raise that limit", "cannot be opened")
        assert told.status == 0 or [words for words in known if words in told.err]
    assert 0 == (await ran(sandbox, *RUN, by=("-c", LEAVE, "40"))).status
    assert (6, []) == (len(sandbox.ledger), sandbox.duplicates())


@pytest.mark.slow
async def test_plans_and_reports_without_room(sandbox: Sandbox) -> None:
    """A file that may not grow, a folder for temporary files that is none: said in words, with the file."""
    assert 0 == (await ran(sandbox, *RUN)).status
    for command, most in (("report", 1), ("export --debit 1 --credit 2", 1), ("plan p.csv --maker Ann", 40_960)):
        limit = partial(allow, resource.RLIMIT_FSIZE, most)
        told = await ran(sandbox, "bulk", *command.split(), *BATCH, before=limit, TMPDIR="/dev/null")
        assert (True, True) == (told.status in (2, 5), "the disk could not be read or written" in told.err)
    assert (6, []) == (len(sandbox.ledger), sandbox.duplicates())


def test_what_is_lacking_is_found_in_what_an_error_was_raised_from() -> None:
    """In causes, in contexts and in groups; any other error lacks nothing."""
    full = OSError(errno.ENOSPC, "No space left on device")
    try:
        try:
            raise full
        except OSError as error:
            raise ValueError("p.csv cannot be read") from error
    except ValueError as error:
        caused = error
    for one in (full, caused, ExceptionGroup("several", [ValueError("another"), caused])):
        assert "the disk is full: free some room, then give the same command again" == remedy_of_shortage(one)
    memory = remedy_of_shortage(MemoryError()) or ""
    assert "too little memory" in memory
    for text in ("a.so: failed to map segment from shared object", "libz.so: cannot allocate memory"):
        assert memory == remedy_of_shortage(ImportError(text))
    assert memory == remedy_of_shortage(RuntimeError("can't start new thread"))
    assert [None] * 3 == [remedy_of_shortage(one) for one in (OSError(errno.ENOENT, ""), ImportError("x"), KeyError())]


async def test_a_run_that_gets_on_slowly_says_so_each_minute(capsys: pytest.CaptureFixture[str]) -> None:
    """In a pipe, where else a line comes with each tenth of the batch alone."""
    ticks, over = 0, asyncio.Event()

    async def tick(_: float) -> None:
        nonlocal ticks
        ticks += 1
        if ticks == 7:
            over.set()
            await asyncio.Event().wait()

    with LiveView(Screen(), 400, "UGX") as view:
        view(RunProgress.of(Progress(counts=dict.fromkeys(State, 0), sums=dict.fromkeys(State, Decimal()))))
        assert "0 of 400 done" in capsys.readouterr().out
        async with view.attending(sleep=tick):
            await over.wait()
    assert 1 == capsys.readouterr().err.count("0 of 400 done: accepted 0, rejected 0, unknown 0")


async def test_a_proposal_that_cannot_be_written_is_no_error_of_the_program(sandbox: Sandbox) -> None:
    """The journal's own words tell what failed."""
    journal = ("--batch-id", "p", "--journal", "nowhere/j.sqlite", "--new-journal")
    told = await ran(sandbox, "bulk", "plan", "p.csv", *journal, "--maker", "Ann")
    assert (5, True) == (told.status, "nowhere/j.sqlite cannot be made (No such file or directory)" in told.err)
