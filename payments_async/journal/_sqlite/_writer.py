"""The one thread that writes, whatever is queued in one commit."""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from payments_async.journal._faults import JournalBehind, JournalClosed, JournalError, JournalUnavailable
from payments_async.journal._sqlite import _faults
from payments_async.journal._statements._entries import Commit, Together, Work

T = TypeVar("T")
_MOST = 1000  # operations in one commit; bounds its memory and the wait of the first
_PLENTY = 40  # operations that make a commit worth its while: more are not waited for


class _Operation(NamedTuple, Generic[T]):
    """What somebody waits for."""

    name: str
    work: Work[T]
    future: asyncio.Future[T]
    together: Together | None
    droppable: bool


class Writer:
    """Runs operations in the order they were submitted, as many in one transaction as are queued.

    While one commit is on its way to the disk, the next gathers by itself. There is no timer: a commit begins as soon
    as a turn of the event loop brings nothing more, or enough are there. An operation that fails is rolled back alone.
    When the commit fails, every operation in it failed.

    Args:
        open: Opens the connection; called in the thread.
        clock: Gives Unix seconds: the machine's, the same for every process on the file.
        seal: Called at the end of each transaction that moved an order, or is a milestone; what it returns is called
            once that is committed.
        stand_back: Called in place of a commit whose seal raised ``JournalBehind``, after that was undone.
        crash_at: Called with the name of every point between two steps, so that a test can kill the process there.
        path: Of the file, for the words of an error.
    """

    def __init__(
        self,
        open: Callable[[], sqlite3.Connection],  # noqa: A002 - that is what it does
        *,
        clock: Callable[[], float] = time.time,
        seal: Callable[[Commit], Callable[[], None]] | None = None,
        stand_back: Callable[[sqlite3.Connection], None] | None = None,
        crash_at: Callable[[str], None] | None = None,
        path: Path | None = None,
    ) -> None:
        self._open = open
        self._path = path
        self._seal = seal
        self._stand_back = stand_back
        self._pid = 0  # whose thread it is: a process that was forked off has none
        self._clock = clock
        self._crash_at = crash_at
        self._groups: queue.SimpleQueue[list[_Operation[Any]] | None] = queue.SimpleQueue()
        self._waiting: list[_Operation[Any]] = []
        self._seen = 0  # of those that wait, a turn of the event loop ago
        self._is_busy = False  # a group is with the thread, or will be in a moment
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._next: asyncio.Future[None] | None = None  # done with the next commit

    async def open(self) -> None:
        """Open the file, and raise what hinders it."""
        self._loop, self._pid = asyncio.get_running_loop(), os.getpid()
        # nothing is left of an earlier time, whose thread may still be at its last commit, with a queue of its own
        groups, self._waiting, self._is_busy = queue.SimpleQueue[list[_Operation[Any]] | None](), [], False
        self._groups = groups
        opened: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, args=(opened, groups), name="journal-writer", daemon=True)
        self._thread.start()
        try:
            await opened
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Finish what is queued and close the file."""
        is_ours = not self.is_forked  # a forked process has no such thread to wait for
        thread, self._thread = self._thread, None
        if thread is not None and is_ours:
            while self._waiting:
                self._groups.put(self._taken())
            self._groups.put(None)
            done = asyncio.get_running_loop().run_in_executor(None, thread.join)
            await asyncio.shield(done)  # a second ctrl-c must not leave the last commit behind

    def submit(
        self, name: str, work: Work[T], *, together: Together | None = None, droppable: bool = False
    ) -> asyncio.Future[T]:
        """Queue an operation.

        Args:
            name: In the names of its crash points.
            together: Does it, with its neighbours of the same kind if there are any, in fewer statements.
            droppable: Need not be done when nobody waits for it any more. Others are done all the same: a caller that
                hangs up does not undo what it reported.
        """
        loop = asyncio.get_running_loop()
        if self.is_forked:
            raise JournalClosed("the journal was opened by the process that this one was forked from; open it here")
        if self._thread is None or loop is not self._loop:
            raise JournalClosed("the journal is not open in this event loop")
        future: asyncio.Future[T] = loop.create_future()
        self._waiting.append(_Operation(name, work, future, together, droppable))
        if not self._is_busy:
            self._is_busy = True
            self._gather_again()
        return future

    @property
    def is_forked(self) -> bool:
        """Whether the process that opened it is another one."""
        return self._thread is not None and self._pid != os.getpid()

    def _gather_again(self) -> None:
        """Look once more in the next turn of the event loop."""
        assert self._loop is not None
        self._seen = len(self._waiting)
        self._loop.call_soon(self._gather)

    def _gather(self) -> None:
        """Hand a group to the thread, once a turn has brought nothing more or there are plenty."""
        if self._seen < len(self._waiting) < _PLENTY:
            self._gather_again()  # a commit for each handful would cost more than the turn that it waits
        elif self._waiting:
            self._groups.put(self._taken())

    def _taken(self) -> list[_Operation[Any]]:
        """The next group, which waits no more."""
        group, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
        return group

    def next_commit(self) -> asyncio.Future[None]:
        """Done as soon as something was committed here; everybody who waits has the same one."""
        if self._next is None or self._next.done():
            self._next = asyncio.get_running_loop().create_future()
        return self._next

    def _committed(self, told: list[_Told]) -> None:
        """Tell who waits, and begin to gather for the next commit."""
        _deliver(told)
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
        self._is_busy = bool(self._waiting)
        if self._is_busy:
            self._gather_again()

    def _run(self, opened: asyncio.Future[None], groups: queue.SimpleQueue[list[_Operation[Any]] | None]) -> None:
        """The life of the thread: open, commit group after group, close."""
        try:
            connection = self._open()
        except Exception as error:  # noqa: BLE001 - a mistake of ours must not hang whoever opens
            fault = error if isinstance(error, JournalError) else self._fault(error, "the journal could not be opened")
            self._tell(_deliver, [([opened], (), fault)])
            return
        self._tell(_deliver, [([opened], [None], None)])
        try:
            while (group := groups.get()) is not None:
                self._tell(self._committed, self._commit(connection, group))
        finally:
            with suppress(sqlite3.Error):
                connection.execute("PRAGMA busy_timeout = 0")  # whoever reads or writes meanwhile is not waited for
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            with suppress(sqlite3.Error):
                connection.close()

    def _commit(self, connection: sqlite3.Connection, group: list[_Operation[Any]]) -> list[_Told]:
        """Do a group in one commit; tells what came of each operation, once all of it is on disk."""
        try:
            connection.execute("BEGIN IMMEDIATE")
            commit = Commit(connection, self._clock, _faults, self._crash_at)
            told = self._apply_all(commit, [one for one in group if not one.droppable or not one.future.cancelled()])
            commit.write_progress()
            seal = self._seal if commit.moves or commit.is_milestone else None
            sealed = None if seal is None else seal(commit)
            commit.passed("commit.begun")
            connection.execute("COMMIT")
            commit.passed("commit.done")
            if sealed is not None:
                sealed()
        except JournalBehind as error:
            return self._behind(connection, group, error)
        except Exception as error:  # noqa: BLE001 - a mistake of ours must not hang everybody who waits
            # Whether it failed halfway or its answer was lost: it counts as not granted, and nobody sends.
            return self._undone(connection, group, error)
        return told

    def _apply_all(self, commit: Commit, operations: Iterable[_Operation[Any]]) -> list[_Told]:
        """Do operations in their sequence, neighbours of one kind together."""
        told: list[_Told] = []
        for together, neighbours in groupby(operations, key=_together_of):
            kind = list(neighbours)
            results = None
            if together is not None:
                results = self._apply_together(commit, together, kind, is_first=not told)
            if results is None:
                told += [self._apply(commit, operation) for operation in kind]
            else:
                told.append(([operation.future for operation in kind], results, None))
        return told

    def _apply_together(
        self, commit: Commit, together: Together, operations: Sequence[_Operation[Any]], *, is_first: bool
    ) -> Sequence[Any] | None:
        """Do neighbours of one kind together; ``None`` where that cannot be, and then nothing of it was done."""
        name, works = operations[0].name, [operation.work for operation in operations]

        def part() -> Sequence[Any]:
            commit.passed(f"{name}.begun")
            results = together(commit, works)
            if results is None:
                raise _Apart
            commit.passed(f"{name}.written")
            return results

        try:
            return commit.undoing(part, is_first=is_first)
        except sqlite3.Error as error:
            if not commit.goes_on(error):
                raise
            return None
        except Exception:  # noqa: BLE001 - whose it is shows when each is done by itself
            return None

    def _apply(self, commit: Commit, operation: _Operation[Any]) -> _Told:
        """Do one operation; when it fails, what it did is undone, and the failure is its own."""

        def part() -> Any:
            commit.passed(f"{operation.name}.begun")
            result = operation.work(commit)
            commit.passed(f"{operation.name}.written")
            return result

        try:
            return [operation.future], [commit.undoing(part)], None
        except sqlite3.Error as error:
            if not commit.goes_on(error):
                raise
            return [operation.future], (), self._fault(error, "")
        except Exception as error:  # noqa: BLE001 - each operation's failure is its caller's
            return [operation.future], (), error

    def _behind(
        self, connection: sqlite3.Connection, group: list[_Operation[Any]], fault: JournalBehind
    ) -> list[_Told]:
        """A copy of the file has gone on: nothing of the group was done, and the file stands back."""
        told = self._undone(connection, group, fault)
        try:
            if self._stand_back is not None:
                self._stand_back(connection)
        except sqlite3.Error as error:
            return self._undone(connection, group, error)
        return told

    def _undone(self, connection: sqlite3.Connection, group: list[_Operation[Any]], error: Exception) -> list[_Told]:
        """Nothing of a group was done: every operation in it failed."""
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        return [([operation.future], (), self._fault(error, "the commit failed")) for operation in group]

    def _fault(self, error: Exception, failed: str) -> JournalError:
        """The error of the journal that says the same, a new one for everybody who waits.

        Args:
            failed: What could not be done, in words, where the error is a mistake of ours.
        """
        match error:
            case JournalBehind():
                return JournalBehind(error.message)
            case sqlite3.Error():
                fault = _faults.translated(error, self._path)
            case _:
                fault = JournalUnavailable(f"{failed} ({type(error).__name__})")
        fault.__cause__ = error
        return fault

    def _tell(self, deliver: Callable[[list[_Told]], None], told: list[_Told]) -> None:
        """Tell the event loop, unless nobody is there any more."""
        loop = self._loop
        assert loop is not None
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(deliver, told)


# those who wait for operations that were done together, and what came of each; or one, and why it failed
_Told = tuple[Sequence[asyncio.Future[Any]], Sequence[Any], Exception | None]


class _Apart(Exception):
    """One of several is out of the ordinary."""


def _together_of(operation: _Operation[Any]) -> Together | None:
    return operation.together


def _deliver(told: list[_Told]) -> None:
    """Give everybody who waits what came of it."""
    for futures, results, error in told:
        if error is not None and not futures[0].done():
            futures[0].set_exception(error)
        for future, result in zip(futures, results, strict=error is None):
            if not future.done():  # else its caller was cancelled
                future.set_result(result)
