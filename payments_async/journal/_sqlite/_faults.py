"""What SQLite's errors mean to the one who pays."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from payments_async.journal._faults import (
    JournalError,
    JournalMoved,
    JournalUnavailable,
)
from payments_async.journal._machine._sqlite_faults import FAULTS
from payments_async.journal._statements._moving import MOVED


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
