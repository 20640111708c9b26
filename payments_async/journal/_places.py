"""Which journal a setting names: a file, or a database by its DSN."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from payments_async.journal._engine._journal import StoredJournal
from payments_async.journal._sqlite._journal import SqliteJournal

if TYPE_CHECKING:
    from payments_async.journal._postgres._journal import PostgresJournal

_SCHEMES = ("postgresql://", "postgres://")


def journal_at(place: str | Path) -> StoredJournal:
    """The journal in a file, or in a PostgreSQL database: for settings such as ``PAYMENTS_JOURNAL``.

    Args:
        place: A path, or a DSN that begins with ``postgresql://``.

    Raises:
        ValueError: The DSN is none.
        ModuleNotFoundError: The extra ``postgres`` is not installed.
    """
    if isinstance(place, str) and place.startswith(_SCHEMES):
        return postgres_journal()(place)
    return SqliteJournal(place)


def postgres_journal() -> type[PostgresJournal]:
    """The class, which brings psycopg when somebody asks for it. Raises ``ModuleNotFoundError``."""
    try:
        from payments_async.journal._postgres._journal import PostgresJournal
    except ImportError as error:
        if (error.name or "psycopg").partition(".")[0] != "psycopg":
            raise
        words = "a journal in PostgreSQL needs psycopg: pip install 'payments-async[postgres]'"
        raise ModuleNotFoundError(words, name="psycopg") from error
    return PostgresJournal
