"""A journal in a file asks nothing that it knows, until another process has written to the file."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import groupby
from pathlib import Path

import pytest
from journal.factories import IDENTITY, delivery, event, order, transaction_id

from payments_async.journal import HeldElsewhere, Signal, SqliteJournal, TakeoverAuthorisation
from payments_async.journal.contract import Arrival, Doubt, Outcome, Placed

SHOP = "shop"
STATEMENTS = 8 + 6 + 5  # of the order's own commit, of its outcome's, and of the machine's registry
Journals = tuple[SqliteJournal, SqliteJournal]


@pytest.fixture
async def journals(tmp_path: Path) -> AsyncIterator[Journals]:
    """One file, open twice, as in two processes."""
    async with AsyncExitStack() as stack:
        path, state = tmp_path / "journal.db", tmp_path / "state"
        one, other = [await stack.enter_async_context(SqliteJournal(path, state_folder=state)) for _ in range(2)]
        for journal in (one, other):
            await journal.open_outbox(SHOP, IDENTITY)
        yield one, other


async def put(journal: SqliteJournal, number: int, before: Placed | None = None) -> Placed:
    """Put an order, and permit it, into the chunk of the one before."""
    chunk = None if before is None else before.chunk
    return await journal.put(SHOP, order(number), owner="worker", chunk=chunk, permits=True)


async def ended_at(journal: SqliteJournal, placed: Placed) -> float | None:
    """Write down that an order was accepted; when, where nothing else is known of any."""
    assert placed.permit is not None
    number = int(placed.entry.request_id[-6:])
    outcome = Outcome(permit=placed.permit, signal=Signal.ACCEPTED, transaction_id=transaction_id(number))
    return (await journal.record(outcome)).ended_at


async def test_a_payment_asks_only_what_may_have_changed(tmp_path: Path) -> None:
    """What is known of the order, whether its lease is good, and, three times, whether others have written."""
    asked: list[str] = []
    async with SqliteJournal(tmp_path / "journal.db", state_folder=tmp_path / "state") as journal:
        await journal.open_outbox(SHOP, IDENTITY)
        placed: Placed | None = None
        for number in range(3):  # the first ones ask what later ones know
            asked.clear()
            placed = await put(journal, number, placed)
            await ended_at(journal, placed)
            memory, connection = journal._database.memory, journal._writer._opening.connection
            assert memory is not None
            assert isinstance(connection, sqlite3.Connection)
            for one in (connection, memory.registry._connection):
                one.set_trace_callback(asked.append)
            ours = [sql for sql, _ in groupby(asked)]  # a trigger's are told as once more the statement that fires it
    assert STATEMENTS == len(ours)
    questions = [sql.split()[:2] for sql in ours if sql.startswith(("SELECT", "PRAGMA"))]
    others = ["PRAGMA", "data_version"]
    assert [others, ["SELECT", "'list',"], others, ["SELECT", "1"], others] == questions


async def test_orders_of_two_processes_in_one_chunk(journals: Journals) -> None:
    """Each goes on after the last order of the other."""
    for number in range(6):
        await journals[number % 2].put(SHOP, order(number))
    ids = [one.request_id async for one in journals[0].entries(SHOP)]
    assert [order(number).request_id for number in range(6)] == ids


async def test_a_notification_that_another_process_has_stored(journals: Journals) -> None:
    """From then on the end of an order is read from the journal, with what the notification says."""
    one, other = journals
    assert (True, False) == await ends_around_a_notification(one, other)


async def test_a_notification_that_was_stored_here(journals: Journals) -> None:
    """As one of another process: the statements that store it are none of a payment's."""
    one, _ = journals
    assert (True, False) == await ends_around_a_notification(one, one)


async def ends_around_a_notification(journal: SqliteJournal, receives: SqliteJournal) -> tuple[bool, bool]:
    """Whether the ends of two orders are known without a look, before and after a notification is stored."""
    first = await put(journal, 1)
    is_known_before = await ended_at(journal, first) is not None
    second = await put(journal, 2, first)
    unconfirmed = Arrival(delivery=delivery(), event=event(0, 1), lease=90, doubt=Doubt.UNCONFIRMED)
    await receives.receive_all([unconfirmed], owner="receiver")
    return is_known_before, await ended_at(journal, second) is not None


async def test_orders_that_another_journal_adopts_in_a_long_life(tmp_path: Path) -> None:
    """The registry is asked again once another journal has written to it."""
    state, second = tmp_path / "state", TakeoverAuthorisation(who="Ann", why="the first one is on a broken disk")
    async with SqliteJournal(tmp_path / "journal.db", state_folder=state) as journal:
        await journal.open_outbox(SHOP, IDENTITY)
        placed = await put(journal, 2, await put(journal, 1))
        async with SqliteJournal(tmp_path / "other.db", state_folder=state, second_journal=second) as other:
            await other.open_outbox(SHOP, IDENTITY)
            await other.put(SHOP, order(1), adoption=second)
        with pytest.raises(HeldElsewhere):
            await put(journal, 3, placed)
