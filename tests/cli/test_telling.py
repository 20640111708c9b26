"""`--notify`: who hears how a run ended, what they hear, and that it changes nothing about the run."""

import asyncio
import json
import shlex
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from bulk.files import row, write_csv
from cli.commands import Ran, Run, started
from yarl import URL

from payments_async._cli import telling
from payments_async._cli.http import exchange
from payments_async.sandbox import Fault, Sandbox

SENT = ("--batch-id", "november", "--journal", "j.sqlite")
KEEPS = "import os, sys; open('heard.txt', 'w').write(sys.stdin.read() + ''.join(map(str, sorted(os.environ))))"


class Ear:
    """An address that hears: answers with one status, and keeps what came."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.status = 200

    async def hear(self, request: web.Request) -> web.Response:
        await self.heard.put(await request.json())
        return web.Response(status=self.status)

    async def next(self) -> dict[str, Any]:
        """What was said next."""
        async with asyncio.timeout(60):
            return await self.heard.get()


@pytest.fixture
def ear() -> Ear:
    """Who hears."""
    return Ear()


@pytest.fixture
async def address(ear: Ear) -> AsyncIterator[str]:
    """Where they hear."""
    app = web.Application()
    app.router.add_post("/hear", ear.hear)
    async with TestServer(app) as server:
        yield str(server.make_url("/hear"))


@pytest.fixture(autouse=True)
def payroll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clean file in a folder of our own, which is the current one."""
    monkeypatch.chdir(tmp_path)
    rows = [row(request_id=f"RUN-{n}", amount=f"{n}000", phone_number=f"+25677200000{n}") for n in range(1, 4)]
    return write_csv(tmp_path / "payroll.csv", *rows)


async def sent(run: Run, *more: str) -> Ran:
    """The payroll is sent."""
    return await run("bulk", "run", "payroll.csv", *SENT, "--yes", "--new-journal", *more)


def text_of(name: str) -> str:
    """All of a file."""
    return Path(name).read_text(encoding="utf-8")


async def test_an_address_hears_that_a_run_has_ended(run: Run, ear: Ear, address: str) -> None:
    """With counts and sums, the batch and the exit status; and with nobody's name or number."""
    ran = await sent(run, "--notify", address)
    told = await ear.next()
    assert (0, 0) == (ran.status, told["exit_status"])
    progress = told["progress"]
    assert ("ended", "bulk run", "november", 3) == (
        told["event"],
        told["command"],
        told["batch_id"],
        progress["orders"],
    )
    assert {"orders": 3, "sum": "6000"} == progress["outcomes"]["accepted"]
    assert [] == [word for word in ("256772", "Grace", "Akello") if word in json.dumps(told)]
    assert ear.heard.empty()


async def test_a_program_hears_it_and_none_of_our_settings(run: Run) -> None:
    """On its standard input; what is secret in our environment is not in its own."""
    await sent(run, "--notify", shlex.join([sys.executable, "-c", KEEPS]))
    heard = text_of("heard.txt")
    assert ('"event": "ended"' in heard, "PAYMENTS_" in heard) == (True, False)


async def test_a_run_that_needs_a_person(run: Run, sandbox: Sandbox, ear: Ear, address: str) -> None:
    """An unknown outcome is told as such, and so is what a reconciliation parks."""
    sandbox.script(Fault.LOST_BEFORE, on="payout", request_id="RUN-2")
    assert 4 == (await sent(run, "--notify", address)).status
    assert ("needs a person", 1) == (
        (told := await ear.next())["event"],
        told["progress"]["outcomes"]["unknown"]["orders"],
    )
    await sandbox.settle()
    looked = await run("bulk", "reconcile", *SENT, "--grace", "0", "--interval", "0", "--notify", address)
    told = await ear.next()
    assert (4, "bulk reconcile", "needs a person") == (looked.status, told["command"], told["event"])
    assert 1 == told["progress"]["outcomes"]["parked"]["orders"]


async def test_a_run_that_is_refused(run: Run, ear: Ear, address: str) -> None:
    """Nothing was sent: it is told as stopped, with its exit status, without the words, which may name people."""
    ran = await sent(run, "--plan", "f" * 64, "--notify", address)
    told = await ear.next()
    assert (2, "stopped", 2, "BadInput") == (ran.status, told["event"], told["exit_status"], told["error"])


async def test_a_service_that_refuses_the_credentials(run: Run, ear: Ear, address: str) -> None:
    """It is told as stopped, by which error."""
    ran = await run("bulk", "run", "payroll.csv", *SENT, "--yes", "--notify", address, PAYMENTS_APP_PASSWORD="wrong")
    told = await ear.next()
    assert (5, "stopped", "AuthenticationFailed") == (ran.status, told["event"], told["error"])
    assert "wrong" not in json.dumps(told)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("no-such-program --x", "the notice may be lost that it has ended"),
        (shlex.join([sys.executable, "-c", "raise SystemExit(7)"]), "ended with status 7"),
        ("http://127.0.0.1:9/hear", "the notice may be lost"),
    ],
)
async def test_nobody_hears(run: Run, sandbox: Sandbox, target: str, words: str) -> None:
    """It is said, and changes nothing: all were sent, and the exit status is that of the run."""
    ran = await sent(run, "--notify", target)
    assert (0, True, 3) == (ran.status, words in ran.said, len(sandbox.ledger)), ran.said


async def test_an_address_that_refuses(run: Run, ear: Ear, address: str) -> None:
    """Its status is said, and changes nothing."""
    ear.status = 500
    ran = await sent(run, "--notify", address)
    assert (0, True) == (ran.status, "the address answered 500" in ran.said)


@pytest.mark.parametrize("target", ["", "'", "http://", "https://[x/"])
async def test_what_is_neither_a_program_nor_an_address(run: Run, sandbox: Sandbox, target: str) -> None:
    """It is bad input, and nothing is sent."""
    ran = await sent(run, "--notify", target)
    assert (2, True, 0) == (ran.status, "--notify: name a program" in ran.said, len(sandbox.ledger))


async def test_an_address_that_takes_nothing() -> None:
    """Its connection ends with the time that it has, and not when it takes what it was told after all."""
    with socket.create_server(("127.0.0.1", 0)) as ear:
        url, told = URL(f"http://127.0.0.1:{ear.getsockname()[1]}/"), bytes(30_000_000)
        with pytest.raises(TimeoutError):
            await exchange("POST", url, body=told, timeout=0.1)
        theirs, _ = ear.accept()
        with theirs:
            assert await asyncio.to_thread(length_of, theirs) < len(told)


def length_of(connection: socket.socket) -> int:
    """How much comes until the other side ends it."""
    length = 0
    with suppress(ConnectionResetError):
        while piece := connection.recv(1 << 20):
            length += len(piece)
    return length


@pytest.mark.slow
async def test_a_program_that_hangs(run: Run) -> None:
    """It is ended, with what it began, after ten seconds; the run had ended before."""
    ran = await sent(run, "--notify", "sh -c 'sleep 600 & wait'")
    assert (0, True) == (ran.status, "no end after 10 s" in ran.said)


@pytest.mark.slow
async def test_an_outbox_that_is_paused_while_it_is_worked(run: Run, sandbox: Sandbox, ear: Ear, address: str) -> None:
    """Somebody hears at once that it needs a person, and hears its end."""
    command = ("outbox", "run", "--journal", "j.sqlite", "--new-journal", "--notify", address)
    process = await started(sandbox, *command, both=True)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            while b"working the outbox" not in await process.stdout.readline():
                assert process.returncode is None
        who = ("--who", "A. Clerk", "--why", "the account is checked")
        assert 0 == (await run("outbox", "pause", "--journal", "j.sqlite", *who)).status
        told = await ear.next()
        assert ("needs a person", {"paused": 1}) == (told["event"], told["needs"])
        process.send_signal(signal.SIGTERM)
        told = await ear.next()
        assert ("ended", "outbox run", 0) == (told["event"], told["command"], told["exit_status"])
        assert 0 == await asyncio.wait_for(process.wait(), 60)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.parametrize(
    ("system", "command", "words"),
    [
        ("linux", "mail -s 'a run' me", ["mail", "-s", "a run", "me"]),
        ("win32", r'"C:\Program Files\tell.exe" -s C:\runs', [r"C:\Program Files\tell.exe", "-s", r"C:\runs"]),
    ],
)
def test_a_command_line_of_each_system(system: str, command: str, words: list[str]) -> None:
    """A backslash is a part of a Windows path, and not a letter that hides the next one."""
    assert words == telling._words(command, system=system)


@pytest.mark.parametrize("address", ["http://u:hidden@127.0.0.1:9/hear", "http://127.0.0.1:9/hidden?token=hidden"])
async def test_the_secret_of_an_address_is_not_printed(run: Run, address: str) -> None:
    """The command that goes on with a stopped run names the host alone: what it prints is kept in logs."""
    told = await sent(run, "--stop-at-total", "1", "--notify", address)
    assert (5, True) == (told.status, "--notify 'http://127.0.0.1:9/***'" in told.said)
    assert "hidden" not in told.said


async def test_an_approver_hears_that_a_plan_waits(run: Run, sandbox: Sandbox, address: str, ear: Ear) -> None:
    """With its digest and sum, and no person; the maker reads from where it can be approved."""
    plan = ("bulk", "plan", "payroll.csv", *SENT, "--notify", address)
    assert (2, True) == ((ran := await run(*plan)).status, "add --maker NAME" in ran.said)
    ran = await run(*plan, "--maker", "A. Clerk", "--new-journal")
    assert (0, True) == (ran.status, "Approve on this machine. For another one" in ran.said)
    heard = await ear.next()
    told = ("event", "command", "batch_id", "currency")
    assert ["waits for approval", "bulk plan", "november", "UGX"] == [heard[name] for name in told]
    assert (True, False) == (heard["digest"] in ran.said, "Clerk" in str(heard))
    assert (0, True) == (len(sandbox.ledger), ear.heard.empty())
