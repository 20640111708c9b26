"""What PostgreSQL's errors mean to the one who pays."""

from __future__ import annotations

import psycopg

from payments_async.journal._faults import (
    JournalCorrupt,
    JournalError,
    JournalFull,
    JournalLocked,
    JournalMoved,
    JournalReadOnly,
    JournalUnavailable,
)

MOVED = "PM001"  # raised by the tables themselves
_LOST = "the connection to the database was lost"
# by SQLSTATE, or by its class where that says enough
_FAULTS: dict[str, tuple[type[JournalError], str]] = {
    "08": (JournalUnavailable, _LOST),
    "25006": (JournalReadOnly, "the database only reads, as a standby does"),
    "25P03": (JournalUnavailable, "this process stood still within a commit, and the database has ended it"),
    "25P04": (JournalUnavailable, "a commit took too long, and the database has ended it"),
    "28": (JournalUnavailable, "the database does not let this user in"),
    "3D": (JournalUnavailable, "there is no such database"),
    "3F": (JournalUnavailable, "the namespace of the journal is not there"),
    "40": (JournalLocked, "another transaction was in the way"),
    "42501": (JournalReadOnly, "this user may not use the tables of the journal"),
    "53": (JournalUnavailable, "the database has no resources left"),
    "53100": (JournalFull, "the disk of the database is full"),
    "55P03": (JournalLocked, "the journal is held by another process"),
    "57": (JournalUnavailable, "the database is ending or not ready yet"),
    "57014": (JournalUnavailable, "the database ended a statement that took too long"),
    "58": (JournalUnavailable, "the disk of the database could not be read or written"),
    "XX": (JournalUnavailable, "the database is in trouble itself"),
    "XX001": (JournalCorrupt, "the journal is damaged"),
    "XX002": (JournalCorrupt, "an index of the journal is damaged"),
}
_UNFORESEEN: tuple[type[JournalError], str] = (JournalUnavailable, "the database refused")
_OF_ONE_OPERATION = "42501"  # the database is well


def is_of_the_disk(error: psycopg.Error) -> bool:
    """Whether the database is in trouble, and not the one operation that met it."""
    return error.sqlstate is None or (_found(error.sqlstate) is not None and error.sqlstate != _OF_ONE_OPERATION)


def translated(error: psycopg.Error, place: str | None = None) -> JournalError:
    """The error of the journal that says what PostgreSQL's means, and where.

    What the server says is not repeated: it may hold values of a row.
    """
    before, state = "" if place is None else f"{place}: ", error.sqlstate
    if state is None:
        words = _LOST if isinstance(error, psycopg.OperationalError) else "the database refused"
        return JournalUnavailable(f"{before}{words} ({type(error).__name__})")
    if state == MOVED:
        return JournalMoved(f"{before}{error.diag.message_primary}")  # words of ours
    kind, words = _found(state) or _UNFORESEEN
    return kind(f"{before}{words} ({state} {type(error).__name__})")


def _found(state: str) -> tuple[type[JournalError], str] | None:
    return _FAULTS.get(state) or _FAULTS.get(state[:2])
