"""One journal for each kind there is: whatever passes the contract here is a journal."""

import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any

import attrs
import psycopg
import pytest
import pytest_asyncio
from journal import pgbouncer, postgres
from journal.factories import Clock

from payments_async.journal import Journal, PostgresJournal, SqliteJournal

Opens = Callable[..., AbstractAsyncContextManager[Journal]]


@attrs.frozen(kw_only=True)
class Home:
    """Where the journal of one test is.

    Attributes:
        opens: Opens it, as often as it is called, with `clock` and `crash_at` as options.
        copied: Makes a copy of it as it is now, and gives what opens that one.
        rows: What a query of its tables finds.
    """

    opens: Opens
    copied: Callable[[], Opens]
    rows: Callable[[str], list[Any]]


def _sqlite(place: Path) -> Home:
    path = place / "journal.db"

    def copied() -> Opens:
        shutil.copytree(place, place / "copied")
        return lambda **options: SqliteJournal(place / "copied/journal.db", **options)

    def rows(sql: str) -> list[Any]:
        with closing(sqlite3.connect(path)) as file:
            return file.execute(sql).fetchall()

    return Home(opens=lambda **options: SqliteJournal(path, **options), copied=copied, rows=rows)


def _postgres(_: Path) -> Home:
    dsn, schema = postgres.dsn(), postgres.new_schema()

    def copied() -> Opens:
        another = postgres.copied()
        return lambda **options: PostgresJournal(another, schema=schema, **options)

    def rows(sql: str) -> list[Any]:
        with psycopg.connect(dsn, options=f"-c search_path={schema}") as connection:
            return connection.execute(sql.encode()).fetchall()

    return Home(opens=lambda **options: PostgresJournal(dsn, schema=schema, **options), copied=copied, rows=rows)


# To add a journal: a function that gives a home for it, in a test's own place.
KINDS: dict[str, Callable[[Path], Home]] = {"sqlite": _sqlite, "postgres": _postgres}


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say on which PostgreSQL, and behind which pooler, the tests ran."""
    stats = terminalreporter.stats
    if any("[postgres" in report.nodeid for report in stats.get("passed", ())):
        terminalreporter.write_line(f"PostgreSQL: {postgres.words()}")
    of_poolers = ("test_poolers" in one.nodeid for kind in ("passed", "skipped") for one in stats.get(kind, ()))
    if any(of_poolers):
        terminalreporter.write_line(pgbouncer.words())


@pytest.fixture
def clock() -> Clock:
    """The database's clock."""
    return Clock()


@pytest.fixture(params=KINDS)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    """The test's own database."""
    yield KINDS[request.param](tmp_path)
    postgres.give_back()


@pytest.fixture
def opens(home: Home, clock: Clock) -> Opens:
    """Opens the test's own database, as often as it is called."""

    def open_(**options: Any) -> AbstractAsyncContextManager[Journal]:
        return home.opens(**{"clock": clock} | options)

    return open_


@pytest_asyncio.fixture
async def journal(opens: Opens) -> AsyncIterator[Journal]:
    """An open journal."""
    async with opens() as journal:
        yield journal
