"""A pooler between a journal and its server: whole sessions are as good as its own, anything less is refused."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    suppress,
)
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from journal import postgres
from journal.factories import BATCH, IDENTITY, claimed, delivery, event, in_outbox, loaded, order, permitted
from journal.pgbouncer import Pooler, needs_pgbouncer, pooler
from sqlalchemy.ext.asyncio import create_async_engine

from payments_async.journal import JournalUnavailable, PostgresJournal, Signal, State
from payments_async.journal.contract import Outcome

TESTS = Path(__file__).parent.parent
Begins = Callable[[], AbstractAsyncContextManager[Any]]
pytestmark = needs_pgbouncer


@pytest.fixture
def schema() -> Iterator[str]:
    """An empty namespace."""
    yield postgres.new_schema()
    postgres.give_back()


@pytest.fixture
def whole() -> Iterator[Pooler]:
    """A pooler that lends whole sessions."""
    with pooler() as one:
        yield one


async def test_whole_sessions(whole: Pooler, schema: str) -> None:
    """Two journals write, read, hear of each other, and do not take each other for dead."""
    async with PostgresJournal(whole.dsn, schema=schema) as one, PostgresJournal(whole.dsn, schema=schema) as other:
        chunk = await claimed(one)
        permit = await permitted(one, chunk)
        seen = await other.committed(0, timeout=60)
        while (now := await other.committed(seen, timeout=1)) != seen:  # until nothing is under way any more
            seen = now
        waiting = asyncio.ensure_future(other.committed(seen, timeout=3600))
        await asyncio.sleep(0)
        await one.record(Outcome(permit=permit, signal=Signal.ACCEPTED))
        async with asyncio.timeout(60):
            assert seen != await waiting
        assert 1 == (await other.progress(BATCH)).counts["accepted"]
        assert await other.claim_chunk(BATCH, "other") is None


@pytest.mark.slow
async def test_what_a_killed_process_held_through_a_pooler(whole: Pooler, schema: str) -> None:
    """The pooler cleans its sessions, and that says that it is gone."""
    async with PostgresJournal(postgres.dsn(), schema=schema) as journal:
        await loaded(journal, 3)
        await journal.hear("shop", [State.ACCEPTED])
        await in_outbox(journal, 1)
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(TESTS / "journal/holder.py"), whole.dsn, schema, stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        )  # fmt: skip
        assert process.stdout is not None
        async with asyncio.timeout(60):
            assert b"held\n" == await process.stdout.readline()
        assert await journal.claim_chunk(BATCH, "another") is None
        process.send_signal(signal.SIGKILL)
        await process.wait()
        async with asyncio.timeout(60):
            while await journal.claim_chunk(BATCH, "another") is None:
                await journal.committed(await journal.committed(0, timeout=0), timeout=0.1)


@pytest.mark.parametrize("mode", ["transaction", "statement"])
async def test_sessions_for_less(schema: str, mode: str) -> None:
    """Are refused with what to do."""
    with pooler(pool_mode=mode) as one, refused():
        await PostgresJournal(one.dsn, schema=schema).__aenter__()


def refused() -> AbstractContextManager[object]:
    """What an open journal says of sessions that are not its own."""
    return pytest.raises(JournalUnavailable, match="pool_mode = session, with its usual server_reset_query")


@pytest.mark.slow
@pytest.mark.parametrize("reset", [0, 1], ids=["as it was", "cleaned each time"])
@pytest.mark.parametrize("in_turns", [0, 1], ids=["the last one", "in turns"])
@pytest.mark.parametrize("size", [1, 3, 20])
@pytest.mark.parametrize("mode", ["transaction", "statement"])
async def test_sessions_for_less_whichever_is_lent(
    schema: str, mode: str, size: int, in_turns: int, reset: int
) -> None:
    """However many there are, and whether they are cleaned; and nothing was set in any of them."""
    options = {"server_round_robin": in_turns, "server_reset_query_always": reset, "default_pool_size": size}
    with pooler(pool_mode=mode, **options) as one:
        before = told(one, min(size, 3))
        with refused():
            await PostgresJournal(one.dsn, schema=schema).__aenter__()
        assert before == told(one, min(size, 3))


def told(one: Pooler, count: int) -> set[str]:
    """What so many sessions of a pooler call usual, all of them at once."""
    with ExitStack() as stack:
        connections = [stack.enter_context(psycopg.connect(one.dsn, autocommit=True)) for _ in range(count)]
        for connection in connections:
            connection.prepare_threshold = None
            connection.pgconn.send_query(
                b"SELECT set_config('a.b', 'c', true), pg_sleep(0.02), current_setting('search_path')"
            )
        found = set()
        for connection in connections:
            while result := connection.pgconn.get_result():
                found.add((result.get_value(0, 2) or b"").decode())
    return found


@pytest.mark.slow
async def test_sessions_that_nobody_cleans(schema: str) -> None:
    """Are refused: what a dead process held would stay with them."""
    with pooler(server_reset_query="") as one, pytest.raises(JournalUnavailable, match="and clean it then"):
        await PostgresJournal(one.dsn, schema=schema).__aenter__()


@pytest.mark.slow
async def test_a_pooler_that_is_set_otherwise_while_a_journal_is_open(whole: Pooler, schema: str) -> None:
    """Nothing more is granted from then on, and all goes on once it is set back."""
    async with PostgresJournal(whole.dsn, schema=schema, busy_timeout=0.5) as journal:
        chunk = await claimed(journal, 40)
        await asyncio.to_thread(whole.set, pool_mode="transaction")
        async with asyncio.timeout(60):
            await until_it_is_not(journal, True)
        with pytest.raises(JournalUnavailable, match="pool_mode = session"):
            await journal.permit(chunk, chunk.orders[0])
        await asyncio.to_thread(whole.set, pool_mode="session")
        async with asyncio.timeout(60):
            await until_it_is_not(journal, False)
        await permitted(journal, chunk, 1)


async def until_it_is_not(journal: PostgresJournal, writable: bool) -> None:
    """Write, until that is not possible, or is again."""
    is_writable = writable
    while is_writable == writable:
        is_writable = True
        with suppress(JournalUnavailable):
            await journal.check_writable()
            continue
        is_writable = False


# The application's own connections


@asynccontextmanager
async def by_asyncpg(dsn: str) -> AsyncIterator[Begins]:
    """One connection."""
    connection = await asyncpg.connect(dsn, statement_cache_size=0)

    @asynccontextmanager
    async def begin() -> AsyncIterator[Any]:
        async with connection.transaction():
            yield connection

    yield begin
    await connection.close()


@asynccontextmanager
async def by_psycopg(dsn: str) -> AsyncIterator[Begins]:
    """One connection."""
    async with await psycopg.AsyncConnection.connect(dsn, prepare_threshold=None) as connection:

        @asynccontextmanager
        async def begin() -> AsyncIterator[Any]:
            async with connection.transaction():
                yield connection

        yield begin


@asynccontextmanager
async def by_sqlalchemy(dsn: str) -> AsyncIterator[Begins]:
    """A pool of one connection."""
    address = dsn.replace("postgresql:", "postgresql+psycopg:")
    engine = create_async_engine(address, connect_args={"prepare_threshold": None}, pool_size=1)
    yield engine.begin
    await engine.dispose()


@pytest.mark.parametrize("library", [by_asyncpg, by_psycopg, by_sqlalchemy])
async def test_an_application_whose_sessions_are_lent_for_a_transaction(schema: str, library: Any) -> None:
    """The journal has sessions of its own; the application's are those of others between its transactions."""
    with pooler(pool_mode="transaction", default_pool_size=2, server_round_robin=1) as lent:
        async with AsyncExitStack() as stack:
            journal = await stack.enter_async_context(PostgresJournal(postgres.dsn(), schema=schema))
            await journal.open_outbox("shop", IDENTITY)
            begins = [await stack.enter_async_context(library(lent.dsn)) for _ in range(2)]
            for number in range(12):
                with suppress(ZeroDivisionError):
                    async with begins[number % 2]() as connection:
                        entry = await journal.lay("shop", order(number), connection)
                        assert State.PLANNED is entry.state
                        if number % 3 == 2:
                            raise ZeroDivisionError
            laid = [one.request_id for one in await journal.laid("shop")]
            assert [order(number).request_id for number in range(12) if number % 3 != 2] == laid
            await journal.receive(delivery(), event(), owner="a", lease=0)
