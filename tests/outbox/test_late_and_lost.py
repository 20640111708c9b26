"""What was granted in a commit whose answer is lost or comes too late: nobody sends by it, and nothing goes twice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from bulk.worlds import payout, session
from journal.factories import IDENTITY, order
from outbox.banks import Bank, bank
from outbox.desks import A_MINUTE, Desk, ids, until

from payments_async import PayoutOrder
from payments_async.journal import JournalUnavailable, PostgresJournal, Signal
from payments_async.outbox import Outbox, WorkerSettings
from payments_async.sandbox import Sandbox
from payments_async.testing import Testing

BLOCK = 1000  # orders that are written down at once
LEASE = 0.5  # seconds
ENDS = (Signal.ACCEPTED, Signal.NOT_SENT)


class Hindrance:
    """Does something to the answer of the first commit that has done an operation, once that commit was made."""

    def __init__(self, operation: str) -> None:
        self._left = [f"{operation}.written", "commit.done"]
        self.is_armed = False

    def __call__(self, point: str) -> None:
        if self.is_armed and self._left and point == self._left[0]:
            del self._left[0]
            if not self._left:
                self.act()

    def act(self) -> None:
        """Lose it."""
        raise ConnectionResetError


class Delay(Hindrance):
    """Keeps it back until it is let go."""

    def __init__(self, operation: str) -> None:
        super().__init__(operation)
        self.over = threading.Event()

    def act(self) -> None:
        self.over.wait(A_MINUTE)


@pytest.fixture
def till() -> Iterator[Bank]:
    """An application."""
    with bank("asyncpg") as shop:
        yield shop


async def put(way: str, here: Desk, till: Bank, number: int) -> None:
    """Have an order sent, by the operation that permits it there."""
    match way:
        case "take":
            async with till.begin() as connection:
                await here.outbox.put(payout(number), connection=connection)
        case "put":
            await here.outbox.put(payout(number))
        case "permit":
            await here.outbox.put_batch(f"batch {number}", [payout(number)])


async def ends(journal: PostgresJournal, request_id: str) -> list[Signal]:
    """How the attempts of an order ended, the last first; those before it alike are one."""
    told = [one.signal for one in await journal.history(request_id) if one.signal is not None]
    assert Signal.PERMITTED is told[0]
    assert told.count(Signal.PERMITTED) == sum(signal in ENDS for signal in told)
    return list(dict.fromkeys(signal for signal in reversed(told) if signal in ENDS))


@pytest.mark.parametrize("way", ["take", "put", "permit"])
async def test_a_permit_whose_answer_is_lost(till: Bank, service: Sandbox, way: str) -> None:
    """The order is sent once, by another permit, and needs no person; nothing stays in the tray."""
    lost = Hindrance(way)
    async with (
        PostgresJournal(till.dsn, schema=till.journal, testing=Testing(crash_at=lost)) as journal,
        session(service) as payments,
        Outbox(payments, journal) as outbox,
    ):
        here = Desk(service, payments, journal, outbox)
        await outbox.pay(payout(1))  # whoever is not logged in gets no permit yet
        lost.is_armed = True
        asking = asyncio.ensure_future(put(way, here, till, 0))
        await here.comes_to({"accepted": 2})
        await asyncio.wait([asking])
        assert (way == "put") == isinstance(asking.exception(), JournalUnavailable)
        assert ([*ids(range(1, 2)), *ids(range(1))], (0, 0)) == (here.executions(), await journal.count_laid("outbox"))
        assert [Signal.ACCEPTED, Signal.NOT_SENT] == await ends(journal, payout(0).request_id)


@pytest.mark.parametrize("way", ["take", "put", "permit"])
async def test_a_permit_that_is_heard_of_when_the_lease_is_over(till: Bank, service: Sandbox, way: str) -> None:
    """Somebody has taken the chunk over, with the order as unknown: it is sent under another permit, once."""
    late = Delay(way)
    async with (
        PostgresJournal(till.dsn, schema=till.journal, testing=Testing(crash_at=late)) as journal,
        PostgresJournal(till.dsn, schema=till.journal) as other,
        session(service) as payments,
        Outbox(payments, journal, worker=WorkerSettings(lease=LEASE, settles=False)) as outbox,
    ):
        here = Desk(service, payments, journal, outbox)
        await outbox.pay(payout(2))
        late.is_armed = True
        asking = asyncio.ensure_future(put(way, here, till, 0))

        async def taken_over() -> int:
            await other.expire_chunks()
            return (await other.progress()).counts["unknown"]

        await until(taken_over, 1)
        late.over.set()
        await put(way, here, till, 1)
        await here.comes_to({"accepted": 3})
        await asking
        assert [*ids(range(3))] == sorted(here.executions())
        assert [Signal.ACCEPTED, Signal.NOT_SENT] == await ends(journal, payout(0).request_id)


async def test_a_take_for_a_chunk_that_somebody_else_has_by_now(till: Bank) -> None:
    """What is permitted stands in another chunk, which is ours; that of the other holds nothing more."""
    async with (
        PostgresJournal(till.dsn, schema=till.journal) as journal,
        PostgresJournal(till.dsn, schema=till.journal) as other,
    ):
        await journal.open_outbox("shop", IDENTITY)
        placed = await journal.put("shop", order(0), owner="one", lease=0.0)
        assert placed.chunk is not None
        theirs = await other.claim_chunk("shop", "other", lease=3600.0)
        assert theirs is not None
        assert (placed.chunk.number, 1) == (theirs.number, len(theirs.orders))
        async with till.begin() as connection:
            await journal.lay("shop", order(1), connection)
        (laid,) = await journal.laid("shop")
        taken = await journal.take("shop", [laid.id], owner="one", chunk=placed.chunk, lease=3600.0, permits={laid.id})
        ours: Any = taken[laid.id]
        assert ours.permit is not None
        assert theirs.number != ours.chunk.number
        assert await other.claim_chunk("shop", "other") is None
        assert {"planned": 1, "sending": 1} == {
            state: count for state, count in (await other.progress(outbox="shop")).counts.items() if count
        }


@pytest.mark.slow
async def test_an_order_in_the_tray_that_a_batch_holds_whose_loading_goes_on(till: Bank, service: Sandbox) -> None:
    """It waits until the batch is loaded, is sent with that, and lies in the tray no more."""
    goes_on = asyncio.Event()

    async def orders() -> AsyncIterator[PayoutOrder]:
        for number in range(BLOCK + 1):
            yield payout(number)
        await goes_on.wait()

    async with (
        PostgresJournal(till.dsn, schema=till.journal) as journal,
        session(service) as payments,
        Outbox(payments, journal) as outbox,
    ):
        here = Desk(service, payments, journal, outbox)
        loading = asyncio.ensure_future(outbox.put_batch("bonus", orders()))
        await until(lambda: _count(till, "outbox"), BLOCK)
        await put("take", here, till, 0)
        await put("take", here, till, BLOCK + 1)
        await until(lambda: _count(till, "outbox"), BLOCK + 1)  # the second was taken, so the first was looked at
        assert (1, 0) == await journal.count_laid("outbox")
        goes_on.set()
        await loading
        await here.comes_to({"accepted": BLOCK + 2})
        await until(lambda: journal.count_laid("outbox"), (0, 0))
        assert ids(range(BLOCK + 2)) == sorted(here.executions())


async def test_an_order_in_the_tray_that_a_batch_held_whose_loading_was_broken_off(
    till: Bank, service: Sandbox
) -> None:
    """It is dropped with the rest of that, and is sent as an order of its own."""
    never = asyncio.Event()

    async def orders() -> AsyncIterator[PayoutOrder]:
        for number in range(BLOCK + 1):
            yield payout(number)
        await never.wait()

    async with (
        PostgresJournal(till.dsn, schema=till.journal) as journal,
        session(service) as payments,
        Outbox(payments, journal) as outbox,
    ):
        here = Desk(service, payments, journal, outbox)
        loading = asyncio.ensure_future(outbox.put_batch("bonus", orders()))
        await until(lambda: _count(till, "outbox"), BLOCK)
        await put("take", here, till, 0)
        loading.cancel()
        await asyncio.wait([loading])
        assert [] == here.executions()
        await outbox.put_batch("bonus", [payout(1), payout(2)])
        await here.comes_to({"accepted": 3})
        assert (ids(range(3)), (0, 0)) == (sorted(here.executions()), await journal.count_laid("outbox"))
        entry = await outbox.entry(payout(0).request_id)
        assert entry is not None
        assert "outbox" == entry.batch_id


async def _count(till: Bank, table: str) -> int:
    """How many rows a table has, of a batch that is still loaded too."""
    return int(till.look(f"SELECT count(*) FROM {table}")[0])  # noqa: S608
