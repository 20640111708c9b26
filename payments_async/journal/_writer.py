"""One thread that writes, and whatever is queued in one commit. Knows what a transaction is, and nothing of orders."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from decimal import Context, Decimal
from typing import Any, Generic, NamedTuple, TypeVar

from payments_async.journal import _opening
from payments_async.journal._faults import JournalClosed, JournalError, JournalUnavailable

__all__ = ["Transaction", "Work", "Writer"]

T = TypeVar("T")
_EXACT = Context(prec=100)  # the usual 28 digits would round a sum of large amounts
_MOST = 1000  # operations in one commit; bounds its memory and the wait of the first


class Transaction:
    """What an operation works with inside a commit.

    Attributes:
        execute: Of the connection.
        now: Unix seconds by the database's clock, read after the write lock was granted.
        known: What operations of this commit have read and the next need not read again. Whatever changes one of the
            rows behind it empties it.
    """

    __slots__ = ("connection", "crash_at", "execute", "known", "moves", "now")

    def __init__(
        self, connection: sqlite3.Connection, now: float, crash_at: Callable[[str], None] | None = None
    ) -> None:
        self.connection = connection
        self.execute = connection.execute
        self.now = now
        self.crash_at = crash_at
        self.known: dict[object, bool] = {}
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

    def goes_on(self, error: sqlite3.Error) -> bool:
        """Whether an error is that of one operation alone: neither the disk's nor the end of the transaction."""
        return self.connection.in_transaction and not _opening.is_of_the_disk(error)

    def write_tallies(self) -> None:
        """Add up what moved; once for each commit, however many orders moved."""
        changes: dict[tuple[int, str], tuple[int, Decimal]] = {}
        for run, state, count, amount in self.moves:
            known, total = changes.get((run, state), (0, Decimal(0)))
            changes[run, state] = known + count, _EXACT.add(total, amount)
        for (run, state), (count, amount) in changes.items():
            if not count and not amount:
                continue
            row = self.execute("SELECT count, total FROM tally WHERE run = ? AND state = ?", (run, state)).fetchone()
            before, total = (row[0], Decimal(row[1])) if row else (0, Decimal(0))
            self.execute(
                "INSERT OR REPLACE INTO tally (run, state, count, total) VALUES (?, ?, ?, ?)",
                (run, state, before + count, format(_EXACT.add(total, amount), "f")),
            )


Work = Callable[[Transaction], T]


class _Operation(NamedTuple, Generic[T]):
    name: str
    work: Work[T]
    future: asyncio.Future[T]
    droppable: bool


class Writer:
    """Runs operations in the order they were submitted, as many in one transaction as are queued.

    A commit is never delayed to gather more: while one is on its way to the disk, the next gathers by itself. An
    operation that fails is rolled back alone. When the commit fails, every operation in it failed.

    Args:
        open: Opens the connection; called in the thread.
        clock: Gives Unix seconds in place of the database's clock, for tests.
        seal: Called at the end of each transaction; what it returns is called once that is committed.
        crash_at: Called with the name of every point between two steps, so that a test can kill the process there.
    """

    def __init__(
        self,
        open: Callable[[], sqlite3.Connection],  # noqa: A002 - that is what it does
        *,
        clock: Callable[[], float] | None = None,
        seal: Callable[[Transaction], Callable[[], None]] | None = None,
        crash_at: Callable[[str], None] | None = None,
    ) -> None:
        self._open = open
        self._seal = seal
        self._clock = clock
        self._crash_at = crash_at
        self._queue: queue.SimpleQueue[_Operation[Any] | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    async def start(self) -> None:
        """Open the file, and raise what hinders it."""
        self._loop = asyncio.get_running_loop()
        self._queue = queue.SimpleQueue()  # nothing is left in it of an earlier time
        opened: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, args=(opened,), name="journal-writer", daemon=True)
        self._thread.start()
        try:
            await opened
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Finish what is queued and close the file."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            done = asyncio.get_running_loop().run_in_executor(None, thread.join)
            await asyncio.shield(done)  # a second ctrl-c must not leave the last commit behind

    def submit(self, name: str, work: Work[T], *, droppable: bool = False) -> asyncio.Future[T]:
        """Queue an operation.

        Args:
            name: In the names of its crash points.
            droppable: Need not be done when nobody waits for it any more. Others are done all the same: a caller that
                hangs up does not undo what it reported.
        """
        loop = asyncio.get_running_loop()
        if self._thread is None or loop is not self._loop:
            raise JournalClosed("the journal is not open in this event loop")
        future: asyncio.Future[T] = loop.create_future()
        self._queue.put(_Operation(name, work, future, droppable))
        return future

    def _run(self, opened: asyncio.Future[None]) -> None:
        try:
            connection = self._open()
        except JournalError as error:
            self._tell([(opened, None, error)])
            return
        except sqlite3.Error as error:
            self._tell([(opened, None, _opening.translated(error))])
            return
        self._tell([(opened, None, None)])
        try:
            while (first := self._queue.get()) is not None:
                group, more = self._gather(first)
                self._tell(self._commit(connection, group))
                if not more:
                    break
        finally:
            with suppress(sqlite3.Error):
                connection.close()
            self._refuse_rest()

    def _gather(self, first: _Operation[Any]) -> tuple[list[_Operation[Any]], bool]:
        group = [first]
        with suppress(queue.Empty):
            while len(group) < _MOST:
                operation = self._queue.get_nowait()
                if operation is None:
                    return group, False
                group.append(operation)
        return group, True

    def _commit(self, connection: sqlite3.Connection, group: list[_Operation[Any]]) -> list[_Told]:
        try:
            connection.execute("BEGIN IMMEDIATE")
            clock = self._clock
            at = _opening.now(connection) if clock is None else clock()
            transaction = Transaction(connection, at, self._crash_at)
            told = [self._apply(transaction, operation) for operation in group if not _is_dropped(operation)]
            transaction.write_tallies()
            sealed = None if self._seal is None else self._seal(transaction)
            transaction.passed("commit.begun")
            connection.execute("COMMIT")
            transaction.passed("commit.done")
            if sealed is not None:
                sealed()
        except sqlite3.Error as error:
            # Whether it failed halfway or its answer was lost: it counts as not granted, and nobody sends.
            fault = _opening.translated(error)
            return self._undone(connection, group, fault, error)
        except Exception as error:  # noqa: BLE001 - a mistake of ours must not hang everybody who waits
            return self._undone(
                connection, group, JournalUnavailable(f"the commit failed ({type(error).__name__})"), error
            )
        return told

    def _apply(self, transaction: Transaction, operation: _Operation[Any]) -> _Told:
        def part() -> Any:
            transaction.passed(f"{operation.name}.begun")
            result = operation.work(transaction)
            transaction.passed(f"{operation.name}.written")
            return result

        try:
            return operation.future, transaction.undoing(part), None
        except sqlite3.Error as error:
            if not transaction.goes_on(error):
                raise
            return operation.future, None, _chained(_opening.translated(error), error)
        except Exception as error:  # noqa: BLE001 - each operation's failure is its caller's
            return operation.future, None, error

    def _undone(
        self, connection: sqlite3.Connection, group: list[_Operation[Any]], fault: JournalError, cause: Exception
    ) -> list[_Told]:
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        return [(operation.future, None, _chained(type(fault)(fault.message), cause)) for operation in group]

    def _refuse_rest(self) -> None:
        with suppress(queue.Empty):
            while True:
                operation = self._queue.get_nowait()
                if operation is not None:
                    self._tell([(operation.future, None, JournalClosed("the journal was closed"))])

    def _tell(self, told: list[_Told]) -> None:
        loop = self._loop
        assert loop is not None
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(_deliver, told)


_Told = tuple[asyncio.Future[Any], Any, Exception | None]


def _is_dropped(operation: _Operation[Any]) -> bool:
    return operation.droppable and operation.future.cancelled()


def _deliver(told: list[_Told]) -> None:
    for future, result, error in told:
        if future.done():
            continue  # its caller was cancelled
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


def _chained(fault: JournalError, cause: Exception) -> JournalError:
    fault.__cause__ = cause
    return fault
