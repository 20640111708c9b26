"""What an operation works with inside a commit: one transaction, its clock, and what moved. Decides nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from decimal import Context, Decimal
from typing import Any, TypeVar

from payments_async.journal import _opening

__all__ = ["EXACT", "Together", "Transaction", "Work"]

T = TypeVar("T")
EXACT = Context(prec=100)  # the usual 28 digits would round a sum of large amounts


class Transaction:
    """What an operation works with inside a commit.

    Attributes:
        execute: Of the connection.
        now: Unix seconds by the database's clock, read after the write lock was granted.
        known: What operations of this commit have read and the next need not read again. Whatever changes one of the
            rows behind it empties it.
        is_milestone: What is written has to be in the file itself soon, and not only in the log beside it.
    """

    __slots__ = ("_clock", "connection", "crash_at", "execute", "is_milestone", "known", "moves", "now")

    def __init__(
        self,
        connection: sqlite3.Connection,
        clock: Callable[[], float],
        crash_at: Callable[[str], None] | None = None,
    ) -> None:
        self._clock = clock
        self.connection = connection
        self.execute = connection.execute
        self.now = clock()
        self.crash_at = crash_at
        self.known: dict[object, bool] = {}
        self.is_milestone = False
        self.moves: list[tuple[int, str, int, Decimal]] = []

    def count(self, run: int, state: str, count: int, amount: Decimal) -> None:
        """Orders that entered a state (or left it, below zero), with the sum of their amounts."""
        self.moves.append((run, state, count, amount))

    def passed(self, point: str) -> None:
        """A named point between two steps, at which a test may kill the process."""
        if self.crash_at is not None:
            self.crash_at(point)

    def undoing(self, part: Callable[[], T]) -> T:
        """What a part returns; when it raises, what it did is undone, and the rest of the commit stands."""
        moved = len(self.moves)
        self.execute("SAVEPOINT part")
        try:
            result = part()
        except Exception as error:
            if not isinstance(error, sqlite3.Error) or self.goes_on(error):
                self.execute("ROLLBACK TO part")
                self.execute("RELEASE part")
                del self.moves[moved:]
                self.known.clear()
            raise
        self.execute("RELEASE part")
        return result

    def beginning_anew(self, part: Callable[[], T]) -> T:
        """As ``undoing``, for the first part of a commit: without a savepoint, which is two statements less."""
        try:
            return part()
        except Exception as error:
            if not isinstance(error, sqlite3.Error) or self.goes_on(error):
                self.execute("ROLLBACK")
                self.execute("BEGIN IMMEDIATE")
                self.now = self._clock()
                self.moves.clear()
                self.known.clear()
            raise

    def goes_on(self, error: sqlite3.Error) -> bool:
        """Whether an error is that of one operation alone: neither the disk's nor the end of the transaction."""
        return self.connection.in_transaction and not _opening.is_of_the_disk(error)

    def write_tallies(self) -> None:
        """Add up what moved; once for each commit, however many orders moved."""
        changes: dict[tuple[int, str], tuple[int, Decimal]] = {}
        for run, state, count, amount in self.moves:
            known, total = changes.get((run, state), (0, Decimal(0)))
            changes[run, state] = known + count, EXACT.add(total, amount)
        before = {(run, state): known for run in {run for run, _ in changes} for state, known in self._tallies(run)}
        values: list[object] = []
        for key, (count, amount) in changes.items():
            if count or amount:
                known, total = before.get(key, (0, Decimal(0)))
                values += (*key, known + count, format(EXACT.add(total, amount), "f"))
        if values:
            marks = ", ".join(["(?, ?, ?, ?)"] * (len(values) // 4))
            self.execute(f"INSERT OR REPLACE INTO tally (run, state, count, total) VALUES {marks}", values)  # noqa: S608

    def _tallies(self, run: int) -> Iterator[tuple[str, tuple[int, Decimal]]]:
        # in one row: each further one would let go of the interpreter and wait for it
        (rows,) = self.execute(
            "SELECT group_concat(state || ' ' || count || ' ' || total, ',') FROM tally WHERE run = ?", (run,)
        ).fetchone()
        for row in rows.split(",") if rows else ():
            state, count, total = row.split(" ")
            yield state, (int(count), Decimal(total))


Work = Callable[[Transaction], T]
# Does one or more neighbouring works at once, in few statements, and tells their results. ``None`` when one of them is
# out of the ordinary: then what it did is undone, and each is done by itself.
Together = Callable[[Transaction, Sequence[Any]], Sequence[Any] | None]
