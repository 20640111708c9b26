"""Where a benchmark keeps its journal: in a new file, or in a new namespace of a database, gone afterwards."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from payments_async.journal import PostgresJournal, SqliteJournal


@contextmanager
def new_journal(folder: Path, dsn: str | None) -> Iterator[SqliteJournal | PostgresJournal]:
    """A journal that is not open yet.

    Args:
        folder: For the file, and for what the machine remembers.
        dsn: Of a database in place of the file.
    """
    if dsn is None:
        yield SqliteJournal(folder / "journal.db", state_folder=folder / "state")
        return
    import psycopg

    schema = f"bench_{secrets.token_hex(4)}"
    try:
        yield PostgresJournal(dsn, schema=schema, state_folder=folder / "state")
    finally:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())


def size_of(folder: Path, dsn: str | None) -> int:
    """Bytes that the one journal in a place takes, with everything beside it."""
    if dsn is None:
        return sum(part.stat().st_size for part in folder.iterdir())
    import psycopg

    with psycopg.connect(dsn) as connection:
        found = connection.execute(
            """SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname LIKE 'bench\\_%' AND c.relkind = 'r'"""
        ).fetchone()
    assert found is not None
    return int(found[0])
