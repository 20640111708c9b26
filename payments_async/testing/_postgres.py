"""Databases for tests: one for each test, copied from a template that holds the tables of a journal and no order."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from payments_async.journal import PostgresJournal

if TYPE_CHECKING:
    import psycopg


@contextmanager
def template(server: str, tables: str) -> Iterator[str]:
    """Make a database with the tables of a journal, and with tables of the application.

    Args:
        server: DSN of a role that may create databases.
        tables: SQL that makes those of the application.

    Yields:
        Its name. It is dropped in the end.
    """
    with _made(server, "template1") as name:
        dsn = _place(server, name)
        journal = PostgresJournal(dsn, state_folder=None)
        asyncio.run(_migrated(journal))
        if tables.strip():
            with _connected(dsn) as connection:
                connection.execute(tables.encode())
        yield name


@contextmanager
def copied(server: str, original: str) -> Iterator[str]:
    """Make a database like another one; yields its DSN. It is dropped in the end, whoever uses it then."""
    with _made(server, original) as name:
        yield _place(server, name)


async def _migrated(journal: PostgresJournal) -> None:
    await journal.migrate()


@contextmanager
def _made(server: str, original: str) -> Iterator[str]:
    name = f"payments_{secrets.token_hex(8)}"
    _command(server, "CREATE DATABASE {} TEMPLATE {}", name, original)
    try:
        yield name
    finally:
        _command(server, "DROP DATABASE {} WITH (FORCE)", name)


def _command(server: str, words: str, *names: str) -> None:
    from psycopg import sql

    with _connected(server) as connection:
        connection.execute(sql.SQL(words).format(*map(sql.Identifier, names)))


def _connected(dsn: str) -> psycopg.Connection:
    import psycopg

    return psycopg.connect(dsn, autocommit=True)


def _place(server: str, name: str) -> str:
    """The DSN of another database of a server, as an address, which every library reads."""
    from psycopg.conninfo import conninfo_to_dict

    known = {key: str(value) for key, value in conninfo_to_dict(server).items()}
    user, password = (quote(known.pop(key, ""), safe="") for key in ("user", "password"))
    known.pop("dbname", None)
    login = f"{user}{':' if password else ''}{password}@" if user or password else ""
    return f"postgresql://{login}/{name}?{urlencode(known)}"
