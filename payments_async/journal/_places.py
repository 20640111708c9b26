"""Which journal a setting names: a file, or a database by its DSN."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Never

from payments_async._values.checks import check_instance
from payments_async.journal._engine._journal import Journal
from payments_async.journal._records import TakeoverAuthorisation
from payments_async.journal._sqlite._journal import SqliteJournal

if TYPE_CHECKING:
    from payments_async.journal._postgres._journal import PostgresJournal

_SCHEMES = ("postgresql://", "postgres://")


def journal_at(place: str | Path, *, second_journal: TakeoverAuthorisation | None = None) -> Journal:
    """The journal in a file, or in a PostgreSQL database: for settings such as ``PAYMENTS_JOURNAL``.

    Args:
        place: A path, or a DSN that begins with ``postgresql://``. What has ``://`` in it is not a path.
        second_journal: Who says why the account has a second journal on this machine; kept.

    Raises:
        ValueError: The DSN is none, or of another database.
        ModuleNotFoundError: The extra ``postgres`` is not installed.
    """
    if not isinstance(place, str) or "://" not in place:
        return SqliteJournal(place, second_journal=second_journal)
    dsn = place.strip()  # as it comes out of a file or a form
    if not dsn.startswith(_SCHEMES):  # it is shown nowhere: what looks like another DSN may hold a password
        raise ValueError(f"place: of databases only those are known whose DSN begins with {_SCHEMES[0]}")
    return postgres_journal()(dsn, second_journal=second_journal)


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


def check_journal(value: object) -> None:
    """It is a journal: a path is easily handed in instead of one. Raises ``TypeError``."""
    check_instance("journal", value, Journal, "a journal, such as SqliteJournal('payments.sqlite')")


class NoPostgresJournal:
    """What stands for ``PostgresJournal`` where psycopg is not installed: making one says what to install."""

    def __new__(cls, *_: object, **__: object) -> Never:
        postgres_journal()
        raise ImportError("psycopg was installed since this program began: start it again", name="psycopg")
