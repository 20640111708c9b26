"""`payments-async ipn serve` killed with notifications stored and not shown, and started again at the same address."""

import asyncio
import fcntl
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from ipn.notifications import notification
from ipn.ports import free_port

from payments_async.ipn import HandlerPolicy
from payments_async.journal import SqliteJournal

pytest.importorskip("typer")

COUNT = 300  # of notifications: what shows them does not fit into the smallest pipe
SENDERS = 20
SMALLEST_PIPE = 4096  # bytes
SOON = 25.0  # seconds: enough to start a process, and far less than a lease


@asynccontextmanager
async def serving(port: int, journal: Path, *more: str, out: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command, listening; killed at the end of the block."""
    options = ["--port", str(port), "--journal", str(journal), "--sender", "127.0.0.1", "--json", *more]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "payments_async", "ipn", "serve", *options, stdout=out, stderr=asyncio.subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(60):
            while b"listening" not in (line := await process.stderr.readline()):
                assert line, "it ended without listening"
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()


@contextmanager
def sent(port: int, names: list[str]) -> Iterator[None]:
    """Notifications, sent over a few connections that stay open; no answer is read."""
    with ExitStack() as open_ones:
        for start in range(min(SENDERS, len(names))):
            connection = open_ones.enter_context(socket.create_connection(("127.0.0.1", port)))
            for name in names[start::SENDERS]:
                body = notification(name)
                connection.sendall(b"POST /ipn HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        yield


async def backlog(journal: Path) -> int:
    """How many events wait in the journal."""
    async with SqliteJournal(journal) as inbox:
        return (await inbox.backlog()).pending


@asynccontextmanager
async def one_that_shows_nothing(port: int, journal: Path, *more: str) -> AsyncIterator[None]:
    """A command whose reader has fallen asleep, and that has stored what it cannot show; killed at the end."""
    ours, theirs = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, SMALLEST_PIPE)
    try:
        async with serving(port, journal, *more, out=theirs):
            with sent(port, [f"t-{number}" for number in range(COUNT)]):
                async with asyncio.timeout(SOON):
                    while not await backlog(journal):  # noqa: ASYNC110 - another process has no event to wait for
                        await asyncio.sleep(0.05)
            yield
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="the size of a pipe can be chosen on Linux only")
@pytest.mark.parametrize("more", [(), ("--owner", "receiver-1")], ids=["no name", "a name"])
async def test_what_a_killed_command_held_is_shown_at_once(tmp_path: Path, more: tuple[str, ...]) -> None:
    """The next process does not wait until the leases of the dead one end, whatever its address or name."""
    port, journal = free_port(), tmp_path / "inbox.sqlite"
    async with one_that_shows_nothing(port, journal, *more):
        pass
    left = await backlog(journal)
    assert left > 0
    assert 3 * SOON < HandlerPolicy().lease
    async with serving(free_port(), journal, out=asyncio.subprocess.PIPE) as process, asyncio.timeout(SOON):
        assert process.stdout is not None
        shown: set[str] = set()
        while len(shown) < left:
            shown.add(json.loads(await process.stdout.readline())["transaction_id"])
        while await backlog(journal):  # noqa: ASYNC110 - another process has no event to wait for
            await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="the size of a pipe can be chosen on Linux only")
async def test_another_command_on_the_journal_leaves_it_what_it_holds(tmp_path: Path) -> None:
    """It is another receiver: what the first one still holds is not taken from it as long as it lives."""
    port, other, journal = free_port(), free_port(), tmp_path / "inbox.sqlite"
    async with one_that_shows_nothing(port, journal):
        left = await backlog(journal)
        async with serving(other, journal, out=asyncio.subprocess.PIPE) as process, asyncio.timeout(SOON):
            assert process.stdout is not None
            with sent(other, ["t-new"]):
                assert "t-new" == json.loads(await process.stdout.readline())["transaction_id"]
        assert left <= await backlog(journal)
