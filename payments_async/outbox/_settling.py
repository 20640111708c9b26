"""The standing reconciler of an outbox: whichever process has the duty looks up what is open, for all of them."""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain, islice

import attrs

from payments_async._session.lists import Reader
from payments_async._session.session import PaymentsSession, executor_of
from payments_async._values.errors import PaymentsError
from payments_async._values.frozen import field, frozen
from payments_async._values.observing import watched
from payments_async._values.spill import paged
from payments_async._values.tasks import Tasks
from payments_async.journal import Journal
from payments_async.journal._faults import JournalClosed, JournalError
from payments_async.journal._records import GRACE, INTERVAL, LISTS, Entry, OpenOrder
from payments_async.journal._states import OPEN, State
from payments_async.outbox._absences import Absences
from payments_async.outbox._reconcile import STATUSLESS, Reconciler, tell_the_session
from payments_async.outbox._scans import (
    PAGES_ABREAST,
    SOUGHT,
    DateRange,
    ListScanner,
    ReconcileTarget,
    check_account,
    put_back,
    reconcile_targets,
)

_log = logging.getLogger("payments_async")

# Seconds until an order is looked up first, and the longest pause; between them each pause is three times the last.
# Nearly all accepted ones are settled by their notification before the first look; parked ones wait for a person.
# A failed one is looked for where a notification alone says so.
_RHYTHM = {
    State.UNKNOWN: (5.0, 900.0),
    State.ACCEPTED: (60.0, 3600.0),
    State.FAILED: (300.0, 21_600.0),
    State.PARKED: (21_600.0, 21_600.0),
}
_OLD = 24.0  # part of an order's age that a pause has at least: the older it is, the longer the list that shows it
_SHARE = 9.0  # times as long as the last look or pass took nothing is asked
_AGAIN_INITIAL, _AGAIN_MAX = 5.0, 900.0  # seconds until the next pass after one that failed, three times the last
_LISTEN = 15.0  # seconds after which the journal is asked again for what other processes left open
_LIST_AGAIN = 900.0  # seconds after which all that is open is listed again; until then changes tell of it
_CHANGES = 500  # changes read at once
_APART = 5.0  # seconds from one pass to the next, at least: what becomes due meanwhile shares its list
_BREATH = 1.0  # seconds between two such questions, whatever is heard
_MISSES = 2  # times in a row that the duty cannot be prolonged: its lease is over then
_SENT_AGAIN = "the outbox %s: %d orders are in no complete list and sent again by a person's word, %s the first"
_DOUBLES_TOLD = 1000  # and as many strangers

_STATUSLESS_FOR = 3600.0  # seconds for which it is remembered that records carry no status
_MOST = 200_000  # orders looked for at once


@frozen(kw_only=True)
class SettlingProgress:
    """How far the settling of an outbox is.

    Attributes:
        is_here: This process has the duty; the others know nothing of its passes.
        unknown, parked, accepted: Orders without a final outcome, of every process.
        oldest_unknown: Unix seconds since which the oldest of them is unknown, or ``None``.
        last: The last pass made here, or ``None``.
        hinders: What keeps it from settling, in words, or ``None``.
    """

    is_here: bool
    unknown: int
    parked: int
    accepted: int
    oldest_unknown: float | None = None
    last: SettlingPass | None = None
    hinders: str | None = None


class Settler:
    """Settles the open orders of one outbox for as long as it has the duty; another process does when this one dies.

    An unknown order is looked up seconds after it became so, an accepted one where no notification came, a parked one
    rarely; each with growing pauses. One pass over the list serves all that are due, and all others that the list
    shows on the way. An unknown order that clean list scans did not show, with time between them, is parked for a
    person. It sends nothing.

    Args:
        outbox: Whose orders.
        owner: A name that nobody else has.
        grace: Seconds after its last permit within which an order may still arrive, and is not parked.
        list_scans: Clean list scans, 2 or more, that have to miss an unknown order before it is parked. They are
            counted in memory: who takes over begins at none.
        interval: Seconds between two that count.
        lease: Seconds after which another process takes over from one that hangs; one that died is known at once.
        standby: Seconds between two questions whether the duty is free.
        clock: Unix seconds.
        ticks: Seconds that only grow, whoever sets the clock.
        sleep: Waits for seconds.
        chance: A number from 0 to 1, so that not all processes ask at the same moment.
    """

    def __init__(
        self,
        payments: PaymentsSession,
        journal: Journal,
        outbox: str,
        *,
        owner: str,
        grace: float = GRACE,
        list_scans: int = LISTS,
        interval: float = INTERVAL,
        lease: float = 60.0,
        standby: float = 1.0,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._payments = payments
        self._rule = partial(
            Absences, payments=payments, grace=grace, lists=list_scans, interval=interval, clock=clock, ticks=ticks
        )
        self._journal = journal
        self._outbox = outbox
        self._owner = owner
        self._lease, self._standby = lease, standby
        self._clock = clock
        self._ticks = ticks
        self._sleep = sleep
        self._chance = chance
        self._kicked = asyncio.Event()
        self._tasks = Tasks(f"the settler of the outbox {outbox}")
        self._queue = DueQueue(self._rule())
        self._heard = 0  # the last change that was heard of
        self._list_at = float("-inf")  # all that is open is listed again then
        self._is_here = False
        self._free_at = float("-inf")  # nothing is asked before
        self._failures = 0
        self._hinders: str | None = None
        self._doubles: set[str] = set()  # that were told of
        self._strangers: set[str] = set()
        self._last: SettlingPass | None = None

    def kick(self) -> None:
        """An order became unknown: have its moment noted at once."""
        self._kicked.set()

    async def progress(self) -> SettlingProgress:
        """How far it is, for whoever watches over the outbox."""
        counts = (await self._journal.progress(outbox=self._outbox)).counts
        oldest = self._oldest_unknown() if self._is_here else None
        if oldest is None and counts[State.UNKNOWN]:
            oldest = (await self._journal.oldest(self._outbox)).get(State.UNKNOWN)
        return SettlingProgress(
            is_here=self._is_here,
            unknown=counts[State.UNKNOWN],
            parked=counts[State.PARKED],
            accepted=counts[State.ACCEPTED],
            oldest_unknown=oldest,
            last=self._last,
            hinders=self._hinders or self._tasks.trouble,
        )

    async def run(self) -> None:
        """Settle whenever the duty is ours, until it is cancelled or the journal is closed."""
        try:
            while True:
                try:
                    if await self._has_duty():
                        await self._serve()
                except JournalClosed:
                    return
                except JournalError as error:
                    self._hinder(error.message)
                await self._sleep(self._standby * (0.5 + self._chance()))
        finally:
            with suppress(JournalError):  # its lease runs out
                await self._journal.leave_duty(self._duty, self._owner)

    @property
    def _duty(self) -> str:
        return f"settling {self._outbox}"

    async def _has_duty(self) -> bool:
        return await self._journal.take_duty(self._duty, self._owner, lease=self._lease)

    async def _serve(self) -> None:
        """Work for as long as the duty is ours."""
        await check_account(self._payments, self._journal)
        self._queue, self._is_here, self._list_at = DueQueue(self._rule()), True, float("-inf")
        self._tasks.keep("looking up", self._work)
        try:
            await self._keep_duty()
        finally:
            self._is_here = False
            await self._tasks.aclose()

    async def _keep_duty(self) -> None:
        """Prolong the duty for as long as that can be done."""
        misses = 0
        while misses < _MISSES:
            await self._sleep(self._lease / _MISSES)
            try:
                if not await self._has_duty():
                    return
            except JournalClosed:
                return
            except JournalError:
                misses += 1
            else:
                misses = 0

    async def _work(self) -> None:
        """Make pass after pass."""
        with suppress(JournalClosed):
            while True:
                pause = await self.turn()
                await self._sleep(min(pause, _BREATH))
                if pause > _BREATH:
                    await self._wait(pause - _BREATH)

    async def _wait(self, seconds: float) -> None:
        """Wait for so long, or until it is kicked."""
        waits = [asyncio.ensure_future(self._sleep(seconds)), asyncio.ensure_future(self._kicked.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def turn(self) -> float:
        """Look up what is due by now, if anything is; tells for how many seconds there is nothing to do.

        Raises:
            JournalClosed: It is over.
        """
        self._kicked.clear()
        now = self._ticks()
        if now < self._free_at:
            return self._free_at - now
        try:
            await self._list(now)
            self._spend(now)
            if due := self._queue.due_by(now):
                await self._look(due, now)
            self._tell_age()
        except JournalClosed:
            raise
        except (PaymentsError, JournalError) as error:
            self._failed(error.message, now)
        now = self._ticks()
        return min(_LISTEN, max(0.0, self._queue.next_due - now, self._free_at - now))

    def _tell_age(self) -> None:
        """Tell whoever watches how old the oldest unknown order is."""
        if (observer := executor_of(self._payments).observer) is not None:
            oldest = self._oldest_unknown()
            observer.level("unknown_age", 0.0 if oldest is None else max(0.0, self._clock() - oldest))

    def _oldest_unknown(self) -> float | None:
        """Unix seconds since which the oldest of them is unknown, as far as is known here."""
        orders = self._queue.orders.values()
        return min((order.since for order in orders if order.state is State.UNKNOWN), default=None)

    async def _list(self, now: float) -> None:
        """Note what is open, and when each order is looked up next: what has changed, and now and then all of it."""
        clock = self._clock()

        def due(order: OpenOrder) -> float:
            first, _ = _RHYTHM[order.state]
            return now + min(first, max(0.0, order.since + first - clock))

        if now >= self._list_at:
            await self._list_all(due)
            self._list_at = now + _LIST_AGAIN
            return
        while changes := await self._journal.changes_after(self._outbox, self._heard, limit=_CHANGES):
            states = {change.request_id: change.state for change in changes}
            self._heard = changes[-1].id
            self._queue.drop(request_id for request_id, state in states.items() if state not in SOUGHT)
            entries = await self._journal.entries_of([one for one, state in states.items() if state in SOUGHT])
            found = [one for one in entries.values() if one.state in OPEN or one.failed_by_notification]
            self._queue.note([_open(entry) for entry in found], due)
            if any(entry.sent_before for entry in entries.values()):
                self._list_at = now  # it may have been carried out by an attempt that the entry does not tell of

    async def _list_all(self, due: Callable[[OpenOrder], float]) -> None:
        self._heard = await self._journal.last_change()  # before: what changes meanwhile is heard of later
        queue, listed = self._queue, set[str]()
        for state in SOUGHT:
            async for page in self._journal.open_orders(self._outbox, state):
                orders = tuple(page)
                queue.note(orders, due)
                listed.update(order.request_id for order in orders)
        queue.keep(listed)

    async def _look(self, due: Mapping[str, OpenOrder], began: float) -> None:
        """Make one pass for these orders, and for all others that its list shows."""
        at = self._clock()
        fetch, absences = self._payments.transactions.page, self._queue.absences
        reader = Reader(fetch, clock=absences.clock, sleep=self._sleep, abreast=PAGES_ABREAST)
        grace, interval = absences.grace, absences.interval
        scanner = ListScanner(self._payments, self._journal, reader, remembers=True, grace=grace, interval=interval)
        trip = ReconcilePass(scanner, self._queue, due)
        try:
            with watched(executor_of(self._payments).observer, "settling") as work:
                failure = await trip.make()
                work.tell(error=None if failure is None else type(failure).__qualname__)
        finally:
            for request_id in due:
                self._queue.schedule(request_id, began)  # unless it is said otherwise, it stays due
            self._queue.drop(trip.over)
            took = self._spend(began)
            self._last = trip.told(at, took)
            self._free_at = max(self._free_at, began + _APART)
        self._note(trip, began + took)
        if failure is not None:
            self._failed(failure.message, began + took)
        else:
            self._recovered()

    def _spend(self, began: float) -> float:
        """Account for the time since a moment, a tenth of all that may be spent; tells how long it was."""
        took = self._ticks() - began
        self._free_at = began + took * (1.0 + _SHARE)
        return took

    def _note(self, trip: ReconcilePass, now: float) -> None:
        """Say when each order that was looked up is looked up next, and say aloud what needs a person."""
        for request_id, state in trip.served():
            if (order := self._queue.orders.get(request_id)) is not None and order.state is state:
                self._queue.schedule(request_id, now + self._pause(order, now))
        if parked := trip.findings.parked:
            facts = {"outbox": self._outbox, "parked": len(parked), "request_id": parked[0]}
            words = "the outbox %s: %d orders are in no complete list and were parked, %s the first: a person decides"
            _log.warning(words, self._outbox, len(parked), parked[0], extra=facts)
        if again := trip.findings.sent_again:
            extra = {"outbox": self._outbox, "sent_again": len(again), "request_id": again[0]}
            _log.warning(_SENT_AGAIN, self._outbox, len(again), again[0], extra=extra)
        self._tell_strangers(trip)
        for request_id, why in trip.findings.contradicted.items():
            if request_id not in self._doubles and len(self._doubles) < _DOUBLES_TOLD:
                self._doubles.add(request_id)
                facts = {"outbox": self._outbox, "request_id": request_id, "why": why}
                words = "the outbox %s: order %s failed as a notification has told, and may have been paid: %s"
                _log.error(words, self._outbox, request_id, why, extra=facts)
        for request_id in trip.findings.doubles:
            if request_id not in self._doubles and len(self._doubles) < _DOUBLES_TOLD:
                self._doubles.add(request_id)
                words = "the outbox %s: order %s has more than one transaction"
                _log.warning(words, self._outbox, request_id, extra={"outbox": self._outbox, "request_id": request_id})

    def _tell_strangers(self, trip: ReconcilePass) -> None:
        """Say aloud that somebody else pays from this account, once for each transaction."""
        signal = [one for one in trip.findings.unknown_transactions if one not in self._strangers]
        if not signal or len(self._strangers) >= _DOUBLES_TOLD:
            return
        self._strangers.update(signal)
        words = "the outbox %s: %d transactions of orders that this journal does not hold, %s the first: who sent them?"
        facts = {"outbox": self._outbox, "strangers": len(signal), "transaction_id": signal[0]}
        _log.warning(words, self._outbox, len(signal), signal[0], extra=facts)

    def _pause(self, order: OpenOrder, now: float) -> float:
        """Seconds until an order is looked up again."""
        clock = self._clock()
        age = abs(clock - order.since)  # one from after now was written by a clock that was ahead: it is not young
        pause = _pause_at(order.state, age)
        if order.state is not State.UNKNOWN:
            return pause
        absences = self._queue.absences
        if (missed := absences.of.get(order.request_id)) is not None and now - missed.at <= 2.0 * absences.interval:
            return min(pause, absences.interval)  # the next list that misses it may be the last one needed
        grace = order.sent_at + absences.grace - clock
        return min(pause, grace) if grace > 0.0 else pause

    def _failed(self, why: str, now: float) -> None:
        """Say once that it cannot go on, and try again with growing pauses."""
        self._hinder(why)
        pause = min(_AGAIN_MAX, _AGAIN_INITIAL * 3.0 ** min(self._failures, 20)) * (0.5 + self._chance())
        self._failures += 1
        self._free_at = max(self._free_at, now + pause)

    def _hinder(self, why: str) -> None:
        if self._hinders is None:
            facts = {"outbox": self._outbox, "why": why}
            _log.warning("the outbox %s cannot look up what is open: %s", self._outbox, why, extra=facts)
        self._hinders = why

    def _recovered(self) -> None:
        if self._hinders is not None:
            _log.info("the outbox %s looks up what is open again", self._outbox, extra={"outbox": self._outbox})
        self._hinders, self._failures = None, 0


def _open(entry: Entry) -> OpenOrder:
    """An open order that was sent once, or never, as far as this journal can tell."""
    sent_at = entry.updated_at if entry.permitted_at is None else min(entry.permitted_at, entry.updated_at)
    return OpenOrder(entry.request_id, entry.state, entry.updated_at, sent_at)


def _pause_at(state: State, age: float) -> float:
    """Seconds until an order is looked up again that has been in a state for so many."""
    first, most = _RHYTHM[state]
    return max(min(most, 2.0 * age + first), age / _OLD)


@frozen(kw_only=True)
class SettlingPass:
    """One time that open orders were looked up.

    Attributes:
        at, took: Unix seconds at which it began, and its seconds.
        due: Orders it was made for.
        looked_for: Orders that were looked for in the list, those that were not due included.
        requests: What it asked of the service.
        settled: How many orders left where they stood, by their state now.
        parked: Request ids of orders that it parked.
        sent_again: Request ids of those that it planned again by a person's word (``give_listing_deadline``).
        doubles: Request ids of orders with more than one transaction.
        strangers: Transactions in the list whose orders the journal does not hold.
        notes: What hindered: lists that show too little to prove anything, filters the service ignores.
    """

    at: float
    took: float
    due: int
    looked_for: int = 0
    requests: int = 0
    settled: Mapping[State, int] = field(factory=dict)
    parked: tuple[str, ...] = ()
    sent_again: tuple[str, ...] = ()
    doubles: tuple[str, ...] = ()
    unknown_transactions: int = 0
    notes: tuple[str, ...] = ()


@attrs.define(eq=False)
class DueQueue:
    """All open orders, and when each is looked up next, for as long as this process has the duty.

    Attributes:
        absences: Which lists have missed them.
        orders: By request id, each with the first of its permits that was ever heard of.
        dues: When each is looked up next, in seconds that only grow; it is changed by ``schedule`` alone.
        pages: How many the list of the last pass had.
        statusless_until: Records carried no status: they are not asked for one before, in seconds that only grow.
    """

    absences: Absences
    orders: dict[str, OpenOrder] = attrs.field(init=False, factory=dict)
    dues: dict[str, float] = attrs.field(init=False, factory=dict)
    pages: int = attrs.field(init=False, default=1)
    statusless_until: float = attrs.field(init=False, default=float("-inf"))
    _line: list[tuple[float, str]] = attrs.field(init=False, factory=list)  # the next one first

    def note(self, orders: Iterable[OpenOrder], due: Callable[[OpenOrder], float]) -> None:
        """These orders are open: they wait as before, or newly where they have changed their state."""
        for order in orders:
            before = self.orders.get(order.request_id)
            sent_at = order.sent_at if before is None else min(order.sent_at, before.sent_at)
            self.orders[order.request_id] = order._replace(sent_at=sent_at)
            if before is None or before.state is not order.state:
                self.schedule(order.request_id, due(order))
            if before is not None and before.since != order.since:
                self.absences.of.pop(order.request_id, None)  # it may have been sent again since

    def drop(self, request_ids: Iterable[str]) -> None:
        """These orders are open no more."""
        for request_id in request_ids:
            for held in (self.orders, self.dues, self.absences.of):
                held.pop(request_id, None)

    def keep(self, request_ids: Collection[str]) -> None:
        """No others are open."""
        self.drop([request_id for request_id in self.orders if request_id not in request_ids])
        self._line = [(due, request_id) for request_id, due in self.dues.items()]
        heapq.heapify(self._line)

    def schedule(self, request_id: str, due: float) -> None:
        """Say when an order is looked up next, in seconds that only grow."""
        if request_id in self.orders:
            self.dues[request_id] = due
            heapq.heappush(self._line, (due, request_id))

    def due_by(self, now: float) -> dict[str, OpenOrder]:
        """The orders that are due by now; each is to be scheduled anew, or stays due."""
        found: dict[str, OpenOrder] = {}
        while self.next_due <= now:
            _, request_id = heapq.heappop(self._line)
            found[request_id] = self.orders[request_id]
        return found

    @property
    def next_due(self) -> float:
        """When the next order is due."""
        line = self._line
        while line and self.dues.get(line[0][1]) != line[0][0]:
            heapq.heappop(line)  # it was settled, or scheduled anew
        return line[0][0] if line else float("inf")


class ReconcilePass:
    """One pass: for orders that are due, with those beside them that the same list may show.

    Attributes:
        findings: What it found out.
        over: Orders that are open no more: settled meanwhile, or planned again by a person.
    """

    def __init__(self, scanner: ListScanner, queue: DueQueue, due: Mapping[str, OpenOrder]) -> None:
        self._queue = queue
        self._due = due
        self._scanner = scanner
        self.findings = scanner.findings
        self._search = Reconciler(scanner, queue.absences, by_status=False)
        self._orders = reconcile_targets()
        self.over: list[str] = []
        self._missing: list[str] = []  # that are damaged: they are asked for again no sooner than the others
        self._looked_for = 0

    async def make(self) -> PaymentsError | None:
        """Look everywhere; what the list failed with, if it could not be read.

        Raises:
            AuthenticationFailed: The service refused our credentials.
            JournalError: The journal cannot be read or written. What was written down until then stays so.
        """
        await self._take_up(self._due)
        try:
            await self._search.look_in_notifications(self._orders)
            told = await self._by_id()
            return await self._in_list(told)
        finally:
            tell_the_session(self._scanner.payments, (one for one in self._orders.each() if one.state is not one.first))

    def served(self) -> Iterable[tuple[str, State]]:
        """The orders that were looked up, or would have been, and in which state they were before."""
        for order in self._orders.each():
            if order.request_id in self._due or order.first is not State.ACCEPTED or self._search.by_status:
                yield order.request_id, order.first
        for request_id in self._missing:
            yield request_id, self._due[request_id].state

    def told(self, at: float, took: float) -> SettlingPass:
        """What it came to."""
        settled = Counter(order.state for order in self._orders.each() if order.state is not order.first)
        del settled[State.PARKED]
        return SettlingPass(
            at=at,
            took=took,
            due=len(self._due),
            looked_for=self._looked_for,
            requests=self._scanner.reader.requests + self._search.records,
            settled=dict(settled),
            parked=tuple(self.findings.parked),
            sent_again=tuple(self.findings.sent_again),
            doubles=tuple(self.findings.doubles),
            unknown_transactions=self.findings.strangers_seen,
            notes=(*self.findings.unread, *self.findings.notes),
        )

    async def _take_up(self, request_ids: Iterable[str]) -> None:
        """See how these orders stand by now."""
        for some in paged(islice(request_ids, _MOST - len(self._orders))):
            found = await self._scanner.journal.entries_of(some)
            self._missing += [id_ for id_ in some if id_ in self._due and id_ not in found]
            orders = [ReconcileTarget.of(entry) for entry in found.values()]
            self.over += [order.request_id for order in orders if not order.is_sought]
            put_back(self._orders, (order for order in orders if order.is_sought))

    def _open(self) -> Iterator[ReconcileTarget]:
        return (order for order in self._orders.each() if order.is_sought)

    def _records_tell(self) -> bool:
        """Whether a record may tell a status, as far as is known."""
        return self._queue.absences.ticks() >= self._queue.statusless_until

    async def _by_id(self) -> set[str]:
        """Look at the records of a few accepted orders, where records tell a status; who was told of by them."""
        known = (order for order in self._open() if order.state is State.ACCEPTED and order.transaction_id)
        few = list(islice(known, self._queue.pages + 1))
        if not few or len(few) > self._queue.pages or not self._records_tell():
            return set()
        await self._look_up(few)
        return {order.request_id for order in few} if self._records_tell() else set()

    async def _look_up(self, orders: list[ReconcileTarget]) -> None:
        """Look at the record of each, and note whether records carry a status at all."""
        if await self._search.look_up(self._orders, orders):
            self._queue.statusless_until = self._queue.absences.ticks() + _STATUSLESS_FOR

    async def _in_list(self, told: set[str]) -> PaymentsError | None:
        """Read the list once, from the first permit of any that is open, for all that were sent since.

        Args:
            told: Of whom everything is known.
        """
        opened, search = self._queue.orders, self._search
        left = {order.request_id: order.state for order in self._open() if order.request_id not in told}
        if not left:
            return None
        first = min(self._due[request_id].sent_at for request_id in left)
        await self._take_up([id_ for id_, order in opened.items() if order.sent_at >= first and id_ not in self._due])
        search.by_status = not {State.ACCEPTED, State.FAILED}.isdisjoint(left.values())
        zone = self._scanner.payments.dialect.timezone
        window = DateRange.to_now(first, self._queue.absences.clock(), zone, self._orders)
        self._looked_for = sum(1 for _ in self._open())
        reading = await search.scan_window(window)
        self._queue.pages = max(1, -(-reading.rows // self._scanner.reader.size))
        if reading.failure is None:
            await self._look_up_unlisted()
        return reading.failure

    async def _look_up_unlisted(self) -> None:
        """Look at the records of orders that no list has told of: of no more of them than the list has pages."""

        def known(*, accepted: bool) -> Iterator[ReconcileTarget]:
            for order in self._open():
                is_asked = order.transaction_id and order.request_id in self._due and order.state is order.first
                if is_asked and (order.state is State.ACCEPTED) is accepted:
                    yield order

        left = known(accepted=False)
        if self._records_tell():
            left = chain(left, self._search.unlisted(known(accepted=True)))
        if few := list(islice(left, min(STATUSLESS, self._queue.pages))):
            await self._look_up(few)
