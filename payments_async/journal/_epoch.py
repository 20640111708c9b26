"""Whether a file is the one it was: a copy or a restored backup does not know what was sent since. Reads no order."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from payments_async.journal._leasing import silence
from payments_async.journal._opening import now
from payments_async.journal._transaction import Transaction

__all__ = ["Epoch"]

_SIZE = 8


class Epoch:
    """Tells a file that was copied or restored from one that was not.

    A copy has another inode. A backup that was written over the file counts fewer commits than the mark beside it, an
    eight-byte file that follows the commits without an fsync: it may lag behind, and is never ahead. A file that is
    renamed stays itself. Only commits that moved an order count: one that lacks a notification forgets no permit.

    Args:
        path: Of the journal; the mark lies beside it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mark: int | None = None

    def begin(self, connection: sqlite3.Connection) -> None:
        """Quarantine every unfinished chunk if the file is not the one it was."""
        inode = str(self._path.stat().st_ino)
        self._mark = os.open(self._path.with_name(f"{self._path.name}-mark"), os.O_RDWR | os.O_CREAT, 0o600)
        connection.execute("BEGIN IMMEDIATE")
        known = dict(connection.execute("SELECT key, value FROM meta WHERE key IN ('epoch', 'commits')"))
        marked = int.from_bytes(os.pread(self._mark, _SIZE, 0), "big")
        commits = int(known.get("commits", 0))
        if known and (known["epoch"] != inode or commits < marked):
            _quarantine(connection)
            commits = max(commits, marked)
        connection.executemany(
            "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", [("epoch", inode), ("commits", str(commits + 1))]
        )
        connection.execute("COMMIT")
        self._write(commits + 1)

    def seal(self, transaction: Transaction) -> Callable[[], None] | None:
        """Count a commit that moved an order; what is returned is to be called once it is on disk."""
        if not transaction.moves:
            return None
        (commits,) = transaction.execute(
            "UPDATE meta SET value = CAST(value AS INTEGER) + 1 WHERE key = 'commits' RETURNING value"
        ).fetchone()
        return lambda: self._write(int(commits))

    def close(self) -> None:
        """Close the mark."""
        mark, self._mark = self._mark, None
        if mark is not None:
            os.close(mark)

    def _write(self, commits: int) -> None:
        if self._mark is not None:
            with suppress(OSError):  # a mark that lags behind detects less, and stops nobody
                os.pwrite(self._mark, commits.to_bytes(_SIZE, "big"), 0)


def _quarantine(connection: sqlite3.Connection) -> None:
    transaction = Transaction(connection, now)
    for run, number in connection.execute("SELECT run, number FROM chunk WHERE state = 'open'").fetchall():
        silence(transaction, run, number, "whoever wrote the file before it was copied or restored")
    # a raised token, so that no permit of before is worth anything
    connection.execute(
        "UPDATE chunk SET state = 'quarantined', token = token + 1, owner = NULL, lease_until = 0 WHERE state = 'open'"
    )
    transaction.write_tallies()
