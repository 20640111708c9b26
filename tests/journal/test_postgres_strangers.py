"""Others who may connect to the database of a journal, and have no right to its tables: it goes on whatever they do."""

import asyncio
from collections.abc import Iterator

import attrs
import psycopg
import pytest
from journal import postgres
from journal.factories import BATCH, claimed, loaded, permitted

from payments_async.journal import PostgresJournal, Signal, State
from payments_async.journal.contract import Outcome

# all numbers that are locked, by those who write and those who live
NUMBERS = """SELECT DISTINCT (classid::bigint << 32) + objid::bigint FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1"""
# what a session that listens and reads nothing comes to once 8 GB were told; the server calls its own functions
# whatever they are replaced by, unless that is a statement which stands in their place
FULL = (
    """CREATE FUNCTION public.full_queue() RETURNS void LANGUAGE plpgsql AS $$BEGIN
    RAISE EXCEPTION USING ERRCODE = '54000', MESSAGE = 'too many notifications in the NOTIFY queue'; END$$""",
    """CREATE OR REPLACE FUNCTION pg_catalog.pg_notify(text, text) RETURNS void LANGUAGE sql
    AS 'SELECT public.full_queue()'""",
    """CREATE OR REPLACE FUNCTION pg_catalog.pg_notification_queue_usage() RETURNS double precision LANGUAGE sql
    AS 'SELECT 1::double precision'""",
)


@attrs.frozen
class Stranger:
    """A role that may connect, and nothing else."""

    dsn: str
    connection: psycopg.Connection

    def takes(self, number: int) -> None:
        """Lock a number, alone if that can be."""
        found = self.connection.execute("SELECT pg_try_advisory_lock(%s)", (number,)).fetchone()
        if found != (True,):
            self.connection.execute("SELECT pg_try_advisory_lock_shared(%s)", (number,))


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    """One in a database of its own."""
    dsn = postgres.new_database()
    role = f"payments_stranger_{id(dsn)}"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role}".encode())
    with psycopg.connect(dsn, autocommit=True, options=f"-c role={role}") as connection:
        yield Stranger(dsn, connection)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"DROP ROLE {role}".encode())


async def test_a_stranger_locks_every_number_that_a_journal_does(stranger: Stranger) -> None:
    """Also the one that it asks for while it commits: it goes on, and another process opens it."""
    async with PostgresJournal(stranger.dsn, busy_timeout=0.5) as journal:
        chunk = await claimed(journal)
        with psycopg.connect(stranger.dsn) as held:
            held.execute("LOCK TABLE payments.outbox IN ACCESS EXCLUSIVE MODE")
            permit = asyncio.ensure_future(permitted(journal, chunk))
            async with asyncio.timeout(60):
                while held.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone() is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)  # until it waits, within its commit
            numbers = [number for (number,) in held.execute(NUMBERS.encode()).fetchall()]
        await asyncio.wait({permit})
        assert numbers
        for number in numbers:
            stranger.takes(number)
        await journal.record(Outcome(permit=await permitted(journal, chunk, 1), signal=Signal.ACCEPTED))
        async with PostgresJournal(stranger.dsn, busy_timeout=0.5) as other:
            assert 1 == (await other.progress(BATCH)).counts[State.ACCEPTED]


async def test_the_servers_queue_of_notices_is_full(stranger: Stranger) -> None:
    """Commits are made without one; others hear of them each second; and health tells what to do."""
    async with PostgresJournal(stranger.dsn) as journal:
        await loaded(journal)
    with psycopg.connect(stranger.dsn, autocommit=True) as connection:
        for statement in FULL:
            connection.execute(statement.encode())
    async with PostgresJournal(stranger.dsn) as journal, PostgresJournal(stranger.dsn) as other:
        async with asyncio.timeout(60):
            while (await journal.held_up("shop")).slowed is None:
                await journal.committed(await journal.committed(0, timeout=0), timeout=0.1)
        with pytest.raises(psycopg.errors.ProgramLimitExceeded), psycopg.connect(stranger.dsn) as connection:
            connection.execute("SELECT pg_notify('anything', '')")
        assert "end the session that listens within an open transaction" in str((await journal.held_up("shop")).slowed)
        seen = await other.committed(0, timeout=0)
        chunk = await journal.claim_chunk(BATCH, "worker")
        assert chunk is not None
        await journal.record(Outcome(permit=await permitted(journal, chunk), signal=Signal.ACCEPTED))
        async with asyncio.timeout(60):
            while not (await other.progress(BATCH)).counts[State.ACCEPTED]:
                seen = await other.committed(seen, timeout=60)
