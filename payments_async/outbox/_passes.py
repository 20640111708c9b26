"""One pass over what is open: looked up in notifications, records and the list, with what it teaches for the next."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain, islice

import attrs

from payments_async._session.lists import Reader
from payments_async._session.session import PaymentsSession
from payments_async._values.errors import PaymentsError
from payments_async._values.frozen import field, frozen
from payments_async.journal import Journal
from payments_async.journal._records import OpenOrder
from payments_async.journal._states import State
from payments_async.outbox._reconcile import STATUSLESS, ListRead, Search, tell_the_session
from payments_async.outbox._sweeps import (
    PAGES_ABREAST,
    Findings,
    SoughtOrder,
    Window,
    put_back,
    sought_orders,
)

_STATUSLESS_FOR = 3600.0  # seconds for which it is remembered that records carry no status
_MOST = 200_000  # orders looked for at once
_STRIDE = 500  # orders asked of the journal at once


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
    strangers: int = 0
    notes: tuple[str, ...] = ()


@attrs.define(eq=False)
class Wait:
    """An open order, between two looks.

    Attributes:
        since: Unix seconds at which it last changed.
        sent_at: Unix seconds of its first permit.
        due: When it is looked up next, in seconds that only grow.
        missed, missed_at: Clean sweeps in a row that did not show it, and when the last one ended, in such seconds.
        missed_since: As ``SoughtOrder.since``.
    """

    state: State
    since: float
    sent_at: float
    due: float
    missed: int = 0
    missed_at: float = float("-inf")
    missed_since: float = 0.0


@frozen(kw_only=True)
class Terms:
    """What passes are made with; as in ``Settler``."""

    payments: PaymentsSession
    journal: Journal
    grace: float
    sweeps: int
    interval: float
    clock: Callable[[], float]
    ticks: Callable[[], float]
    sleep: Callable[[float], Awaitable[object]]


@attrs.define(eq=False)
class Agenda:
    """What is known from pass to pass, for as long as this process has the duty.

    Attributes:
        waits: All open orders, by request id. When one is due is changed by ``schedule`` alone.
        pages: How many the list of the last pass had.
        statusless_until: Records carried no status: they are not asked for one before, in seconds that only grow.
    """

    waits: dict[str, Wait] = attrs.field(factory=dict)
    pages: int = 1
    statusless_until: float = float("-inf")
    _line: list[tuple[float, str]] = attrs.field(init=False, factory=list)  # the next one first

    def note(self, orders: Iterable[OpenOrder], due: Callable[[OpenOrder], float]) -> None:
        """These orders are open: they wait as before, or newly where they have changed their state."""
        for order in orders:
            wait = self.waits.get(order.request_id)
            if wait is None or wait.state is not order.state:
                wait = self.waits[order.request_id] = Wait(order.state, order.since, order.sent_at, due(order))
                heapq.heappush(self._line, (wait.due, order.request_id))
            elif wait.since != order.since:
                wait.missed = 0  # it may have been sent again since: the lists of before say nothing of that
            wait.since = order.since

    def drop(self, request_ids: Iterable[str]) -> None:
        """These orders are open no more."""
        for request_id in request_ids:
            self.waits.pop(request_id, None)

    def keep(self, request_ids: Collection[str]) -> None:
        """No others are open."""
        self.waits = {request_id: wait for request_id, wait in self.waits.items() if request_id in request_ids}
        self._line = [(wait.due, request_id) for request_id, wait in self.waits.items()]
        heapq.heapify(self._line)

    def schedule(self, request_id: str, due: float) -> None:
        """Say when an order is looked up next, in seconds that only grow."""
        if (wait := self.waits.get(request_id)) is not None:
            wait.due = due
            heapq.heappush(self._line, (due, request_id))

    def due_by(self, now: float) -> dict[str, Wait]:
        """The orders that are due by now; each is to be scheduled anew, or stays due."""
        found: dict[str, Wait] = {}
        while self.next_due <= now:
            _, request_id = heapq.heappop(self._line)
            found[request_id] = self.waits[request_id]
        return found

    @property
    def next_due(self) -> float:
        """When the next order is due."""
        line = self._line
        while line and ((wait := self.waits.get(line[0][1])) is None or wait.due != line[0][0]):
            heapq.heappop(line)  # it was settled, or scheduled anew
        return line[0][0] if line else float("inf")


class Pass:
    """One pass: for orders that are due, with those beside them that the same list may show.

    Attributes:
        findings: What it found out.
        over: Orders that are open no more: settled meanwhile, or planned again by a person.
    """

    def __init__(self, terms: Terms, agenda: Agenda, due: Mapping[str, Wait]) -> None:
        self._terms = terms
        self._agenda = agenda
        self._due = due
        self._reader = Reader(
            terms.payments.transactions.page, clock=terms.clock, sleep=terms.sleep, abreast=PAGES_ABREAST
        )
        self.findings = Findings(terms.journal)
        self._search = Search(
            terms.payments,
            terms.journal,
            self.findings,
            self._reader,
            grace=terms.grace,
            interval=terms.interval,
            clock=terms.clock,
            by_status=False,
            remembers=True,  # another journal may send for this account: what it has sent is not sent from here
        )
        self._orders = sought_orders()
        self.over: list[str] = []
        self._missing: list[str] = []  # that are damaged: they are asked for again no sooner than the others
        self._records = 0  # looked at
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
            count = 0
            for order in self._orders.each():
                if order.state is not order.first:
                    count += tell_the_session(self._terms.payments, order, told=count)

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
            requests=self._reader.requests + self._records,
            settled=dict(settled),
            parked=tuple(self.findings.parked),
            sent_again=tuple(self.findings.sent_again),
            doubles=tuple(self.findings.doubles),
            strangers=self.findings.strangers_seen,
            notes=(*self.findings.unread, *self.findings.notes),
        )

    async def _take_up(self, request_ids: Iterable[str]) -> None:
        """See how these orders stand by now."""
        some = list(request_ids)[: _MOST - len(self._orders)]
        for first in range(0, len(some), _STRIDE):
            found = await self._terms.journal.entries_of(some[first : first + _STRIDE])
            self._missing += [id_ for id_ in some[first : first + _STRIDE] if id_ in self._due and id_ not in found]
            orders = [SoughtOrder.of(entry) for entry in found.values()]
            self.over += [order.request_id for order in orders if not order.is_sought]
            put_back(self._orders, (order for order in orders if order.is_sought))

    def _open(self) -> Iterator[SoughtOrder]:
        return (order for order in self._orders.each() if order.is_sought)

    def _records_tell(self) -> bool:
        """Whether a record may tell a status, as far as is known."""
        return self._terms.ticks() >= self._agenda.statusless_until

    async def _by_id(self) -> set[str]:
        """Look at the records of a few accepted orders, where records tell a status; who was told of by them."""
        known = (order for order in self._open() if order.state is State.ACCEPTED and order.transaction_id)
        few = list(islice(known, self._agenda.pages + 1))
        if not few or len(few) > self._agenda.pages or not self._records_tell():
            return set()
        await self._look_up(few)
        return {order.request_id for order in few} if self._records_tell() else set()

    async def _look_up(self, orders: list[SoughtOrder]) -> None:
        """Look at the record of each, and note whether records carry a status at all."""
        self._records += len(orders)
        if await self._search.look_up(self._orders, orders):
            self._agenda.statusless_until = self._terms.ticks() + _STATUSLESS_FOR

    async def _in_list(self, told: set[str]) -> PaymentsError | None:
        """Read the list once, from the first permit of any that is open, for all that were sent since.

        Args:
            told: Of whom everything is known.
        """
        terms, agenda, search = self._terms, self._agenda, self._search
        first, any_has_ended = None, False
        for order in self._open():
            if order.request_id not in told:
                sent_at = self._due[order.request_id].sent_at
                first = sent_at if first is None else min(first, sent_at)
                any_has_ended = any_has_ended or order.state in (State.ACCEPTED, State.FAILED)
        if first is None:
            return None
        await self._take_up(id_ for id_, wait in agenda.waits.items() if wait.sent_at >= first and id_ not in self._due)
        search.by_status = any_has_ended
        began = terms.ticks()
        window = Window.to_now(first, terms.clock(), terms.payments.dialect.timezone, self._orders)
        self._looked_for = sum(1 for _ in self._open())
        read = await search.sweep_window(window)
        agenda.pages = max(1, -(-read.rows // self._reader.size))
        self._count_missed(window, began)
        if window.swept_at is not None:  # this list is one of those that missed them
            await search.park(window, terms.sweeps)
        await self._look_up_unlisted(window, read)
        return read.failure

    def _count_missed(self, window: Window, began: float) -> None:
        """Count a clean sweep for each order that it did not show; the counts last from pass to pass."""
        for page in window.sought.pages():
            for request_id, order in page.items():
                wait = self._agenda.waits[request_id]
                if order.listed == window.sweeps:
                    wait.missed = 0
                elif order.clean and began - wait.missed_at >= self._search.interval:
                    if not wait.missed or self._search.is_early(order, wait.missed_since):
                        wait.missed, wait.missed_since = 0, order.since
                    wait.missed, wait.missed_at = wait.missed + 1, self._terms.ticks()
                order.clean, order.since = wait.missed, wait.missed_since
            put_back(window.sought, page.values())

    async def _look_up_unlisted(self, window: Window, read: ListRead) -> None:
        """Look at the records of orders that no list has told of: of no more of them than the list has pages."""
        if read.failure is not None:
            return

        def known(*, accepted: bool) -> Iterator[SoughtOrder]:
            for order in self._open():
                is_asked = order.transaction_id and order.request_id in self._due and order.state is order.first
                if is_asked and (order.state is State.ACCEPTED) is accepted:
                    yield order

        left = known(accepted=False)
        if self._records_tell():
            left = chain(left, self._search.unlisted(known(accepted=True)))
        if few := list(islice(left, min(STATUSLESS, self._agenda.pages))):
            await self._look_up(few)
