"""What is usual in a database, or for a user of it, is not what the journal relies on."""

import asyncio
from typing import Any

import psycopg
import pytest
from journal import postgres
from journal.factories import BATCH, claimed, order, permitted

from payments_async.journal import JournalUnavailable, PostgresJournal, Signal, State
from payments_async.journal.contract import Outcome, Permit

HOSTILE = {
    "stale snapshots": ["default_transaction_isolation = 'repeatable read'"],
    "serializable": ["default_transaction_isolation = 'serializable'"],
    "old literals": ["standard_conforming_strings = off", "backslash_quote = off", "bytea_output = 'escape'"],
    "rounded numbers": ["extra_float_digits = -15"],
    "no time": ["statement_timeout = '10s'", "lock_timeout = 1", "idle_in_transaction_session_timeout = '1h'"],
    "other languages": ["client_encoding = 'LATIN1'", "DateStyle = 'SQL, DMY'", "IntervalStyle = 'iso_8601'"],
    "another place": ["search_path = 'evil', 'public'"],
    "late commits": ["synchronous_commit = off"],
}
EVIL = """CREATE SCHEMA evil; CREATE TABLE evil.outbox (id BIGINT); CREATE TABLE public.meta (key TEXT, value TEXT);
    CREATE FUNCTION evil.lower(text) RETURNS text LANGUAGE sql AS $$SELECT 'evil'$$;
    CREATE FUNCTION evil.pg_notify(text, text) RETURNS void LANGUAGE sql AS $$SELECT 1/0$$"""


@pytest.fixture
def database() -> str:
    """An empty database of the test's own."""
    return postgres.new_database()


def usually(dsn: str, settings: list[str]) -> None:
    """Make settings those of every session of a database that does not say otherwise."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        name = connection.info.dbname
        for setting in settings:
            connection.execute(f'ALTER DATABASE "{name}" SET {setting}'.encode())


async def asked(journal: PostgresJournal, sql: str) -> Any:
    """What a statement tells where the journal writes."""
    return await journal._writer.submit("check_writable", lambda commit: commit.execute(sql).fetchone()[0])


@pytest.mark.parametrize("settings", HOSTILE.values(), ids=HOSTILE)
async def test_a_database_with_other_settings(database: str, settings: list[str]) -> None:
    """Two who share it lose nothing, wait for each other, and read what they wrote."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(EVIL)
    usually(database, settings)
    async with PostgresJournal(database) as one, PostgresJournal(database) as other:
        chunk = await claimed(one, 40)
        asking = [(one, other)[place % 2].permit(chunk, held) for place, held in enumerate(chunk.orders)]
        permits = await asyncio.gather(*asking)
        assert 40 == sum(isinstance(permit, Permit) for permit in permits)
        said = "\N{GREEK CAPITAL LETTER DELTA} 50 % \\x00 'paid'"
        permit = permits[0]
        assert isinstance(permit, Permit)
        await other.record(Outcome(permit=permit, signal=Signal.REJECTED, code=7, message=said))
        entry = await one.entry(permit.request_id)
        assert entry is not None
        assert (State.REJECTED, said, order(0).amount) == (entry.state, entry.message, entry.amount)
        number = f"CAST({entry.updated_at!r} AS DOUBLE PRECISION)"
        assert await asked(one, f"SELECT updated_at = {number} FROM outbox WHERE state = 'rejected'")  # noqa: S608 - a number
        assert "on" == await asked(one, "SHOW synchronous_commit")


async def test_a_database_without_some_letters() -> None:
    """Is refused, and not an answer of the service that has one of them."""
    database = postgres.new_database(encoding="LATIN1")
    with pytest.raises(JournalUnavailable, match="LATIN1"):
        await PostgresJournal(database).__aenter__()


async def test_a_client_with_other_letters(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the environment says of its letters does not matter."""
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    async with PostgresJournal(database) as journal:
        chunk = await claimed(journal)
        said = "\N{GREEK CAPITAL LETTER DELTA}"
        permit = await permitted(journal, chunk)
        await journal.record(Outcome(permit=permit, signal=Signal.REJECTED, message=said))
        entry = await journal.entry(permit.request_id)
        assert entry is not None
        assert said == entry.message
        assert BATCH == entry.batch_id


@pytest.mark.parametrize(
    ("dsn", "place"),
    [
        ("postgresql://u:s3cr#et@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:s3cr[e]t@h:5433/d?sslmode=require", "postgresql://u:***@h:5433/d?sslmode=require"),
        ("postgresql://u:s3cr?e=t@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u@[::1]:5433/d?password=s3cret", "postgresql://u:***@[::1]:5433/d"),
        ("postgresql://u%40x:s3c%2Fret@/d?host=/run", "postgresql://u%40x:***@/d?host=/run"),
        ("postgresql://u:s3cret@h1,h2:5433/d", "postgresql://u:***@/d?host=h1,h2&port=,5433"),
        ("postgresql:///d?sslpassword=s3cret", "postgresql:///d?sslpassword=***"),
        ("host=h user=u password='s3 cret' dbname=d", "user=u password=*** dbname=d host=h"),
        ("postgresql://h1:1,h2:2/d", "postgresql:///d?host=h1,h2&port=1,2"),
    ],
)
def test_a_dsn_that_is_shown(dsn: str, place: str) -> None:
    """As libpq reads it, who knows where a password ends."""
    assert place == PostgresJournal(dsn).place
    assert f"PostgresJournal({place!r})" == repr(PostgresJournal(dsn))


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://u:s3c@ret@h/d",
        "postgresql://u:s3c@ret@/d",
        "postgresql://u:s3c/ret@h/d",
        "postgresql://u:s3c/r?et=x@h/d",
        "postgresql://u@h:s3cret/d",
        "postgresql://u:s3c%zzret@h/d",
        "postgresql://h&password=s3cret",
        "postgresql://u&password=s3cret@h/d",
    ],
)
def test_a_dsn_that_libpq_would_read_in_another_way(dsn: str) -> None:
    """Is refused before a part of a password is looked up as a host, and not repeated."""
    with pytest.raises(ValueError, match="libpq does not understand it") as caught:
        PostgresJournal(dsn)
    assert "ret" not in str(caught.value).replace("secret", "")
    assert caught.value.__cause__ is caught.value.__context__ is None
