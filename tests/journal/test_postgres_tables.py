"""The tables of both databases are the same: column by column, and index by index."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from journal import postgres
from journal.conftest import KINDS, Home

from payments_async.journal import JournalCorrupt, JournalTooNew, JournalUnavailable, NotAJournal, PostgresJournal
from payments_async.journal._postgres import _schema
from payments_async.journal._postgres._schema import BEYOND_SQLITE
from payments_async.journal._sqlite import _opening

_TYPES = {"INTEGER": "bigint", "REAL": "double precision", "TEXT": "text", "BLOB": "bytea", "ANY": "bytea"}


@pytest.fixture
async def home(tmp_path: Path) -> Home:
    """A new journal in PostgreSQL."""
    home = KINDS["postgres"](tmp_path)
    async with home.opens():
        pass
    return home


async def test_every_table_has_the_same_columns(home: Home) -> None:
    """Each of the type that holds the same values, and empty where it may be."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as file:
        _opening.migrate(file, new=True)
        expected = {
            (table, column): (_TYPES[kind], bool(needed or key))
            for (table,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for _, column, kind, needed, _, key in file.execute(f"PRAGMA table_info({table})")
        }
    found = home.rows(
        """SELECT table_name, column_name, data_type, is_nullable = 'NO' FROM information_schema.columns
        WHERE table_schema = current_schema()"""
    )
    beyond = {(table, column) for table, columns in BEYOND_SQLITE.items() for column in columns}
    assert expected == {
        (table, column): about for table, column, *rest in found if (table, column) not in beyond
        for about in [tuple(rest)]
    }  # fmt: skip


async def test_every_index_is_there_in_both(home: Home) -> None:
    """By name, of the same columns, of all rows or of some."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as file:
        _opening.migrate(file, new=True)
        expected = {
            name: (table, "UNIQUE" in sql, "WHERE" in sql)
            for name, table, sql in file.execute("SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'index'")
            if sql is not None
        }
    found = home.rows(
        """SELECT c.relname, t.relname, i.indisunique, i.indpred IS NOT NULL FROM pg_index i
        JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
        WHERE t.relnamespace = current_schema()::regnamespace AND NOT i.indisprimary AND c.relname NOT LIKE '%_key'"""
    )
    assert expected == {name: tuple(about) for name, *about in found if about[0] not in BEYOND_SQLITE}


async def test_texts_compare_byte_by_byte(home: Home) -> None:
    """Whatever the language of the database: no column is in another sequence than in a file."""
    assert [] == home.rows(
        """SELECT table_name, column_name, collation_name FROM information_schema.columns
        WHERE table_schema = current_schema() AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C'"""
    )


async def damaged(damage: str) -> PostgresJournal:
    """A journal that is not open, of whose tables a statement changed something."""
    schema = postgres.one_schema()
    journal = PostgresJournal(postgres.dsn(), schema=schema)
    async with journal:
        pass
    with psycopg.connect(postgres.dsn(), options=f"-c search_path={schema}") as connection:
        connection.execute(damage.encode())
    return journal


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        ("UPDATE meta SET value = '99' WHERE key IN ('version', 'oldest')", JournalTooNew),
        ("ALTER TABLE outbox DROP COLUMN priority", JournalCorrupt),
        ("DROP TABLE meta CASCADE", NotAJournal),
        ("DELETE FROM meta WHERE key = 'version'", NotAJournal),
        ("DROP TABLE chunk", JournalCorrupt),
    ],
)
async def test_tables_that_are_none_of_ours(damage: str, error: type[Exception]) -> None:
    """Are left alone."""
    journal = await damaged(damage)
    with pytest.raises(error):
        await journal.__aenter__()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("DROP INDEX outbox_request", "no unique index outbox_request as"),
        ("ALTER TABLE outbox DROP CONSTRAINT outbox_pkey", "no unique index outbox_pkey as"),
        ('ALTER TABLE outbox ALTER request_key TYPE TEXT COLLATE "default"', "no outbox.request_key as"),
    ],
)
async def test_tables_that_no_longer_tell_orders_apart(damage: str, words: str) -> None:
    """The journal is not opened, and ``check`` names what is not as it was made."""
    journal = await damaged(damage)
    for one in (journal.examine(), journal.__aenter__()):
        with pytest.raises(JournalCorrupt, match=words):
            await one


async def test_every_unique_index_is_known(home: Home) -> None:
    """One that is missing keeps a journal from being opened: none of a new journal is missed in that."""
    found = home.rows(
        """SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE i.indisunique AND c.relnamespace = current_schema()::regnamespace"""
    )
    known = {name.removeprefix("unique index ") for name in _schema._shape_made() if name.startswith("unique index ")}
    assert known == {name for (name,) in found}


async def test_a_namespace_of_something_else() -> None:
    """Is left as it is."""
    with psycopg.connect(postgres.dsn()) as connection:
        connection.execute("CREATE SCHEMA shop CREATE TABLE orders (id BIGINT)")
    with pytest.raises(NotAJournal, match="holds something else"):
        await PostgresJournal(postgres.dsn(), schema="shop").__aenter__()


async def test_two_that_make_a_journal_at_once() -> None:
    """Wait for each other: one of them makes it."""
    schema = postgres.one_schema()
    one, other = (PostgresJournal(postgres.dsn(), schema=schema) for _ in range(2))
    await asyncio.gather(one.__aenter__(), other.__aenter__())
    try:
        assert [False, True] == sorted([one.is_new, other.is_new])
    finally:
        await asyncio.gather(one.aclose(), other.aclose())


@pytest.mark.parametrize(
    "dsn", ["postgresql://nobody:secret-word@/nowhere", "postgresql://a:secret-word@127.0.0.1:1/b"]
)
async def test_a_database_that_cannot_be_reached(dsn: str) -> None:
    """Is named, and no password with it."""
    if "nowhere" in dsn:
        dsn = f"{dsn}?{postgres.dsn().partition('?')[2]}"
    journal = PostgresJournal(dsn)
    with pytest.raises(JournalUnavailable) as caught:
        await journal.__aenter__()
    shown = [str(caught.value), repr(caught.value), repr(journal), str(caught.value.__cause__)]
    assert not [words for words in shown if "secret-word" in words]
    assert "postgresql://" in shown[0]


def test_a_dsn_that_is_none() -> None:
    """Is refused without being repeated: a part of it may be the password."""
    with pytest.raises(ValueError, match="libpq does not understand it") as caught:
        PostgresJournal("postgresql://user:secret word@host/%%")
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
