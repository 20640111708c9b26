"""Hears what is written in the journal of an outbox, and tells the callers who wait for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress

from payments_async._session.session import PaymentsSession, executor_of
from payments_async._values.request_ids import plain_id
from payments_async.journal import Journal
from payments_async.journal._changes import OrderEvent
from payments_async.journal._faults import JournalClosed, JournalError, OrderUnknown
from payments_async.journal._records import Entry
from payments_async.journal._states import UNSENT, State
from payments_async.outbox._reconcile import tell_the_session
from payments_async.outbox._scans import ReconcileTarget

_log = logging.getLogger("payments_async")
SOON = 1.0  # seconds for which a caller of `pay` hears from the worker here alone; then from whatever tells first
AGAIN_INITIAL, AGAIN_MAX = 0.5, 30.0  # seconds until work begins again after the journal or the service failed
_REST = 0.02  # seconds between two looks at what was written, while no caller waits
_LISTEN = 10.0  # seconds after which a file is asked whether anything was written
_MISSED = 30.0  # seconds after which it is looked for what was written, where the notice of a commit may be missed
_ELSEWHERE = 1.0  # ... for an order of a batch that another program runs, of which nothing is heard
_PAGE = 1000  # changes read at once
SENT = frozenset(State) - {*UNSENT}  # the states of which a caller or a handler may hear


class ChangeListener:
    """Reads the changes of an outbox, for as long as a caller waits for one or the session has doubts.

    Args:
        name: Of the outbox.
        moved: Hears of each state that orders have come to.
        look: Hears that something was written, whatever it is.
        heeds: Tells the states that ``moved`` and ``look`` have to hear of at once where this process brought orders
            to them; of others they hear within ten seconds.

    Attributes:
        last: The last change that was heard of.
        is_open: Whether callers can wait.
    """

    def __init__(
        self,
        payments: PaymentsSession,
        journal: Journal,
        name: str,
        *,
        moved: Callable[[Collection[State]], None],
        look: Callable[[], None],
        heeds: Callable[[], Collection[State]],
    ) -> None:
        self._payments = payments
        self._journal = journal
        self._name = name
        self._moved = moved
        self._look = look
        self._heeds = heeds
        self._waiting: dict[str, list[asyncio.Future[Entry | None]]] = {}
        self._wanted = asyncio.Event()  # a caller waits
        self.last = 0
        self.is_open = False

    def close(self) -> None:
        """Let no caller wait any longer."""
        self.is_open = False
        for waiters in self._waiting.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    @contextmanager
    def hearing(self, request_id: str) -> Iterator[asyncio.Future[Entry | None]]:
        """Hear of the next change of an order."""
        heard: asyncio.Future[Entry | None] = asyncio.get_running_loop().create_future()
        if not self.is_open:
            heard.set_result(None)  # it was closed meanwhile
        key = plain_id(request_id)
        waiters = self._waiting.setdefault(key, [])
        waiters.append(heard)
        self._wanted.set()
        try:
            yield heard
        finally:
            waiters.remove(heard)
            if not waiters:
                self._waiting.pop(key, None)

    async def until(self, request_id: str, wanted: Callable[[State], bool], timeout: float) -> Entry:
        """Wait until an order is in one of some states. A journal that answers within a second is asked once at least.

        Raises:
            TimeoutError, OrderUnknown: It is not.
        """
        loop = asyncio.get_running_loop()
        deadline, said, is_ours = loop.time() + timeout, "could not be looked up in time", None
        try:
            async with asyncio.timeout_at(max(deadline, loop.time() + SOON)) as limit:
                while True:
                    with self.hearing(request_id) as heard:  # before it is looked, so that nothing is missed
                        entry = await self._journal.entry(request_id)
                        if entry is None:
                            await self._journal.history(request_id)  # says where it is
                            raise OrderUnknown(f"the journal holds no order {request_id}")
                        if wanted(entry.state):
                            return entry
                        said, name = f"has not ended yet: it is {entry.state}", entry.batch_id
                        if is_ours is None:
                            is_ours = name == self._name or (await self._journal.run(name)).outbox == self._name
                        limit.reschedule(deadline)
                        # of a batch that another program runs nothing is heard: it is looked at again
                        with suppress(TimeoutError):
                            async with asyncio.timeout(None if is_ours else _ELSEWHERE):
                                if (found := await heard) is None:
                                    raise JournalClosed("the outbox was closed before that was known")
                                if wanted(found.state):
                                    return found
        except TimeoutError as error:
            raise TimeoutError(f"order {request_id} {said}") from error

    async def run(self) -> None:
        """Hear what any process writes, and tell the callers who wait for it."""
        seen = 0
        delay = AGAIN_INITIAL
        while True:
            try:
                patience = _LISTEN if self._journal.hears_every_commit else _MISSED
                before = seen
                seen = await self._journal.committed(seen, timeout=patience, wanted=self._wanted_states)
                if seen == before and self._journal.hears_every_commit:
                    continue
                self.last = await self._read_on(self.last)
            except JournalClosed:
                return
            except JournalError as error:
                seen = 0
                _log.error("outbox %s cannot read the changes of its journal: %s", self._name, error.message)
                await asyncio.sleep(delay)
                delay = min(AGAIN_MAX, 2 * delay)
            else:
                delay = AGAIN_INITIAL
                self._look()
                await self._rest()

    def _wanted_states(self) -> Collection[State]:
        """The states that matter at once: callers wait for any that tells how an order was sent."""
        return {*self._heeds(), *SENT} if self._waiting else self._heeds()

    async def _rest(self) -> None:
        """Let what is written add up for a moment, unless a caller waits."""
        if not self._waiting:
            self._wanted.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_REST):
                    await self._wanted.wait()

    async def _read_on(self, last: int) -> int:
        """Read the changes after this one, if any caller waits for one or the session has doubts; tells the last."""
        books = executor_of(self._payments).books
        if not self._waiting and not books.has_unknown:
            newest, states = await self._journal.states_since(self._name, last)
            if not self._waiting:  # else somebody has begun to, whose order may be among these
                self._moved(states)
                return newest
        while changes := await self._journal.changes_after(self._name, last, limit=_PAGE):
            await self._tell(changes)
            last = changes[-1].id
        return last

    async def _tell(self, changes: Sequence[OrderEvent]) -> None:
        """Orders moved: tell those who wait for them, and the session that has doubts, all with one reading."""
        self._moved({change.state for change in changes})
        keys = {plain_id(change.request_id) for change in changes}
        doubted = executor_of(self._payments).books.unknown_among(keys)
        if not (asked := doubted | (self._waiting.keys() & keys)):
            return
        for key, entry in (await self._journal.entries_of(list(asked))).items():
            if key in doubted:
                tell_the_session(self._payments, [ReconcileTarget.of(entry)])
            for waiter in self._waiting.get(key, ()):
                if not waiter.done():
                    waiter.set_result(entry)
