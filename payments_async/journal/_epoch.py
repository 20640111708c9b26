"""Whether a file is the one it was: a copy or a restored backup does not know what was sent since. Reads no order."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from payments_async.journal._anchor import Anchor
from payments_async.journal._faults import JournalBehind, JournalCorrupt, JournalLost
from payments_async.journal._inode import birth_of, inode_of
from payments_async.journal._leasing import put_aside
from payments_async.journal._memory import Memory
from payments_async.journal._opening import now
from payments_async.journal._rows import chunk_of, run_of
from payments_async.journal._sweeping import doubt
from payments_async.journal._transaction import Transaction

__all__ = ["Epoch"]


class Epoch:
    """Tells a file that was copied or restored from one that was not.

    A copy has another inode, and a file that got the inode of a deleted one was born later. A backup that was written
    over the file counts fewer commits than an anchor: the mark, a small file beside the journal, or the one in the
    state folder, which no backup of the journal's folder brings back. A mark that is missing, though commits were
    made, is suspicious where nothing else vouches for the file. A file that is renamed stays itself, and so does one
    that another user opens. Only commits that moved an order count: one that lacks a notification forgets no permit.

    Args:
        path: Of the journal, without symbolic links; the mark lies beside it.
        named: As its user calls it, for the words of an error.
        clock: Unix seconds.

    Attributes:
        journal_id: Whose identity the file has; a copy has the same.
        memory: What remembers it outside of its folder, if anything does.
    """

    def __init__(self, path: Path, *, named: Path | None = None, clock: Callable[[], float] | None = None) -> None:
        self._path = path
        self._named = path if named is None else named
        self._clock = clock or now
        self._anchors: list[Anchor] = []
        self.journal_id = ""
        self.memory: Memory | None = None

    def check_absent(self, memory: Memory | None) -> None:
        """Whether a journal may be made here.

        Raises:
            JournalLost: There was one with orders.
        """
        self._remember_by(memory)
        self._marked()

    def check_log(self, connection: sqlite3.Connection) -> None:
        """Whether the log beside the file is its own.

        A backup that is put back beside the log of later is a mixture: the count of commits is that of the log, and
        what was written before the log began is that of the backup. Only the sums show it.

        Raises:
            JournalCorrupt: It is not.
        """
        found = connection.execute(
            """SELECT 1 FROM (SELECT run, state, count FROM tally
            UNION ALL SELECT id >> 28, state, -count(*) FROM outbox GROUP BY 1, 2)
            GROUP BY run, state HAVING sum(count) <> 0 LIMIT 1"""
        ).fetchone()
        if found is not None:
            raise JournalCorrupt(
                f"{self._named}: the file was restored, and the -wal beside it is that of another time; without that "
                "it is the backup, and in quarantine"
            )

    def begin(self, connection: sqlite3.Connection, memory: Memory | None) -> None:
        """Quarantine every unfinished chunk if the file is not the one it was.

        Raises:
            JournalLost: It is another journal than the one that was here.
            OSError: The mark cannot be written.
        """
        connection.execute("BEGIN IMMEDIATE")  # from now on nobody commits what an anchor then tells of
        known = dict(connection.execute("SELECT key, value FROM meta"))
        self.journal_id, commits = known["journal_id"], int(known["commits"])
        self._remember_by(memory if known["remembers"] == "yes" else None)
        if memory is not None and self.memory is None:
            memory.close()
        marked, anchored = self._marked(), self._anchored()
        inode, birth = inode_of(self._path), birth_of(self._path) or ""
        is_another = known["epoch"] != inode or "" != known["birth"] != birth != ""
        is_unmarked = commits > 0 and marked is None and (anchored is None or not self._is_elsewhere(self.journal_id))
        highest = max(marked or 0, anchored or 0)
        if is_another or is_unmarked or commits < highest:
            _quarantine(connection, self._clock)
            commits = max(commits, highest)
        facts = [("epoch", inode), ("birth", birth), ("commits", str(commits))]
        connection.executemany("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", facts)
        connection.execute("COMMIT")
        self._follow(commits)

    def seal(self, transaction: Transaction) -> Callable[[], None] | None:
        """Count a commit that moved an order; what is returned is to be called once it is on disk.

        Raises:
            JournalBehind: A copy of the file has made commits that this one does not hold.
        """
        if not transaction.moves:
            return partial(_checkpoint, transaction) if transaction.is_milestone else None
        (commits,) = transaction.execute(
            "UPDATE meta SET value = CAST(value AS INTEGER) + 1 WHERE key = 'commits' RETURNING value"
        ).fetchone()
        count = int(commits)
        if any(anchor.count() >= count for anchor in self._anchors):
            raise JournalBehind(f"{self._named}: a copy of this journal has gone on, and knows what this one does not")
        return lambda: self._committed(transaction, count)

    def stand_back(self, connection: sqlite3.Connection) -> None:
        """A copy has gone on: quarantine every unfinished chunk, and count on from where the copy is."""
        connection.execute("BEGIN IMMEDIATE")
        _quarantine(connection, self._clock)
        highest = max(anchor.count() for anchor in self._anchors)
        connection.execute("UPDATE meta SET value = max(CAST(value AS INTEGER), ?) WHERE key = 'commits'", (highest,))
        connection.execute("COMMIT")

    def close(self) -> None:
        """Close the mark, the anchor and the memory."""
        for anchor in self._anchors:
            anchor.close()
        self._anchors, self.journal_id = [], ""
        memory, self.memory = self.memory, None
        if memory is not None:
            memory.close()

    @property
    def _mark(self) -> Path:
        return self._path.with_name(f"{self._path.name}-mark")

    def _remember_by(self, memory: Memory | None) -> None:
        self.memory = memory
        there = None if memory is None else memory.lost_at(self._path, but=self.journal_id)
        if there is not None:
            raise JournalLost(f"{self._named}: {there} was here, and is not any more")

    def _marked(self) -> int | None:
        marked = Anchor(self._mark).read()
        if marked is None:
            return None
        count, journal_id = marked
        if journal_id == self.journal_id:
            return count
        if count and not self._is_elsewhere(journal_id):
            raise JournalLost(
                f"{self._named}: a journal with orders was here, as {self._mark.name} remembers, and is not any more"
            )
        return None

    def _anchored(self) -> int | None:
        anchored = None if self.memory is None else self.memory.anchor(self.journal_id).read()
        return None if anchored is None else anchored[0]

    def _is_elsewhere(self, journal_id: str) -> bool:
        place = None if self.memory is None else self.memory.registry.path_of(journal_id)
        return place is not None and place != str(self._path)

    def _follow(self, commits: int) -> None:
        mark = Anchor(self._mark)
        mark.open(self.journal_id, commits)
        self._anchors.append(mark)
        if self.memory is None:
            return
        anchor = self.memory.anchor(self.journal_id)
        try:
            anchor.open(self.journal_id, commits)
        except OSError as error:
            self.memory.give_up(error)
            self.memory = None
            return
        self._anchors.append(anchor)
        self.memory.registry.note_place(self.journal_id, self._path, self._clock())

    def _committed(self, transaction: Transaction, count: int) -> None:
        for anchor in self._anchors:
            anchor.follow(count)
        if transaction.is_milestone:
            _checkpoint(transaction)


def _checkpoint(transaction: Transaction) -> None:
    with suppress(sqlite3.Error):  # it is committed, whether in the file or in the log beside it
        transaction.execute("PRAGMA wal_checkpoint(PASSIVE)")


def _quarantine(connection: sqlite3.Connection, clock: Callable[[], float]) -> None:
    """Let nothing be sent from any unfinished chunk, nor from a batch that is being loaded, before a person has looked.

    Nor from one that is done but for an order that a person may write off: they may have done so already.
    """
    transaction = Transaction(connection, clock)
    found = set(transaction.execute("SELECT run, number FROM chunk WHERE state = 'open'").fetchall())
    in_doubt = transaction.execute("SELECT id FROM outbox WHERE state IN ('unknown', 'parked')")
    found |= {(run_of(order_id), chunk_of(order_id)) for (order_id,) in in_doubt.fetchall()}
    put_aside(transaction, sorted(found), "whoever wrote the file before it was copied or restored")
    transaction.execute("UPDATE run SET look_since = coalesce(look_since, created_at) WHERE state = 'loading'")
    doubt(transaction)  # those that are done, too: what was sent since may be of a batch that this file never had
    transaction.write_tallies()
