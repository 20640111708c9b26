"""A backlog is handled as fast as handlers are: a receiver looks again at once while there is more."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ipn.faces import aiohttp_face
from ipn.notifications import notification

from payments_async._wire.notifications import read_notification
from payments_async.ipn import HandlerPolicy, Receiver, TransactionEvent
from payments_async.journal import SqliteJournal
from payments_async.journal.contract import Arrival, RawNotification, StoredEvent
from payments_async.testing import Testing

THREE_AT_ONCE = HandlerPolicy(concurrency=3)
ROOM = 12  # for each handler that may run, four


def arrival(number: int) -> Arrival:
    """A delivery that nobody has leased."""
    body = b'{"TransactionId":"t-%d","StatusCode":0}' % number
    delivery = RawNotification(body=body, query="", peer="127.0.0.1", received_at=0.0)
    return Arrival(delivery, read_notification(body, ""), 0.0)


async def never_again(seconds: float) -> None:
    """A wait for the next look by the clock that does not end."""
    await asyncio.Event().wait()


class Looked(SqliteJournal):
    """A journal that tells how many events each look found."""

    looks: list[int]

    async def claim(self, owner: str, **rest: Any) -> Sequence[StoredEvent]:
        found = await super().claim(owner, **rest)
        self.looks.append(len(found))
        return found


async def drained(path: Path, count: int) -> tuple[list[str], list[int]]:
    """The transactions that were handled, out of so many in the inbox, and what the looks for them found."""
    async with Looked(path) as journal:
        journal.looks = []
        await journal.receive_all([arrival(number) for number in range(count)], owner="before")
        receiver = Receiver(journal, senders=["127.0.0.1"], policy=THREE_AT_ONCE, testing=Testing(sleep=never_again))
        handled, are_all = list[str](), asyncio.Event()

        @receiver.on(TransactionEvent)
        async def note(event: TransactionEvent) -> None:
            await asyncio.sleep(0)
            handled.append(event.transaction_id)
            if len(handled) == count:
                are_all.set()

        async with asyncio.timeout(60), receiver:
            await are_all.wait()
        return handled, journal.looks


async def test_a_backlog_is_handled_without_waiting_for_the_clock(tmp_path: Path) -> None:
    """It is looked for again whenever half of the room is free, each time for at least that much."""
    handled, looks = await drained(tmp_path / "journal.sqlite", 100)
    assert {f"t-{number}" for number in range(100)} == set(handled)
    assert 100 == len(handled) == sum(looks)
    assert ROOM // 2 <= min(looks[:-2])
    assert ROOM == max(looks)


async def test_where_there_is_no_more_it_is_looked_for_once(tmp_path: Path) -> None:
    """A look that found less than there was room for has found all."""
    assert [11] == (await drained(tmp_path / "journal.sqlite", 11))[1]


async def test_what_came_while_there_was_no_room_is_handled_as_soon_as_there_is(journal: SqliteJournal) -> None:
    """It was stored for anybody, and is taken by the one who had no room for it."""
    receiver = Receiver(journal, senders=["127.0.0.1"], policy=THREE_AT_ONCE, testing=Testing(sleep=never_again))
    handled, go, are_all = list[str](), asyncio.Event(), asyncio.Event()

    @receiver.on(TransactionEvent)
    async def note(event: TransactionEvent) -> None:
        await go.wait()
        handled.append(event.transaction_id)
        if len(handled) == 3 * ROOM:
            are_all.set()

    async with asyncio.timeout(60), aiohttp_face(receiver) as send:
        for number in range(3 * ROOM):
            assert 200 == (await send(notification(f"t-{number}"))).status
        go.set()
        await are_all.wait()
    assert {f"t-{number}" for number in range(3 * ROOM)} == set(handled)
    assert 3 * ROOM == len(handled)


async def test_a_receiver_without_handlers_leaves_what_waits_for_those_of_others(tmp_path: Path) -> None:
    """As one that is opened for a while beside an application, whose handler has failed or whose process died."""
    looked = asyncio.Event()

    async def look_again(_: float) -> None:
        looked.set()
        await asyncio.Event().wait()

    async with Looked(tmp_path / "journal.sqlite") as journal:
        journal.looks = []
        await journal.receive_all([arrival(1)], owner="the application")
        beside = Receiver(journal, senders=["127.0.0.1"], testing=Testing(sleep=look_again))
        async with asyncio.timeout(60), beside:
            await looked.wait()
        assert 1 == (await beside.health()).pending
        assert [] == journal.looks
