"""Each task of a receiver ends before its time: another takes its place, and nothing that comes is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from ipn.faces import aiohttp_face
from ipn.notifications import notification
from outbox.test_ended_tasks import Task, broken, cancelled, running

from payments_async._values import tasks as _tasks
from payments_async.ipn import HandlerPolicy, Receiver, TransactionEvent
from payments_async.journal import SqliteJournal

A_MINUTE = 60.0
STANDING = ("look at what is due", "hearing of other receivers")


@pytest.mark.parametrize("end", [cancelled, broken])
async def test_each_task_ends_once(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch, end: Callable[[Task], None]
) -> None:
    """What comes next is stored, answered 200 and handled; those who wait for an event hear of it."""
    monkeypatch.setattr(_tasks, "_AGAIN_INITIAL", 0.01)
    told: asyncio.Queue[str | None] = asyncio.Queue()
    receiver = Receiver(journal, ["127.0.0.1"], policy=HandlerPolicy(poll=0.02))

    @receiver.on(TransactionEvent)
    async def handle(event: TransactionEvent) -> None:
        await told.put(event.transaction_id)

    async with aiohttp_face(receiver) as send, asyncio.timeout(A_MINUTE):
        waiting = asyncio.ensure_future(receiver.wait_for("never", timeout=A_MINUTE))
        for number, name in enumerate(STANDING):
            body = notification(transaction_id=f"t-{number}")
            assert 200 == (await send(body)).status
            assert f"t-{number}" == await told.get()
            while (ended := running().get(name)) is None:  # noqa: ASYNC110 - it begins in a turn of the loop
                await asyncio.sleep(0)
            end(ended)
            await asyncio.wait([ended])
            while running().get(name) is None:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.001)
        waiting.cancel()


async def test_the_task_that_stores_ends_in_its_first_moment(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was on its way to the inbox is stored by the next one, and answered 200."""
    monkeypatch.setattr(_tasks, "_AGAIN_INITIAL", 0.01)
    receiver = Receiver(journal, ["127.0.0.1"])
    async with aiohttp_face(receiver) as send, asyncio.timeout(A_MINUTE):
        body = notification(transaction_id="t-1")
        sending = asyncio.ensure_future(send(body))
        while (ended := running().get("writer of the inbox")) is None:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
        ended.cancel()
        assert (await sending).status in (200, 503)
        assert 200 == (await send(body)).status
