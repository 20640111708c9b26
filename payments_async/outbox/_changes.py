"""Durable handlers: told of every change they hear of, at least once, also when a process died over one."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import random as chance
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence, Set
from functools import partial
from typing import Any, NamedTuple, TypeVar

import attrs

from payments_async._values.checks import check_callable
from payments_async._values.dispatching import Dispatcher, Ends
from payments_async._values.handlers import ErrorHook, Handler, HandlerPolicy, Route, Router
from payments_async._values.observing import Fact, Observer
from payments_async._values.tasks import Tasks
from payments_async._values.threads import HomeLoop, Lent
from payments_async._wire.bodies import private_texts
from payments_async.journal import Journal
from payments_async.journal._changes import OrderEvent
from payments_async.journal._faults import JournalClosed
from payments_async.journal._records import Entry
from payments_async.journal._states import UNSENT, State

H = TypeVar("H", bound=Callable[..., Awaitable[object]])
X = TypeVar("X", bound=ErrorHook)
_States = frozenset[State]
_log = logging.getLogger("payments_async.outbox")
# what libraries have beside the one that commits, by the class that has it
_NEVER_COMMIT = {
    ("sqlalchemy", "AsyncEngine.connect"),
    ("sqlalchemy", "AsyncSession"),
    ("sqlalchemy", "async_sessionmaker"),
    ("sqlalchemy", "async_scoped_session"),
    ("sqlalchemy", "Engine.connect"),
    ("sqlalchemy", "Session"),
    ("sqlalchemy", "sessionmaker"),
    ("sqlalchemy", "scoped_session"),
    ("asyncpg", "Pool.acquire"),
}
_THREADS = 4  # plain handlers at once: the threads of the loop are there for others too
_LONGEST = 600.0  # seconds that a thread waits for the loop
_COMMITS = "Pass within=engine.begin, or another one that commits at its end"


def checked_states(states: Collection[object]) -> _States:
    """What a handler is to hear of.

    Raises:
        TypeError: One is not a state; a handler is none, which ``@outbox.on`` without parentheses hands over.
        ValueError: There is none, or one of which no handler hears.
    """
    known = frozenset(state for state in State if state in states)
    for state in states:
        if state not in tuple(known):
            raise TypeError(f"states: {state!r} is not a State: write @outbox.on(State.SUCCESSFUL), or other ones")
    if not known:
        raise ValueError("states: name one at least, such as State.SUCCESSFUL")
    if known & set(UNSENT):
        raise ValueError(f"states: of {' and '.join(sorted(known & set(UNSENT)))} no handler is told")
    return known


class StateRouter(Router[_States, Entry]):
    """The handlers of one outbox: each hears of changes to some states."""

    def __init__(self, *, concurrency: int, timeout: float, observer: Observer | None = None) -> None:
        super().__init__(concurrency=concurrency, timeout=timeout, log=_log, observer=observer)
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
        *,
        is_plain: bool = False,
    ) -> None:
        """Register a handler.

        Args:
            wrap: Given its name, what is called in its place.
            is_plain: That runs it in a thread, so it need not be async.

        Raises:
            TypeError: A state is of another kind, or the handler is not async or cannot be called with an entry.
            ValueError: For no state, one that no handler hears of, or a name that is taken.
        """
        kind = checked_states(states)
        self._register(kind, when, call, name, given=1 if wrap is None else 2, is_plain=is_plain)
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

    def _shown(self, fact: Entry) -> tuple[str, Mapping[str, Fact]]:
        names = {"request_id": fact.request_id, "transaction_id": fact.transaction_id, "state": fact.state}
        return "change", {**names, "traceparent": fact.traceparent}

    def _private(self, fact: Entry) -> Sequence[str]:
        return private_texts(fact.order)


class ChangeHandlers:
    """Has the handlers of an outbox told of its changes: retries, dead letters, and what another process left behind.

    Several processes may do so for one outbox. Each change goes to one of them, and there to every handler that hears
    of its state; one that fails is run again, alone, and the others are not.

    Args:
        journal: Open as long as this is.
        outbox: Its name.
        policy: How patiently handlers are run, and how many at once.
        observer: Watches them, if anybody does.
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
        observer: Observer | None = None,
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
        self._router = StateRouter(concurrency=policy.concurrency, timeout=policy.timeout, observer=observer)
        self._tasks = Tasks(f"the handlers of the outbox {outbox}")
        self._places = asyncio.Semaphore(_THREADS)
        self._owner = ""
        self._heard: set[State] = set()  # what the journal knows that we hear of
        ends = Ends(
            journal.note_change_done,
            self._close,
            name="writer of what was handled",
            tasks=self._tasks,
            log=_log,
            retry=partial(sleep, policy.poll),
            given_up=JournalClosed,
        )
        self._dispatcher: Dispatcher[_Leased] = Dispatcher(
            self,
            ends,
            policy,
            tasks=self._tasks,
            log=_log,
            given_up=JournalClosed,
            clock=clock,
            sleep=sleep,
            random=random,
        )

    def on(
        self,
        *states: State,
        when: Callable[[Entry], bool] | None = None,
        name: str | None = None,
        within: Callable[[], Any] | None = None,
    ) -> Callable[[H], H]:
        """Register an async handler for changes to these states.

        It is told of each such change from its first registration on, at least once: also of those that come while no
        process runs it, and again where its end could not be written down. ``entry.change_id`` is the same for one
        fact; ``entry.state`` is the state that the order came to, also where it stands elsewhere by now. Every process
        that registers handlers for a state registers the same ones: whichever takes a change runs its own.

        Args:
            when: Says of an entry whether this handler wants it.
            name: Kept in the journal; its module and qualified name by default. Keep it when you move the function.
            within: Opens the transaction that the handler is called in, and that remembers that it was. For a plain
                function it is entered by ``with``, in the thread that calls it.
        """
        if within is not None and not self._journal.shares_transactions:
            raise ValueError("within: the journal is not a part of that database; use a PostgresJournal")
        if within is not None:
            _check_commits(within)
        checked_states(states)  # here, for a decorator that lacks its parentheses is never called again

        def register(handler: H) -> H:
            wrap: Callable[[str], Handler] | None = None
            is_plain = inspect.isroutine(handler) and not inspect.iscoroutinefunction(handler)
            if within is not None and is_plain:
                wrap = partial(_InThread, self._journal, within, handler, self._places)
            elif within is not None:
                wrap = partial(_Within, self._journal, within, handler)
            is_plain = is_plain and wrap is not None
            self._router.add(states, when, handler, name, wrap, is_plain=is_plain)
            self.wake()
            return handler

        return register

    def error(self, hook: X) -> X:
        """Register a function, async or not, that is told of each handler that failed."""
        check_callable("hook", hook, "a function that is told of handlers that failed")
        self._router.error_hooks.append(hook)
        return hook

    async def start(self) -> None:
        """Begin. What an order becomes after this returned is told. Raises ``JournalUnavailable``."""
        if not self._dispatcher.is_open:
            self._owner = f"handlers-{secrets.token_hex(8)}"
            await self._hear()
            self._dispatcher.start()

    async def aclose(self) -> None:
        """Stop, and wait for handlers under way; what has not begun is given back, for the next process."""
        if self._dispatcher.is_open:
            await self._dispatcher.aclose()
            self._router.close()

    @property
    def states(self) -> Set[State]:
        """What the handlers of this process hear of: changes to these are worth waking it."""
        return self._router.states

    def wake(self) -> None:
        """Changes were committed: look for them now, and not only when it is time again."""
        self._dispatcher.wake()

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

    # What the dispatcher asks of a queue

    async def claim(self, *, lease: float, limit: int, until: float) -> Sequence[_Leased]:
        """Lease changes to states that somebody here hears of."""
        states = frozenset(self._router.states)
        if not states:
            return ()
        await self._hear()
        claimed = await self._journal.claim_changes(self._outbox, states, self._owner, lease=lease, limit=limit)
        return [_Leased(change.id, change, until, change.tries) for change in claimed]

    async def give_back(self) -> None:
        """Give back what is leased."""
        await self._journal.release_changes(self._owner)

    def run(self, leased: _Leased) -> Awaitable[Sequence[str]]:
        """Run the handlers of one change."""
        entry = leased.change.entry
        assert entry is not None
        return self._router.run(entry, skip=leased.change.done, done=self._note_done)

    def unfinished(self, leased: _Leased, done: Collection[str]) -> Sequence[str]:
        """Names of the handlers that have not finished with a change."""
        entry = leased.change.entry
        return () if entry is None else self._router.unfinished(entry, (*leased.change.done, *done))

    def _note_done(self, entry: Entry, handler: str) -> None:
        """One handler of several has finished with a change."""
        assert entry.change_id is not None
        self._dispatcher.note_done(entry.change_id, handler)

    async def note_done(self, number: int, handler: str) -> None:
        """Write down that one handler has finished with a change."""
        await self._journal.note_change_done(number, handler)

    async def retry(self, number: int, *, delay: float, error: str) -> None:
        """Let a change come again later."""
        await self._journal.retry_change(number, delay=delay, error=error)

    async def bury(self, leased: _Leased, error: str) -> None:
        """Make a dead letter of a change."""
        await self._journal.finish_changes([leased.id], "dead", error=error)
        change = leased.change
        facts = {"change_id": change.id, "request_id": change.request_id, "state": change.state, "error": error}
        _log.error("a change is a dead letter: order %s, %s", change.request_id, change.state, extra=facts)

    async def _close(self, numbers: Sequence[int]) -> None:
        if numbers:
            await self._journal.finish_changes(numbers)


class _Within:
    """A handler that is told of a change once in a database: in the transaction that remembers it."""

    def __init__(
        self,
        journal: Journal,
        within: Callable[[], Any],
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
        opened = self._within()
        if not hasattr(opened, "__aenter__"):
            raise TypeError(
                "within: a handler that is async needs one that is entered by 'async with'; or define it with 'def'"
            )
        async with opened as connection:
            # first of all: whoever comes second must not have done anything by then
            if not await self._journal.mark_told(connection, entry.change_id, self._name):
                return
            await self._handler(entry, connection)
        if not await self._journal.was_told(entry.change_id, self._name):
            raise RuntimeError(f"within: its transaction was not committed. {_COMMITS}")


class _InThread:
    """A plain function that is told so: it is called in a thread, in the transaction that is opened there."""

    def __init__(
        self,
        journal: Journal,
        within: Callable[[], Any],
        handler: Callable[..., object],
        places: asyncio.Semaphore,
        name: str,
    ) -> None:
        self._journal = journal
        self._within = within
        self._handler = handler
        self._places = places
        self._name = name
        self._home = HomeLoop("the outbox", "await it")

    async def __call__(self, entry: Entry) -> None:
        """Tell it as ``_Within`` does. A thread that is not waited for any more goes on, and commits or not.

        Raises:
            RuntimeError: Nothing was committed, though nothing was raised.
        """
        assert entry.change_id is not None
        self._home.note()
        await self._places.acquire()
        run = contextvars.copy_context().run
        thread = asyncio.get_running_loop().run_in_executor(None, run, self._tell_or_fail, entry, entry.change_id)
        thread.add_done_callback(lambda _: self._places.release())  # one that is not waited for any more has its place
        await asyncio.shield(thread)
        if not await self._journal.was_told(entry.change_id, self._name):
            raise RuntimeError(f"within: its transaction was not committed. {_COMMITS}")

    def _tell_or_fail(self, entry: Entry, change_id: int) -> None:
        """In the thread. No future takes a ``StopIteration``: it would be waited for without end."""
        try:
            self._tell(entry, change_id)
        except StopIteration as error:
            raise RuntimeError("StopIteration") from error

    def _tell(self, entry: Entry, change_id: int) -> None:
        opened: Any = self._within()
        if not hasattr(opened, "__enter__"):
            raise TypeError("within: a plain function needs one that is entered by 'with', such as transaction.atomic")
        django = sys.modules.get("django.db.transaction")
        its = django.get_connection(opened.using) if django is not None and isinstance(opened, django.Atomic) else None
        try:
            with opened as connection:
                lent = Lent(its if connection is None else connection)
                if self._home.run(self._journal.mark_told(lent, change_id, self._name), _LONGEST, lent):
                    self._handler(entry, its if connection is None else connection)
        finally:
            if its is not None:  # as Django does when a request ends: here none does, and a broken one would stay
                its.close_if_unusable_or_obsolete()


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
        tries: Rounds before this one.
    """

    id: int
    change: OrderEvent
    until: float
    tries: int
