"""Which error of the journal each of SQLite's is, for its files and for what a machine remembers of them."""

from __future__ import annotations

import sqlite3

from payments_async.journal._faults import (
    JournalCorrupt,
    JournalError,
    JournalFull,
    JournalLocked,
    JournalReadOnly,
    JournalUnavailable,
    NotAJournal,
)

FAULTS: dict[int, tuple[type[JournalError], str]] = {
    sqlite3.SQLITE_BUSY: (JournalLocked, "the journal is held by another process"),
    sqlite3.SQLITE_LOCKED: (JournalLocked, "the journal is held by another connection"),
    sqlite3.SQLITE_READONLY: (JournalReadOnly, "the journal cannot be written"),
    sqlite3.SQLITE_PERM: (JournalReadOnly, "the journal may not be opened"),
    sqlite3.SQLITE_FULL: (JournalFull, "the disk is full"),
    sqlite3.SQLITE_CORRUPT: (JournalCorrupt, "the journal is damaged"),
    sqlite3.SQLITE_NOTADB: (NotAJournal, "the file is no SQLite database, or is encrypted or damaged"),
    sqlite3.SQLITE_CANTOPEN: (JournalUnavailable, "the journal cannot be opened"),
    sqlite3.SQLITE_IOERR: (JournalUnavailable, "the disk could not be read or written"),
}
