"""Many journals in one process share a few threads, and none of them waits long for another one's database."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest
from journal import postgres
from journal.factories import IDENTITY, order

from payments_async.journal import JournalLocked, SqliteJournal, State


def threads() -> int:
    """How many threads there are for journals."""
    return sum(thread.name == "journal" for thread in threading.enumerate())


@pytest.mark.slow
async def test_a_hundred_tenants(tmp_path: Path) -> None:
    """Each writes and reads its own orders in their sequence; six threads do it all, and end with the last journal."""
    postgres.end_sessions()
    async with AsyncExitStack() as stack:
        journals = []
        for number in range(100):
            journal = SqliteJournal(tmp_path / f"{number}.db", state_folder=None)
            journals.append(await stack.enter_async_context(journal))
        await asyncio.gather(*(journal.open_outbox("shop", IDENTITY) for journal in journals))

        async def pays(journal: SqliteJournal, number: int) -> list[str]:
            for place in range(number % 7):
                await journal.put("shop", order(place))
            return [entry.request_id async for entry in journal.entries(state=State.PLANNED)]

        found = await asyncio.gather(*(pays(journal, number) for number, journal in enumerate(journals)))
        assert [[order(place).request_id for place in range(number % 7)] for number in range(100)] == found
        assert threads() <= 6
        assert threading.active_count() <= 12
    for thread in [one for one in threading.enumerate() if one.name == "journal"]:
        await asyncio.to_thread(thread.join, 30)
    assert 0 == threads()


@pytest.mark.slow
async def test_databases_that_are_locked_do_not_hold_up_the_others(tmp_path: Path) -> None:
    """More of them wait than there are threads; one that is free writes all the same, in its usual time."""
    async with AsyncExitStack() as stack:
        held, locks = [], []
        for number in range(8):
            path = tmp_path / f"{number}.db"
            journal = SqliteJournal(path, state_folder=None, busy_timeout=5.0)
            held.append(await stack.enter_async_context(journal))
            await journal.open_outbox("shop", IDENTITY)
            lock = stack.enter_context(closing(sqlite3.connect(path, isolation_level=None)))
            lock.execute("BEGIN IMMEDIATE")
            locks.append(lock)
        free = await stack.enter_async_context(SqliteJournal(tmp_path / "free.db", state_folder=None))
        await free.open_outbox("shop", IDENTITY)
        waiting = [asyncio.ensure_future(journal.put("shop", order(1))) for journal in held]
        await asyncio.sleep(0.3)  # all threads are held up by now
        begun = time.monotonic()
        puts = [free.put("shop", order(place)) for place in range(3)]
        assert all([(await put).is_new for put in puts])
        assert time.monotonic() - begun < 4.0
        assert not any(one.done() for one in waiting)
        with pytest.raises(JournalLocked):
            await waiting[0]
        for lock in locks:
            lock.execute("ROLLBACK")
        await asyncio.gather(*waiting, return_exceptions=True)
        assert (await held[0].put("shop", order(1))).is_new
