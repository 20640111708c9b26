"""Many journals of one process on one server share threads and sessions; each keeps to its own."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from itertools import product

import psycopg
import pytest
from journal import postgres
from journal.factories import IDENTITY, order

from payments_async.journal import JournalLost, JournalUnavailable, PostgresJournal
from payments_async.journal._engine._tally import Tally
from payments_async.journal._postgres import _pool

NAMED = "application_name = 'payments-async' AND datname = current_database()"


@pytest.fixture
def schemas() -> Iterator[list[str]]:
    """Namespaces of several tenants."""
    schemas = [postgres.new_schema() for _ in range(6)]
    postgres.end_sessions()
    yield schemas
    postgres.give_back()


def asked(sql: str) -> list[int]:
    """The numbers that a question finds."""
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        return [number for (number,) in connection.execute(sql.encode())]


def sessions() -> list[int]:
    """The sessions that the journals of this database have."""
    return asked(f"SELECT pid FROM pg_stat_activity WHERE {NAMED}")  # noqa: S608


def locks() -> list[int]:
    """By which sessions journals live: one for each."""
    return asked(
        """SELECT pid FROM pg_locks JOIN pg_database d ON d.oid = database
        WHERE locktype = 'advisory' AND mode = 'ShareLock' AND datname = current_database()"""
    )


def listener() -> int:
    """The session by which all of them live."""
    (session,) = set(locks())
    return session


def end(session: int) -> None:
    """Have the server end a session."""
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 20000)", (session,))


async def opened(stack: AsyncExitStack, schemas: list[str]) -> list[PostgresJournal]:
    """The journals of several tenants, with an outbox each."""
    journals = []
    for schema in schemas:
        journal = PostgresJournal(postgres.dsn(), schema=schema, state_folder=None)
        journals.append(await stack.enter_async_context(journal))
        await journal.open_outbox("shop", IDENTITY)
    return journals


async def hears_of_another(journal: PostgresJournal, schema: str) -> None:
    """What another process commits is heard of: one with another DSN shares nothing."""
    seen = await journal.committed(0, timeout=60)
    while (now := await journal.committed(seen, timeout=0.2)) != seen:  # until nothing is under way any more
        seen = now
    async with PostgresJournal(f"{postgres.dsn()}&connect_timeout=9", schema=schema, state_folder=None) as other:
        await other.check_writable()
        assert seen != await journal.committed(seen, timeout=60)


async def ids(journal: PostgresJournal) -> list[str]:
    """The orders that a journal shows, read twice: a statement is prepared with the second."""
    first, second = [[entry.request_id async for entry in journal.entries()] for _ in range(2)]
    assert set(first) <= set(second)
    return second


async def test_two_tenants_take_turns_by_one_session(schemas: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each commits to its own tables; where a stranger turns the session to those of the other, to none."""
    monkeypatch.setattr(_pool, "_KEPT", 1)
    async with AsyncExitStack() as stack:
        first, second = journals = await opened(stack, schemas[:2])
        for number in range(3):
            for place, journal in enumerate(journals):
                await journal.put("shop", order(10 * place + number))
        assert 2 == len(sessions())  # one listens
        (shared,) = second._database._pool._idle  # type: ignore[attr-defined]
        shared.raw.execute(f'SET search_path = "{schemas[0]}"'.encode())
        with pytest.raises(JournalUnavailable, match="pool_mode = session"):
            await second.put("shop", order(20))
        await second.put("shop", order(21))
        for journal, numbers in zip(journals, ([0, 1, 2], [10, 11, 12, 21]), strict=True):
            assert {order(number).request_id for number in numbers} == set(await ids(journal))
            await journal.check()
    assert first.is_new


@pytest.mark.slow
async def test_many_tenants_share_a_few_sessions_and_threads(schemas: list[str]) -> None:
    """At most twelve of each, however many journals are open; the last one that closes leaves none."""
    many = schemas + [postgres.one_schema() for _ in range(10)]
    async with AsyncExitStack() as stack:
        journals = await opened(stack, many)
        for _ in range(2):
            await asyncio.gather(*(one.put("shop", order(n)) for n, one in enumerate(journals)))
            found = await asyncio.gather(*map(ids, journals))
            assert [[order(n).request_id] for n in range(16)] == found
        await asyncio.sleep(1.0)  # what was needed for a while has ended
        await journals[0].put("shop", order(0))
        assert len(sessions()) <= 12
        assert sum(thread.name.startswith("journal") for thread in threading.enumerate()) <= 12
    await left()


async def left() -> None:
    """No session; the server forgets them in a moment."""
    async with asyncio.timeout(30):
        while sessions():  # noqa: ASYNC110 - it does not tell
            await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_a_tenant_that_closes_while_its_session_commits(schemas: list[str]) -> None:
    """What it was asked before is done; the others go on meanwhile, and no session is left."""
    async with AsyncExitStack() as stack:
        closing, other = await opened(stack, schemas[:2])
        with psycopg.connect(postgres.dsn()) as beside:
            beside.execute(f'LOCK TABLE "{schemas[0]}".archive IN ACCESS EXCLUSIVE MODE'.encode())
            putting = asyncio.ensure_future(closing.put("shop", order(1)))
            await asyncio.sleep(0.2)
            ended = asyncio.ensure_future(closing.aclose())
            await other.put("shop", order(2))
            assert not putting.done()
            assert not ended.done()
        assert order(1).request_id == (await putting).entry.request_id
        await ended
        await other.put("shop", order(3))
        assert {order(2).request_id, order(3).request_id} == set(await ids(other))
    await left()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
async def test_tenants_whose_sessions_are_ended_meet_their_own_orders_alone(schemas: list[str], seed: int) -> None:
    """Whichever tenants put and read in turn, and whichever session the server ends between."""
    chance = random.Random(seed)
    async with AsyncExitStack() as stack:
        journals = await opened(stack, schemas)
        tried: dict[int, set[str]] = {tenant: set() for tenant in range(6)}  # a commit whose answer is lost may be made
        mine: dict[int, set[str]] = {tenant: set() for tenant in range(6)}

        async def works(tenant: int) -> None:
            for _ in range(12):
                await asyncio.sleep(chance.random() / 50)
                one = order(100 * tenant + chance.randrange(40))
                tried[tenant].add(one.request_id)
                with suppress(JournalUnavailable):  # its session was ended
                    await journals[tenant].put("shop", one)
                    mine[tenant].add(one.request_id)
                with suppress(JournalUnavailable):
                    assert mine[tenant] <= set(await ids(journals[tenant])) <= tried[tenant]

        async def ends() -> None:
            for _ in range(8):
                await asyncio.sleep(chance.random() / 20)
                pids = await asyncio.to_thread(sessions)
                if pids:  # those that were ended before are not made anew yet
                    await asyncio.to_thread(end, chance.choice(pids))

        await asyncio.gather(ends(), *map(works, range(6)))
        for tenant, journal in enumerate(journals):
            assert mine[tenant] <= set(await ids(journal)) <= tried[tenant]
        assert all(mine.values())


@pytest.mark.slow
async def test_tenants_whose_listener_is_ended_hear_again(schemas: list[str]) -> None:
    """All of them live by a new session, and hear by it what others commit."""
    async with AsyncExitStack() as stack:
        journals = await opened(stack, schemas)
        first = listener()
        await asyncio.to_thread(end, first)
        async with asyncio.timeout(60):
            while len(await asyncio.to_thread(locks)) < len(schemas):  # noqa: ASYNC110 - the server does not tell
                await asyncio.sleep(0.05)
        assert first != listener()
        for journal, schema in zip(journals[::5], schemas[::5], strict=True):
            await hears_of_another(journal, schema)


@pytest.mark.slow
async def test_a_tenant_whose_tables_are_locked_holds_up_no_other(schemas: list[str]) -> None:
    """The others hear and read meanwhile; it hears again once they are free, and takes no process for dead unseen."""
    async with AsyncExitStack() as stack:
        locked, free = await opened(stack, schemas[:2])
        elsewhere = PostgresJournal(f"{postgres.dsn()}&connect_timeout=9", schema=schemas[0], state_folder=None)
        await stack.enter_async_context(elsewhere)
        assert await elsewhere.take_duty("duty", "elsewhere", lease=3600)
        assert not await locked.take_duty("duty", "here", lease=90)
        first = locks()
        with psycopg.connect(postgres.dsn()) as beside:
            await away_for_a_moment(locked, elsewhere, beside)
            await asyncio.sleep(2.5)  # two looks, both of them in vain
            begun = time.monotonic()
            await hears_of_another(free, schemas[1])
            assert time.monotonic() - begun < 30.0
            assert 3 <= len(locks())  # that of who was heard of may be there for a moment more
        assert not await locked.take_duty("duty", "here", lease=90)
        await hears_of_another(locked, schemas[0])
        assert set(first) <= set(locks())


async def away_for_a_moment(journal: PostgresJournal, other: PostgresJournal, beside: psycopg.Connection) -> None:
    """Have a journal see that another one is missing, which is back at once; and lock the table that tells so.

    However long that takes: both count as alive meanwhile.
    """
    attendant, table = journal._postgres._attendant, f'"{journal.schema}".holder'
    assert attendant is not None
    set_lock, holder = f"UPDATE {table} SET lock = %s WHERE name = %s", other._postgres.holder  # noqa: S608
    asks = f"SELECT lock FROM {table} WHERE name = %s".encode()  # noqa: S608
    while (row := beside.execute(asks, [holder]).fetchone()) is None or attendant.is_unsure:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    grace, attendant._grace = attendant._grace, 3600.0
    beside.execute(set_lock.encode(), ["0" * 16, holder])
    beside.commit()
    while not attendant.is_unsure:  # noqa: ASYNC110 - it comes to know by looking
        await asyncio.sleep(0.01)
    beside.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
    beside.execute(set_lock.encode(), [*row, holder])
    attendant._grace = grace


async def test_a_commit_that_is_told_of_while_the_waiting_begins() -> None:
    """Wakes who waits: the thread that tells of it comes between two steps of the event loop's."""
    tally = Tally()
    tally.loop = asyncio.get_running_loop()
    tally.rise_soon()
    assert 2 == await tally.beyond(1, 60.0)
    waiting = asyncio.ensure_future(tally.beyond(2, 60.0, frozenset))
    await asyncio.to_thread(tally.rise_soon)
    assert 3 == await waiting


@pytest.mark.slow
async def test_tables_that_are_exchanged_while_their_journals_are_open(schemas: list[str]) -> None:
    """Nothing is written into those of another journal, as in a restore by renaming; put back, all goes on."""
    (one, other), free = schemas[:2], f"{schemas[0]}_free"
    renamings = [(one, free), (other, one), (free, other)]
    exchange = "; ".join(f'ALTER SCHEMA "{old}" RENAME TO "{new}"' for old, new in renamings).encode()
    async with AsyncExitStack() as stack:
        journals = await opened(stack, [one, other])
        with psycopg.connect(postgres.dsn(), autocommit=True) as beside:
            for journal in journals:
                await journal.put("shop", order(1))
            beside.execute(exchange)
            for number, journal in enumerate(journals, start=2):
                with pytest.raises(
                    JournalLost, match=r"replaced while it was open.* give the namespace its name again"
                ):
                    await journal.put("shop", order(number))
                with pytest.raises(JournalLost, match="replaced while it was open"):
                    await journal.check_writable()
            beside.execute(exchange)
            for number, journal in product((4, 5), journals):  # so that both are alike
                await journal.put("shop", order(number))
            with beside.transaction():  # now while a commit has begun, and waits for this exchange
                beside.execute(f'LOCK TABLE "{one}".outbox'.encode())
                waiting = asyncio.ensure_future(journals[0].put("shop", order(6)))
                while not asked("SELECT 1 FROM pg_locks WHERE NOT granted"):  # noqa: ASYNC110 - it gives no event
                    await asyncio.sleep(0.01)
                beside.execute(exchange)
            with pytest.raises(JournalLost, match="replaced while it was open"):
                await waiting
            beside.execute(exchange)
        for journal in journals:
            await journal.put("shop", order(7))
            assert [order(number).request_id for number in (1, 4, 5, 7)] == await ids(journal)


@pytest.mark.slow
async def test_tenants_that_close_in_any_sequence_and_in_two_event_loops(schemas: list[str]) -> None:
    """Those that are left hear on; of those that have closed no lock and no row is left."""
    chance = random.Random(27)
    journals = [PostgresJournal(postgres.dsn(), schema=schema, state_folder=None) for schema in schemas]
    for journal in journals:
        await journal.__aenter__()
        await journal.open_outbox("shop", IDENTITY)

    async def elsewhere() -> int:
        async with PostgresJournal(postgres.dsn(), schema=schemas[0], state_folder=None) as journal:
            await journal.put("shop", order(1))
            return listener()

    assert listener() == await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
    left = list(zip(journals, schemas, strict=True))
    chance.shuffle(left)
    while len(left) > 1:
        await left.pop()[0].aclose()
        if len(left) % 5 == 1:
            await hears_of_another(*left[0])
    assert 1 == len(locks())
    await left.pop()[0].aclose()
    with psycopg.connect(postgres.dsn()) as connection:
        for schema in schemas:
            assert [] == connection.execute(f'SELECT name FROM "{schema}".holder'.encode()).fetchall()  # noqa: S608
