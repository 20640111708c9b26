"""What SQLite's errors mean to the one who pays, of a journal's file and of what a machine remembers of it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from payments_async.journal._faults import (
    JournalCorrupt,
    JournalError,
    JournalFull,
    JournalLocked,
    JournalMoved,
    JournalReadOnly,
    JournalUnavailable,
    NotAJournal,
)
from payments_async.journal._statements._moving import MOVED

FAULTS: dict[int, tuple[type[JournalError], str]] = {
    sqlite3.SQLITE_BUSY: (JournalLocked, "the journal is held by another process"),
    sqlite3.SQLITE_LOCKED: (JournalLocked, "the journal is held by another connection"),
    sqlite3.SQLITE_READONLY: (JournalReadOnly, "the journal cannot be written"),
    sqlite3.SQLITE_PERM: (JournalReadOnly, "the journal may not be opened"),
    sqlite3.SQLITE_FULL: (JournalFull, "the disk is full"),
    sqlite3.SQLITE_CORRUPT: (JournalCorrupt, "the journal is damaged"),
    sqlite3.SQLITE_NOTADB: (NotAJournal, "the file is not an SQLite database, or is encrypted or damaged"),
    sqlite3.SQLITE_CANTOPEN: (JournalUnavailable, "the journal cannot be opened"),
    sqlite3.SQLITE_IOERR: (JournalUnavailable, "the disk could not be read or written"),
}


def is_of_the_disk(error: Exception) -> bool:
    """Whether the database is in trouble, and not the one operation that met it."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (*FAULTS, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PROTOCOL)


def translated(error: Exception, path: Path | None = None) -> JournalError:
    """The error of the journal that says what SQLite's means, and in which file. Its text holds no value of a row."""
    code, file = getattr(error, "sqlite_errorcode", None), "" if path is None else f"{path}: "
    if code is None:
        return JournalUnavailable(f"{file}the database refused ({type(error).__name__}: {error})")
    if code == sqlite3.SQLITE_CONSTRAINT_TRIGGER and str(error).startswith(MOVED):
        return JournalMoved(f"{file}{error}")
    kind, words = FAULTS.get(code & 0xFF, (JournalUnavailable, "the database refused"))
    return kind(f"{file}{words} ({getattr(error, 'sqlite_errorname', code)}: {error})")
