"""Events are leased: what waited too long in one receiver is handled by another, and by nobody else."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from ipn.faces import aiohttp_face
from ipn.notifications import notification

from payments_async.ipn import HandlerPolicy, Receiver, TransactionEvent
from payments_async.journal import SqliteJournal
from payments_async.testing import Testing

ONE_AT_A_TIME = HandlerPolicy(concurrency=1, poll=0.01, timeout=30.0)


class Clock:
    """Unix seconds that stand until they are moved."""

    now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


async def for_ever(seconds: float) -> None:
    """Look into the inbox once, and never again."""
    await asyncio.Event().wait()


async def test_an_event_whose_lease_is_over_is_left_to_who_has_it_now(tmp_path: Path) -> None:
    """It waited behind a handler that took its time, and was handled elsewhere meanwhile: it is not handled again."""
    clock, handled, go, is_last = Clock(), list[tuple[str, str]](), asyncio.Event(), asyncio.Event()
    async with AsyncExitStack() as stack:
        first, second = [
            Receiver(
                await stack.enter_async_context(SqliteJournal(tmp_path / "journal.sqlite", testing=Testing(now=clock))),
                senders=["127.0.0.1"],
                policy=ONE_AT_A_TIME,
                testing=Testing(now=clock, sleep=sleep),
            )
            for sleep in (for_ever, asyncio.sleep)
        ]
        begun, taken_over = asyncio.Event(), asyncio.Event()

        @first.on(TransactionEvent)
        async def slowly(event: TransactionEvent) -> None:
            handled.append(("first", event.transaction_id))
            if event.transaction_id == "t-a":
                begun.set()
                await go.wait()
            if event.transaction_id == "t-c":
                is_last.set()

        @second.on(TransactionEvent)
        async def at_once(event: TransactionEvent) -> None:
            handled.append(("second", event.transaction_id))
            if event.transaction_id == "t-b":
                taken_over.set()

        async with aiohttp_face(first) as send, asyncio.timeout(60):
            await send(notification("t-a"))
            await begun.wait()
            await send(notification("t-b"))  # waits behind it
            clock.now += ONE_AT_A_TIME.lease + 1
            async with second:
                await taken_over.wait()
            await send(notification("t-c"))
            go.set()
            await is_last.wait()
    assert [("second", "t-b")] == [(where, what) for where, what in handled if what == "t-b"]
