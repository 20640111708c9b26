"""Notifications with an inbox: stored before the answer, handled after it, with retries and dead letters."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import attrs

from payments_async._values.errors import AuthenticationFailed, Rejected
from payments_async._values.handlers import HandlerPolicy, Workers, error_text
from payments_async._values.observing import Observer
from payments_async._values.tasks import Tasks
from payments_async._wire.events import TransactionEvent, contradicting
from payments_async.ipn._confirm import RecordSource, difference
from payments_async.ipn._intake import NOT_STORED, Answer
from payments_async.ipn._routes import EventRouter
from payments_async.ipn._senders import Sender
from payments_async.journal._inbox import Arrival, Doubt, Inbox, RawNotification, Receipt

_log = logging.getLogger("payments_async.ipn")
_made = tuple.__new__  # what calling the class of a named tuple gives, in a tenth of the time
_PER_HANDLER = 4  # events waiting in memory for each handler that may run; the rest wait in the inbox
_WATCH = "look at what is due"
_QUIET = 3  # turns of the loop: what has reached a socket needs one to be parsed, one for its task and one to get here
_MEASURED = 15.0  # seconds between two looks at how much waits, where somebody watches
_MOST = 12  # turns of the loop that a batch waits for more


@attrs.define(eq=False, repr=False, kw_only=True)
class WithInbox:
    """Stores what comes, then has it handled: retries, dead letters, and what another receiver left behind.

    Attributes:
        owner: Name in the inbox that outlives the process; without one it is random.
        believed: Told of every event that is new, confirmed where that is asked for, and contradicts nothing.
    """

    _inbox: Inbox
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
    _workers: Workers[_Leased] = attrs.field(init=False)
    _room: int = attrs.field(init=False)
    _mine: set[int] = attrs.field(factory=set, init=False)  # events that are leased and not handled yet
    # of events with several handlers, those that have finished
    _finished: dict[int, list[str]] = attrs.field(factory=dict, init=False)
    _claiming: asyncio.Lock = attrs.field(factory=asyncio.Lock, init=False)
    _is_watching: bool = attrs.field(default=False, init=False)
    _unhook: Callable[[], None] = attrs.field(default=lambda: None, init=False)
    _takes_leases: bool = attrs.field(default=True, init=False)
    _is_over: bool = attrs.field(default=False, init=False)
    _is_failing: bool = attrs.field(default=False, init=False)
    _is_more: bool = attrs.field(default=False, init=False)  # in the inbox, most likely, than there was room for

    def __attrs_post_init__(self) -> None:
        self._name = _ReceiverName(self._owner)
        self._batches = Batches(self._inbox, owner=self._name, stored=self._stored, tasks=self._tasks)
        self._workers = Workers(self._tasks, self._work, most=self._policy.concurrency)
        self._room = self._policy.concurrency * _PER_HANDLER

    def start(self) -> None:
        """Begin to handle what the inbox holds, unless that has begun."""
        self._is_over = False
        if not self._is_watching:
            self._is_watching = True
            self._unhook = self._inbox.before_close(self._before_close)
            self._tasks.keep(_WATCH, self._watch)

    async def _before_close(self) -> None:
        """The inbox closes first: what is under way ends, and what comes now is not stored."""
        self._is_over = True
        await self.aclose()

    async def aclose(self) -> None:
        """Stop, and wait for handlers under way; what has not begun stays in the inbox, for the next receiver."""
        if ending := self._tasks.stop(_WATCH):
            await asyncio.wait(ending)
        self._takes_leases = False
        self._mine.difference_update(leased.event_id for leased in self._workers.jobs)
        self._workers.jobs.clear()
        async with self._claiming:
            pass
        await self._tasks.aclose(self._policy.drain)
        self._router.close()
        if self._is_watching:
            await self._give_back()
            self._unhook()
            self._is_watching = False
        self._takes_leases = True

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
        lease = self._policy.lease
        if not self._takes_leases or len(self._mine) >= self._room:
            lease, self._is_more = 0.0, True  # no room for it here, so anybody may claim it
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
            if receipt.conflict is None and arrival.doubt is None:
                self._believed(event)
            if arrival.lease and (receipt.conflict is not None or not arrival.unheard):
                until = arrival.delivery.received_at + arrival.lease
                self._handle(
                    _made(_Leased, (receipt.event_id, event, until, receipt.conflict, 0, frozenset(), arrival.doubt))
                )
        return None

    def _handle(self, leased: _Leased) -> None:
        """Run the handlers of an event that is leased to this receiver, unless that is under way."""
        if leased.event_id not in self._mine:
            self._mine.add(leased.event_id)
            self._workers.put(leased)

    async def _watch(self) -> None:
        """Claim what is due, again and again."""
        if self._owner is not None:  # a process of this name may have died: what it held is given back first
            await self._give_back()
        measured = -_MEASURED
        while True:
            await self._claim()
            if self._observer is not None and not 0.0 <= self._clock() - measured < _MEASURED:
                measured = self._clock()
                await self.health()
            await self._sleep(self._policy.poll)

    async def _claim(self) -> None:
        """Take over due events that nobody holds: retries, and those of a receiver that died."""
        async with self._claiming:
            while self._takes_leases and (room := self._room - len(self._mine)) > 0:
                until = self._clock() + self._policy.lease
                try:
                    claimed = await self._inbox.claim(self._name(), lease=self._policy.lease, limit=room)
                except Exception as error:  # noqa: BLE001 - an inbox that is away for a while must not end the watch
                    why = error_text(error)
                    _log.error("the inbox cannot be read: %s", why, extra={"error": why})
                    return
                for one in claimed:
                    done = frozenset(one.done)
                    self._handle(_Leased(one.event_id, one.event, until, one.conflict, one.tries, done, one.doubt))
                self._is_more = len(claimed) == room
                if not self._is_more or len(self._mine) > self._room // 2:
                    return  # when half of the room is free again, it goes on

    async def _give_back(self) -> None:
        """Give back the leases of what was dropped."""
        try:
            await self._inbox.release(self._name())
        except Exception as error:  # noqa: BLE001 - the leases run out by themselves
            why = error_text(error)
            _log.warning("leases could not be given back: %s", why, extra={"error": why})

    async def _work(self, leased: _Leased) -> None:
        """Handle one event, unless its lease is about to end, and write down what came of it."""
        event_id = leased.event_id
        try:
            if self._clock() >= leased.until - self._policy.timeout:
                return  # another receiver may have it
            if leased.doubt is not None:
                confirmed = await self._confirmed(leased)
                if confirmed is None:
                    return
                leased = confirmed
            event = _numbered(leased.event, event_id)
            if leased.conflict is not None:
                event = contradicting(event, leased.conflict)
            failures = await self._router.run(event, skip=leased.done, done=self._note_done)
            if failures:
                await self._failed(leased, failures)
            else:
                self._batches.note_handled(event_id)
        except Exception as error:  # noqa: BLE001 - not recorded, so the lease runs out and it is handled again
            facts = {"event_id": event_id, "error": error_text(error)}
            _log.error("what became of event %s could not be stored: %s", *facts.values(), extra=facts)
        finally:
            self._mine.discard(event_id)
            if self._is_more and len(self._mine) <= self._room // 2:
                self._is_more = False  # so that it is looked for once
                self._tasks.start("look for events", self._claim())
            if self._finished:
                self._finished.pop(event_id, None)

    async def _failed(self, leased: _Leased, failures: Sequence[str]) -> None:
        """Write down who has finished, before anybody can have the next round, and leave the others to it."""
        for handler in self._finished.get(leased.event_id, ()):
            await self._inbox.note_done(leased.event_id, handler)
        await self._again(leased, "; ".join(failures))

    def _note_done(self, event: TransactionEvent, handler: str) -> None:
        """One handler of several has finished with an event."""
        event_id = event.event_id
        assert event_id is not None
        self._finished.setdefault(event_id, []).append(handler)
        self._batches.note_done(event_id, handler)

    async def _confirmed(self, leased: _Leased) -> _Leased | None:
        """The same as evidence, once the service's record bears it out; ``None`` when it does not, or not yet."""
        if self._confirm is None:
            await self._again(leased, "not confirmed: this receiver has no session to ask", counts=False)
            return None
        try:
            differs = await difference(self._confirm, leased.event, self._policy.timeout)
        except Exception as error:  # noqa: BLE001 - whatever the reason, there is no record to believe yet
            # a service that cannot be asked says nothing; one that has no such transaction is asked for some hours
            is_refused = isinstance(error, Rejected) and not isinstance(error, AuthenticationFailed)
            await self._again(leased, f"not confirmed: {error_text(error)}", counts=is_refused)
            return None
        if differs is not None:
            facts = {"event_id": leased.event_id, "transaction_id": leased.event.transaction_id, "difference": differs}
            _log.error("a notification is disputed: event %s, transaction %s: %s", *facts.values(), extra=facts)
            await self._inbox.finish(leased.event_id, "disputed", error=differs)
            return None
        conflict = await self._inbox.confirm(leased.event_id)
        if conflict is None:
            self._believed(_numbered(leased.event, leased.event_id))
        return leased._replace(conflict=conflict, tries=0, doubt=None)

    async def _again(self, leased: _Leased, error: str, *, counts: bool = True) -> None:
        """Another round after a wait, or, when its rounds have run out, a dead letter.

        Args:
            counts: Whether this was a round at all.
        """
        if counts and leased.tries + 1 >= self._policy.attempts:
            facts = {"event_id": leased.event_id, "transaction_id": leased.event.transaction_id, "error": error}
            _log.error("an event is a dead letter: event %s, transaction %s: %s", *facts.values(), extra=facts)
            await self._inbox.finish(leased.event_id, "dead", error=error)
            if self._observer is not None:
                self._observer.count("dead_letter")
        else:
            delay = self._policy.wait(leased.tries, self._random())
            await self._inbox.retry_later(leased.event_id, delay=delay, error=error)

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
            await self._claim()
        return count

    async def health(self) -> Answer:
        """How much is waiting: 503 when the inbox cannot be read, or did not store a delivery and still cannot."""
        if not await self._stores():
            return Answer(503, b'{"status":"notifications cannot be stored"}')
        try:
            backlog = await self._inbox.backlog()
        except Exception as error:  # noqa: BLE001 - whatever the reason, that is what health is asked for
            why = error_text(error)
            _log.error("the inbox cannot be read: %s", why, extra={"error": why})
            return Answer(503, b'{"status":"the inbox cannot be read"}')
        oldest = None if backlog.oldest is None else round(max(0.0, self._clock() - backlog.oldest), 3)
        if self._observer is not None:
            self._observer.level("inbox_age", oldest or 0.0)
            self._observer.level("inbox", backlog.pending, state="pending")
            self._observer.level("inbox", backlog.unconfirmed, state="unconfirmed")
            self._observer.level("inbox", backlog.dead, state="dead")
        facts = {"status": "ok", "pending": backlog.pending, "dead": backlog.dead, "oldest_seconds": oldest}
        facts |= {"unconfirmed": backlog.unconfirmed, "reported": backlog.reported}
        return Answer(200, json.dumps(facts).encode())

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


class _Leased(NamedTuple):
    """One event that this receiver is to handle.

    Attributes:
        until: Unix seconds when its lease ends.
        tries: Rounds before this one.
        done: Names of the handlers that have finished with it.
        doubt: Why it is no evidence, if it is none.
    """

    event_id: int
    event: TransactionEvent
    until: float
    conflict: str | None
    tries: int
    done: frozenset[str]
    doubt: Doubt | None


@attrs.define(eq=False, repr=False)
class Batches:
    """What came and what was handled, on its way to the inbox: while one batch is written, the next gathers.

    Attributes:
        owner: Gives the receiver's name in the inbox.
        stored: Told what became of each arrival, though nobody waits for it any more, and gives its answer.
    """

    _inbox: Inbox
    _owner: Callable[[], str] = attrs.field(kw_only=True)
    _stored: Callable[[Arrival, Receipt | Exception], Answer | None] = attrs.field(kw_only=True)
    _tasks: Tasks = attrs.field(kw_only=True)
    _arrivals: list[Arrival] = attrs.field(factory=list, init=False)
    _waiting: list[asyncio.Future[Answer | None]] = attrs.field(factory=list, init=False)
    _done: dict[int, list[str]] = attrs.field(factory=dict, init=False)
    _handled: list[int] = attrs.field(factory=list, init=False)
    _is_writing: bool = attrs.field(default=False, init=False)

    def put(self, arrival: Arrival) -> asyncio.Future[Answer | None]:
        """Store an arrival."""
        future: asyncio.Future[Answer | None] = asyncio.Future()
        self._arrivals.append(arrival)
        self._waiting.append(future)
        if not self._is_writing:
            self._write_soon()
        return future

    def note_done(self, event_id: int, handler: str) -> None:
        """One handler of several has finished with an event."""
        self._done.setdefault(event_id, []).append(handler)
        if not self._is_writing:
            self._write_soon()

    def note_handled(self, event_id: int) -> None:
        """All handlers have finished with an event. Until that is on disk its lease keeps others away from it."""
        if self._done:
            self._done.pop(event_id, None)
        self._handled.append(event_id)
        if not self._is_writing:
            self._write_soon()

    def _write_soon(self) -> None:
        self._is_writing = True
        self._tasks.keep("writer of the inbox", self._write, stands=False)

    async def _write(self) -> None:
        """Write one batch after the other, until nothing is left."""
        self._is_writing = True
        try:
            while self._arrivals or self._handled or self._done:
                await self._gather()
                await self._write_batch()
        finally:
            self._is_writing = False

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
        handled, self._handled = self._handled, []
        done, self._done = self._done, {}
        try:
            receipts = await self._store(arrivals, handled, done)
            for arrival, future, receipt in zip(arrivals, waiting, receipts, strict=True):
                answer = self._stored(arrival, receipt)
                if not future.done():  # its caller may have hung up
                    future.set_result(answer)
        finally:
            for future in waiting:
                if not future.done():  # it was broken off: nobody knows whether these were stored
                    future.set_result(NOT_STORED)

    async def _store(
        self, arrivals: list[Arrival], handled: list[int], done: dict[int, list[str]]
    ) -> Sequence[Receipt | Exception]:
        """What became of each arrival; for all of them the same error where nothing could be stored."""
        try:
            if done:
                notes = [self._inbox.note_done(event_id, name) for event_id, names in done.items() for name in names]
                await asyncio.gather(*notes)
            if arrivals or handled:
                return await self._inbox.receive_all(arrivals, owner=self._owner(), handled=handled)
        except Exception as error:  # noqa: BLE001 - nothing is stored, whatever the reason, so none is answered 200
            if handled or done:  # their leases run out, and they are handled again
                facts = {"event_ids": [*handled, *done], "error": error_text(error)}
                _log.error("what became of events could not be stored: %s: %s", *facts.values(), extra=facts)
            return [error] * len(arrivals)
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


def _numbered(event: TransactionEvent, event_id: int) -> TransactionEvent:
    """The event with its id; what ``attrs.evolve`` gives, in a fifth of the time."""
    copy = object.__new__(type(event))
    copy.__dict__.update(event.__dict__, event_id=event_id)
    return copy
