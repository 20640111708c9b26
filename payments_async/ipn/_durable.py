"""Notifications with an inbox: stored before the answer, handled after it, with retries and dead letters."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import attrs

from payments_async._values.dispatching import Dispatcher, Ends
from payments_async._values.errors import AuthenticationFailed, Rejected
from payments_async._values.handlers import HandlerPolicy, error_text
from payments_async._values.health import HealthProblem
from payments_async._values.observing import Observer
from payments_async._values.tasks import Tasks
from payments_async._wire.events import TransactionEvent, contradicting
from payments_async.ipn._confirm import RecordSource, difference
from payments_async.ipn._health import ReceiverHealth
from payments_async.ipn._intake import NOT_STORED, Answer
from payments_async.ipn._routes import EventRouter
from payments_async.ipn._senders import Sender
from payments_async.journal._faults import JournalClosed
from payments_async.journal._inbox import NOT_CONFIRMED, Arrival, Backlog, Doubt, RawNotification, Receipt

if TYPE_CHECKING:
    from payments_async.journal import Journal

_log = logging.getLogger("payments_async.ipn")
_made = tuple.__new__  # what calling the class of a named tuple gives, in a tenth of the time
_MEASURE = "measure what waits"
_QUIET = 3  # turns of the loop: what has reached a socket needs one to be parsed, one for its task and one to get here
_MEASURED = 15.0  # seconds between two looks at how much waits, where somebody watches
_MOST = 12  # turns of the loop that a batch waits for more


@attrs.define(eq=False, repr=False, kw_only=True)
class DurablePipeline:
    """Stores what comes, then has it handled: retries, dead letters, and what another receiver left behind.

    Attributes:
        owner: Name in the inbox that outlives the process; without one it is random.
        believed: Told of every event that is new, confirmed where that is asked for, and contradicts nothing.
    """

    _inbox: Journal
    _router: EventRouter
    _policy: HandlerPolicy
    _owner: str | None
    _confirm: RecordSource | None
    _believed: Callable[[TransactionEvent], None]
    _clock: Callable[[], float]
    _sleep: Callable[[float], Awaitable[None]]
    _random: Callable[[], float]
    _observer: Observer | None = None
    _name: _ReceiverName = attrs.field(init=False)
    _tasks: Tasks = attrs.field(factory=lambda: Tasks("the receiver"), init=False)
    _batches: Batches = attrs.field(init=False)
    _dispatcher: Dispatcher[_Leased] = attrs.field(init=False)
    _is_watching: bool = attrs.field(default=False, init=False)
    _unhook: Callable[[], None] = attrs.field(default=lambda: None, init=False)
    _is_over: bool = attrs.field(default=False, init=False)
    _is_failing: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._name = _ReceiverName(self._owner)
        wait = partial(self._sleep, self._policy.poll)
        self._batches = Batches(self._inbox, owner=self._name, stored=self._stored, tasks=self._tasks, retry=wait)
        self._dispatcher = Dispatcher(
            self,
            self._batches,
            self._policy,
            tasks=self._tasks,
            log=_log,
            given_up=JournalClosed,
            clock=self._clock,
            sleep=self._sleep,
            random=self._random,
        )

    def start(self) -> None:
        """Begin to handle what the inbox holds, unless that has begun."""
        self._is_over = False
        if not self._is_watching:
            self._is_watching = True
            self._unhook = self._inbox.before_close(self._before_close)
            self._dispatcher.start(anew=self._owner is not None)
            if self._observer is not None:
                self._tasks.keep(_MEASURE, self._measure)

    async def _before_close(self) -> None:
        """The inbox closes first: what is under way ends, and what comes now is not stored."""
        self._is_over = True
        await self.aclose()

    async def aclose(self) -> None:
        """Stop, and wait for handlers under way; what has not begun stays in the inbox, for the next receiver."""
        await self._dispatcher.aclose()
        self._router.close()
        if self._is_watching:
            self._unhook()
            self._is_watching = False

    def take(
        self, event: TransactionEvent, body: bytes, query: str, sender: Sender, is_usual: bool
    ) -> asyncio.Future[Answer | None]:
        """Store a delivery: the answer, if it is not 200. It is stored and handled though nobody waits for that."""
        if not self._is_watching and not self._is_over:
            self.start()
        delivery = _made(RawNotification, (body, query, sender.address, self._clock()))
        unheard = self._confirm is None and not self._router.hears(event)
        doubt = None if self._confirm is None else Doubt.UNCONFIRMED
        if not sender.is_known:
            doubt = Doubt.REPORTED
        lease = self._policy.lease if self._dispatcher.has_room else 0.0  # where there is none, anybody may claim it
        return self._batches.put(_made(Arrival, (delivery, event, lease, unheard, is_usual, doubt)))

    def _stored(self, arrival: Arrival, receipt: Receipt | Exception) -> Answer | None:
        """Have a new event handled, once it is on disk; the answer, if it is not 200."""
        event = arrival.event
        if isinstance(receipt, Exception):  # whatever the reason, it is not answered 200
            facts = {"transaction_id": event.transaction_id, "error": error_text(receipt)}
            _log.error("a notification could not be stored: transaction %s: %s", *facts.values(), extra=facts)
            self._is_failing = True
            return NOT_STORED
        if self._observer is not None and receipt.is_new and receipt.conflict is not None:
            self._observer.count("quirk", quirk="contradicting_notification")
        if receipt.is_new and arrival.doubt != Doubt.REPORTED:
            _number(event, receipt.event_id)
            if receipt.conflict is None and arrival.doubt is None:
                self._believed(event)
            if arrival.lease and (receipt.conflict is not None or not arrival.unheard):
                until = arrival.delivery.received_at + arrival.lease
                self._dispatcher.put(
                    _made(_Leased, (receipt.event_id, event, until, receipt.conflict, 0, frozenset(), arrival.doubt))
                )
        return None

    async def _measure(self) -> None:
        """Tell how much waits, to whoever watches."""
        while True:
            await self.health()
            await self._sleep(_MEASURED)

    # What the dispatcher asks of a queue

    async def claim(self, *, lease: float, limit: int, until: float) -> Sequence[_Leased]:
        """Take over due events that nobody holds: retries, and those of a receiver that died.

        Without a handler, nothing: what is due waits for another process, whose handler has failed, or which died.
        """
        if self._confirm is None and not self._router.has_handlers:
            return ()
        claimed = await self._inbox.claim(self._name(), lease=lease, limit=limit)
        for one in claimed:
            _number(one.event, one.event_id)
        return [
            _Leased(one.event_id, one.event, until, one.conflict, one.tries, frozenset(one.done), one.doubt)
            for one in claimed
        ]

    async def give_back(self) -> None:
        """Give back the leases of what was dropped."""
        await self._inbox.release(self._name())

    def run(self, leased: _Leased) -> Awaitable[Sequence[str] | None]:
        """Run the handlers of one event, once it is confirmed where that is asked for."""
        if leased.doubt is not None:
            return self._run_confirmed(leased)
        return self._router.run(_told(leased), skip=leased.done, done=self._note_done)

    def unfinished(self, leased: _Leased, done: Collection[str]) -> Sequence[str]:
        """Names of the handlers that have not finished with an event."""
        return self._router.unfinished(_told(leased), (*leased.done, *done))

    async def _run_confirmed(self, leased: _Leased) -> Sequence[str] | None:
        """Run them once it is evidence; until then it comes again."""
        confirmed = await self._confirmed(leased)
        return None if confirmed is None else await self.run(confirmed)

    def _note_done(self, event: TransactionEvent, handler: str) -> None:
        """One handler of several has finished with an event."""
        assert event.event_id is not None
        self._dispatcher.note_done(event.event_id, handler)

    async def note_done(self, number: int, handler: str) -> None:
        """Write down that one handler has finished with an event."""
        await self._inbox.note_done(number, handler)

    async def retry(self, number: int, *, delay: float, error: str) -> None:
        """Let an event come again later."""
        await self._inbox.retry_later(number, delay=delay, error=error)

    async def bury(self, leased: _Leased, error: str) -> None:
        """Make a dead letter of an event."""
        facts = {"event_id": leased.id, "transaction_id": leased.event.transaction_id, "error": error}
        await self._inbox.finish(leased.id, "dead", error=error)
        _log.error("an event is a dead letter: event %s, transaction %s: %s", *facts.values(), extra=facts)
        if self._observer is not None:
            self._observer.count("dead_letter")

    async def _confirmed(self, leased: _Leased) -> _Leased | None:
        """The same as evidence, once the service's record bears it out; ``None`` when it does not, or not yet."""
        if self._confirm is None:
            await self._dispatcher.again(leased, f"{NOT_CONFIRMED}this receiver has no session to ask", counts=False)
            return None
        try:
            differs = await difference(self._confirm, leased.event, self._policy.timeout)
        except Exception as error:  # noqa: BLE001 - whatever the reason, there is no record to believe yet
            # a service that cannot be asked says nothing; one that has no such transaction is asked for some hours
            is_refused = isinstance(error, Rejected) and not isinstance(error, AuthenticationFailed)
            await self._dispatcher.again(leased, f"{NOT_CONFIRMED}{error_text(error)}", counts=is_refused)
            return None
        if differs is not None:
            facts = {"event_id": leased.id, "transaction_id": leased.event.transaction_id, "difference": differs}
            _log.error("a notification is disputed: event %s, transaction %s: %s", *facts.values(), extra=facts)
            await self._inbox.finish(leased.id, "disputed", error=differs)
            return None
        conflict = await self._inbox.confirm(leased.id)
        if conflict is None:
            self._believed(leased.event)
        return leased._replace(conflict=conflict, tries=0, doubt=None)

    async def final_events(
        self, request_id: str, transaction_id: str | None = None
    ) -> Sequence[TransactionEvent] | None:
        """The final events in the inbox of an order, or of a transaction of it; none that waits to be confirmed."""
        try:
            return await self._inbox.final_events(request_id, transaction_id)
        except Exception as error:  # noqa: BLE001 - whoever waits goes on waiting
            why = error_text(error)
            _log.warning("a final event could not be looked up: %s", why, extra={"error": why})
        return None

    async def replay(self, event_id: int | None) -> int:
        """Handle one dead letter again, or all of them, and tell how many."""
        count = await self._inbox.revive(event_id)
        if self._is_watching:
            await self._dispatcher.claim()
        return count

    async def health(self) -> ReceiverHealth:
        """How much is waiting, and whether a delivery that comes now is stored."""
        if not await self._stores():
            return _unable("cannot_store", "notifications cannot be stored")
        try:
            backlog = await self._inbox.backlog()
        except Exception as error:  # noqa: BLE001 - whatever the reason, that is what health is asked for
            why = error_text(error)
            _log.error("the inbox cannot be read: %s", why, extra={"error": why})
            return _unable("cannot_read", "the inbox cannot be read")
        oldest = None if backlog.oldest is None else round(max(0.0, self._clock() - backlog.oldest), 3)
        if self._observer is not None:
            self._observer.level("inbox_age", oldest or 0.0)
            self._observer.level("inbox", backlog.pending, state="pending")
            self._observer.level("inbox", backlog.unconfirmed, state="unconfirmed")
            self._observer.level("inbox", backlog.dead, state="dead")
        return ReceiverHealth(
            problems=tuple(_problems(backlog)),
            pending=backlog.pending,
            failing=backlog.failing,
            dead=backlog.dead,
            unconfirmed=backlog.unconfirmed,
            reported=backlog.reported,
            oldest_seconds=oldest,
        )

    async def _stores(self) -> bool:
        """Whether a delivery that comes now would be stored, as far as one can know."""
        if self._is_failing:
            try:
                await self._inbox.check_writable()
            except Exception as error:  # noqa: BLE001 - whatever the reason, that is what is asked for
                why = error_text(error)
                _log.error("the inbox cannot be written: %s", why, extra={"error": why})
                return False
            self._is_failing = False
        return True


def _told(leased: _Leased) -> TransactionEvent:
    """What handlers are told."""
    return leased.event if leased.conflict is None else contradicting(leased.event, leased.conflict)


def _problems(backlog: Backlog) -> Iterator[HealthProblem]:
    """What is wrong with the handlers of the inbox."""
    if backlog.dead:
        what = f"handlers failed too often: {backlog.dead:,} dead letters"
        remedy = "mend the handlers, then ipn replay"
        yield HealthProblem(code="dead_letters", count=backlog.dead, what=what, what_to_do=remedy, needs_person=True)
    if backlog.trouble is not None:
        yield HealthProblem(
            code="failing_handlers",
            count=backlog.failing,
            what=backlog.trouble,
            what_to_do="mend the handler that is named; it is tried again",
            since=backlog.failing_since,
        )


def _unable(code: str, what: str) -> ReceiverHealth:
    """Nothing can be stored: each delivery is answered 503."""
    remedy = "look at the journal: its disk or its server; the service sends again"
    return ReceiverHealth(problems=(HealthProblem(code=code, count=1, what=what, what_to_do=remedy, stops=True),))


class _Leased(NamedTuple):
    """One event that this receiver is to handle.

    Attributes:
        id: Of the event.
        until: Unix seconds when its lease ends.
        tries: Rounds before this one.
        done: Names of the handlers that have finished with it.
        doubt: Why it is not evidence, if it is none.
    """

    id: int
    event: TransactionEvent
    until: float
    conflict: str | None
    tries: int
    done: frozenset[str]
    doubt: Doubt | None


class Batches(Ends):
    """What came and what was handled, on its way to the inbox: while one batch is written, the next gathers.

    Args:
        owner: Gives the receiver's name in the inbox.
        stored: Told what became of each arrival, though nobody waits for it any more, and gives its answer.
        retry: Waits before what was handled is tried again.
    """

    def __init__(
        self,
        inbox: Journal,
        *,
        owner: Callable[[], str],
        stored: Callable[[Arrival, Receipt | Exception], Answer | None],
        tasks: Tasks,
        retry: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(
            self._note_one,
            self._store,
            name="writer of the inbox",
            tasks=tasks,
            log=_log,
            retry=retry,
            given_up=JournalClosed,
        )
        self._inbox = inbox
        self._owner = owner
        self._stored = stored
        self._arrivals: list[Arrival] = []
        self._waiting: list[asyncio.Future[Answer | None]] = []

    def put(self, arrival: Arrival) -> asyncio.Future[Answer | None]:
        """Store an arrival."""
        future: asyncio.Future[Answer | None] = asyncio.Future()
        self._arrivals.append(arrival)
        self._waiting.append(future)
        if not self._is_writing:
            self._write_soon()
        return future

    def _is_left(self) -> bool:
        return bool(self._arrivals or self._handled or self._done)

    async def _gather(self) -> None:
        """Wait as long as more comes, which costs no time: whoever would be idle would do it later.

        The writing thread gets hold of the interpreter when the loop has nothing left to do. A small batch that was
        handed over before the rest has arrived would keep the rest waiting for a commit of its own.
        """
        count = quiet = 0
        for _ in range(_MOST):
            await asyncio.sleep(0)
            quiet = quiet + 1 if count == len(self._arrivals) else 0
            count = len(self._arrivals)
            if quiet == _QUIET:
                return

    async def _write_batch(self) -> None:
        """Store what has gathered, and answer everybody who waits for it."""
        arrivals, self._arrivals = self._arrivals, []
        waiting, self._waiting = self._waiting, []
        receipts: list[Receipt | Exception] = []

        async def store(handled: Sequence[int]) -> None:
            receipts.extend(await self._store(handled, arrivals))

        try:
            error = await (self._apart(store) if self._in_trouble else self._write_ends(store))
            if error is not None:  # whatever the reason why nothing is stored, none is answered 200
                receipts = [error] * len(arrivals)
            for arrival, future, receipt in zip(arrivals, waiting, receipts, strict=True):
                answer = self._stored(arrival, receipt)
                if not future.done():  # its caller may have hung up
                    future.set_result(answer)
        finally:
            for future in waiting:
                if not future.done():  # it was broken off: nobody knows whether these were stored
                    future.set_result(NOT_STORED)

    async def _apart(self, store: Callable[[Sequence[int]], Awaitable[None]]) -> Exception | None:
        """Store what came by itself: what cannot be written down of what was handled keeps none from being stored."""
        try:
            await store(())
        except Exception as error:  # noqa: BLE001 - whatever the reason
            return error
        await self._write_ends(self._close)
        return None

    async def _note_one(self, number: int, handler: str) -> None:
        await self._inbox.note_done(number, handler)

    async def _store(self, handled: Sequence[int], arrivals: Sequence[Arrival] = ()) -> Sequence[Receipt | Exception]:
        """What became of each arrival, in the commit that closes what was handled."""
        if arrivals or handled:
            return await self._inbox.receive_all(arrivals, owner=self._owner(), handled=handled)
        return ()


class _ReceiverName:
    """A receiver's name in an inbox; a random one is drawn when work begins, and anew in a forked process."""

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._drawn = ""
        self._process = 0

    def __call__(self) -> str:
        if self._name is not None:
            return self._name
        if self._process != os.getpid():
            self._process, self._drawn = os.getpid(), f"receiver-{secrets.token_hex(8)}"
        return self._drawn


def _number(event: TransactionEvent, event_id: int) -> None:
    """Put its id into an event before a handler hears of it; ``attrs.evolve`` takes as long as its handler."""
    event.__dict__["event_id"] = event_id
