"""Durable handlers: told of every change they hear of, at least once, also when a process died over one."""

from __future__ import annotations

import asyncio
import logging
import random as chance
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, NamedTuple, TypeVar

import attrs

from payments_async._values.checks import check_callable
from payments_async._values.handlers import Handler, HandlerPolicy, Route, Router, Workers, error_text
from payments_async._values.tasks import Tasks
from payments_async._wire.bodies import private_texts
from payments_async.journal import Journal
from payments_async.journal._changes import Change
from payments_async.journal._faults import JournalClosed, JournalError
from payments_async.journal._records import Entry
from payments_async.journal._states import UNSENT, State

H = TypeVar("H", bound=Callable[..., Awaitable[object]])
_States = frozenset[State]
_log = logging.getLogger("payments_async.outbox")
_WATCH = "look at what is due"
# what libraries have beside the one that commits, by the class that has it
_NEVER_COMMIT = {
    ("sqlalchemy", "AsyncEngine.connect"),
    ("sqlalchemy", "AsyncSession"),
    ("sqlalchemy", "async_sessionmaker"),
    ("sqlalchemy", "async_scoped_session"),
    ("asyncpg", "Pool.acquire"),
}
_COMMITS = "Pass within=engine.begin, or another one that commits at its end"
_PER_HANDLER = 4  # changes waiting in memory for each handler that may run; the rest wait in the journal


def checked_states(states: Collection[object]) -> _States:
    """What a handler is to hear of.

    Raises:
        TypeError: One is no state; a handler is none, which ``@outbox.on`` without parentheses hands over.
        ValueError: There is none, or one of which no handler hears.
    """
    known = frozenset(state for state in State if state in states)
    for state in states:
        if state not in tuple(known):
            raise TypeError(f"states: {state!r} is no State: write @outbox.on(State.SUCCESSFUL), or other ones")
    if not known:
        raise ValueError("states: name one at least, such as State.SUCCESSFUL")
    if known & set(UNSENT):
        raise ValueError(f"states: of {' and '.join(sorted(known & set(UNSENT)))} no handler is told")
    return known


class StateRouter(Router[_States, Entry]):
    """The handlers of one outbox: each hears of changes to some states."""

    def __init__(self, *, concurrency: int, timeout: float) -> None:
        super().__init__(concurrency=concurrency, timeout=timeout, log=_log)
        self._hearing: dict[State, list[Route[_States]]] = {}

    @property
    def states(self) -> Set[State]:
        """All that somebody hears of."""
        return self._hearing.keys()

    def add(
        self,
        states: Collection[State],
        when: Callable[[Entry], bool] | None,
        call: Handler,
        name: str | None,
        wrap: Callable[[str], Handler] | None = None,
    ) -> None:
        """Register a handler.

        Args:
            wrap: Given its name, what is called in its place.

        Raises:
            TypeError: For what is no state, or a handler that is not async, or cannot be called with what it is told.
            ValueError: For no state, one that no handler hears of, or a name that is taken.
        """
        kind = checked_states(states)
        self._register(kind, when, call, name, given=1 if wrap is None else 2)
        if wrap is not None:
            self._routes[-1] = attrs.evolve(self._routes[-1], call=wrap(self._routes[-1].name))
        for state in kind:
            self._hearing.setdefault(state, []).append(self._routes[-1])

    def _for(self, fact: Entry) -> Sequence[Route[_States]]:
        return self._hearing.get(fact.state, ())

    def _overlap(self, one: _States, other: _States) -> bool:
        return bool(one & other)

    def _named(self, fact: Entry) -> Mapping[str, object]:
        return {"change_id": fact.change_id, "request_id": fact.request_id, "state": fact.state}

    def _private(self, fact: Entry) -> Sequence[str]:
        return private_texts(fact.order)


class Dispatcher:
    """Has the handlers of an outbox told of its changes: retries, dead letters, and what another process left behind.

    Several processes may do so for one outbox. Each change goes to one of them, and there to every handler that hears
    of its state; one that fails is run again, alone, and the others are not.

    Args:
        journal: Open as long as this is.
        outbox: Its name.
        policy: How patiently handlers are run, and how many at once.
        clock: Gives Unix seconds.
        sleep: Waits between two looks into the journal.
        random: Gives jitter, in [0, 1).
    """

    def __init__(
        self,
        journal: Journal,
        outbox: str,
        *,
        policy: HandlerPolicy = HandlerPolicy(),  # noqa: B008 - frozen
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Callable[[], float] = chance.random,
    ) -> None:
        self._journal = journal
        self._outbox = outbox
        self._policy = policy
        self._clock = clock
        self._sleep = sleep
        self._random = random
        self._router = StateRouter(concurrency=policy.concurrency, timeout=policy.timeout)
        self._tasks = Tasks(f"the handlers of the outbox {outbox}")
        self._workers = Workers(self._tasks, self._work, most=policy.concurrency)
        self._room = policy.concurrency * _PER_HANDLER
        self._owner = ""
        self._heard: set[State] = set()  # what the journal knows that we hear of
        self._mine: set[int] = set()  # changes that are leased, and whose end is not written down
        self._handled: list[int] = []  # of these, those that all handlers have finished with
        self._finished: dict[int, list[str]] = {}  # of changes with several handlers, those that have finished
        self._is_writing = False
        self._claiming = asyncio.Lock()
        self._is_woken = False
        self._is_more = False  # in the journal, most likely, than there was room for
        self._in_trouble = False
        self._is_open = False

    def on(
        self,
        *states: State,
        when: Callable[[Entry], bool] | None = None,
        name: str | None = None,
        within: Callable[[], AbstractAsyncContextManager[Any]] | None = None,
    ) -> Callable[[H], H]:
        """Register an async handler for changes to these states.

        It is told of each such change from its first registration on, at least once: also of those that come while no
        process runs it, and again where its end could not be written down. ``entry.change_id`` is the same for one
        fact; ``entry.state`` is the state that the order came to, also where it stands elsewhere by now. Every process
        that registers handlers for a state registers the same ones: whichever takes a change runs its own.

        Args:
            when: Says of an entry whether this handler wants it.
            name: Kept in the journal; its module and qualified name by default. Keep it when you move the function.
            within: Opens the transaction that the handler is called in, and that remembers that it was.
        """
        if within is not None and not self._journal.shares_transactions:
            raise ValueError("within: the journal is no part of that database; use a PostgresJournal")
        if within is not None:
            _check_commits(within)
        checked_states(states)  # here, for a decorator that lacks its parentheses is never called again

        def register(handler: H) -> H:
            wrap = None if within is None else partial(_Within, self._journal, within, handler)
            self._router.add(states, when, handler, name, wrap)
            if self._is_open:
                self.wake()
            return handler

        return register

    async def start(self) -> None:
        """Begin. What an order becomes after this returned is told. Raises ``JournalUnavailable``."""
        if not self._is_open:
            self._owner = f"handlers-{secrets.token_hex(8)}"
            await self._hear()
            self._is_open = True
            self._tasks.keep(_WATCH, self._watch)

    async def aclose(self) -> None:
        """Stop, and wait for handlers under way; what has not begun is given back, for the next process."""
        if not self._is_open:
            return
        self._is_open = False
        if ending := self._tasks.stop(_WATCH):
            await asyncio.wait(ending)
        async with self._claiming:
            pass
        await self._tasks.aclose(self._policy.drain)
        self._router.close()
        try:
            await self._journal.finish_changes(self._handled)  # those whose end was being written when time was over
            await self._journal.release_changes(self._owner)
        except JournalError as error:
            why = error_text(error)
            _log.warning("leases of changes could not be given back: %s", why, extra={"error": why})
        self._mine.clear()
        self._handled, self._finished, self._is_writing = [], {}, False

    @property
    def states(self) -> Set[State]:
        """What the handlers of this process hear of: changes to these are worth waking it."""
        return self._router.states

    def wake(self) -> None:
        """Changes were committed: look for them now, and not only when it is time again."""
        if self._is_open and not self._is_woken:
            self._is_woken = True
            self._tasks.start("look for changes", self._claim())

    async def replay(self, change_id: int | None = None) -> int:
        """Handle one dead letter again, or all of them, and tell how many."""
        count = await self._journal.revive_changes(change_id)
        self.wake()
        return count

    async def _hear(self) -> None:
        """Tell the journal what is heard of, unless it knows."""
        states = frozenset(self._router.states)  # further ones may be registered meanwhile
        if not states <= self._heard:
            await self._journal.hear(self._outbox, states)
            self._heard.update(states)

    async def _watch(self) -> None:
        """Claim what is due, again and again."""
        while True:
            await self._claim()
            await self._sleep(self._policy.poll)

    async def _claim(self) -> None:
        """Take due changes that nobody holds: fresh ones, retries, and those of a process that died."""
        async with self._claiming:
            self._is_woken = False  # whatever is committed from here on may be missed, and wakes again
            while self._is_open and (room := self._room - len(self._mine)) > 0:
                until = self._clock() + self._policy.lease
                try:
                    claimed = await self._claimed(room)
                except Exception as error:  # noqa: BLE001 - a journal that is away for a while must not end the watch
                    self._tell_trouble("changes cannot be read", error)
                    return
                self._in_trouble = False
                for change in claimed:
                    if change.id not in self._mine:
                        self._mine.add(change.id)
                        self._workers.put(_Leased(change, until))
                self._is_more = len(claimed) == room
                if not self._is_more or len(self._mine) > self._room // 2:
                    return  # when half of the room is free again, it goes on

    async def _claimed(self, limit: int) -> Sequence[Change]:
        """Changes to states that somebody here hears of."""
        states = frozenset(self._router.states)
        if not states:
            return ()
        await self._hear()
        return await self._journal.claim_changes(
            self._outbox, states, self._owner, lease=self._policy.lease, limit=limit
        )

    async def _work(self, leased: _Leased) -> None:
        """Run the handlers of one change, and have written down what came of it.

        Not while closing, and not where its lease is about to end: another process may have it.
        """
        change = leased.change
        is_over = True  # for us
        try:
            if self._is_open and self._clock() < leased.until - self._policy.timeout:
                entry = change.entry
                assert entry is not None
                failures = await self._router.run(entry, skip=change.done, done=self._note_done)
                if failures:
                    await self._failed(leased, "; ".join(failures))
                else:
                    self._handled.append(change.id)
                    is_over = False
        except Exception as error:  # noqa: BLE001 - not recorded, so the lease runs out and it is handled again
            facts = {"change_id": change.id, "error": error_text(error)}
            _log.error("what became of change %s could not be written down: %s", *facts.values(), extra=facts)
        finally:
            if is_over:
                self._finished.pop(change.id, None)
                self._leave([change.id])
        self._write_soon()

    def _note_done(self, entry: Entry, handler: str) -> None:
        """One handler of several has finished with a change."""
        assert entry.change_id is not None
        self._finished.setdefault(entry.change_id, []).append(handler)

    async def _failed(self, leased: _Leased, error: str) -> None:
        """Write down who has finished, before anybody can have the next round, and leave the others to that.

        When its rounds have run out it is a dead letter.
        """
        change = leased.change
        for handler in self._finished.get(change.id, ()):
            await self._surely(self._journal.note_change_done, change.id, handler, until=leased.until)
        if change.tries + 1 >= self._policy.attempts:
            facts = {"change_id": change.id, "request_id": change.request_id, "state": change.state, "error": error}
            _log.error("a change is a dead letter: order %s, %s", change.request_id, change.state, extra=facts)
            await self._surely(self._end_as_dead_letter, change.id, error, until=leased.until)
        else:
            await self._surely(self._retry, change, error, until=leased.until)

    async def _end_as_dead_letter(self, change_id: int, error: str) -> None:
        await self._journal.finish_changes([change_id], "dead", error=error)

    async def _retry(self, change: Change, error: str) -> None:
        delay = self._policy.wait(change.tries, self._random())
        await self._journal.retry_change(change.id, delay=delay, error=error)

    async def _surely(
        self, write: Callable[..., Coroutine[Any, Any, None]], *arguments: object, until: float | None = None
    ) -> None:
        """Write something down, however long the journal is away, as long as the change is ours.

        Raises:
            JournalError: It is closed, or the lease is over: then another process has the next word.
        """
        while True:
            try:
                await write(*arguments)
            except JournalClosed:
                raise
            except JournalError as error:
                if until is not None and self._clock() >= until:
                    raise
                self._tell_trouble("what became of changes cannot be written down yet", error)
            else:
                self._in_trouble = False
                return
            await self._sleep(self._policy.poll)

    def _write_soon(self) -> None:
        """Have the ends of changes written down, those together that come while one commit is on its way."""
        if self._handled and not self._is_writing:
            self._is_writing = True
            self._tasks.keep("writer of what was handled", self._write, stands=False)

    async def _write(self) -> None:
        """Write one batch after the other, until nothing is left."""
        self._is_writing = True
        try:
            while self._handled:
                await asyncio.sleep(0)  # whatever else ends in this turn of the loop
                handled = tuple(self._handled)
                await self._surely(self._journal.finish_changes, handled)
                del self._handled[: len(handled)]
                for change_id in handled:
                    self._finished.pop(change_id, None)
                self._leave(handled)
        except JournalError as error:
            why = error_text(error)
            _log.error("what became of changes could not be written down: %s", why, extra={"error": why})
        finally:
            self._is_writing = False

    def _leave(self, change_ids: Sequence[int]) -> None:
        """These are ours no more; where more wait in the journal, it is looked for once half of the room is free."""
        self._mine.difference_update(change_ids)
        if self._is_more and len(self._mine) <= self._room // 2:
            self._is_more = False
            self.wake()

    def _tell_trouble(self, what: str, error: Exception) -> None:
        """Say what is wrong, once until it is well again."""
        if not self._in_trouble:
            _log.error("outbox %s: %s (%s)", self._outbox, what, error_text(error), extra={"outbox": self._outbox})
        self._in_trouble = True


class _Within:
    """A handler that is told of a change once in a database: in the transaction that remembers it."""

    def __init__(
        self,
        journal: Journal,
        within: Callable[[], AbstractAsyncContextManager[Any]],
        handler: Callable[..., Awaitable[object]],
        name: str,
    ) -> None:
        self._journal = journal
        self._within = within
        self._handler = handler
        self._name = name

    async def __call__(self, entry: Entry) -> None:
        """Tell it, unless a transaction that was committed has; whoever is telling it now is waited for.

        Raises:
            RuntimeError: Nothing was committed, though nothing was raised.
        """
        assert entry.change_id is not None
        async with self._within() as connection:
            # first of all: whoever comes second must not have done anything by then
            if not await self._journal.mark_told(connection, entry.change_id, self._name):
                return
            await self._handler(entry, connection)
        if not await self._journal.was_told(entry.change_id, self._name):
            raise RuntimeError(f"within: its transaction was not committed. {_COMMITS}")


def _check_commits(within: Callable[..., object]) -> None:
    """Whether it may be what opens a transaction and commits it, as far as that shows before it is called.

    Raises:
        TypeError: It cannot be called.
        ValueError: It opens a connection, and commits nothing.
    """
    check_callable("within", within, "what opens a transaction, such as engine.begin")
    while isinstance(within, partial):
        within = within.func
    owner = getattr(within, "__self__", None)
    kind = within if isinstance(within, type) else type(within if owner is None else owner)
    name = "" if owner is None else f".{getattr(within, '__name__', '')}"
    for one in kind.__mro__:
        if (one.__module__.partition(".")[0], f"{one.__name__}{name}") in _NEVER_COMMIT:
            raise ValueError(f"within: {one.__name__}{name} opens a connection and commits nothing. {_COMMITS}")


class _Leased(NamedTuple):
    """One change that this process is to handle.

    Attributes:
        until: Unix seconds when its lease ends.
    """

    change: Change
    until: float
