"""The one thread that writes, whatever is queued in one commit."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from itertools import groupby
from typing import Any, Generic, NamedTuple, TypeVar

from payments_async.journal._engine._commit_delay import CommitDelay
from payments_async.journal._engine._database import JournalDatabase
from payments_async.journal._engine._threads import Sequencer
from payments_async.journal._faults import JournalBehind, JournalClosed, JournalError, JournalUnavailable
from payments_async.journal._statements._database import Connection, Gathered, Promised, Unforeseen
from payments_async.journal._statements._entries import Commit, Together, Work

T = TypeVar("T")
_log = logging.getLogger("payments_async.journal")
_MOST = 1000  # operations in one commit; bounds its memory and the wait of the first
_FOR_MEMORY = 1.0  # seconds in which some may be free again
_PLENTY = 40  # operations that make a commit worth its while: more are not waited for


class _Operation(NamedTuple, Generic[T]):
    """What somebody waits for."""

    name: str
    work: Work[T]
    future: asyncio.Future[T]
    together: Together | None
    droppable: bool
    at_once: bool
    gives_back: bool
    only_moves: bool


class _Opening:
    """What one opening of the database writes by.

    Attributes:
        connection: The connection; ``None`` where it is given back, as between two commits it may be.
        is_open: Whether it was opened, and has not ended.
        gives_back: All that is to be done gives back what was leased.
    """

    connection: Connection | None = None
    is_open = gives_back = False
    database: JournalDatabase

    def borrow(self) -> Connection:
        """In a thread: the connection, lent anew where it was given back."""
        if self.connection is None:
            self.connection = self.database.open(gives_back=self.gives_back)
        return self.connection

    def give_back(self) -> None:
        """In a thread: let others have it, where connections are shared."""
        if self.connection is not None and self.database.give_back(self.connection):
            self.connection = None

    def end(self) -> None:
        """In a thread: close it."""
        connection, self.connection = self.connection, None
        self.is_open = False
        if connection is not None:
            with suppress(self.database.Error):
                self.database.end(connection)


class Writer:
    """Runs operations in the order they were submitted, as many in one transaction as are queued.

    While one commit is on its way to the disk, the next gathers by itself. A commit begins as soon as a turn of the
    event loop brings nothing more, or enough are there; ``CommitDelay`` tells what it waits for then. An operation that
    fails is rolled back alone. When the commit fails, every operation in it failed.

    Args:
        database: Where it writes; a connection that is lost is made anew before the next commit.
        crash_at: Called with the name of every point between two steps, so that a test can kill the process there.
    """

    def __init__(self, database: JournalDatabase, *, crash_at: Callable[[str], None] | None = None) -> None:
        self._database = database
        self._pid = 0  # whose thread it is: a process that was forked off has none
        self._crash_at = crash_at
        self.service_clock: Callable[[], float | None] | None = None
        self.leased: Callable[[int, int, int, str], None] | None = None
        self._known: dict[Hashable, Any] = {}  # answers, of which a commit makes use
        self._known_since: int | None = None  # what was seen of others by then
        self._opening = _Opening()
        self._waiting: list[_Operation[Any]] = []
        self._seen = 0  # of those that wait, a turn of the event loop ago
        self._is_busy = False  # a group is with a thread, or will be in a moment
        self._delay: CommitDelay  # of one opening
        self._hold: asyncio.TimerHandle | None = None  # until which what waits is not handed to the thread
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sequencer: Sequencer | None = None
        self._death: JournalUnavailable | None = None  # of the thread, by a mistake of ours

    async def open(self) -> None:
        """Open the database, and raise what hinders it."""
        self._loop, self._pid = asyncio.get_running_loop(), os.getpid()
        self._waiting, self._is_busy, self._death = [], False, None
        self._delay = CommitDelay(self._loop.time)
        opened: asyncio.Future[None] = self._loop.create_future()
        # nothing is left of an earlier time, which may still be at its last commit, with a connection of its own
        self._opening, self._sequencer = _Opening(), Sequencer()
        self._sequencer.put(partial(self._open, self._opening, opened))
        try:
            await opened
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Finish what is queued and close the database."""
        is_ours = not self.is_forked  # a forked process has no such thread to wait for
        sequencer, self._sequencer = self._sequencer, None
        if sequencer is not None and is_ours:
            while self._waiting:
                sequencer.put(partial(self._do, self._opening, self._taken()))
            sequencer.put(self._opening.end)
            await sequencer.end()  # a second ctrl-c must not leave the last commit behind

    def submit(
        self,
        name: str,
        work: Work[T],
        *,
        together: Together | None = None,
        droppable: bool = False,
        at_once: bool = False,
        gives_back: bool = False,
        only_moves: bool = False,
    ) -> asyncio.Future[T]:
        """Queue an operation.

        Args:
            name: In the names of its crash points.
            together: Does it, with its neighbours of the same kind if there are any, in fewer statements. A result that
                is an exception is raised.
            droppable: Need not be done when nobody waits for it any more. Others are done all the same: a caller that
                hangs up does not undo what it reported.
            at_once: Its statements may leave together, and it may be done more than once until one commit is made: it
                changes nothing but the journal.
            gives_back: It gives back what was leased, which runs out by itself. All such operations together wait once
                for a database that is away.
            only_moves: All that others hear of it is which states its orders came to.
        """
        loop = asyncio.get_running_loop()
        if self.is_forked:
            raise JournalClosed("the journal was opened by the process that this one was forked from; open it here")
        if self._sequencer is None or loop is not self._loop:
            raise JournalClosed("the journal is not open in this event loop")
        if self._death is not None:
            raise self._fault(self._death, "")
        future: asyncio.Future[T] = loop.create_future()
        at_once = at_once or together is not None
        self._waiting.append(_Operation(name, work, future, together, droppable, at_once, gives_back, only_moves))
        have_all_come = self._delay.came()
        if not self._is_busy or (have_all_come and self._hold is not None):
            try:
                self._gather_again()
            except MemoryError:
                self._waiting.pop()
                raise
            if self._hold is not None:
                self._hold.cancel()
                self._hold = None
            self._is_busy = True
        return future

    @property
    def is_open(self) -> bool:
        """Whether it works; not for a loop that has ended without closing it."""
        return self._sequencer is not None and self._loop is not None and not self._loop.is_closed()

    def check_loop(self) -> None:
        """Whether it can be closed from here: by the loop that opened it, as long as that is there.

        Raises:
            RuntimeError: It cannot; nothing was closed.
        """
        if self.is_open and asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("this journal belongs to another event loop; close it there")

    @property
    def is_busy(self) -> bool:
        """Whether something is being committed, or waits for that."""
        return self._is_busy

    @property
    def is_forked(self) -> bool:
        """Whether the process that opened it is another one."""
        return self._sequencer is not None and self._pid != os.getpid()

    def _gather_again(self) -> None:
        """Look once more in the next turn of the event loop."""
        assert self._loop is not None
        self._seen = len(self._waiting)
        self._loop.call_soon(self._gather)

    def _gather(self) -> None:
        """Hand a group to the thread, once a turn has brought nothing more or there are plenty."""
        self._hold = None
        group: list[_Operation[Any]] = []
        try:
            if self._seen < len(self._waiting) < _PLENTY:
                self._gather_again()  # a commit for each handful would cost more than the turn that it waits
            elif self._waiting and (delay := self._delay.seconds(len(self._waiting))):
                assert self._loop is not None
                self._hold = self._loop.call_later(delay, self._gather)
            elif self._waiting:
                assert self._sequencer is not None
                group = self._taken()
                self._delay.begin(len(group))
                self._sequencer.put(partial(self._do, self._opening, group))
        except MemoryError as error:
            self._died(self._failed(group, self._dead(error)))

    def _taken(self) -> list[_Operation[Any]]:
        """The next group, which waits no more."""
        group, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
        return group

    def ask(self, question: Callable[[Connection], T]) -> asyncio.Future[T]:
        """Ask the connection that writes, between two commits."""
        if self._sequencer is None or self.is_forked:
            raise JournalClosed("the journal is not open in this process")
        asked: Any = self._sequencer  # an executor, as far as a loop asks for one
        return asyncio.get_running_loop().run_in_executor(asked, self._answer, self._opening, question)

    def _answer(self, opening: _Opening, question: Callable[[Connection], T]) -> T:
        """In a thread: ask."""
        if not opening.is_open:
            raise self._death or JournalClosed("the journal is not open in this event loop")
        try:
            return question(opening.borrow())
        except self._database.Error as error:
            raise self._database.translated(error) from error

    def _committed(self, told: list[_Told], entered: Collection[str] | None) -> None:
        """Tell who waits, and begin to gather for the next commit."""
        try:
            self._delay.end(sum(len(futures) for futures, _, _ in told))
            _deliver(told)
            self._database.commits.rise(entered)
            self._is_busy = bool(self._waiting)
            if self._is_busy:
                self._gather_again()
        except MemoryError as error:  # what was not told counts as not done, as where the answer of a commit is lost
            self._died([([one], (), self._fault(self._dead(error), "")) for futures, _, _ in told for one in futures])

    def _open(self, opening: _Opening, opened: asyncio.Future[None]) -> None:
        """In a thread: open."""
        opening.database = self._database
        try:
            opening.borrow()
        except Exception as error:  # noqa: BLE001 - a mistake of ours must not hang whoever opens
            fault = error if isinstance(error, JournalError) else self._fault(error, "the journal could not be opened")
            self._tell(_deliver, [([opened], (), fault)])
            return
        opening.is_open = True
        opening.give_back()
        self._tell(_deliver, [([opened], [None], None)])

    def _do(self, opening: _Opening, group: list[_Operation[Any]]) -> None:
        """In a thread: commit a group."""
        if not opening.is_open:
            fault = self._death or JournalClosed("the journal is not open in this event loop")
            self._tell(_deliver, self._failed(group, fault))
            return
        try:
            told, entered = self._done(opening, group)
            opening.give_back()
            self._tell(partial(self._committed, entered=entered), told)
        except BaseException as error:  # noqa: BLE001 - whatever it is, nobody is to wait for what is not done
            self._tell(self._died, self._failed(group, self._dead(error)))
            opening.end()

    def _dead(self, error: BaseException) -> JournalUnavailable:
        """What writes ends before its time: why, for all who wait and who come."""
        why = type(error).__name__
        self._death = JournalUnavailable(f"what writes {self._database.named} ended ({why}): open the journal again")
        _log.error("what writes %s ended (%s): open the journal again", self._database.named, why, exc_info=error)
        return self._death

    def _done(self, opening: _Opening, group: list[_Operation[Any]]) -> _Done:
        """Commit a group."""
        opening.gives_back = all(operation.gives_back for operation in group)
        try:
            connection = opening.borrow()
        except Exception as error:  # noqa: BLE001 - as above: a mistake of ours, too, is told to all
            return self._failed(group, error), None
        done = self._commit_at_once(connection, group)
        if done is not None:
            return done
        try:
            connection, now = self._begin(opening, connection)
        except Exception as error:  # noqa: BLE001 - as above
            return self._undone(opening.connection or connection, group, error), None
        return self._commit(connection, now, group)

    def _died(self, told: list[_Told]) -> None:
        """Writing has ended before its time: all who wait hear of it."""
        assert self._death is not None
        waiting, self._waiting = self._waiting, []
        _deliver(told + self._failed(waiting, self._death))

    def _begin(self, opening: _Opening, connection: Connection) -> tuple[Connection, float]:
        """Begin a transaction, and tell when; by a new connection where this one was lost and has done nothing."""
        if not self._database.is_lost(connection):
            try:
                return connection, self._database.begin(connection)
            except self._database.Error:
                if not self._database.is_lost(connection):
                    raise
        with suppress(self._database.Error):
            connection.close()
        opening.give_back()  # which tells that it is lost
        opening.connection = None
        connection = opening.borrow()
        return connection, self._database.begin(connection)

    def _commit_at_once(self, connection: Connection, group: list[_Operation[Any]]) -> _Done | None:
        """Do a group in one commit, all of whose statements leave together, each with the answer that it has to have.

        Returns:
            What came of each operation; ``None`` where nothing was done, and it has to be done statement by statement.
        """
        for guesses in (True, False):
            try:
                gathered = self._database.gathering(connection)
                if gathered is None or not all(operation.at_once for operation in group):
                    return None
                now = self._database.now()
                commit = self._begun_commit(gathered, now, group, gathered=gathered, known=self._known, guesses=guesses)
                told = self._apply_all(
                    commit, [one for one in group if not one.droppable or not one.future.cancelled()]
                )
                commit.write_progress()
                commit.entered = _entered(commit, group)
                commit.passed("commit.begun")
                if (done := self._database.perform(commit, gathered)) is not None:
                    commit.passed("commit.done")
                    done()
                    _log_settled(commit)
                    return list(map(_told_now, told)), commit.entered
            except Unforeseen:
                pass
            except Exception as error:  # noqa: BLE001 - as in `_commit`
                return self._undone(connection, group, error), None
            self._known.clear()
        return None

    def _begun_commit(
        self,
        connection: Connection,
        now: float,
        group: list[_Operation[Any]],
        *,
        gathered: Gathered | None = None,
        known: dict[Hashable, Any] | None,
        guesses: bool = True,
        knows: bool = False,
    ) -> Commit:
        """A commit of a group."""
        return Commit(
            connection,
            self._database,
            now,
            self._crash_at,
            service_clock=self.service_clock,
            leased=self.leased,
            gathered=gathered,
            known=known,
            guesses=guesses,
            knows=knows,
            within=0.0 if gathered is None else self._database.within,
            of=group,
        )

    def _answers(self, group: Iterable[_Operation[Any]]) -> tuple[dict[Hashable, Any] | None, bool]:
        """Answers of which a commit makes use, statement by statement; and whether they hold without being asked again.

        They do between commits that only move orders, as long as no other connection has committed anything.
        """
        seen = self._database.seen_of_others
        if seen is None:
            return self._known, False
        moves = all(operation.only_moves for operation in group)
        if seen != self._known_since or not moves:
            self._known.clear()
            self._known_since = seen
        return (self._known, True) if moves else (None, False)

    def _commit(self, connection: Connection, now: float, group: list[_Operation[Any]]) -> _Done:
        """Do a group in one commit; tells what came of each operation, once all of it is on disk."""
        try:
            known, knows = self._answers(group)
            commit = self._begun_commit(connection, now, group, known=known, knows=knows)
            told = self._apply_all(commit, [one for one in group if not one.droppable or not one.future.cancelled()])
            commit.write_progress()
            sealed = self._database.seal(commit)
            commit.passed("commit.begun")
            self._database.commit(connection)
            commit.passed("commit.done")
            if sealed is not None:
                sealed()
            _log_settled(commit)
        except JournalBehind as error:
            return self._behind(connection, group, error), None
        except Exception as error:  # noqa: BLE001 - a mistake of ours must not hang everybody who waits
            # Whether it failed halfway or its answer was lost: it counts as not granted, and nobody sends.
            return self._undone(connection, group, error), None
        return told, _entered(commit, group)

    def _apply_all(self, commit: Commit, operations: Iterable[_Operation[Any]]) -> list[_Told]:
        """Do operations in their sequence, neighbours of one kind together."""
        told: list[_Told] = []
        for together, neighbours in groupby(operations, key=_together_of):
            kind = list(neighbours)
            results = None
            if together is not None:
                results = self._apply_together(commit, together, kind, is_first=not told)
            if results is None:
                for operation in kind:
                    told.append(self._apply(commit, operation, is_first=not told))
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
                raise _OneByOne
            commit.passed(f"{name}.written")
            return results

        try:
            return commit.undoing(part, is_first=is_first)
        except self._database.Error as error:
            if not commit.goes_on(error):
                raise
            return None
        except Exception:
            if not commit.connection.in_transaction:
                raise
            return None  # whose it is shows when each is done by itself

    def _apply(self, commit: Commit, operation: _Operation[Any], *, is_first: bool) -> _Told:
        """Do one operation; when it fails, what it did is undone, and the failure is its own."""

        def part() -> Any:
            commit.passed(f"{operation.name}.begun")
            result = operation.work(commit)
            commit.passed(f"{operation.name}.written")
            return result

        try:
            return [operation.future], [commit.undoing(part, is_first=is_first)], None
        except self._database.Error as error:
            if not commit.goes_on(error):
                raise
            return [operation.future], (), self._fault(error, "")
        except Exception as error:
            if not commit.connection.in_transaction:
                raise
            return [operation.future], (), error  # each operation's failure is its caller's

    def _behind(self, connection: Connection, group: list[_Operation[Any]], fault: JournalBehind) -> list[_Told]:
        """A copy of the journal has gone on: nothing of the group was done, and the journal stands back."""
        told = self._undone(connection, group, fault)
        try:
            self._database.enter_quarantine(connection)
        except Exception as error:  # noqa: BLE001 - as above
            return self._undone(connection, group, error)
        return told

    def _undone(self, connection: Connection, group: list[_Operation[Any]], error: Exception) -> list[_Told]:
        """Nothing of a group was done: every operation in it failed."""
        self._known.clear()
        with suppress(self._database.Error):
            connection.rollback()
        return self._failed(group, error)

    def _failed(self, group: list[_Operation[Any]], error: Exception) -> list[_Told]:
        """Every operation of a group failed, for the same reason."""
        return [([operation.future], (), self._fault(error, "the commit failed")) for operation in group]

    def _fault(self, error: Exception, failed: str) -> JournalError:
        """The error of the journal that says the same, a new one for everybody who waits.

        Args:
            failed: What could not be done, in words, where the error is a mistake of ours.
        """
        if isinstance(error, JournalBehind):
            return JournalBehind(error.message)
        if isinstance(error, JournalError):
            fault = copy(error)
        elif isinstance(error, self._database.Error):
            fault = self._database.translated(error)
        else:
            fault = JournalUnavailable(f"{failed} ({type(error).__name__})")
        fault.__cause__ = error
        return fault

    def _tell(self, deliver: Callable[[list[_Told]], None], told: list[_Told]) -> None:
        """Tell the event loop, unless nobody is there any more."""
        loop = self._loop
        assert loop is not None
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            try:
                loop.call_soon_threadsafe(deliver, told)
            except MemoryError:
                time.sleep(_FOR_MEMORY)  # else all who wait would wait for ever
                loop.call_soon_threadsafe(deliver, told)


# those who wait for operations that were done together, and what came of each; or one, and why it failed
_Told = tuple[Sequence[asyncio.Future[Any]], Sequence[Any], Exception | None]
# what came of each operation of a commit; and the states that orders came to, ``None`` where others may hear of more
_Done = tuple[list[_Told], Collection[str] | None]


class _OneByOne(Exception):
    """One of several is out of the ordinary."""


def _entered(commit: Commit, group: Iterable[_Operation[Any]]) -> Collection[str] | None:
    """The states that orders came to by a commit; ``None`` where others may hear of more than that."""
    if not all(operation.only_moves for operation in group):
        return None
    return {state for _, state, count, _ in commit.moves if count > 0}


def _told_now(told: _Told) -> _Told:
    """What came of operations, now that their commit is made."""
    futures, results, error = told
    return futures, [one() if isinstance(one, Promised) else one for one in results], error


def _log_settled(commit: Commit) -> None:
    """Say which orders have their final outcome, now that it is on disk."""
    for request_id, state, transaction_id in commit.settled:
        facts = {"request_id": request_id, "state": state.value, "transaction_id": transaction_id}
        _log.info("order %s is settled: %s", request_id, state.value, extra=facts)


def _together_of(operation: _Operation[Any]) -> Together | None:
    return operation.together


def _deliver(told: list[_Told]) -> None:
    """Give everybody who waits what came of it."""
    for futures, results, error in told:
        if error is not None and not futures[0].done():
            futures[0].set_exception(error)
        for future, result in zip(futures, results, strict=error is None):
            if future.done():  # its caller was cancelled
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
