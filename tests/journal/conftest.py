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
from nested import for_journal

from payments_async.journal import Journal, PostgresJournal, SqliteJournal

Opens = Callable[..., AbstractAsyncContextManager[Journal]]


@attrs.frozen(kw_only=True)
class Home:
    """Where the journal of one test is.

    Attributes:
        opens: Opens it, as often as it is called, with `clock` and `crash_at` as options.
        copied: Makes a copy of it as it is now, and gives what opens that one.
        rows: What a query of its tables finds.
        dumped: Keeps the rows of all tables but some, or of one alone, as a dump does; what it gives puts them back.
    """

    opens: Opens
    copied: Callable[[], Opens]
    rows: Callable[[str], list[Any]]
    dumped: Callable[..., Callable[[], None]]


def _sqlite(place: Path) -> Home:
    path = place / "journal.db"

    def copied() -> Opens:
        shutil.copytree(place, place / "copied")
        return lambda **options: SqliteJournal(place / "copied/journal.db", **for_journal(options))

    def rows(sql: str) -> list[Any]:
        with closing(sqlite3.connect(path)) as file:
            return file.execute(sql).fetchall()

    def dumped(*but: str, only: str = "") -> Callable[[], None]:
        with closing(sqlite3.connect(path)) as file:
            names = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            wanted = [name for name in names if name not in but and only in ("", name)]
            kept = {name: file.execute(f"SELECT * FROM {name}").fetchall() for name in wanted}  # noqa: S608

        def put_back() -> None:
            with closing(sqlite3.connect(path)) as file, file:
                for name, rows in kept.items():
                    file.execute(f"DELETE FROM {name}")  # noqa: S608
                    for row in rows:
                        file.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608

        return put_back

    return Home(
        opens=lambda **options: SqliteJournal(path, **for_journal(options)), copied=copied, rows=rows, dumped=dumped
    )


def _postgres(_: Path) -> Home:
    dsn, schema = postgres.dsn(), postgres.new_schema()

    def copied() -> Opens:
        another = postgres.copied()
        return lambda **options: PostgresJournal(another, schema=schema, **for_journal(options))

    def rows(sql: str) -> list[Any]:
        with psycopg.connect(dsn, options=f"-c search_path={schema}") as connection:
            return connection.execute(sql.encode()).fetchall()

    def dumped(*but: str, only: str = "") -> Callable[[], None]:
        settings = f"-c search_path={schema} -c session_replication_role=replica"
        with psycopg.connect(dsn, options=settings) as connection:
            found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [schema]).fetchall()
            kept: dict[str, list[Any]] = {
                name: connection.execute(f'SELECT * FROM "{name}"'.encode()).fetchall()  # noqa: S608
                for (name,) in found
                if name not in but and only in ("", name)
            }

        def put_back() -> None:
            with psycopg.connect(dsn, options=settings) as connection, connection.cursor() as cursor:
                for name, rows in kept.items():
                    cursor.execute(f'DELETE FROM "{name}"'.encode())  # noqa: S608
                    for row in rows:
                        marks = ", ".join(["%s"] * len(row))
                        cursor.execute(f'INSERT INTO "{name}" VALUES ({marks})'.encode(), row)  # noqa: S608

        return put_back

    return Home(
        opens=lambda **options: PostgresJournal(dsn, schema=schema, **for_journal(options)),
        copied=copied,
        rows=rows,
        dumped=dumped,
    )


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
