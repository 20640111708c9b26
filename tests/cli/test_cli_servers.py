"""Commands that run until stopped: the sandbox, and the receiver that a made-up notification is sent to."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from cli.commands import Run, started, surroundings
from cli.forks import Started

from payments_async.ipn import TransactionSucceeded
from payments_async.journal import SqliteJournal
from payments_async.journal.contract import Arrival, RawNotification
from payments_async.sandbox import Sandbox


@asynccontextmanager
async def running(*arguments: str) -> AsyncIterator[Started]:
    """A command that runs until the block ends."""
    process = await started(None, *arguments)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line_with(stream: asyncio.StreamReader | None, words: str) -> str:
    """The first line that holds these words."""
    assert stream is not None
    async with asyncio.timeout(60):
        while words not in (line := (await stream.readline()).decode()):
            assert line, f"it ended without saying {words!r}"
    return line


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_sandbox_serves_until_stopped(run: Run, number: signal.Signals) -> None:
    """Its settings work with the other commands, and stopping it is no failure."""
    async with running("sandbox", "--port", "0") as process:
        url = (await line_with(process.stdout, "PAYMENTS_BASE_URL=")).partition("=")[2].strip()
        assert 0 == (await run("doctor", "--base-url", url)).status
        process.send_signal(number)
        await line_with(process.stdout, "orders carried out")
        assert 0 == await asyncio.wait_for(process.wait(), 60)


@pytest.mark.slow
async def test_a_sandbox_that_nobody_asks_ends_by_itself() -> None:
    """So that one which was forgotten does not live for ever; the other way is to ask it to end."""
    async with running("sandbox", "--port", "0", "--idle", "1") as process:
        await line_with(process.stdout, "PAYMENTS_BASE_URL=")
        assert "0 orders carried out" in await line_with(process.stdout, "orders carried out")
        assert 0 == await asyncio.wait_for(process.wait(), 60)


@pytest.mark.slow
async def test_a_reader_that_hangs_up_ends_it_quietly(sandbox: Sandbox) -> None:
    """`payments-async products | head -1` is no error of the program."""
    process = await asyncio.create_subprocess_shell(
        f"{sys.executable} -m payments_async products | true",
        env=surroundings(sandbox, {}),
        stderr=subprocess.PIPE,
    )
    assert b"" == (await process.communicate())[1]


async def test_a_taken_port_is_bad_input(run: Run, sandbox: Sandbox) -> None:
    """It names the option and says what to do."""
    port = sandbox.base_url.rpartition(":")[2]
    for command in (("sandbox",), ("ipn", "serve")):
        ran = await run(*command, "--port", port)
        assert 2 == ran.status
        assert f"--port: 127.0.0.1:{port} cannot be" in ran.said


@pytest.mark.slow(covered=True)
@pytest.mark.parametrize("spelling", ["pascal", "camel", "snake"])
async def test_a_sent_notification_is_heard(run: Run, spelling: str) -> None:
    """`ipn send` posts in every spelling, `ipn serve` shows it once however often it comes."""
    async with running("ipn", "serve", "--port", "0", "--json", "--sender", "127.0.0.1") as process:
        found = re.search(r"http://\S+/ipn", await line_with(process.stderr, "listening"))
        assert found is not None
        sent = await run(
            "ipn",
            "send",
            found.group(),
            "--spelling",
            spelling,
            "--request-id",
            "v-1",
            "--amount",
            "0.10",
            "--times",
            "2",
        )
        assert (0, 2) == (sent.status, sent.out.count("200 "))
        event = json.loads(await line_with(process.stdout, "v-1"))
        assert ("succeeded", "v-1", "0.10") == (event["kind"], event["request_id"], event["amount"])
        process.send_signal(signal.SIGINT)
        await line_with(process.stderr, "1 notification heard")


async def test_a_receiver_that_is_not_there_is_told(run: Run) -> None:
    """A refused connection is 3, an address that is none is 2."""
    assert 3 == (await run("ipn", "send", "http://127.0.0.1:9/ipn")).status
    assert 2 == (await run("ipn", "send", "nowhere")).status


async def test_a_receiver_that_redirects_is_told(run: Run) -> None:
    """A mount that answers only with a slash at its end hears no notification: status 3, and what to do."""

    async def elsewhere(_: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": "/ipn/"})

    app = web.Application()
    app.router.add_post("/ipn", elsewhere)
    async with TestServer(app) as server:
        sent = await run("ipn", "send", str(server.make_url("/ipn")))
    assert 3 == sent.status
    assert "the service counts only a 200" in sent.said
    assert "needs a route beside it" in sent.said


@pytest.mark.slow
@pytest.mark.parametrize("senders", [(), ("--sender", "192.0.2.1")], ids=["the documented ones", "another one"])
async def test_a_stranger_is_refused(run: Run, senders: tuple[str, ...]) -> None:
    """This machine is no sender unless it is named: behind a proxy here, everybody would come from it."""
    async with running("ipn", "serve", "--port", "0", *senders) as process:
        found = re.search(r"http://\S+/ipn", await line_with(process.stderr, "listening"))
        assert found is not None
        sent = await run("ipn", "send", found.group())
        assert (3, True) == (sent.status, "403" in sent.out)


@pytest.mark.slow(covered=True)
async def test_a_notification_is_kept_in_the_journal(run: Run, tmp_path: Path) -> None:
    """With a journal it is stored and handled; there is no dead letter to list or to replay."""
    journal = str(tmp_path / "inbox.sqlite")
    async with running("ipn", "serve", "--port", "0", "--sender", "127.0.0.1", "--journal", journal) as process:
        assert "knows no order" in await line_with(process.stderr, "new journal")
        found = re.search(r"http://\S+/ipn", await line_with(process.stderr, "listening"))
        assert found is not None
        assert 0 == (await run("ipn", "send", found.group(), "--request-id", "v-2")).status
        await line_with(process.stdout, "v-2")
        process.send_signal(signal.SIGINT)
        await line_with(process.stderr, "1 notification heard")
        assert 0 == await asyncio.wait_for(process.wait(), 60)
    listed = await run("ipn", "list", "--journal", journal, "--json")
    known = {"pending": 0, "failing": 0, "trouble": None, "dead": [], "dubious": [], "of_unknown_orders": 1}
    assert (0, known) == (listed.status, json.loads(listed.out))
    assert 0 == (await run("ipn", "replay", "--journal", journal)).status
    missing = await run("ipn", "replay", "99", "--journal", journal)
    assert (2, True) == (missing.status, "there is no dead letter 99" in missing.said)


async def test_a_dead_letter_is_listed_and_replayed(run: Run, tmp_path: Path) -> None:
    """What a handler could not take is shown with its reason, and waits again when it is replayed."""
    path = tmp_path / "inbox.sqlite"
    event = TransactionSucceeded(transaction_id="t-1", status_code=0, request_id="v-3")
    delivery = RawNotification(body=b"{}", query="", peer="52.48.24.237", received_at=1.0)
    async with SqliteJournal(path) as journal:
        receipt = await journal.receive(delivery, event, owner="me", lease=5.0)
        await journal.finish(receipt.event_id, "dead", error="no room")
    listed = await run("ipn", "list", "--journal", str(path))
    assert (3, True) == (listed.status, "v-3" in listed.out and "no room" in listed.out)
    assert 0 == (await run("ipn", "replay", str(receipt.event_id), "--journal", str(path))).status
    again = json.loads((await run("ipn", "list", "--journal", str(path), "--json")).out)
    expected = {"pending": 1, "failing": 0, "trouble": None, "dead": [], "dubious": [], "of_unknown_orders": 1}
    assert expected == again


async def test_old_notifications_are_pruned(run: Run, tmp_path: Path) -> None:
    """By their age, written as people do."""
    path = str(tmp_path / "inbox.sqlite")
    async with SqliteJournal(path) as journal:
        for number in range(3):
            event = TransactionSucceeded(transaction_id=f"t-{number}", status_code=0)
            delivery = RawNotification(body=b"{}", query="", peer="52.48.24.237", received_at=1.0)
            await journal.receive_all((Arrival(delivery, event, 0.0, unheard=True),), owner="me")
    pruned = await run("ipn", "prune", "--older-than", "90d", "--journal", path, "--json")
    assert (0, {"events": 2, "deliveries": 0}) == (pruned.status, json.loads(pruned.out))
    for wrong in ("0d", "90", "-1d", "soon"):
        assert 2 == (await run("ipn", "prune", f"--older-than={wrong}", "--journal", path)).status


@pytest.mark.slow
async def test_whom_a_receiver_refuses_is_said(run: Run) -> None:
    """With the address and the reason, at the end of all."""
    async with running("ipn", "serve", "--port", "0", "--sender", "10.0.0.1") as process:
        found = re.search(r"http://\S+/ipn", await line_with(process.stderr, "listening"))
        assert found is not None
        for _ in range(3):
            assert 3 == (await run("ipn", "send", found.group())).status
        process.send_signal(signal.SIGINT)
        said = await line_with(process.stderr, "refused 3 times")
        assert "127.0.0.1: the peer 127.0.0.1 is not among the known senders" in said
        await line_with(process.stderr, "0 notifications heard")
        assert 0 == await asyncio.wait_for(process.wait(), 60)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "path", "words", "remedy"),
    [
        pytest.param((), "/ipn", "not among the known senders", "add --sender 127.0.0.1", id="stranger"),
        pytest.param(
            ("--trusted-proxy", "127.0.0.1"), "/ipn", "names no address before it", "send X-Forwarded-For", id="proxy"
        ),
        pytest.param(("--sender", "127.0.0.1"), "/other", "another path", "must have the path of --path", id="path"),
        pytest.param(
            ("--sender", "127.0.0.1", "--path-token", "0123456789abcdefgh"),
            "/ipn/0123456789abcdefgg",
            "the path token is wrong",
            "must end with --path-token",
            id="token",
        ),
    ],
)
async def test_a_refusal_names_its_remedy_while_it_runs(
    run: Run, options: tuple[str, ...], path: str, words: str, remedy: str
) -> None:
    """Nobody has to stop a receiver to learn that it refuses everything, and what would let it hear."""
    async with running("ipn", "serve", "--port", "0", *options) as process:
        found = re.search(r"http://[^/]+", await line_with(process.stderr, "listening"))
        assert found is not None
        assert 3 == (await run("ipn", "send", f"{found.group()}{path}")).status
        assert "refused 1 time: 127.0.0.1" in await line_with(process.stderr, words)
        await line_with(process.stderr, remedy)
        await line_with(process.stderr, "so far: 0 notifications heard, 1 refused")
