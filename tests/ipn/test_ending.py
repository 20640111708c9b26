"""How a receiver ends: after its handlers and before its journal, whoever closes first, and without its siblings."""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from ipn.notifications import notification
from ipn.ports import free_port

from payments_async.ipn import HandlerPolicy, Receiver, TransactionEvent
from payments_async.journal import SqliteJournal
from payments_async.testing import Notification, VirtualClock, deliver

LOCAL = ["127.0.0.1"]
TESTS = Path(__file__).parent.parent


class Slow:
    """A handler that is under way until it is let go."""

    def __init__(self, receiver: Receiver) -> None:
        self.begun, self.go, self.ended = asyncio.Event(), asyncio.Event(), 0
        receiver.on(TransactionEvent, name="slow")(self)

    async def __call__(self, event: TransactionEvent) -> None:
        self.begun.set()
        await self.go.wait()
        self.ended += 1


async def left_over(path: Path) -> int:
    """How many events another process would find to handle."""
    async with SqliteJournal(path) as journal:
        return len(await journal.claim("another", lease=90, limit=10))


async def closed(path: Path, slow: Slow, closing: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Close while a handler is under way, and find that it has ended, and its event with it."""
    ending = asyncio.ensure_future(closing)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not ending.done()
    slow.go.set()
    await ending
    assert (1, 0) == (slow.ended, await left_over(path))
    assert [] == [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("opened_by", ["parent", "parent, after the sub-app", "around"])
async def test_an_application_may_close_the_journal_first(
    tmp_path: Path, opened_by: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Aiohttp cleans up a parent before its sub-applications: the journal lets the receiver finish before it closes."""
    path, port = tmp_path / "journal.db", free_port()
    journal = SqliteJournal(path)
    receiver = Receiver(journal, senders=LOCAL, policy=HandlerPolicy(poll=0.01))
    slow, app = Slow(receiver), web.Application()

    async def opened(_: web.Application) -> AsyncIterator[None]:
        async with journal:
            yield

    if opened_by == "parent":
        app.cleanup_ctx.append(opened)
    app.add_subapp("/ipn", receiver.app())
    if opened_by == "parent, after the sub-app":
        app.on_startup.append(lambda _: journal.__aenter__())
        app.on_cleanup.insert(0, lambda _: journal.aclose())
    async with AsyncExitStack() as around:
        if opened_by == "around":
            await around.enter_async_context(journal)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        url = f"http://127.0.0.1:{port}/ipn"
        async with ClientSession() as http, http.post(url, data=notification()) as answer:
            assert 200 == answer.status
        await slow.begun.wait()
        await closed(path, slow, runner.cleanup(), caplog)


@pytest.mark.parametrize("first", ["journal", "receiver", "together"])
async def test_a_lifespan_may_close_them_in_any_order(
    tmp_path: Path, first: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As an ASGI application does that opens both itself."""
    path = tmp_path / "journal.db"
    journal = await SqliteJournal(path).__aenter__()
    receiver = Receiver(journal, senders=LOCAL, policy=HandlerPolicy(poll=0.01))
    slow, asgi, said = Slow(receiver), receiver.asgi(), asyncio.Queue[dict[str, Any]]()
    lifespan = asyncio.ensure_future(asgi({"type": "lifespan"}, said.get, lambda message: asyncio.sleep(0)))
    said.put_nowait({"type": "lifespan.startup"})
    assert 200 == (await deliver(receiver, Notification(body=notification(), query=""))).status
    await slow.begun.wait()

    async def shut_down() -> None:
        said.put_nowait({"type": "lifespan.shutdown"})
        await lifespan

    async def closing() -> None:
        match first:
            case "journal":
                await journal.aclose()
                await shut_down()
            case "receiver":
                await shut_down()
                await journal.aclose()
            case _:
                await asyncio.gather(journal.aclose(), shut_down())

    await closed(path, slow, closing(), caplog)


@pytest.mark.parametrize("has_inbox", [True, False])
async def test_closing_leaves_a_handler_that_lets_nothing_end_it(
    tmp_path: Path, has_inbox: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names handler and event; an inbox keeps the event for the next process."""
    begun, go = asyncio.Event(), asyncio.Event()
    async with VirtualClock() as clock, AsyncExitStack() as stack:
        journal = SqliteJournal(tmp_path / "journal.db", testing=clock.testing) if has_inbox else None
        receiver = Receiver(journal, senders=LOCAL, policy=HandlerPolicy(drain=0.0), testing=clock.testing)

        @receiver.on(TransactionEvent, name="endless")
        async def endless(event: TransactionEvent) -> None:
            begun.set()
            while not go.is_set():
                with suppress(asyncio.CancelledError):  # as a bare `except:` around a call that is tried again takes it
                    await go.wait()

        if journal is not None:
            clock.watch(await stack.enter_async_context(journal))
        stack.callback(go.set)
        receiver.start()
        delivery = asyncio.ensure_future(deliver(receiver, Notification(body=notification(), query="")))
        await begun.wait()
        await clock.until(receiver.aclose())
        said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        left = 0 if journal is None else len(await journal.claim("another", lease=90, limit=10))
        go.set()
        assert 200 == (await delivery).status
    assert int(has_inbox) == left
    assert [True] == [line.startswith("a handler does not end") and "endless" in line for line in said]


async def test_what_comes_after_the_journal_closed_is_not_stored(tmp_path: Path) -> None:
    """It is answered 503; opened again, both go on."""
    journal = SqliteJournal(tmp_path / "journal.db")
    receiver = Receiver(journal, senders=LOCAL, policy=HandlerPolicy(poll=0.01))
    for _ in range(2):
        async with journal:
            receiver.start()
            assert 200 == (await deliver(receiver, Notification(body=notification(), query=""))).status
        assert 503 == (await deliver(receiver, Notification(body=notification("late"), query=""))).status
        await receiver.aclose()


@pytest.mark.slow
@pytest.mark.parametrize("owner", [None, "billing"])
async def test_workers_of_a_preloaded_application_are_two_receivers(tmp_path: Path, owner: str | None) -> None:
    """The end of one leaves the other what it holds: an event under way is not handled a second time."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(TESTS / "ipn/preloaded.py"),
        str(tmp_path / "journal.db"),
        *([owner] if owner else []),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )
    async with asyncio.timeout(60):
        said, _ = await process.communicate()
    assert ["claimed 0", "handled"] == sorted(said.decode().split("\n"))[1:]
