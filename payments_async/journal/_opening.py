"""How the file is opened, and what SQLite's errors mean to the one who pays. Knows no table."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from payments_async.journal._faults import (
    JournalCorrupt,
    JournalError,
    JournalFull,
    JournalLocked,
    JournalReadOnly,
    JournalUnavailable,
    NotAJournal,
)

__all__ = ["check", "has_log", "is_of_the_disk", "now", "open_reader", "open_writer", "snapshot", "translated"]

_FAULTS: dict[int, tuple[type[JournalError], str]] = {
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


def is_of_the_disk(error: sqlite3.Error) -> bool:
    """Whether the database is in trouble, and not the one operation that met it."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (*_FAULTS, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PROTOCOL)


def translated(error: sqlite3.Error, path: Path | None = None) -> JournalError:
    """The error of the journal that says what SQLite's means, and in which file. Its text holds no value of a row."""
    code, file = getattr(error, "sqlite_errorcode", None), "" if path is None else f"{path}: "
    if code is None:
        return JournalUnavailable(f"{file}the database refused ({type(error).__name__}: {error})")
    kind, words = _FAULTS.get(code & 0xFF, (JournalUnavailable, "the database refused"))
    return kind(f"{file}{words} ({error.sqlite_errorname}: {error})")


def open_writer(path: Path, *, busy_timeout: float) -> sqlite3.Connection:
    """The one connection that writes.

    Args:
        busy_timeout: Seconds to wait for another process.

    Raises:
        JournalError: With what to do about it.
    """
    # Not opened here: closing it would drop the locks of every other connection of this process.
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        raise JournalReadOnly(f"{path} cannot be opened for writing")
    connection = _connect(path, busy_timeout)
    try:
        _make_durable(connection)
    except sqlite3.Error as error:
        connection.close()
        raise translated(error, path) from error
    except JournalError:
        connection.close()
        raise
    return connection


def has_log(path: Path) -> bool:
    """Whether commits lie in the log beside the file: another process has it open, or one died."""
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0


def open_reader(path: Path, *, busy_timeout: float) -> sqlite3.Connection:
    """A connection that only reads."""
    connection = _connect(path, busy_timeout)
    connection.execute("PRAGMA query_only = ON")
    return connection


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Let several statements of a reader see the same moment."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.rollback()  # nothing was written; an error may have ended it already


def now() -> float:
    """Unix seconds by the database's clock. SQLite's is the machine's, the same for every process on the file."""
    return time.time()


def check(connection: sqlite3.Connection) -> None:
    """Read the whole file.

    Raises:
        JournalCorrupt: It is damaged.
    """
    found = connection.execute("PRAGMA integrity_check(3)").fetchall()
    if found != [("ok",)]:
        raise JournalCorrupt(f"the journal is damaged ({'; '.join(str(words) for (words,) in found)})")


def _connect(path: Path, busy_timeout: float) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(
            path, timeout=busy_timeout, isolation_level=None, check_same_thread=False, cached_statements=256
        )
    except sqlite3.Error as error:
        raise translated(error, path) from error
    try:
        # kibibytes; more is slower, however large the file: it would not stay in the processor's own cache
        connection.execute("PRAGMA cache_size = -4000")
        connection.execute("PRAGMA temp_store = MEMORY")  # what a savepoint may undo, else a temporary file each time
    except sqlite3.Error as error:
        connection.close()
        raise translated(error, path) from error
    return connection


def _make_durable(connection: sqlite3.Connection) -> None:
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # no database, or a damaged one: say so first
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise JournalUnavailable(f"the file system does not allow write-ahead logging (journal_mode is {mode})")
    connection.execute("PRAGMA synchronous = FULL")  # NORMAL can forget a permit after a power cut
    connection.execute("PRAGMA fullfsync = ON")  # on macOS an fsync is none without it
    connection.execute("PRAGMA checkpoint_fullfsync = ON")
    connection.execute("PRAGMA wal_autocheckpoint = 4000")  # pages
    (level,) = connection.execute("PRAGMA synchronous").fetchone()
    if level != 2:
        raise JournalUnavailable("synchronous=FULL could not be set")
